"""The optional parts of an installation, `pip install '.[head]'`, and what is told where one is missing.

In: what is about to run, and the extras it needs. Out: nothing, or `MissingExtra` with the command that installs them.
Nothing is imported to find out. The packages of each extra are in pyproject.toml; a test compares the two.
"""

from __future__ import annotations

import importlib.util

from bedplate.core import errors

__all__ = ["MODULES", "MissingExtra", "require"]

# extra -> the modules that its packages bring
MODULES = {
    "apiserver": ("re2", "rich"),
    "etcd": ("grpc",),
    "head": ("immutables", "jinja2", "prompt_toolkit"),
    "setup": ("rich", "textual"),
}


class MissingExtra(errors.Terminal):
    """A part of Bedplate that is not installed."""


def require(program: str, *extras: str) -> None:
    """Raise `MissingExtra` unless everything is installed that these extras bring."""
    missing = [extra for extra in extras if not all(map(_is_installed, MODULES[extra]))]
    if missing:
        names = " and ".join(repr(extra) for extra in missing)
        noun = "extra" if len(missing) == 1 else "extras"
        # Nothing is published: an index may have another package of this name.
        told = f"pip install '.[{','.join(missing)}]' in the checkout"
        raise MissingExtra(f"{program} needs the {noun} {names}: {told}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
