"""Requests that last: what ends their credentials is noticed at once, and what does not costs a comparison."""

from __future__ import annotations

import hashlib
import math
import pathlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bedplate.core.clock import ManualClock
from bedplate.head.access import NODES, USER, USERS, Access
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import pki
from bedplate.head.lasting import Answer, Lasting, may_differ
from bedplate.head.objects import Obj, Secret
from bedplate.head.policy import NODE, Identity
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.store.sqlite import SqliteStore

OWN = "0123456789abcdef0123456789abcdef"
DAY_S = 86400.0
WHO = ("anna", "bert", "carl", "node001")


class Site:
    """A tree, tokens and certificates of two users and a node, as two heads of one store see them."""

    def __init__(self, store: SqliteStore, folder: pathlib.Path) -> None:
        self.clock = ManualClock()
        self.folder = folder
        users = [("user", Obj("User", name, {"role": "operator"})) for name in WHO[:3]]
        self.tree = Tree(SCHEMA, [*users, *(("device", Obj("PhysicalNode", name)) for name in ("node001", "node002"))])
        self.trust = pki.Trust(folder / "ca.crt")
        self.tokens, self.others = Tokens(store, clock=self.clock), Tokens(store, clock=self.clock)
        self.access = Access(lambda: self.tree, self.tokens, self.trust)
        self.asked = 0
        self.ids: dict[str, str] = {}
        self.ders: dict[str, bytes] = {}
        self.questions: list[Callable[[], Identity | None]] = []

    async def open(self) -> None:
        await self.tokens.open()
        authority = self.replace_authority()
        for name in WHO:
            kind, group = (NODE, NODES) if name.startswith("node") else (USER, USERS)
            token, text = await self.tokens.create(kind, name, "test", lasts=timedelta(days=2 if name == "bert" else 9))
            self.ids[name] = token.id
            self.questions.append(self.by_token(text))
            pair = authority.client(name, group, self.clock.now())
            der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
            self.ders[name] = der
            self.questions.append(self.by_certificate(name, group, der))
        self.set("user", "carl", token=Secret(OWN))
        self.questions.append(self.by_token(OWN))
        await self.others.open()

    def by_token(self, text: str) -> Callable[[], Identity | None]:
        def ask() -> Identity | None:
            self.asked += 1
            return self.access.by_token(text)

        return ask

    def by_certificate(self, name: str, group: str, der: bytes) -> Callable[[], Identity | None]:
        def ask() -> Identity | None:
            self.asked += 1
            return self.access.by_certificate({"commonName": [name], "organizationName": [group]}, der)

        return ask

    def replace_authority(self) -> pki.Authority:
        authority = pki.Authority.make("site", self.clock.now())
        authority.pair.write(self.folder, "ca")
        self.trust.forget()
        return authority

    def set(self, mode: str, key: str, **values: object) -> None:
        obj = self.tree.find(mode, key)
        for name, value in values.items():
            assert obj is not None
            obj = obj.with_value(name, value)  # type: ignore[arg-type]
        self.tree = self.tree.with_object(mode, key, obj)

    def remove(self, mode: str, key: str) -> None:
        self.tree = self.tree.with_object(mode, key, None)


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    async with SqliteStore(tmp_path / "x.db", history_s=None) as store:
        made = Site(store, tmp_path)
        await made.open()
        yield made


async def revoke(site: Site) -> None:
    await site.tokens.revoke(site.ids["anna"])


async def revoke_elsewhere(site: Site) -> None:
    await site.others.revoke(site.ids["anna"])
    page = await site.tokens._store.list("/head/tokens/")
    assert len(page.entries) == len(site.ids) - 1
    await follow(site)


async def follow(site: Site) -> None:
    """What the watch brings."""
    watch = site.tokens._store.watch("/head/tokens/", after=site.tokens._at)
    try:
        async for batch in watch:
            site.tokens._follow_batch(batch)
            if site.tokens._at >= await site.tokens._store.revision():
                break
    finally:
        await watch.aclose()


async def reread(site: Site) -> None:
    await site.others.revoke(site.ids["anna"])
    await site.tokens.open()


async def disable(site: Site) -> None:
    site.set("user", "anna", enabled=False)


async def remove(site: Site) -> None:
    site.remove("user", "anna")


async def change_role(site: Site) -> None:
    site.set("user", "anna", role="auditor")


async def change_own_token(site: Site) -> None:
    site.set("user", "carl", token=Secret("f" * 31 + "0"))


async def pin_another_certificate(site: Site) -> None:
    site.set("user", "anna", certificate="0" * 64)


async def revoke_certificate(site: Site) -> None:
    await site.tokens.revocations.revoke(fingerprint=hashlib.sha256(site.ders["anna"]).hexdigest())


async def revoke_certificates_of(site: Site) -> None:
    await site.tokens.revocations.revoke(kind="user", subject="anna")


async def revoke_certificates_elsewhere(site: Site) -> None:
    await site.others.revocations.revoke(kind="user", subject="anna")
    await site.tokens.revocations.open()


async def rotate(site: Site) -> None:
    site.replace_authority()


async def spend(site: Site) -> None:
    await site.tokens.spend(site.ids["anna"], by="anna")


async def restore(site: Site) -> None:
    """Another tree, with other tokens."""
    await site.others.revoke(site.ids["anna"])
    site.tree = Tree(SCHEMA, [("user", Obj("User", "bert", {"role": "operator"}))])
    await site.tokens.open()


