"""Kernelspecs on disk.

In: the folder of kernelspecs, a name, files. Out: the folder of the kernelspec, written whole or not at all: Jupyter
lists these folders at any moment.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bedplate.core import errors
from bedplate.operators.jupyter.kernelspecs.template import NAME

__all__ = ["write"]


def write(kernels: Path, name: str, files: Mapping[str, str], is_replaced: bool) -> Path:
    """Write a kernelspec; one of that name is only replaced when asked for."""
    if not NAME.fullmatch(name):
        raise errors.Invalid(
            f"kernel_name: {name!r} must consist of a-z, 0-9, '.', '_' and '-', and begin with a-z, 0-9"
        )
    target = kernels / name
    if target.exists() and not is_replaced:
        raise errors.AlreadyExists(f"kernelspec {target} exists", hint="--replace, or another kernel_name")
    try:
        kernels.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=kernels))
        try:
            _fill(fresh, files)
            if target.exists():
                shutil.rmtree(target)
            os.replace(fresh, target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as err:
        raise errors.Invalid(f"kernelspec {target} cannot be written: {err.strerror or err}") from err
    return target


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        place.chmod(0o644)
    for place in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
        place.chmod(0o755)
