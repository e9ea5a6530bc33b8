"""The Docker engine from packages of Debian: fetched with apt, unpacked into the cache, never installed here.

In: the package lists of apt. Out: a folder `<cache>/docker/<version>` with the files as they would be installed, of
which a managed lab makes a package for its nodes. The newest version in the cache is used without asking anybody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bedplate.core import errors
from bedplate.lab import binaries

__all__ = ["DOCKERD", "cached", "ensure"]

DOCKERD = "dockerd"
# containerd and runc are what every lab needs: they are installed. The library is what dockerd is linked with.
_PACKAGES = ("docker.io", "tini", "libdevmapper1.02.1")
_PROGRAM = "usr/sbin/dockerd"
_TIMEOUT_S = 300.0


def cached(*, environ: Mapping[str, str] | None = None) -> Path | None:
    """dockerd in the cache; nothing is fetched."""
    programs = (binaries.cache_folder(environ) / "docker").glob(f"*/{_PROGRAM}")
    return max(programs, key=lambda path: path.lstat().st_mtime, default=None)


def ensure(progress: Callable[[str], None], *, environ: Mapping[str, str] | None = None) -> Path:
    """dockerd, fetched when the cache has none. Raises `Invalid` or `NotFound` where that cannot be."""
    environ = dict(os.environ if environ is None else environ)
    present = cached(environ=environ)
    if present is not None:
        return present
    cache = binaries.cache_folder(environ) / "docker"
    if environ.get("BEDPLATE_NO_BUILD"):
        raise errors.Invalid(
            f"{DOCKERD}: not in {cache}, and BEDPLATE_NO_BUILD forbids fetching it", hint="unset the variable"
        )
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
            raise errors.NotFound(
                f"{DOCKERD} is fetched from packages of Debian, and there is no {program} here",
                hint="install Docker with your system's package manager: a lab uses it from there",
            )
    cache.mkdir(parents=True, exist_ok=True)
    progress(f"fetching {', '.join(_PACKAGES)} with apt-get")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as scratch:
        new = Path(scratch)
        # apt fetches as a user of its own, who must be able to write here.
        new.chmod(0o755)
        _run(["apt-get", "--quiet", "download", *_PACKAGES], new, environ)
        archives = {path.name.split("_")[0]: path for path in new.glob("*.deb")}
        version = archives[_PACKAGES[0]].name.split("_")[1].replace("%3a", ":")
        for archive in archives.values():
            _run(["dpkg-deb", "--extract", str(archive), str(new / "files")], new, environ)
        try:
            os.rename(new / "files", cache / version)
        except OSError:
            # Another process was faster, and its files are the same.
            if not (cache / version / _PROGRAM).exists():
                raise
    return cache / version / _PROGRAM


def _run(command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as err:
        raise errors.Unavailable(f"{command[0]} did not end within {_TIMEOUT_S:g} s") from err
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise errors.Unavailable(f"{command[0]}: {last}", hint="apt-get update, then try again")
