"""How a machine becomes a node: a token and a signing request for a certificate, by policy or by hand.

In: signing requests of machines that have a token, decisions of administrators, the tree. Out: certificates of nodes,
in the name of the device and for nothing else; what waits for an administrator, and why. `reasons` and `device_for`
decide, and are pure. The use of the token, the certificate and the revocation of the one it replaces are one
transaction of the store, so that a token never works once too often. A request is known by its token and its public
key: who repeats it gets the answer that was lost, and nobody else gets one.

A new node of a category that has no device yet gets one, as a commit of whoever made the token.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from bedplate.api import headapi
from bedplate.api.headapi import Certificate, Enrolment, EnrolmentAnswer, Facts, Token
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.book import Book, again, write
from bedplate.head.certificates import describe
from bedplate.head.entities.nodes import Category, PhysicalInterface, PhysicalNode
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj, Value
from bedplate.head.policy import ENROL, NODE, Identity
from bedplate.head.revocations import put
from bedplate.head.schema.ranges import natural
from bedplate.head.service import Head, Stale
from bedplate.head.session import Edit
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.store.interface import Op, Store

__all__ = [
    "ENROLMENTS",
    "NODE_CERTIFICATES",
    "Enrolments",
    "Issued",
    "Issuer",
    "Present",
    "device_for",
    "reasons",
]

ENROLMENTS: Final = "/head/enrolments/"
NODE_CERTIFICATES: Final = "/head/nodecertificates/"
"""The newest certificate of each node, by its name; those that were used are elsewhere (`head.certificates`)."""
RENEWS_FROM: Final = 0.8
"""The share of a certificate's life after which the next one is issued."""
_LOG = get_logger("head.enrolment")
_PENDING_KEPT = timedelta(days=7)
_DECIDED_KEPT = timedelta(days=30)


class Issued(NamedTuple):
    """A certificate as PEM, its SHA-256, and its end."""

    certificate: str
    fingerprint: str
    ends: datetime


class Present(NamedTuple):
    """A certificate that a node has: when it was issued, when it ends, whether the authority that signs now has issued
    it, and with which generation of the node's revocations."""

    begin: datetime
    end: datetime
    is_current: bool
    generation: int = 0


class Issuer(Protocol):
    """What signs for the site: `SiteKeys`."""

    def certify(self, csr: str, node: str, generation: int) -> Issued:
        """A client certificate for the key of a signing request, in the name of a node; `generation` tells it from
        those that were revoked by name. Raises `Invalid`."""

    def key_of(self, csr: str) -> str:
        """The SHA-256 of the public key of a signing request that is in order. Raises `Invalid`."""

    def bundle(self) -> str:
        """The authorities that clients have to trust, as PEM."""


