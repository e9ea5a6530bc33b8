"""A page over a head in this process, with an administrator, an operator and an auditor."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.head import sites
from tests.head.committing import commit
from tests.setup.serving import faking
from tests.ui.rest.serving import PlainIssuer
from tests.ui.web.reading import Reader

from bedplate.core.clock import ManualClock
from bedplate.head.access import USER, Access
from bedplate.head.clusters.service import Clusters
from bedplate.head.daemon import Service
from bedplate.head.entities import SCHEMA
from bedplate.head.fleet import Fleet
from bedplate.head.health import Health
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj
from bedplate.head.render import RENDERERS
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.sittings import Sittings
from bedplate.head.tokens import Tokens
from bedplate.head.vault import Vault
from bedplate.setup.serving import KubernetesSetups
from bedplate.store.sqlite import SqliteStore
from bedplate.ui.web import mount

KEY = base64.urlsafe_b64encode(bytes(range(32)))


@dataclasses.dataclass
class Place:
    """What a test may look at besides the page."""

    service: Service
    clock: ManualClock
    tokens: Tokens
    signed: dict[str, str]
    reader: Callable[..., Awaitable[Reader]]

    @property
    def head(self) -> Head:
        return self.service.head


@pytest.fixture
async def place(tmp_path: pathlib.Path) -> AsyncIterator[Place]:
    clock = ManualClock()
    async with (
        SqliteStore(tmp_path / "store.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock) as head,
        Notices(store, clock=clock) as notices,
        Health(store, clock=clock) as health,
    ):
        users = [("user", Obj("User", name, {"role": name})) for name in ("admin", "operator")]
        users.append(("user", Obj("User", "auditor")))
        edits = [Edit(mode, obj.key, None, obj) for mode, obj in [*sites.manual().objects(), *users]]
        await commit(head, edits, "setup", "first tree")
        tokens = Tokens(store, clock=clock)
        signed = {name: (await tokens.create(USER, name, name))[1] for name in ("admin", "operator", "auditor")}
        data = tmp_path / "data"
        data.mkdir()
        service = Service(
            head,
            Access(lambda: head.tree, tokens),
            notices,
            health,
            renderers=RENDERERS,
            name="basecm10",
            clock=clock,
            sittings=Sittings(store, Vault(KEY)),
            fleet=await Fleet(store, head, tokens, notices, health, PlainIssuer(clock), clock=clock).open(),
            clusters=await Clusters(store, head, notices, health, clock=clock).open(),
            setups=KubernetesSetups(head, data, "basecm10", program=faking.program(tmp_path)),
        )
        app = web.Application()
        mount(app, service)
        clients: list[TestClient[web.Request, web.Application]] = []
        async with TestServer(app) as server:

            async def reader(user: str = "admin") -> Reader:
                client = TestClient(server)
                clients.append(client)
                made = Reader(client)
                if user:
                    page = await made.sign_in(signed[user])
                    assert page.status == 200, page.text
                return made

            yield Place(service, clock, tokens, signed, reader)
            for client in clients:
                await client.session.close()