ENDS: list[Callable[[Site], Awaitable[None]]] = [
    revoke,
    revoke_elsewhere,
    reread,
    disable,
    remove,
    change_role,
    change_own_token,
    pin_another_certificate,
    revoke_certificate,
    revoke_certificates_of,
    revoke_certificates_elsewhere,
    rotate,
    spend,
    restore,
]


@pytest.mark.parametrize("end", ENDS)
async def test_the_mark_changes_with_every_way_a_credential_can_end(
    site: Site, end: Callable[[Site], Awaitable[None]]
) -> None:
    before = site.access.mark
    assert site.access.mark == before
    await end(site)
    assert site.access.mark != before


async def test_the_mark_stays_with_ordinary_changes(site: Site) -> None:
    for ask in site.questions:
        assert ask() is not None
    before = site.access.mark
    site.set("device", "node001", notes="other")
    site.remove("device", "node002")
    site.clock.jump(60)
    for ask in site.questions:
        assert ask() is not None, "this notes a use"
    await site.tokens.note()
    await follow(site)
    await site.tokens.revocations.open()
    assert site.tokens.list()[0].used and site.access.mark == before


@pytest.mark.parametrize(
    ("answer", "mark", "monotonic_s", "now", "again"),
    [
        (Answer(7, 100.0, math.inf), 7, 100.0, 5.0, False),
        (Answer(7, 100.0, math.inf), 7, 159.9, 5.0, False),
        (Answer(7, 100.0, math.inf), 8, 100.0, 5.0, True),
        (Answer(7, 100.0, math.inf), 6, 100.0, 5.0, True),
        (Answer(7, 100.0, 50.0), 7, 101.0, 49.9, False),
        (Answer(7, 100.0, 50.0), 7, 101.0, 50.0, True),
        (Answer(7, 100.0, math.inf), 7, 160.0, 5.0, True),
        (Answer(7, 100.0, math.inf), 7, 99.0, 5.0, True),
    ],
)
def test_when_the_question_is_asked_again(
    answer: Answer, mark: int, monotonic_s: float, now: float, again: bool
) -> None:
    assert may_differ(answer, mark, monotonic_s, now) is again


async def test_many_readers_and_events_cost_few_questions(site: Site) -> None:
    readers = [Lasting(site.access, site.clock, site.questions[number % 9]) for number in range(90)]
    for event in range(200):
        site.set("device", "node001", notes=f"{event}")
        await site.clock.advance(0.01)
        assert all(reader.holds() for reader in readers)
    assert site.asked == len(readers), "once each, of 18,000 times"
    site.set("user", "bert", role="admin")
    assert all(reader.holds() for reader in readers)
    assert site.asked == 2 * len(readers)


async def test_the_last_use_of_a_credential_goes_on_with_its_stream(site: Site) -> None:
    reader = Lasting(site.access, site.clock, site.questions[0])
    assert reader.holds()
    await site.clock.advance(61.0)
    assert reader.holds()
    (token,) = [token for token in site.tokens.list() if token.id == site.ids["anna"]]
    assert token.used == "2026-01-01T00:01:01Z"


async def test_whoever_is_shut_out_stays_out(site: Site) -> None:
    reader = Lasting(site.access, site.clock, site.questions[0])
    assert reader.holds()
    await revoke(site)
    assert not reader.holds() and not reader.holds()


async def test_a_certificate_that_ends_ends_what_was_begun_with_it(site: Site) -> None:
    reader = Lasting(site.access, site.clock, site.questions[1])
    assert reader.holds()
    end = pki.presented(site.folder / "ca.crt")
    assert end is not None
    site.clock.jump((end.ends - site.clock.now()).total_seconds())
    assert not reader.holds() and site.questions[1]() is None


async def test_no_stream_outlives_its_credential_whatever_happens(site: Site, rng: random.Random) -> None:
    """At every step each reader gets the answer that the whole question would."""
    readers = [Lasting(site.access, site.clock, ask) for ask in site.questions]

    def again(name: str) -> Obj:
        return Obj("User", name, {"role": rng.choice(["admin", "auditor"])})

    seen: set[bool] = set()
    for _ in range(300):
        name = rng.choice(WHO[:3])
        match rng.randrange(12):
            case 0:
                site.tree = site.tree.with_object("user", name, again(name))
            case 1 if site.tree.find("user", name) is not None:
                site.set("user", name, enabled=rng.random() < 0.5)
            case 2 if site.tree.find("user", name) is not None:
                site.remove("user", name)
            case 3 if site.tree.find("device", "node001") is not None:
                site.remove("device", "node001")
            case 4 | 5:
                site.tree = site.tree.with_object("device", "node001", Obj("PhysicalNode", "node001"))
            case 6 if rng.random() < 0.1 and name in site.ids:
                await site.others.revoke(site.ids.pop(name))
                await site.tokens.open()
            case 7 if rng.random() < 0.05:
                await site.tokens.revocations.revoke(kind="user", subject=name)
            case 8:
                await site.clock.advance(rng.choice([0.1, 30.0, 70.0, DAY_S / 10]))
            case 9:
                site.clock.jump(rng.choice([-DAY_S / 20, DAY_S / 20]))
            case 10:
                await site.tokens.note()
            case 11 if rng.random() < 0.02:
                site.replace_authority()
            case _:
                pass
        held = [reader.holds() for reader in readers]
        assert held == [ask() is not None for ask in site.questions]
        seen.update(held)
    assert seen == {True, False}
