"""A real head on SQLite behind a real server on loopback, with a user of each role and the tree of the manual."""

from __future__ import annotations

import base64
import contextlib
import pathlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web
from tests.head import sites
from tests.head.committing import commit
from tests.setup.serving import faking

from bedplate.client import HeadClient
from bedplate.core.clock import Clock, SystemClock
from bedplate.head.access import NODES, USER, Access
from bedplate.head.clusters.service import Clusters
from bedplate.head.enrolment import Issued
from bedplate.head.entities import SCHEMA
from bedplate.head.fleet import Fleet
from bedplate.head.folder import pki
from bedplate.head.health import Health
from bedplate.head.images.serving import Transfers
from bedplate.head.images.trees import Trees
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj, Secret
from bedplate.head.policy import NODE
from bedplate.head.render import RENDERERS
from bedplate.head.service import Alone, Head, Standing
from bedplate.head.session import Edit
from bedplate.head.tokens import Tokens
from bedplate.head.vault import Vault
from bedplate.setup.serving import KubernetesSetups
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore
from bedplate.ui import rest

KEY = base64.urlsafe_b64encode(bytes(range(32)))
CA_KEY = "the-key-of-the-authority-7d1f"
USERS = {"admin": "admin", "olga": "operator", "arno": "auditor"}


class PlainIssuer:
    """An authority of its own, in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.authority = pki.Authority.make("basecm10", clock.now())

    def certify(self, csr: str, node: str, generation: int) -> Issued:
        now = self._clock.now()
        pem = self.authority.certify(csr.encode(), node, NODES, now, generation=generation)
        return Issued(pem.decode(), pki.fingerprint(pem), now + pki.LEAF_LIFE)

    def key_of(self, csr: str) -> str:
        return pki.requested_key(csr.encode())

    def bundle(self) -> str:
        return self.authority.pair.certificate.decode()


@dataclass
class Served:
    """`tokens` by user or node; `url` without a slash at its end."""

    url: str
    store: Store
    head: Head
    notices: Notices
    health: Health
    service: rest.Service
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self, user: str = "admin", **options: object) -> HeadClient:
        return HeadClient(self.url, token=self.tokens[user], **options)  # type: ignore[arg-type]


def objects() -> list[tuple[str, Obj]]:
    """The manual's cluster, with a secret, and the users."""
    found = []
    for mode, obj in sites.manual().objects():
        if mode == "kubernetes":
            obj = obj.with_value("kube_ca_key", Secret(CA_KEY))
        found.append((mode, obj))
    return [
        *found,
        *(("user", Obj("User", name, {"role": role} if role != "auditor" else {})) for name, role in USERS.items()),
    ]


@contextlib.asynccontextmanager
async def served(
    folder: pathlib.Path,
    *,
    limits: rest.Limits | None = None,
    standing: Standing | None = None,
    clock: Clock | None = None,
    tree: list[tuple[str, Obj]] | None = None,
) -> AsyncIterator[Served]:
    """Serve until the block is left."""
    async with (
        SqliteStore(folder / "head.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock, standing=Alone("basecm10", "")) as head,
        Notices(store, clock=clock) as notices,
        Health(store, clock=clock) as health,
    ):
        if head.revision == 0:
            found = objects() if tree is None else tree
            await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in found], "setup", "the first tree")
        if standing is not None:
            head.standing = standing
        tokens = Tokens(store, clock=clock)
        await tokens.open()
        texts = {name: (await tokens.create(USER, name, "test"))[1] for name in head.tree.mode("user")}
        for name in ("node001", "node002"):
            if head.tree.find("device", name) is not None:
                texts[name] = (await tokens.create(NODE, name, "test"))[1]
        transfers = Transfers(Trees(str(folder / "images"), clock=clock, is_root=False), most=2)
        issuer = PlainIssuer(clock or SystemClock())
        fleet = Fleet(store, head, tokens, notices, health, issuer, transfers=transfers, clock=clock)
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        service = rest.Service(
            head,
            Access(lambda: head.tree, tokens),
            notices,
            health,
            name="basecm10",
            fleet=await fleet.open(),
            clusters=await Clusters(store, head, notices, health, clock=clock).open(),
            setups=KubernetesSetups(head, data, "basecm10", program=faking.program(folder)),
            renderers=RENDERERS,
            limits=limits or rest.Limits(slowed_s=0.0),
            **({} if clock is None else {"clock": clock}),
        )
        async with serving(service) as url:
            yield Served(url, store, head, notices, health, service, texts)


@contextlib.asynccontextmanager
async def serving(service: rest.Service) -> AsyncIterator[str]:
    """A server of the API alone."""
    runner = rest.runner(rest.make(service), service.limits, shutdown_s=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
