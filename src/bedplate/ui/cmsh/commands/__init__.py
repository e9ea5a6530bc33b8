"""The commands of the shell, one module for what belongs together; importing them makes `COMMANDS` whole."""

from __future__ import annotations

from bedplate.ui.cmsh.command import COMMANDS
from bedplate.ui.cmsh.commands import (  # noqa: F401 - importing declares them
    causes,
    clusters,
    commits,
    edits,
    enrolments,
    exchange,
    help,
    images,
    lists,
    look,
    move,
    objects,
    options,
    past,
    power,
    rollouts,
    session,
    states,
    turns,
)

__all__ = ["COMMANDS"]
