"""What cm-kubernetes-setup gives its stages as `context.services`.

In: the head that was reached. Out: one frozen value; nothing is opened here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bedplate.ui.backend import Backend

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The head, and where this run may keep files."""

    backend: Backend
    state: Path
    """A folder for the files of this cluster that only its owner reads: `<state folder>/<cluster>`, which exists."""
    cluster: str
    data: Path | None = None
    """The data folder of the head, where it is on this machine."""
