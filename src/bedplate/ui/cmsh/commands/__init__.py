"""The commands of the shell, one module for what belongs together; importing them makes `COMMANDS` whole."""

from __future__ import annotations

from bedplate.ui.cmsh.command import COMMANDS
from bedplate.ui.cmsh.commands import (  # noqa: F401 - importing declares them
    causes,
    commits,
    edits,
    exchange,
    help,
    lists,
    look,
    move,
    objects,
    options,
    past,
    session,
    states,
)

__all__ = ["COMMANDS"]
