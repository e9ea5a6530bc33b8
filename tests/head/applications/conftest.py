"""A head that keeps the applications of a cluster applied to a real or an embedded API server."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests import servers
from tests.head import sites
from tests.head.committing import commit, commit_session
from tests.ui.rest.serving import KEY
from tests.waiting import until

from bedplate.api.headapi import ApplicationState
from bedplate.api.resources import CONFIG_MAPS, RawObject
from bedplate.core import errors
from bedplate.core.clock import SystemClock
from bedplate.head.applications.service import Applications
from bedplate.head.entities import SCHEMA
from bedplate.head.kubeclusters import file_of
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj, Value
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.kube import Client
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore


def config_map(name: str, namespace: str, **data: str) -> str:
    """A manifest."""
    lines = "".join(f"  {key}: {value!r}\n" for key, value in data.items()) or "  a: '1'\n"
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata:\n{lines}"


def joined(*manifests: str) -> str:
    return "---\n".join(textwrap.dedent(text) for text in manifests)


@dataclass
class Site:
    """A head with the tree of the manual, and what it knows of applications."""

    folder: pathlib.Path
    store: Store
    head: Head
    notices: Notices
    client: Client
    group: str
    """An app group of the test's own."""
    running: asyncio.Task[None] | None = None
    applications: Applications = field(init=False)

    async def start(self) -> None:
        self.applications = Applications(self.store, self.head, self.notices, self.folder, clock=SystemClock())
        await self.applications.open()
        self.running = asyncio.create_task(self.applications.run())

    async def stop(self) -> None:
        assert self.running is not None
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running
        self.running = None

    async def put(self, name: str, config: str, *, enabled: bool = True, **variables: str) -> None:
        """Commit an application of the group."""
        inner = {key: Obj("ApplicationEnvironment", key, {"value": value}) for key, value in variables.items()}
        values: dict[str, Value] = {"config": config} if enabled else {"config": config, "enabled": False}
        application = Obj("Application", name, values, children={"environment": inner} if inner else {})
        session = self.head.session()
        if self.group not in self.head.tree.get(("kubernetes", "default")).below("app_groups"):
            session.put(("kubernetes", "default", "app_groups", self.group), Obj("AppGroup", self.group))
        session.put(("kubernetes", "default", "app_groups", self.group, "applications", name), application)
        await commit_session(self.head, session)

    async def set_group(self, *, enabled: bool) -> None:
        session = self.head.session()
        session.set(("kubernetes", "default", "app_groups", self.group), "enabled", "yes" if enabled else "no")
        await commit_session(self.head, session)

    def state(self, name: str) -> ApplicationState:
        states = {one.name: one for one in self.applications.states("default") if one.group == self.group}
        return states[name]

    async def reaches(self, name: str, *states: str) -> ApplicationState:
        await until(lambda: self.state(name).state in states, f"{name} is {states}", describe=lambda: self.state(name))
        return self.state(name)

    def texts(self) -> Sequence[str]:
        """What was told, oldest first."""
        return [notice.text for notice in self.notices.latest(100)][::-1]

    async def tells(self, part: str) -> str:
        """Wait for a notice with these words; they come after the state that they are about."""

        def told() -> str:
            return next((text for text in self.texts() if part in text), "")

        return await until(told, f"somebody is told {part!r}", describe=self.texts)

    async def find(self, name: str, namespace: str) -> RawObject | None:
        try:
            return await self.client.get(CONFIG_MAPS.raw(), name, namespace)
        except errors.NotFound:
            return None

    def gone(self, name: str, namespace: str) -> Callable[[], object]:
        async def is_gone() -> bool:
            return await self.find(name, namespace) is None

        return is_gone

    def there(self, name: str, namespace: str, **data: str) -> Callable[[], object]:
        async def is_there() -> bool:
            found = await self.find(name, namespace)
            return found is not None and all(found.get("data", {}).get(key) == value for key, value in data.items())

        return is_there


@pytest.fixture
async def site(tmp_path: pathlib.Path, client: Client, server: servers.Server, namespace: str) -> AsyncIterator[Site]:
    """A running one. Objects without a namespace are named after `namespace`."""
    file = file_of(tmp_path, "default")
    file.parent.mkdir()
    file.write_bytes(pathlib.Path(server.kubeconfig).read_bytes())
    async with (
        SqliteStore(tmp_path / "x.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY)) as head,
        Notices(store) as notices,
    ):
        await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in sites.manual().objects()])
        made = Site(tmp_path, store, head, notices, client, namespace)
        await made.start()
        try:
            yield made
        finally:
            if made.running is not None:
                await made.stop()
