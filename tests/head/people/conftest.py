"""A head that keeps the users of an embedded API server, with somebody in the permission manager's place."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests import programs, servers
from tests.head import sites
from tests.head.committing import commit, commit_session
from tests.setup.people.worlds import People as Accounts
from tests.setup.people.worlds import World, install, stand_in
from tests.ui.rest.serving import KEY
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.headapi import PersonState
from bedplate.api.resources import RawObject
from bedplate.core.clock import Clock, SystemClock
from bedplate.head.entities import SCHEMA
from bedplate.head.kubeclusters import file_of
from bedplate.head.notices import Notices
from bedplate.head.people.service import People
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.kube import Client, config
from bedplate.people import grants
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore

USERS = ("kubernetes", "default", "kubernetes_users")


@dataclass
class Site:
    """A head with the tree of the manual, and a cluster with the tool in front of it."""

    folder: pathlib.Path
    store: Store
    head: Head
    notices: Notices
    world: World
    pki: pathlib.Path
    clock: Clock = field(default_factory=SystemClock)
    running: asyncio.Task[None] | None = None
    people: People = field(init=False)

    @property
    def accounts(self) -> Accounts:
        return self.world.people

    @property
    def client(self) -> Client:
        return self.world.client

    async def start(self) -> None:
        self.people = People(
            self.store,
            self.head,
            self.notices,
            self.folder,
            clock=self.clock,
            accounts=self.world.people,
            pki=self.pki,
        )
        await self.people.open()
        self.running = asyncio.create_task(self.people.run())

    async def stop(self) -> None:
        assert self.running is not None
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running
        self.running = None

    async def put(self, user: str, **values: str) -> None:
        """Commit a user, with values as they are typed."""
        session = self.head.session()
        if user not in self.head.tree.get(USERS[:2]).below(USERS[2]):
            session.add(USERS, user)
        for name, text in values.items():
            session.set((*USERS, user), name, text)
        await commit_session(self.head, session)

    async def remove(self, user: str) -> None:
        session = self.head.session()
        session.remove((*USERS, user))
        await commit_session(self.head, session)

    def rows(self, user: str) -> list[PersonState]:
        return [row for row in self.people.state("default").people if row.user == user]

    async def reaches(self, user: str, *states: str) -> PersonState:
        """Wait until all that a user was granted is in one of these states."""

        def is_there() -> bool:
            return bool(self.rows(user)) and all(row.state in states for row in self.rows(user))

        await until(is_there, f"{user} is {states}", describe=lambda: self.people.state("default"))
        return self.rows(user)[0]

    async def objects(self, user: str = "") -> list[RawObject]:
        """The permission objects, of a user or all."""
        found = []
        for ref in grants.KINDS:
            items = (await self.client.list(ref, permissions.NAMESPACE)).items
            found += [obj for obj in items if not user or obj["spec"]["username"] == user]
        return found

    def texts(self) -> Sequence[str]:
        return [notice.text for notice in self.notices.latest(200)][::-1]

    async def tells(self, part: str) -> str:
        """Wait for a notice with these words."""

        def told() -> str:
            return next((text for text in self.texts() if part in text), "")

        return await until(told, f"somebody is told {part!r}", describe=self.texts)

    def kubeconfig(self, user: str) -> pathlib.Path:
        return self.world.people.folder / user / ".kube" / "config"


Judge = Callable[[RawObject], str]


@contextlib.asynccontextmanager
async def site_of(world: World, folder: pathlib.Path, pki: pathlib.Path, **more: Any) -> AsyncIterator[Site]:
    """A running head for a cluster."""
    file = file_of(folder, "default")
    file.parent.mkdir()
    file.write_bytes(pathlib.Path(world.server.kubeconfig).read_bytes())
    async with (
        SqliteStore(folder / "x.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY)) as head,
        Notices(store) as notices,
    ):
        await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in sites.manual().objects()])
        made = Site(folder, store, head, notices, world, pki, **more)
        await made.start()
        try:
            yield made
        finally:
            if made.running is not None:
                await made.stop()


def pki_of(server: servers.Server) -> pathlib.Path:
    """Where the embedded API server has its authority, which signs no requests by itself."""
    return server.kubeconfig.parent / "data" / "pki"


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[World]:
    """A cluster with the custom kinds, and nobody in the manager's place yet."""
    homes = tmp_path / "homes"
    homes.mkdir()
    with programs.own_server("embedded") as server:
        async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
            await install(client)
            pki = pki_of(server)
            yield World(server, client, Accounts(homes), (pki / "ca.crt", pki / "ca.key"))


@pytest.fixture
async def site(world: World, tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    async with stand_in(world.client), site_of(world, tmp_path, pki_of(world.server)) as made:
        yield made