class _Record(EnrolmentAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """An enrolment as it is kept. `category` is that of a device which is to be added."""

    csr: str
    category: str = ""
    maker: str = ""


# What is decided


class Candidate(NamedTuple):
    """The device that a machine is to be; `category` where it has to be added."""

    node: str
    category: str = ""


def device_for(tree: Tree, token: Token, facts: Facts) -> Candidate:
    """Which device a token makes of a machine. Raises `Denied`."""
    if token.kind == ENROL:
        if tree.find("device", token.subject) is None:
            raise errors.Denied(f"there is no device {token.subject} any more", hint="ask for another token")
        return Candidate(token.subject)
    if tree.find("category", token.subject) is None:
        raise errors.Denied(f"there is no category {token.subject} any more", hint="ask for another token")
    known = _by_mac(tree, facts) or _by_name(tree, facts)
    if known is None:
        return Candidate(_new_name(tree, facts), token.subject)
    device = tree.get(("device", known))
    if device.type != PhysicalNode.type_name() or PhysicalNode.category.value(device) != token.subject:
        raise errors.Denied(
            f"{known} is not a node of the category {token.subject}, which the token is for",
            hint=f"bedplate head token create --enrol {known} makes a token for it",
        )
    return Candidate(known)


def reasons(tree: Tree, candidate: Candidate, token: Token, facts: Facts, *, has_certificate: bool) -> list[str]:
    """Why an administrator has to look at an enrolment; nothing where the token is enough."""
    why = []
    device = tree.find("device", candidate.node)
    category = candidate.category
    if device is not None:
        category = str(device.values.get("category") or "")
    shared = tree.find("category", category) if category else None
    if shared is not None and Category.enrolment.value(shared) == "APPROVAL":
        why.append(f"enrolments of the category {category} are approved by hand")
    if has_certificate and not token.replace:
        why.append(f"{candidate.node} has a certificate that is still good")
    macs = set(_macs(device)) if device is not None else set()
    if macs and not macs & set(facts.macs):
        told = ", ".join(facts.macs[:4]) or "none"
        why.append(f"the device has the MAC {', '.join(sorted(macs))}, the machine says {told}")
    return why


def _macs(device: Obj) -> Iterator[str]:
    for text in (
        PhysicalNode.mac.value(device),
        *(PhysicalInterface.mac.value(interface) for interface in device.below("interfaces").values()),
    ):
        if text:
            yield str(text).lower()


def _by_mac(tree: Tree, facts: Facts) -> str | None:
    macs = set(facts.macs)
    if not macs:
        return None
    return next((name for name, device in tree.mode("device").items() if macs & set(_macs(device))), None)


def _by_name(tree: Tree, facts: Facts) -> str | None:
    return next((name for name in _names(facts) if tree.find("device", name) is not None), None)


def _names(facts: Facts) -> Iterator[str]:
    """What a machine may be called by its host name: that, or its first part."""
    for name in dict.fromkeys((facts.hostname.lower(), facts.hostname.lower().partition(".")[0])):
        try:
            if name and PhysicalNode.hostname.kind.parse(name) == name:
                yield name
        except ValueError:
            continue


def _new_name(tree: Tree, facts: Facts) -> str:
    """The machine's own name without its domain, or the next number."""
    names = [name for name in _names(facts) if name != "localhost"]
    if names:
        return names[-1]
    devices = tree.mode("device")
    return next(name for name in (f"node{number:03}" for number in range(1, len(devices) + 2)) if name not in devices)


def _about(issued: Issued) -> Certificate:
    return describe(NODE, ssl.PEM_cert_to_DER_cert(issued.certificate))


# What is kept


class Enrolments:
    """All enrolments and certificates of a site. Only the active head decides; others know what was decided."""

    def __init__(
        self, store: Store, head: Head, tokens: Tokens, notices: Notices, issuer: Issuer | None, *, clock: Clock
    ) -> None:
        self._store = store
        self._head = head
        self._tokens = tokens
        self._notices = notices
        self._issuer = issuer
        self._clock = clock
        self._deciding = asyncio.Lock()
        self.book = Book(store, ENROLMENTS, _Record)
        self.certificates = Book(store, NODE_CERTIFICATES, Certificate)

    async def open(self) -> None:
        await self.book.open()
        await self.certificates.open()

    def list(self) -> Sequence[Enrolment]:
        """All of them, oldest first, without certificates."""
        records = sorted(self.book.items().values(), key=lambda record: (record.asked, natural(record.node)))
        return [msgspec.convert(record, Enrolment, from_attributes=True) for record in records]

    def find(self, name: str) -> Enrolment:
        """The enrolment with an id, or the newest of a node, those that wait before others. Raises `NotFound`."""
        record = self.book.get(name)
        own = sorted(
            (record for record in self.book.items().values() if record.node == name),
            key=lambda record: (record.state == "pending", record.asked),
        )
        record = record or (own[-1] if own else None)
        if record is None:
            raise errors.NotFound(f"there is no enrolment of {name!r}", hint="cmsh: device; enrolments lists them")
        return msgspec.convert(record, Enrolment, from_attributes=True)

    def answer(self, identity: Identity, id_: str) -> EnrolmentAnswer:
        """What became of an enrolment, for whoever asked for it and for people. Raises `NotFound`."""
        record = self.book.get(id_)
        if record is None or (identity.role == ENROL and identity.via != f"token {record.token}"):
            raise errors.NotFound(f"there is no enrolment {id_!r}", hint="it may have been forgotten: ask again")
        return self._answered(record, with_certificate=identity.role == ENROL)

    def has_certificate(self, node: str) -> bool:
        """Whether a node has a certificate that counts."""
        return bool(self._good(node))

    def _good(self, node: str) -> Sequence[Certificate]:
        """The certificates of a node that count: the newest, and those that it has used, whoever issued them."""
        newest, now = self.certificates.get(node), self._clock.now()
        known = {item.fingerprint: item for item in self._tokens.certificates.of(NODE, node)}
        if newest is not None:
            known[newest.fingerprint] = newest
        is_revoked = self._tokens.revocations.covers
        return [item for item in known.values() if now < parse_rfc3339(item.expires) and not is_revoked(item)]

    async def ask(self, identity: Identity, request: headapi.EnrolmentRequest) -> EnrolmentAnswer:
        """Take a machine's request: its certificate where policy says so, else an enrolment that waits.

        Raises `Denied` for a token that has no use left, `Invalid` for a request that is not in order.
        """
        token_id, key = identity.via.removeprefix("token "), self._keys.key_of(request.csr)
        id_ = hashlib.sha256(f"{token_id} {key}".encode()).hexdigest()[:32]

        async def decide() -> _Record:
            known = await self.book.look(id_)
            return known if known is not None else await self._file(id_, token_id, key, request)

        async with self._deciding:
            self._head.standing.refuse_writes()
            return self._answered(await again(decide, Stale), with_certificate=True)

    async def _file(self, id_: str, token_id: str, key: str, request: headapi.EnrolmentRequest) -> _Record:
        """Use the token, and write down what becomes of the request, in one transaction."""
        spending, token = await self._tokens.using(token_id)
        candidate = device_for(self._head.tree, token, request.facts)
        why = reasons(
            self._head.tree, candidate, token, request.facts, has_certificate=self.has_certificate(candidate.node)
        )
        record = _Record(
            id=id_,
            node=candidate.node,
            state="pending",
            asked=rfc3339(self._clock.now()),
            token=token_id,
            key=key,
            facts=request.facts,
            reasons=why,
            csr=request.csr,
            category=candidate.category,
            maker=token.by,
        )
        if why:
            await write(self._store, [self.book.change(id_, record)], [spending])
        else:
            record = await self._issue(record, "policy", "", [spending])
        self._tokens.used(token)
        if why:
            node = candidate.node
            text = f"{node} asks to be enrolled: {'; '.join(why)}; approve {node} or deny {node}"
            await self._notices.add(node, text, "warning")
        return record

    async def decide(self, name: str, *, approve: bool, by: str, text: str = "") -> Enrolment:
        """An administrator's word on an enrolment that waits, by its id or its node. Raises `NotFound`, `Conflict`."""

        async def decide() -> _Record:
            record = self.book.get(self.find(name).id)
            assert record is not None
            if record.state != "pending":
                raise errors.Conflict(f"the enrolment of {record.node} was {record.state} already", hint="enrolments")
            if approve:
                return await self._issue(record, by, text, [])
            denied = msgspec.structs.replace(
                record, state="denied", decided=rfc3339(self._clock.now()), by=by, text=text
            )
            await write(self._store, [self.book.change(record.id, denied)])
            await self._notices.add(record.node, f"{by} denied the enrolment of {record.node}", "warning")
            return denied

        async with self._deciding:
            self._head.standing.refuse_writes()
            return msgspec.convert(await again(decide), Enrolment, from_attributes=True)

    async def _issue(self, record: _Record, by: str, text: str, more: Sequence[Op]) -> _Record:
        await self._add_device(record)
        revocations, node, now = self._tokens.revocations, record.node, rfc3339(self._clock.now())
        revoked = await revocations.of_all(NODE, node, by=by) if self._good(node) else None
        generation = revoked.generation if revoked is not None else await revocations.refreshed(NODE, node)
        issued = self._keys.certify(record.csr, node, generation)
        after = msgspec.structs.replace(
            record,
            state="issued",
            decided=now,
            by=by,
            text=text,
            ends=rfc3339(issued.ends),
            certificate=issued.certificate,
        )
        changes = [self.book.change(record.id, after), self.certificates.change(node, _about(issued))]
        await write(self._store, changes, [*more, put(revoked)] if revoked is not None else more)
        if revoked is not None:
            revocations.take(revoked)
        _LOG.info("head.enrolled", node=node, enrolment=record.id, token=record.token, by=by)
        again_ = "enrolled again; its former certificates no longer count" if revoked is not None else "enrolled"
        await self._notices.add(node, f"{node} was {again_} (approved by {by})", "notice")
        return after

    async def _add_device(self, record: _Record) -> None:
        if self._head.tree.find("device", record.node) is not None:
            return
        if not record.category:
            raise errors.Denied(f"there is no device {record.node} any more", hint="deny the enrolment")
        values: dict[str, Value] = {"category": record.category}
        if record.facts.macs:
            values["mac"] = record.facts.macs[0].upper()
        device = Obj(PhysicalNode.type_name(), record.node, values)
        who = Identity.local(record.maker or "enrolment")
        message = f"{record.node} enrolled with the token {record.token}"
        await self._head.commit_as(who, [Edit("device", record.node, None, device)], message)

    async def renew(self, identity: Identity, csr: str, present: Present) -> Issued:
        """The next certificate of a node that has this one. Raises `Conflict` when it is too early."""
        self._head.standing.refuse_writes()
        begin, end, is_current, generation = present
        due = begin + (end - begin) * RENEWS_FROM
        if is_current and self._clock.now() < due:
            raise errors.Conflict(
                f"the certificate of {identity.name} is good until {rfc3339(end)}; the next one is issued from "
                f"{rfc3339(due)} on",
                hint="ask again then",
            )
        # That of the present one: who is revoked while this goes on gets one that does not count either.
        issued = self._keys.certify(csr, identity.name, generation)

        async def keep() -> None:
            await write(self._store, [self.certificates.change(identity.name, _about(issued))])

        await again(keep)
        _LOG.info("head.certificate_renewed", node=identity.name, ends=rfc3339(issued.ends))
        return issued

    async def tidy(self) -> None:
        """Forget enrolments of long ago, and certificates that have ended. Those of a device that was removed stay
        known: it may come back, or another machine may get its name."""
        now = self._clock.now()
        for node, newest in list(self.certificates.items().items()):
            if parse_rfc3339(newest.expires) < now:
                await write(self._store, [self.certificates.change(node, None)])
        for id_, record in list(self.book.items().items()):
            kept = _PENDING_KEPT if record.state == "pending" else _DECIDED_KEPT
            if parse_rfc3339(record.decided or record.asked) + kept < now:
                await write(self._store, [self.book.change(id_, None)])

    @property
    def _keys(self) -> Issuer:
        if self._issuer is None:
            raise errors.NotFound("this head has no keys of a site", hint="it serves no data folder")
        return self._issuer

    def _answered(self, record: _Record, *, with_certificate: bool) -> EnrolmentAnswer:
        answer = msgspec.convert(record, EnrolmentAnswer, from_attributes=True)
        if not with_certificate or record.state != "issued":
            return msgspec.structs.replace(answer, certificate="", authority="")
        return msgspec.structs.replace(answer, authority=self._keys.bundle())
