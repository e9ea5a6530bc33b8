"""A real head behind REST, with nodes that say of themselves what a test tells them, and single stages to run on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.setup import places
from tests.setup.kubernetes import sites
from tests.ui.rest.serving import USERS, Served, served

from bedplate.api import headapi
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import Obj
from bedplate.head.entities import SCHEMA
from bedplate.setup.answers import fitting, site
from bedplate.setup.engine import Stage
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.services import Services
from bedplate.setup.tool import operations
from bedplate.ui.remote import RemoteBackend

IMAGE = "default-image"


class _Log:
    def debug(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


class Ground:
    """`said` is what stages printed, `awaited` the revisions that they waited for; nodes apply everything at once."""

    def __init__(self, served: Served, backend: RemoteBackend, folder: Path, answers: dict[str, Any]) -> None:
        self.served, self.backend, self.folder, self.answers = served, backend, folder, answers
        self.said: list[str] = []
        self.awaited: list[int] = []
        self.notes: dict[str, Any] = {}
        self.clock: Clock = SystemClock()

    @property
    def stages(self) -> dict[str, Stage]:
        place = site.of_tree(self.backend.tree, "basecm10")
        return {stage.name: stage for stage in operations.deployment(self.answers, place)}

    def context(self) -> Context:
        return Context(
            answers=self.answers,
            notes=self.notes,  # type: ignore[arg-type]
            say=self.said.append,
            log=_Log(),
            clock=self.clock,
            services=Services(self.backend, self.folder, "default", None),
            mask=lambda text: None,
        )

    async def do(self, *names: str) -> None:
        for name in names:
            await self.stages[name].run(self.context())
            await self.backend.catch_up()

    async def undo(self, *names: str) -> None:
        for name in names:
            undo = self.stages[name].undo
            assert undo is not None
            await undo(self.context())
            await self.backend.catch_up()

    async def tells(self, node: str, **values: Any) -> None:
        """A node says what it is."""
        await self.served.health.record(node, system=headapi.System(**values))

    def find(self, mode: str, key: str) -> Obj | None:
        return self.backend.tree.find(mode, key)


def objects() -> list[tuple[str, Obj]]:
    """The head and the nodes of `sites`, with a software image for all of them."""
    found = []
    for mode, obj in sites.tree().objects():
        if mode == "category":
            obj = obj.with_value("software_image", IMAGE)
        found.append((mode, obj))
    users = [("user", Obj("User", name, {"role": role} if role != "auditor" else {})) for name, role in USERS.items()]
    return [("softwareimage", Obj("SoftwareImage", IMAGE, {"path": f"/cm/images/{IMAGE}"})), *found, *users]


@contextlib.asynccontextmanager
async def ground(
    folder: Path, monkeypatch: pytest.MonkeyPatch, docker: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[Ground]:
    """A head with no cluster, and the answers of `places`, changed."""
    async with (
        served(folder, tree=objects()) as opened,
        opened.client() as client,
        RemoteBackend(client, SCHEMA) as backend,
    ):
        answers = fitting.complete(places.answers(**changes), site.of_tree(backend.tree, "basecm10"))
        answers["docker"] |= docker or {}
        made = Ground(opened, backend, folder, answers)

        async def applied(context: Context, number: int) -> None:
            made.awaited.append(number)

        monkeypatch.setattr(nodes, "applied", applied)
        yield made
