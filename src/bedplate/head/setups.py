"""What the daemon offers its front ends of a setup tool: the interface alone.

The tool is above the front ends and imports them, so it is given to the daemon by whoever starts that (`bedplate head
serve`). In: what somebody typed, or a file with answers; which run is to go on. Out: the form, runs with their stages,
and that something has changed. Who may do what is the front ends' matter (`bedplate.ui.setups`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bedplate.api.setups import SetupActionName, SetupForm, SetupRun
from bedplate.core import errors

if TYPE_CHECKING:
    from bedplate.head.service import Head

__all__ = ["Busy", "MakeSetups", "Setups"]


class Busy(errors.Conflict):
    """Another run is under way; `cluster` is the one it is for, where that is known."""

    def __init__(self, message: str, *, cluster: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.cluster = cluster


class Setups(Protocol):
    """A setup tool of this head."""

    def form(self, typed: Mapping[str, str], prefilled: Mapping[str, str]) -> SetupForm:
        """The form with what was typed, by key; a text that is the prefilled one was not touched."""

    def check(self, answers: bytes) -> SetupForm:
        """The form with the answers of a file. Raises `Invalid` for a text that has none."""

    def runs(self) -> Sequence[SetupRun]:
        """The last run for each cluster, the newest first, without their stages."""

    def run(self, cluster: str) -> SetupRun:
        """The last run for a cluster. Raises `NotFound`."""

    async def deploy(self, form: SetupForm, by: str) -> SetupRun:
        """Start a deployment. Raises `Busy`."""

    async def act(self, cluster: str, action: SetupActionName, by: str) -> SetupRun:
        """Go on with a run, end it, or remove a cluster. Raises `Busy`, and `Conflict` for what cannot be done now."""

    def changes(self) -> AsyncGenerator[str]:
        """The names of clusters whose runs move on, as they do."""


MakeSetups = Callable[["Head", Path, str], Setups]
"""Makes it for a head, its data folder and its name."""
