"""The administrator's credentials in a data folder, and the way back into a site that has locked everybody out.

In: a folder with the authority's key, and its head. Out: `admin.crt`, `admin.key` and `admin.token` of an enabled
administrator, and where none of the tree's users is one, a revision that makes one. Whoever can do this holds the keys
of the site already.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from bedplate.core.clock import Clock
from bedplate.head.access import USER, USERS, Access
from bedplate.head.entities.site import User
from bedplate.head.folder import pki
from bedplate.head.folder.sitekeys import SiteKeys
from bedplate.head.policy import Identity, user_in
from bedplate.head.service import Head
from bedplate.head.site import ADMIN
from bedplate.head.tokens import Tokens
from bedplate.head.tree import Tree
from bedplate.serving.files import write_private

__all__ = ["Recovered", "provide", "recover", "renew"]

_BY = "bedplate head"
_TOKEN_NAME = "of the data folder"


class Recovered(NamedTuple):
    """Whose credentials are new, and the revision that made the user an enabled administrator; 0 if it was one."""

    name: str
    revision: int


async def recover(folder: Path, head: Head, tokens: Tokens, name: str, clock: Clock) -> Recovered:
    """Make a user an enabled administrator, with a new certificate and a new token in the folder.

    A user whose object names the fingerprint of a certificate is given that of the new one. Raises `Invalid`.
    """
    pair = _issue(folder, tokens, name, clock)
    session, path = head.session(), ("user", name)
    if head.tree.find(*path) is None:
        session.add(("user",), name)
    session.set(path, "enabled", "yes")
    session.set(path, "role", "admin")
    if User.certificate.value(session.tree.get(path)):
        session.set(path, "certificate", pki.fingerprint(pair.certificate))
    message = f"recovery of the administrator {name}"
    revision = await head.commit_as(Identity.local("bedplate head recover-admin"), session.edits(), message)
    pair.write(folder, ADMIN)
    await _write_token(folder, tokens, name)
    return Recovered(name, 0 if revision is None else revision.number)


async def provide(folder: Path, head: Head, tokens: Tokens, clock: Clock) -> Recovered | None:
    """Replace the credentials in the folder that give nobody administrator's access; None when both do."""
    access = Access(lambda: head.tree, tokens)
    has_certificate, has_token = _has_certificate(folder, access, clock), _has_token(folder, access)
    if has_certificate and has_token:
        return None
    name = _administrator(head.tree)
    if name is None or (_pinned(head.tree, name) and not has_certificate):
        return await recover(folder, head, tokens, name or ADMIN, clock)
    if not has_certificate:
        _issue(folder, tokens, name, clock).write(folder, ADMIN)
    if not has_token:
        await _write_token(folder, tokens, name)
    return Recovered(name, 0)


async def renew(folder: Path, head: Head, tokens: Tokens, keys: SiteKeys, clock: Clock) -> bool:
    """Whether the administrator's certificate in the folder was replaced: it was about to expire, revoked, or another
    authority's.

    Where the user's object names it by its fingerprint, the object names the new one from then on, and the other heads
    of the site find it in the store (`SiteKeys.share`). Raises what a commit raises, before the folder is changed.
    """
    file = folder / f"{ADMIN}.crt"
    own = pki.presented(file)
    if own is None:
        return False
    name, now = (*own.subject["commonName"], ADMIN)[0], clock.now()
    pinned = _pinned(head.tree, name)
    if pinned and pinned != hashlib.sha256(own.der).hexdigest():
        pair = await keys.administrator()
        if pair is None or pki.fingerprint(pair.certificate) != pinned:
            return False
        pair.write(folder, ADMIN)
        return True
    is_spent = own.ends < now + pki.RENEW_BEFORE or tokens.revocations.is_revoked(USER, name, own.der)
    if not is_spent and pki.is_pair(file) and pki.is_issued_by(file, folder / f"{pki.NEXT}.crt", folder / "ca.crt"):
        return False
    pair = _issue(folder, tokens, name, clock)
    if pinned:
        # Shared before it counts: whoever is interrupted here finds it there.
        await keys.share(pair)
        session = head.session()
        session.set(("user", name), "certificate", pki.fingerprint(pair.certificate))
        await head.commit_as(Identity.local(_BY), session.edits(), f"renewed certificate of {name}")
    pair.write(folder, ADMIN)
    return True


def _issue(folder: Path, tokens: Tokens, name: str, clock: Clock) -> pki.Pair:
    generation = tokens.revocations.generation(USER, name)
    return pki.Authority.for_clients(folder).client(name, USERS, clock.now(), generation=generation)


def _pinned(tree: Tree, name: str) -> str:
    """The fingerprint of the only certificate that counts for a user; empty where any does."""
    user = tree.find("user", name)
    return str(User.certificate.value(user)) if user is not None else ""


def _administrator(tree: Tree) -> str | None:
    """An enabled administrator; the one that a site begins with, if it is one."""
    identities = (user_in(tree, name) for name in (ADMIN, *sorted(tree.mode("user"))))
    return next((identity.name for identity in identities if identity is not None and identity.role == "admin"), None)


def _has_certificate(folder: Path, access: Access, clock: Clock) -> bool:
    presented = pki.presented(folder / f"{ADMIN}.crt")
    if presented is None or not pki.is_pair(folder / f"{ADMIN}.crt") or presented.ends <= clock.now():
        return False
    identity = access.by_certificate(presented.subject, presented.der)
    return identity is not None and identity.role == "admin"


def _has_token(folder: Path, access: Access) -> bool:
    try:
        text = (folder / f"{ADMIN}.token").read_text().strip()
    except OSError:
        return False
    identity = access.by_token(text)
    return identity is not None and identity.role == "admin"


async def _write_token(folder: Path, tokens: Tokens, name: str) -> None:
    _, text = await tokens.create(USER, name, _TOKEN_NAME, by=_BY)
    write_private(folder / f"{ADMIN}.token", f"{text}\n".encode())
