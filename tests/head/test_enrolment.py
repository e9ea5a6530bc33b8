"""Machines become nodes: by whose token, as which device, with whose approval, and never once too often."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.head import sites
from tests.head.committing import commit
from tests.head.csrs import csr, new_key
from tests.ui.rest.serving import KEY, PlainIssuer

from bedplate.api.headapi import EnrolmentRequest, Facts, Token
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.access import Access
from bedplate.head.enrolment import Candidate, Enrolments, Present, device_for, reasons
from bedplate.head.entities import SCHEMA
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj
from bedplate.head.policy import ENROL, ENROL_CATEGORY, Identity
from bedplate.head.service import Alone, Head
from bedplate.head.session import Edit
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.serving import issuing
from bedplate.store.interface import OutcomeUnknown, Store
from bedplate.store.sqlite import SqliteStore

DER = Encoding.DER
MAC = "52:54:00:12:34:56"
TREE = Tree(
    SCHEMA,
    [
        ("category", Obj("Category", "default", {})),
        ("category", Obj("Category", "strict", {"enrolment": "APPROVAL"})),
        ("device", Obj("HeadNode", "basecm10", {})),
        sites.node("node001"),
        sites.node("node002", mac=MAC.upper()),
        sites.node("gpu01", "strict"),
    ],
)


def token(kind: str, subject: str, **more: bool) -> Token:
    return Token(id="t", kind=kind, subject=subject, name="", created="", **more)  # type: ignore[arg-type]


# What is decided


@pytest.mark.parametrize(
    ("kind", "subject", "facts", "found"),
    [
        (ENROL, "node001", Facts(hostname="node002", macs=[MAC]), Candidate("node001")),
        (ENROL_CATEGORY, "default", Facts(hostname="other", macs=[MAC]), Candidate("node002")),
        (ENROL_CATEGORY, "default", Facts(hostname="Node001.eth.cluster"), Candidate("node001")),
        (ENROL_CATEGORY, "default", Facts(hostname="new7.example.org"), Candidate("new7", "default")),
        (ENROL_CATEGORY, "default", Facts(hostname="localhost"), Candidate("node003", "default")),
        (ENROL_CATEGORY, "default", Facts(hostname="../etc"), Candidate("node003", "default")),
        (ENROL_CATEGORY, "default", Facts(), Candidate("node003", "default")),
    ],
)
def test_a_machine_is_the_device_of_its_token_of_its_mac_or_of_its_name(
    kind: str, subject: str, facts: Facts, found: Candidate
) -> None:
    assert device_for(TREE, token(kind, subject), facts) == found


@pytest.mark.parametrize(
    ("kind", "subject", "facts", "why"),
    [
        (ENROL, "node009", Facts(), "no device node009"),
        (ENROL_CATEGORY, "nothing", Facts(), "no category nothing"),
        (ENROL_CATEGORY, "strict", Facts(macs=[MAC]), "node002 is not a node of the category strict"),
        (ENROL_CATEGORY, "strict", Facts(hostname="node001"), "node001 is not a node of the category strict"),
        (ENROL_CATEGORY, "default", Facts(hostname="basecm10"), "basecm10 is not a node of"),
    ],
)
def test_a_token_of_a_category_makes_nothing_else_of_a_machine(kind: str, subject: str, facts: Facts, why: str) -> None:
    with pytest.raises(errors.Denied, match=why):
        device_for(TREE, token(kind, subject), facts)


@pytest.mark.parametrize(
    ("node", "category", "facts", "has", "replaces", "why"),
    [
        ("node001", "", Facts(), False, False, []),
        ("node001", "", Facts(), True, False, ["still good"]),
        ("node001", "", Facts(), True, True, []),
        ("node002", "", Facts(macs=["52:54:00:00:00:00", MAC]), False, False, []),
        ("node002", "", Facts(macs=["52:54:00:00:00:00"]), False, True, ["MAC 52:54:00:12:34:56, the machine says 52"]),
        ("node002", "", Facts(), False, False, ["the machine says none"]),
        ("gpu01", "", Facts(), False, True, ["strict are approved by hand"]),
        ("new", "strict", Facts(), False, False, ["strict are approved by hand"]),
        ("new", "default", Facts(), False, False, []),
        ("gpu01", "", Facts(), True, False, ["approved by hand", "still good"]),
    ],
)
def test_an_administrator_looks_at_what_policy_cannot_decide(
    node: str, category: str, facts: Facts, has: bool, replaces: bool, why: list[str]
) -> None:
    told = reasons(TREE, Candidate(node, category), token(ENROL, node, replace=replaces), facts, has_certificate=has)
    assert len(told) == len(why) and all(part in text for part, text in zip(why, told, strict=True)), told


# What is kept


@dataclass
class Site:
    store: Store
    head: Head
    tokens: Tokens
    notices: Notices
    enrolments: Enrolments
    clock: ManualClock
    issuer: PlainIssuer

    async def token(self, kind: str = ENROL, subject: str = "node001", **more: object) -> Identity:
        options: dict[str, object] = {"uses": 1, "lasts": timedelta(hours=1), "by": "anna", **more}
        _, text = await self.tokens.create(kind, subject, "", **options)  # type: ignore[arg-type]
        found = Access(lambda: self.head.tree, self.tokens).by_token(text)
        assert found is not None and found.role == ENROL
        return found

    def left(self, identity: Identity) -> int:
        return next(one.left for one in self.tokens.list() if identity.via == f"token {one.id}")


@contextlib.asynccontextmanager
async def opened(store: Store, clock: ManualClock, issuer: PlainIssuer | None = None) -> AsyncIterator[Site]:
    async with Head(store, SCHEMA, Vault(KEY), clock=clock, standing=Alone("basecm10", "")) as head:
        if not head.revision:
            await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in TREE.objects()])
        async with Notices(store, clock=clock) as notices:
            tokens = Tokens(store, clock=clock)
            await tokens.open()
            issuer = issuer or PlainIssuer(clock)
            enrolments = Enrolments(store, head, tokens, notices, issuer, clock=clock)
            await enrolments.open()
            yield Site(store, head, tokens, notices, enrolments, clock, issuer)


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    clock = ManualClock()
    async with SqliteStore(tmp_path / "x.db", clock=clock, history_s=None) as store, opened(store, clock) as found:
        yield found


def subject_of(pem: str) -> dict[str, str]:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    return {part.oid._name: str(part.value) for part in certificate.subject}


async def test_a_token_makes_a_node_of_a_machine_in_the_name_of_the_device(site: Site) -> None:
    key, who = new_key(), await site.token()
    answer = await site.enrolments.ask(who, EnrolmentRequest(csr=csr(key, name="basecm10")))
    assert (answer.state, answer.node, answer.reasons) == ("issued", "node001", [])
    assert subject_of(answer.certificate) == {"commonName": "node001", "organizationName": "bedplate:nodes"}
    made = x509.load_pem_x509_certificate(answer.certificate.encode())
    assert made.public_key() == key.public_key()
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(answer.authority.encode()))
    assert site.left(who) == 0
    assert site.enrolments.has_certificate("node001")
    assert [one.text for one in site.notices.latest()] == ["node001 was enrolled (approved by policy)"]


async def test_a_stolen_token_works_once_and_a_lost_answer_is_given_again(site: Site) -> None:
    who, request = await site.token(), EnrolmentRequest(csr=csr())
    first = await site.enrolments.ask(who, request)
    assert await site.enrolments.ask(who, request) == first
    with pytest.raises(errors.Denied, match="used already"):
        await site.enrolments.ask(who, EnrolmentRequest(csr=csr()))
    thief = await site.token(subject="node002")
    with pytest.raises(errors.NotFound):
        site.enrolments.answer(thief, first.id)
    assert site.enrolments.answer(who, first.id).certificate == first.certificate


async def test_of_many_at_once_one_token_lets_in_one(site: Site) -> None:
    who = await site.token(ENROL_CATEGORY, "default")
    asked = [
        site.enrolments.ask(who, EnrolmentRequest(csr=csr(), facts=Facts(hostname=f"new{number}")))
        for number in range(8)
    ]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(not isinstance(one, Exception) for one in found) == 1
    assert all(isinstance(one, errors.Denied) for one in found if isinstance(one, Exception))
    assert len([name for name in site.head.tree.mode("device") if name.startswith("new")]) == 1


async def test_a_use_that_another_head_made_is_seen(site: Site) -> None:
    who = await site.token(ENROL_CATEGORY, "default", uses=2)
    async with opened(site.store, site.clock, site.issuer) as other:
        await site.enrolments.ask(who, EnrolmentRequest(csr=csr()))
        again = EnrolmentRequest(csr=csr())
        answer = await other.enrolments.ask(who, again)
        assert answer.state == "issued" and answer.node != "node001"
        assert (await site.enrolments.ask(who, again)).certificate == answer.certificate
        for each in (site, other):
            with pytest.raises(errors.Denied, match="used already"):
                await each.enrolments.ask(who, EnrolmentRequest(csr=csr()))


async def test_a_store_that_does_not_say_whether_it_wrote_costs_no_use(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, request = await site.token(), EnrolmentRequest(csr=csr())
    write = site.store.commit

    async def lost(ops: object) -> int:
        await write(ops)  # type: ignore[arg-type]
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(site.store, "commit", lost)
    with pytest.raises(OutcomeUnknown):
        await site.enrolments.ask(who, request)
    monkeypatch.undo()
    assert (await site.enrolments.ask(who, request)).state == "issued"


async def test_a_token_ends(site: Site) -> None:
    who, other = await site.token(lasts=timedelta(minutes=5)), await site.token(lasts=timedelta(minutes=5))
    known = EnrolmentRequest(csr=csr())
    await site.enrolments.ask(other, known)
    site.clock.jump(301)
    with pytest.raises(errors.Denied, match="good until"):
        await site.enrolments.ask(who, EnrolmentRequest(csr=csr()))
    assert (await site.enrolments.ask(other, known)).state == "issued", "what was asked in time is still answered"


async def test_new_nodes_of_a_category_get_devices_by_whoever_made_the_token(site: Site) -> None:
    who = await site.token(ENROL_CATEGORY, "default", uses=3)
    facts = Facts(hostname="rack7-1", macs=["52:54:00:aa:bb:cc"])
    made = await site.enrolments.ask(who, EnrolmentRequest(csr=csr(), facts=facts))
    assert (made.node, made.state) == ("rack7-1", "issued")
    device = site.head.tree.get(("device", "rack7-1"))
    assert device.values["category"] == "default" and device.values["mac"] == "52:54:00:AA:BB:CC"
    newest = await site.head.read(site.head.revision)
    assert newest.author == "anna" and "enrolled with the token" in newest.message
    assert site.left(who) == 2


async def test_what_waits_is_approved_or_denied_by_hand(site: Site) -> None:
    who = await site.token(ENROL_CATEGORY, "strict", uses=2)
    good, bad = (EnrolmentRequest(csr=csr(), facts=Facts(hostname=name)) for name in ("gpu01", "gpu02"))
    waits = await site.enrolments.ask(who, good)
    await site.enrolments.ask(who, bad)
    assert (waits.state, waits.certificate, waits.authority) == ("pending", "", "")
    assert "approve gpu01 or deny gpu01" in site.notices.latest()[1].text
    assert site.head.tree.find("device", "gpu02") is None, "a device is added when it is approved"
    assert site.left(who) == 0, "a token is used by asking"
    moved = asyncio.create_task(site.enrolments.book.moved())
    await asyncio.sleep(0)
    approved = await site.enrolments.decide("gpu01", approve=True, by="anna", text="seen it")
    await moved
    assert (approved.state, approved.by, approved.text) == ("issued", "anna", "seen it")
    assert site.enrolments.answer(who, waits.id).certificate
    denied = await site.enrolments.decide("gpu02", approve=False, by="anna", text="not ours")
    assert denied.state == "denied"
    assert (await site.enrolments.ask(who, bad)).text == "not ours"
    assert site.head.tree.find("device", "gpu02") is None
    for name, why in (("gpu01", "issued already"), ("gpu02", "denied already")):
        with pytest.raises(errors.Conflict, match=why):
            await site.enrolments.decide(name, approve=True, by="anna")
    with pytest.raises(errors.NotFound):
        await site.enrolments.decide("nobody", approve=True, by="anna")


async def test_a_machine_in_the_place_of_another_needs_a_word_and_shuts_the_other_out(site: Site) -> None:
    first = await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))
    der = x509.load_pem_x509_certificate(first.certificate.encode()).public_bytes(encoding=DER)
    revocations = site.tokens.revocations
    assert not revocations.is_revoked("node", "node001", der)
    waits = await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))
    assert waits.state == "pending" and "still good" in waits.reasons[0]
    assert not revocations.is_revoked("node", "node001", der)
    second = await site.enrolments.ask(await site.token(replace=True), EnrolmentRequest(csr=csr()))
    assert second.state == "issued"
    new = x509.load_pem_x509_certificate(second.certificate.encode()).public_bytes(encoding=DER)
    assert revocations.is_revoked("node", "node001", der)
    assert not revocations.is_revoked("node", "node001", new)
    await site.enrolments.decide(waits.id, approve=True, by="anna")
    assert revocations.is_revoked("node", "node001", new)
    await revocations.revoke(kind="node", subject="node001")
    assert not site.enrolments.has_certificate("node001"), "revoked ones need no replacing"
    assert (await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))).state == "issued"


async def test_a_node_that_was_revoked_by_name_enrols_again_and_its_new_certificate_alone_counts(site: Site) -> None:
    """Within the same second, and though it was another head that revoked: the clock has no part in it."""
    first = ssl.PEM_cert_to_DER_cert(
        (await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))).certificate
    )
    async with opened(site.store, site.clock, site.issuer) as other:
        await other.tokens.revocations.revoke(kind="node", subject="node001", by="anna")
        revoked = other.tokens.revocations.generation("node", "node001")
        answer = await site.enrolments.ask(await site.token(replace=True), EnrolmentRequest(csr=csr()))
        second = ssl.PEM_cert_to_DER_cert(answer.certificate)
        await other.tokens.open()
        await other.enrolments.open()
        for each in (site, other):
            revocations = each.tokens.revocations
            assert issuing.generation_of(second) == revocations.generation("node", "node001") >= revoked > 0
            assert revocations.is_revoked("node", "node001", first)
            assert not revocations.is_revoked("node", "node001", second)
            assert each.enrolments.has_certificate("node001")
        await site.tokens.revocations.revoke(kind="node", subject="node001")
        third = (await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))).certificate
        assert site.tokens.revocations.is_revoked("node", "node001", second)
        assert not site.tokens.revocations.is_revoked("node", "node001", ssl.PEM_cert_to_DER_cert(third))


async def test_a_renewed_certificate_counts_unless_the_one_before_it_was_revoked_meanwhile(site: Site) -> None:
    node, end = Identity("node001", "node", "certificate"), site.clock.now() + timedelta(days=100)
    revocations = site.tokens.revocations
    generation = (await revocations.revoke(kind="node", subject="node001")).generation
    present = Present(site.clock.now(), end, False, generation)
    issued = await site.enrolments.renew(node, csr(), present)
    der = ssl.PEM_cert_to_DER_cert(issued.certificate)
    assert not revocations.is_revoked("node", "node001", der) and site.enrolments.has_certificate("node001")
    await revocations.revoke(kind="node", subject="node001")  # after the node was let in, before it is answered
    late = await site.enrolments.renew(node, csr(), present)
    assert revocations.is_revoked("node", "node001", ssl.PEM_cert_to_DER_cert(late.certificate))
    assert not site.enrolments.has_certificate("node001")


async def test_a_certificate_that_was_issued_otherwise_counts_once_it_was_used(site: Site) -> None:
    """One of `bedplate head certificate --node`, which the head sees for the first time when it is used."""
    pair = site.issuer.authority.client("node001", "bedplate:nodes", site.clock.now())
    der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(encoding=DER)
    subject = {"commonName": ["node001"], "organizationName": ["bedplate:nodes"]}
    access = Access(lambda: site.head.tree, site.tokens)
    assert access.by_certificate(subject, der) is not None
    assert site.enrolments.has_certificate("node001") and not site.enrolments.has_certificate("node002")
    waits = await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))
    assert waits.state == "pending" and "still good" in waits.reasons[0]
    await site.enrolments.decide("node001", approve=True, by="anna")
    assert access.by_certificate(subject, der) is None


async def test_what_a_head_knows_is_kept_and_forgotten_in_time(site: Site) -> None:
    who = await site.token(ENROL_CATEGORY, "strict", uses=2)
    await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))
    await site.enrolments.ask(who, EnrolmentRequest(csr=csr(), facts=Facts(hostname="gpu01")))
    async with opened(site.store, site.clock, site.issuer) as other:
        assert [one.node for one in other.enrolments.list()] == [one.node for one in site.enrolments.list()]
        assert other.enrolments.has_certificate("node001")
    site.clock.jump(timedelta(days=8).total_seconds())
    await site.enrolments.tidy()
    assert [(one.node, one.state) for one in site.enrolments.list()] == [("node001", "issued")]
    site.clock.jump(timedelta(days=30).total_seconds())
    await site.enrolments.tidy()
    assert site.enrolments.list() == []
    assert site.enrolments.has_certificate("node001")
    site.clock.jump(timedelta(days=400).total_seconds())
    await site.enrolments.tidy()
    assert not site.enrolments.certificates.items()


async def test_a_name_that_comes_back_does_not_bring_the_former_machine_with_it(site: Site) -> None:
    first = await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))
    device = site.head.tree.get(("device", "node001"))
    await commit(site.head, [Edit("device", "node001", device, None)])
    await commit(site.head, [Edit("device", "node001", None, device)])
    waits = await site.enrolments.ask(await site.token(), EnrolmentRequest(csr=csr()))
    assert waits.state == "pending" and "still good" in waits.reasons[0]
    await site.enrolments.decide("node001", approve=True, by="anna")
    der = x509.load_pem_x509_certificate(first.certificate.encode()).public_bytes(encoding=DER)
    assert site.tokens.revocations.is_revoked("node", "node001", der)


async def test_the_next_certificate_is_issued_late_in_the_life_of_one_or_by_another_authority(site: Site) -> None:
    node = Identity("node001", "node", "certificate")
    begin = site.clock.now()
    end = begin + timedelta(days=100)
    site.clock.jump(timedelta(days=80).total_seconds() - 1)
    with pytest.raises(errors.Conflict, match=r"from .* on"):
        await site.enrolments.renew(node, csr(), Present(begin, end, True))
    early = await site.enrolments.renew(node, csr(), Present(begin, end, False))
    site.clock.jump(1)
    issued = await site.enrolments.renew(node, csr(name="node002"), Present(begin, end, True))
    assert subject_of(issued.certificate)["commonName"] == "node001"
    assert early.fingerprint != issued.fingerprint
    assert site.enrolments.has_certificate("node001")
