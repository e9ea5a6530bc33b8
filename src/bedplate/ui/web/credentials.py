"""Who can get in, with what, and until when: users, bearer tokens, certificates.

In: visits; what `head.access` knows of tokens, certificates and revocations. Out: one page, sorted by the ends; new
tokens, whose text is on the answer to the form and nowhere else; revocations. Everybody who may read tokens over REST
may read the page; what changes something is an administrator's, and goes by the same rules as there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.core.clock import parse_rfc3339
from bedplate.head import demand, may
from bedplate.head.daemon import Service
from bedplate.head.entities.site import User
from bedplate.head.schema.ranges import natural
from bedplate.ui.web import links
from bedplate.ui.web.visit import Visit

__all__ = ["End", "create_token", "credentials", "end", "ending", "revoke_certificate", "revoke_token"]

SOON = timedelta(days=30)
_SHOWN = 200
_DAY_S = 86400


class End(NamedTuple):
    """When something ends, in words; `tone` is a class of the style sheet. `is_soon`: within a month from now."""

    words: str
    tone: str = ""
    is_soon: bool = False


class Person(NamedTuple):
    """A user with how many credentials there are."""

    name: str
    way: str
    role: str
    is_enabled: bool
    tokens: int
    certificates: int
    note: str


class Rows(NamedTuple):
    """The first rows of a table, and how many more there are."""

    shown: list[tuple[headapi.Token | headapi.Certificate, End]]
    more: int


def end(expires: str, now: datetime) -> End:
    """When a credential ends: RFC 3339, empty for never."""
    if not expires:
        return End("never")
    left = parse_rfc3339(expires) - now
    days = math.floor(abs(left.total_seconds()) / _DAY_S)
    span = "less than a day" if not days else "1 day" if days == 1 else f"{days} days"
    if left <= timedelta():
        return End(f"expired {span} ago", "no")
    return End(f"in {span}", "soon" if left <= SOON else "", left <= SOON)


def ending(service: Service) -> int:
    """How many credentials end within a month, and are still good; without tokens of enrolments, which all do."""
    now = service.clock.now()
    ends = [token.expires for token in service.access.tokens.list() if not token.uses]
    ends += [item.expires for item in service.certificates() if not item.revoked]
    return sum(end(expires, now).is_soon for expires in ends)


async def credentials(visit: Visit) -> web.StreamResponse:
    """Users, tokens and certificates."""
    demand(visit.person, "read", "tokens")
    return _page(visit)


def _page(
    visit: Visit, token: headapi.Token | None = None, text: str = "", problem: str = "", status: int = 200
) -> web.Response:
    service, words = visit.service, visit.request.query.get("q", "").lower().split()
    now = service.clock.now()
    tokens = sorted(service.access.tokens.list(), key=lambda token: (token.expires or "~", token.created))
    certificates = service.certificates()
    return visit.page(
        "credentials.html",
        "Credentials",
        status,
        people=[person for person in _people(visit, tokens, certificates) if _has(words, person[:3])],
        tokens=_rows([token for token in tokens if _has(words, _texts(token))], now),
        certificates=_rows([item for item in certificates if _has(words, _texts(item))], now),
        soon=ending(service),
        may_change=may(visit.person, "edit", "tokens") and service.head.standing.is_active,
        own=visit.person.via.removeprefix("token "),
        filter=" ".join(words),
        made=token,
        text=text,
        problem=problem,
        typed=visit.typed,
    )


def _texts(item: headapi.Token | headapi.Certificate) -> list[str]:
    return [str(value) for value in msgspec.structs.astuple(item)]


def _has(words: Iterable[str], texts: Iterable[object]) -> bool:
    line = " ".join(map(str, texts)).lower()
    return all(word in line for word in words)


def _rows(items: Sequence[headapi.Token | headapi.Certificate], now: datetime) -> Rows:
    return Rows([(item, end(item.expires, now)) for item in items[:_SHOWN]], max(len(items) - _SHOWN, 0))


def _people(visit: Visit, tokens: Iterable[headapi.Token], certificates: Iterable[headapi.Certificate]) -> list[Person]:
    weak = visit.service.access.weak_tokens()
    by_token = [token.subject for token in tokens if token.kind == "user"]
    by_certificate = [item.subject for item in certificates if item.use == "user" and not item.revoked]
    people = []
    for name, user in sorted(visit.tree.mode("user").items(), key=lambda entry: natural(entry[0])):
        notes = []
        if name in weak:
            notes.append("the token in the object is too weak and is refused")
        elif User.token.value(user):
            notes.append("a token in the object, which does not expire")
        if User.certificate.value(user):
            notes.append("one certificate only, by its fingerprint")
        people.append(
            Person(
                name,
                links.show(("user", name)),
                str(User.role.value(user)),
                bool(User.enabled.value(user)),
                by_token.count(name),
                by_certificate.count(name),
                "; ".join(notes),
            )
        )
    return people


def _administrate(visit: Visit) -> None:
    demand(visit.person, "edit", "tokens")
    visit.service.head.standing.refuse_writes()


async def create_token(visit: Visit) -> web.StreamResponse:
    """A new token for a user or a node; its text is shown on this answer only."""
    _administrate(visit)
    typed = visit.typed
    days = typed.get("days", "").strip() or "0"
    asked = {"subject": typed.get("subject", "").strip(), "name": typed.get("name", "").strip()}
    asked |= {"kind": "node" if typed.get("kind") == "node" else "user"}
    try:
        if not days.isdecimal() or len(days) > 5:
            raise errors.Invalid(f"{days!r} must be a number of days", hint="0: until it is revoked")
        request = msgspec.convert({**asked, "days": int(days)}, headapi.TokenRequest)
        token, text = await visit.service.access.create_token(visit.person, request)
    except (errors.Invalid, errors.NotFound) as err:
        return _page(visit, problem=f"{err.message}{f': {err.hint}' if err.hint else ''}", status=422)
    except msgspec.ValidationError as err:
        return _page(visit, problem=f"the token cannot be made: {err}", status=422)
    return _page(visit, token, text, status=201)


async def revoke_token(visit: Visit) -> web.StreamResponse:
    """Revoke a token."""
    _administrate(visit)
    token = await visit.service.access.revoke_token(visit.person, visit.request.match_info["id"])
    visit.login.say(f"The token {token.id} of {token.subject} is revoked.", "good")
    return visit.go("/credentials")


async def revoke_certificate(visit: Visit) -> web.StreamResponse:
    """Revoke one certificate of a user or a node."""
    _administrate(visit)
    asked = {"fingerprint": visit.typed.get("fingerprint", "")}
    try:
        request = msgspec.convert(asked, headapi.RevocationRequest)
    except msgspec.ValidationError as err:
        raise errors.Invalid("this is not the fingerprint of a certificate") from err
    known = next((item for item in visit.service.certificates() if item.fingerprint == request.fingerprint), None)
    if known is None or known.use not in ("user", "node"):
        raise errors.NotFound("there is no certificate of a user or a node with that fingerprint")
    await visit.service.access.tokens.revocations.revoke(fingerprint=request.fingerprint, by=visit.person.name)
    visit.login.say(f"The certificate {known.fingerprint[:16]} of {known.subject} is revoked.", "good")
    return visit.go("/credentials")
