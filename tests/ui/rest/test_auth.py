"""Which right an address needs, and that no spelling of an address needs less."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from bedplate.core.clock import ManualClock
from bedplate.head.access import USER, Access
from bedplate.head.entities import SCHEMA
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj
from bedplate.head.policy import NODE
from bedplate.head.signins import Failures
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.store.sqlite import SqliteStore
from bedplate.ui.rest import auth


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/api/v1/whoami", None),
        ("GET", "/api/v1/tree", ("read", "tree")),
        ("GET", "/api/v1/objects/user/admin", ("read", "tree")),
        ("PUT", "/api/v1/objects/user/admin", ("edit", "mode/user")),
        ("POST", "/api/v1/objects/device", ("edit", "mode/device")),
        ("POST", "/api/v1/commits", ("edit", "tree")),
        ("POST", "/api/v1/plan", ("read", "tree")),
        ("POST", "/api/v1/import", ("edit", "tree")),
        ("POST", "/api/v1/revisions/3/undo", ("edit", "tree")),
        ("GET", "/api/v1/tokens", ("read", "tokens")),
        ("POST", "/api/v1/tokens", ("edit", "tokens")),
        ("DELETE", "/api/v1/tokens/abc", ("edit", "tokens")),
        ("GET", "/api/v1/nodes/node001/desired", ("read", "node/node001")),
        ("POST", "/api/v1/nodes/node001/report", ("report", "node/node001")),
        ("GET", "/api/v1/nodes/node001/explain", ("read", "tree")),
        ("POST", "/api/v1/nodes/node001/certificate", ("renew", "node/node001")),
        ("POST", "/api/v1/nodes/node001/turns", ("report", "node/node001")),
        ("POST", "/api/v1/nodes/node001/turns/x", ("report", "node/node001")),
        ("GET", "/api/v1/turns", ("read", "turns")),
        ("POST", "/api/v1/turns/x/release", ("edit", "turns")),
        ("POST", "/api/v1/enrolments", ("enrol", "enrolments")),
        ("GET", "/api/v1/enrolments", ("read", "enrolments")),
        ("GET", "/api/v1/enrolments/x", ("read", "own enrolment")),
        ("POST", "/api/v1/enrolments/x", ("edit", "enrolments")),
        ("GET", "/api/v1/nodes/node001/desired/../../../tree", ("read", "tree")),
        ("GET", "/metrics", ("read", "metrics")),
        ("PATCH", "/api/v1/what/ever/comes", ("edit", "tree")),
        ("GET", "/api/v2/tree", ("read", "tree")),
    ],
)
def test_an_address_needs_the_right_of_what_it_does(method: str, path: str, right: tuple[str, str] | None) -> None:
    assert auth.needed(method, path) == right


def failures(store: SqliteStore) -> Failures:
    return Failures(Notices(store), "basecm10", ManualClock(), longest_s=0.0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz", 200),
        ("/page", 200),
        ("/api/v1/tree", 401),
        ("/api/v1/%74ree", 401),
        ("/%61pi/v1/tree", 401),
        ("/api/", 401),
        ("/metrics", 401),
    ],
)
async def test_only_the_api_and_the_metrics_are_guarded_however_they_are_spelt(
    tmp_path_factory: pytest.TempPathFactory, path: str, status: int
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response()

    async with SqliteStore(tmp_path_factory.mktemp("auth") / "x.db") as store:
        app = web.Application(middlewares=[auth.guard(Access(lambda: Tree(SCHEMA), Tokens(store)), failures(store))])
        app.router.add_route("*", "/{any:.*}", answer)
        async with TestServer(app) as server, aiohttp.ClientSession() as session:
            response = await session.get(URL(str(server.make_url("/")).rstrip("/") + path, encoded=True))
            assert response.status == status


async def test_the_route_learns_who_asks(tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(auth.identity(request))
        return web.Response()

    tree = Tree(SCHEMA, [("user", Obj("User", "olga", {"role": "operator"})), ("device", Obj("PhysicalNode", "n1"))])
    async with SqliteStore(tmp_path_factory.mktemp("auth") / "x.db") as store:
        tokens = Tokens(store, clock=ManualClock())
        await tokens.open()
        app = web.Application(middlewares=[auth.guard(Access(lambda: tree, tokens), failures(store))])
        app.router.add_route("*", "/{any:.*}", answer)
        _, olgas = await tokens.create(USER, "olga", "")
        _, nodes = await tokens.create(NODE, "n1", "")
        async with TestClient(TestServer(app)) as client:
            for token, path, status in (
                (olgas, "/api/v1/tree", 200),
                (nodes, "/api/v1/nodes/n1/desired", 200),
                (nodes, "/api/v1/nodes/n2/desired", 403),
                (nodes, "/api/v1/whoami", 200),
            ):
                response = await client.get(path, headers={"Authorization": f"bearer  {token} "})
                assert response.status == status, path
    assert [(one.name, one.role) for one in seen] == [("olga", "operator"), ("n1", "node"), ("n1", "node")]
