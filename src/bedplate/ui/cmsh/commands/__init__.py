"""The commands of the shell, one module for what belongs together; `load` makes `COMMANDS` whole."""

from __future__ import annotations

__all__ = ["load"]


def load() -> None:
    """Declare every command."""
    from bedplate.ui.cmsh.commands import (  # noqa: F401 - importing declares them
        causes,
        commits,
        edits,
        exchange,
        foreach,
        help,
        lists,
        look,
        move,
        objects,
        options,
        past,
    )
