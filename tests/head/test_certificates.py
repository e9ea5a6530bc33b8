"""Client certificates that were used: whose they are, when they end, whether they were revoked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bedplate.core.clock import ManualClock, rfc3339
from bedplate.head.access import NODES, USERS, Access
from bedplate.head.certificates import CERTIFICATES
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import creation, datafolder, pki
from bedplate.head.folder.sitekeys import SiteKeys
from bedplate.head.objects import Obj
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.store.interface import Put, Store

TREE = Tree(SCHEMA, [("user", Obj("User", "olga", {"role": "operator"})), ("device", Obj("PhysicalNode", "node001"))])


def issued(clock: ManualClock, name: str, group: str, days: int = 365, *, generation: int = 0) -> bytes:
    authority = pki.Authority.make("site", clock.now())
    pair = authority.client(name, group, clock.now(), timedelta(days=days), generation=generation)
    return x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)


async def opened(store: Store, clock: ManualClock) -> Access:
    access = Access(lambda: TREE, Tokens(store, clock=clock))
    await access.tokens.open()
    return access


def shown(access: Access, name: str, group: str, der: bytes) -> object:
    return access.by_certificate({"commonName": [name], "organizationName": [group]}, der)


async def test_a_certificate_that_was_used_is_known_to_every_head_with_its_end(store: Store) -> None:
    clock = ManualClock()
    access = await opened(store, clock)
    late, soon = issued(clock, "olga", USERS), issued(clock, "node001", NODES, 5)
    assert shown(access, "olga", USERS, late) and shown(access, "node001", NODES, soon)
    assert shown(access, "nobody", USERS, issued(clock, "nobody", USERS)) is None
    await access.tokens.note()
    for who in (access, await opened(store, clock)):
        known = who.certificates()
        assert [(item.use, item.subject, item.issuer) for item in known] == [
            ("node", "node001", "bedplate head site"),
            ("user", "olga", "bedplate head site"),
        ]
        assert known[0].expires == rfc3339(clock.now() + timedelta(days=5))
        assert known[0].used == rfc3339(clock.now())
        assert not known[0].revoked


async def test_a_last_use_is_written_once_a_day_and_an_end_long_ago_is_forgotten(store: Store) -> None:
    clock = ManualClock()
    access = await opened(store, clock)
    der = issued(clock, "olga", USERS, 2)
    shown(access, "olga", USERS, der)
    await access.tokens.note()
    before = await store.revision()
    clock.jump(3600)
    shown(access, "olga", USERS, der)
    await access.tokens.note()
    assert await store.revision() == before
    assert access.certificates()[0].used == rfc3339(clock.now()), "here it is known"
    clock.jump(86400)
    shown(access, "olga", USERS, der)
    await access.tokens.note()
    assert await store.revision() > before
    clock.jump(40 * 86400)
    await access.tokens.note()
    assert access.certificates() == []
    assert (await store.list(CERTIFICATES)).entries == []


@pytest.mark.parametrize("by_name", [False, True])
async def test_what_was_revoked_says_so(store: Store, by_name: bool) -> None:
    clock = ManualClock()
    access = await opened(store, clock)
    der = issued(clock, "olga", USERS)
    shown(access, "olga", USERS, der)
    (fingerprint,) = [item.fingerprint for item in access.certificates()]
    if by_name:
        await access.tokens.revocations.revoke(kind="user", subject="olga")
    else:
        await access.tokens.revocations.revoke(fingerprint=fingerprint)
    later = issued(clock, "olga", USERS, generation=access.tokens.revocations.generation("user", "olga"))
    shown(access, "olga", USERS, later)
    assert {item.fingerprint == fingerprint: item.revoked for item in access.certificates()} == {
        True: True,
        False: False,
    }
    assert shown(access, "olga", USERS, der) is None


async def test_a_damaged_record_hides_no_other(store: Store) -> None:
    clock = ManualClock()
    access = await opened(store, clock)
    shown(access, "olga", USERS, issued(clock, "olga", USERS))
    await access.tokens.note()
    await store.commit([Put(f"{CERTIFICATES}broken", b"{")])
    assert len((await opened(store, clock)).certificates()) == 1


async def test_a_folder_has_its_authority_its_own_certificate_and_the_administrators(tmp_path: Path) -> None:
    await creation.make(tmp_path / "data", name="basecm10", nodes=1)
    async with datafolder.open_head(tmp_path / "data") as head:
        folder = datafolder.Folder.find(tmp_path / "data")
        keys = SiteKeys(folder, head.store, folder.vault(), ManualClock())
        uses = [(item.use, item.subject) for item in keys.certificates()]
        assert uses[0] == ("authority", "bedplate head basecm10")
        assert ("user", "admin") in uses
        await keys.begin()
        assert [item.use for item in keys.certificates()].count("authority") == 2
        folder.file("ca.crt").write_text("broken")
        assert "authority" not in [item.use for item in keys.certificates()]
