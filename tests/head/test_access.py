"""Who may do what: roles, tokens, certificates, and what counts at once when the tree changes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from functools import partial

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.waiting import until

from bedplate.api.headapi import Certificate
from bedplate.core import errors
from bedplate.core.clock import ManualClock, rfc3339
from bedplate.head import certificates
from bedplate.head.access import NODES, USER, USERS, Access, subject_of
from bedplate.head.changes import MASK
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import pki
from bedplate.head.objects import Obj, Secret, Value
from bedplate.head.policy import NODE, Identity, demand, demand_edits, may
from bedplate.head.revocations import REVOKED, Revocations
from bedplate.head.schema import codec
from bedplate.head.session import Edit, Session
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.serving import issuing
from bedplate.store.interface import Put, Store

ADMIN, OPERATOR = Identity("root", "admin"), Identity("olga", "operator")
AUDITOR, AGENT = Identity("anna", "auditor"), Identity("node001", "node")
DER = b"a certificate"
WRITTEN = "0123456789abcdef0123456789abcdef"


def tree(*objects: tuple[str, Obj]) -> Tree:
    return Tree(SCHEMA, objects)


def users(*found: tuple[str, str, bool]) -> Iterable[tuple[str, Obj]]:
    for name, role, enabled in found:
        yield "user", Obj("User", name, {"role": role, "enabled": enabled})


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("read", "tree", {"admin", "operator", "auditor"}),
        ("read", "metrics", {"admin", "operator", "auditor"}),
        ("read", "tokens", {"admin", "operator", "auditor"}),
        ("read", "secrets", {"admin"}),
        ("edit", "mode/device", {"admin", "operator"}),
        ("edit", "tree", {"admin", "operator"}),
        ("edit", "mode/user", {"admin"}),
        ("edit", "tokens", {"admin"}),
        ("edit", "secrets", {"admin"}),
        ("read", "node/node001", {"admin", "operator", "auditor", "node"}),
        ("report", "node/node001", {"admin", "operator", "node"}),
        ("report", "node/node002", {"admin", "operator"}),
    ],
)
def test_each_role_may_do_what_it_is_for_and_nothing_else(verb: str, resource: str, allowed: set[str]) -> None:
    assert {one.role for one in (ADMIN, OPERATOR, AUDITOR, AGENT) if may(one, verb, resource)} == allowed


def test_a_refusal_names_who_what_and_the_remedy() -> None:
    with pytest.raises(errors.Denied, match=r"anna \(role auditor\) may not edit device objects") as refused:
        demand(AUDITOR, "edit", "mode/device")
    assert "administrator" in refused.value.hint
    with pytest.raises(errors.Denied, match="node node001 may not read what belongs to node002"):
        demand(AGENT, "read", "node/node002")


def test_an_operator_edits_a_cluster_but_leaves_its_secrets_alone() -> None:
    held = Obj("KubeCluster", "default", {"kube_ca_key": Secret("pem"), "version": "1"})
    now = tree(("kubernetes", held))
    demand_edits(OPERATOR, now, [Edit("kubernetes", "default", held, held.with_value("version", "2"))])
    starred = held.with_value("kube_ca_key", Secret(MASK)).with_value("version", "2")
    demand_edits(OPERATOR, now, [Edit("kubernetes", "default", held, starred)])
    for new in (held.with_value("kube_ca_key", Secret("mine")), held.with_value("kube_ca_key", None), None):
        with pytest.raises(errors.Denied, match="may not edit secrets"):
            demand_edits(OPERATOR, now, [Edit("kubernetes", "default", held, new)])
        demand_edits(ADMIN, now, [Edit("kubernetes", "default", held, new)])


def test_what_reaches_head_nodes_is_an_administrators() -> None:
    def overlay(name: str, cluster: str, **values: Value) -> tuple[str, Obj]:
        role = Obj("KubeletRole", "kubelet", {"kubernetes_cluster": cluster})
        children = {"roles": {"kubelet": role}}
        return "configurationoverlay", Obj("ConfigurationOverlay", name, values, children=children)

    now = tree(
        ("device", Obj("HeadNode", "head1")),
        ("device", Obj("PhysicalNode", "node001")),
        ("etcd", Obj("EtcdCluster", "of-heads")),
        ("kubernetes", Obj("KubeCluster", "heads", {"etcd_cluster": "of-heads"})),
        ("kubernetes", Obj("KubeCluster", "nodes")),
        overlay("all-heads", "heads", all_head_nodes=True),
        overlay("one-head", "heads", nodes=("head1", "node001")),
        overlay("nodes", "nodes", nodes=("node001",)),
        ("network", Obj("Network", "net")),
    )

    def edit(mode: str, key: str, **values: Value) -> Edit:
        base = now.get((mode, key))
        new = base
        for name, value in values.items():
            new = new.with_value(name, value)
        return Edit(mode, key, base, new if values else None)

    allowed = [
        edit("device", "node001", notes="x"),
        edit("kubernetes", "nodes", notes="x"),
        edit("configurationoverlay", "nodes", priority=600),
        edit("configurationoverlay", "nodes", nodes=()),
        edit("network", "net", domain_name="x"),
        Edit("device", "node002", None, Obj("PhysicalNode", "node002")),
    ]
    refused = [
        edit("device", "head1", notes="x"),
        edit("device", "head1"),
        Edit("device", "head2", None, Obj("HeadNode", "head2")),
        Edit("device", "node001", now.get(("device", "node001")), Obj("HeadNode", "node001")),
        edit("configurationoverlay", "all-heads", priority=600),
        edit("configurationoverlay", "all-heads", all_head_nodes=None),
        edit("configurationoverlay", "one-head", nodes=("node001",)),
        edit("configurationoverlay", "one-head"),
        edit("configurationoverlay", "nodes", nodes=("node001", "head1")),
        edit("configurationoverlay", "nodes", all_head_nodes=True),
        edit("kubernetes", "heads", notes="x"),
        edit("etcd", "of-heads", election_timeout=5),
    ]
    for each in allowed:
        demand_edits(OPERATOR, now, [each])
    for each in refused:
        with pytest.raises(errors.Denied, match="reaches head nodes"):
            demand_edits(OPERATOR, now, [*allowed[:2], each])
        demand_edits(ADMIN, now, [each])


def test_an_operator_edits_no_users_even_among_other_edits() -> None:
    edits = [
        Edit("device", "node001", None, Obj("PhysicalNode", "node001")),
        Edit("user", "eve", None, Obj("User", "eve")),
    ]
    with pytest.raises(errors.Denied, match="user objects"):
        demand_edits(OPERATOR, tree(), edits)


async def access(store: Store, *objects: tuple[str, Obj]) -> tuple[Access, dict[str, Tree], ManualClock]:
    held, clock = {"tree": tree(*objects)}, ManualClock()
    tokens = Tokens(store, clock=clock)
    await tokens.open()
    return Access(lambda: held["tree"], tokens), held, clock


async def test_a_token_is_its_users_for_as_long_as_the_user_is_let_in(store: Store) -> None:
    who, held, _ = await access(store, *users(("olga", "operator", True)))
    _, text = await who.tokens.create(USER, "olga", "laptop")
    found = who.by_token(text)
    assert found is not None and (found.name, found.role) == ("olga", "operator")
    held["tree"] = tree(*users(("olga", "auditor", True)))
    assert (who.by_token(text) or AGENT).role == "auditor"
    held["tree"] = tree(*users(("olga", "operator", False)))
    assert who.by_token(text) is None
    held["tree"] = tree()
    assert who.by_token(text) is None


async def test_a_nodes_token_is_the_nodes_while_the_device_is_there(store: Store) -> None:
    who, held, _ = await access(store, ("device", Obj("PhysicalNode", "node001")))
    _, text = await who.tokens.create(NODE, "node001", "agent")
    found = who.by_token(text)
    assert found is not None and found[:2] == ("node001", "node")
    held["tree"] = tree(*users(("node001", "admin", True)))
    assert who.by_token(text) is None, "a user of the same name is somebody else"


@pytest.mark.parametrize("text", ["", "bph", "bph__", "bph_ffffffffff_", "x", "☃", "bph_ffffffffff_00"])
async def test_what_is_no_token_is_nobodys(store: Store, text: str) -> None:
    who, _, _ = await access(store, *users(("olga", "operator", True)))
    assert who.by_token(text) is None


async def test_the_token_in_a_users_object_counts_and_an_empty_one_does_not(store: Store) -> None:
    olga = Obj("User", "olga", {"role": "operator", "token": Secret(WRITTEN)})
    nobody = Obj("User", "nobody", {"role": "admin", "token": Secret("")})
    who, _, _ = await access(store, ("user", olga), ("user", nobody))
    found = who.by_token(WRITTEN)
    assert found is not None and found.name == "olga"
    assert who.by_token("") is None


async def test_a_weak_token_of_an_older_version_is_not_taken_and_named(store: Store) -> None:
    olga = Obj("User", "olga", {"role": "admin", "token": Secret("letmein")})
    anna = Obj("User", "anna", {"role": "admin", "token": Secret(WRITTEN)})
    who, _, _ = await access(store, ("user", olga), ("user", anna))
    assert who.by_token("letmein") is None
    assert who.weak_tokens() == ["olga"]


@pytest.mark.parametrize(
    ("text", "is_strong"),
    [
        (WRITTEN, True),
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", True),
        ("bph_0123456789_00112233445566778899aAbB", True),
        ("pUd4Zk0Qm1n2b3v4c5x6Aa", True),
        ("pUd4Zk0Qm1n2b3v4c5x6A", False),
        ("0123456789abcdef0123456789abcde", False),
        ("letmein", False),
        ("correct horse battery staple is not random", False),
        ("correct-horse-battery-staple-is-not-random", False),
        ("a" * 64, False),
        ("0" * 64, False),
        ("****", False),
    ],
)
def test_a_token_in_a_users_object_has_128_bits(text: str, is_strong: bool) -> None:
    session = Session(tree(*users(("olga", "operator", True))))
    data = {"type": "User", "values": {"token": text}}
    if is_strong:
        session.set(("user", "olga"), "token", text)
        codec.decode(SCHEMA, SCHEMA.mode("user"), "olga", data)
        return
    with pytest.raises(errors.Invalid, match="128 random bits"):
        session.set(("user", "olga"), "token", text)
    with pytest.raises(errors.Invalid) as refused:
        codec.decode(SCHEMA, SCHEMA.mode("user"), "olga", data)
    assert "128 random bits" in " ".join(refused.value.problems)
    assert text not in str(refused.value)


def subject(name: str, group: str) -> dict[str, list[str]]:
    return subject_of({"subject": ((("organizationName", group),), (("commonName", name),))})


async def test_certificates_are_their_users_and_their_nodes(store: Store) -> None:
    node = ("device", Obj("PhysicalNode", "node001"))
    who, _, _ = await access(store, *users(("olga", "operator", True), ("out", "admin", False)), node)
    found = who.by_certificate(subject("olga", USERS), DER)
    assert found is not None and found[:3] == ("olga", "operator", "certificate")
    agent = who.by_certificate(subject("node001", NODES), DER)
    assert agent is not None and agent[:2] == ("node001", "node")
    for name, group in (("out", USERS), ("nobody", USERS), ("olga", NODES), ("node001", USERS), ("olga", "admin")):
        assert who.by_certificate(subject(name, group), DER) is None, (name, group)
    assert who.by_certificate({"organizationName": [USERS], "commonName": ["olga", "root"]}, DER) is None


async def test_a_fingerprint_in_the_users_object_shuts_out_other_certificates(store: Store) -> None:
    pinned = Obj("User", "olga", {"role": "operator", "certificate": hashlib.sha256(DER).hexdigest()})
    who, _, _ = await access(store, ("user", pinned))
    assert who.by_certificate(subject("olga", USERS), DER) is not None
    assert who.by_certificate(subject("olga", USERS), b"an older one") is None


async def test_a_token_is_asked_for_somebody_the_tree_has(store: Store) -> None:
    who, _, _ = await access(store, *users(("olga", "operator", True)))
    who.check_subject(USER, "olga")
    with pytest.raises(errors.NotFound, match="no device 'olga'"):
        who.check_subject(NODE, "olga")


@pytest.mark.parametrize(("kind", "group", "name"), [("user", USERS, "olga"), (NODE, NODES, "node001")])
async def test_a_revoked_certificate_is_nobodys_on_every_head(store: Store, kind: str, group: str, name: str) -> None:
    clock = ManualClock()
    held = tree(*users(("olga", "operator", True)), ("device", Obj("PhysicalNode", "node001")))
    heads = [Access(lambda: held, Tokens(store, clock=clock)) for _ in range(2)]
    for who in heads:
        await who.tokens.open()
    authority = pki.Authority.make("site", clock.now())

    def issued() -> bytes:
        generation = heads[1].tokens.revocations.generation(kind, name)
        pair = authority.client(name, group, clock.now(), generation=generation)
        return x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)

    one, other = issued(), issued()
    following = asyncio.create_task(heads[1].tokens.run())
    try:
        await heads[0].tokens.revocations.revoke(fingerprint=hashlib.sha256(one).hexdigest().upper())
        for who in heads:
            await until(lambda who=who: who.by_certificate(subject(name, group), one) is None)  # type: ignore[misc]
            assert who.by_certificate(subject(name, group), other) is not None
        # Which was first is not asked of the clock: it stands, and is then set back.
        for jump in (0, 60, -3600):
            clock.jump(jump)
            other = issued()
            await heads[0].tokens.revocations.revoke(kind=kind, subject=name)
            shown = [partial(who.by_certificate, subject(name, group), other) for who in heads]
            for show in shown:
                await until(lambda show=show: show() is None)  # type: ignore[misc]
            for who in heads:
                assert who.by_certificate(subject(name, group), issued()) is not None, "a later one counts"
        assert sorted(item.subject for item in heads[1].tokens.revocations.list()) == ["", name]
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    with pytest.raises(errors.Invalid):
        await heads[0].tokens.revocations.revoke()


async def test_a_head_that_has_not_heard_of_a_revocation_yet_makes_a_later_one(store: Store) -> None:
    one, other = (Tokens(store, clock=ManualClock()) for _ in range(2))
    for tokens in (one, other):
        await tokens.open()
    first = await one.revocations.revoke(kind="user", subject="olga")
    assert (await other.revocations.revoke(kind="user", subject="olga")).generation > first.generation


async def test_revocations_and_certificates_of_earlier_versions_are_told_apart_by_their_time(store: Store) -> None:
    clock = ManualClock()
    authority, revocations = pki.Authority.make("site", clock.now()), Revocations(store, clock)

    def issued() -> tuple[bytes, Certificate]:
        """As one that knows no generation: none is in the certificate."""
        pair = authority.client("olga", USERS, clock.now(), generation=revocations.generation("user", "olga"))
        der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
        assert issuing.generation_of(der) == 0
        return der, certificates.describe("user", der)

    def counts(der: bytes, described: Certificate) -> bool:
        is_revoked = revocations.is_revoked("user", "olga", der)
        assert revocations.covers(described) is is_revoked
        return not is_revoked

    early = issued()
    assert counts(*early)
    clock.jump(60)
    record = {"time": rfc3339(clock.now()), "kind": "user", "subject": "olga", "by": "admin"}
    await store.commit([Put(f"{REVOKED}user/olga", msgspec.json.encode(record))])
    await revocations.open()
    clock.jump(60)
    late = issued()
    assert not counts(*early) and counts(*late)
    await revocations.revoke(kind="user", subject="olga")
    assert not counts(*early) and not counts(*late)
