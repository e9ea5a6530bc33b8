"""What an administrator asks of a head at its data folder: tokens, access, client certificates, how it is.

In: a data folder, with or without a daemon on it. Out: values for the program to print. A running daemon is asked over
its API, with the folder's own credential; without one the folder's store is opened here, under its lock.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from bedplate.api import headapi
from bedplate.api.headapi import NAME
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.head.access import NODES, USER, USERS, Access
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import administrator, pki, transfer
from bedplate.head.folder.administrator import Recovered
from bedplate.head.folder.datafolder import Folder, open_head
from bedplate.head.folder.sitekeys import SiteKeys
from bedplate.head.policy import ENROL, ENROL_CATEGORY, JOIN, NODE
from bedplate.head.revocations import generation_in
from bedplate.head.service import Head
from bedplate.head.site import ADMIN
from bedplate.head.tokens import Tokens
from bedplate.store.interface import Store
from bedplate.store.open import open_store

__all__ = [
    "Issued",
    "Status",
    "client",
    "create_token",
    "fingerprint_of",
    "issue_certificate",
    "list_revocations",
    "list_tokens",
    "recover_admin",
    "revoke_certificates",
    "revoke_token",
    "rotate_authority",
    "status",
]

_BY = "bedplate head token"


def client(folder: Folder, url: str) -> HeadClient:
    """A client with the administrator's certificate of the folder; a shell's socket asks for none."""
    if url.startswith("http+unix:"):
        return HeadClient(url, token="-")
    file = folder.file
    return HeadClient(
        url,
        ca_file=str(file("ca.crt")),
        cert_file=str(file(f"{ADMIN}.crt")),
        key_file=str(file(f"{ADMIN}.key")),
    )


# Tokens


async def create_token(
    folder: Folder,
    subject: str,
    *,
    kind: str,
    name: str,
    days: int,
    uses: int = 1,
    lasts_s: float = 0.0,
    replace: bool = False,
) -> tuple[headapi.Token, str]:
    """A token for a user, a node or an enrolment, and its text. Raises `NotFound` where the tree has no such one."""
    url = folder.daemon_url()
    if url:
        async with client(folder, url) as head:
            answer = await head.create_token(
                subject, name, kind=kind, days=days, uses=uses, lasts_s=lasts_s, replace=replace
            )
        return answer.about, answer.token
    if kind in (JOIN, ENROL, ENROL_CATEGORY):
        who = "another head node has nothing to join" if kind == JOIN else "no node can enrol"
        raise errors.Unavailable(
            f"no daemon serves {folder.path}: {who}", hint=f"bedplate head serve --data {folder.path}"
        )
    async with _access(folder) as access:
        access.check_subject(kind, subject)
        lasts = timedelta(days=days) if days else None
        token, text = await access.tokens.create(kind, subject, name, lasts=lasts, by=_BY)
    return token, text


async def list_tokens(folder: Folder) -> list[headapi.Token]:
    """All tokens, oldest first."""
    url = folder.daemon_url()
    if url:
        async with client(folder, url) as head:
            return list(await head.tokens())
    async with _access(folder) as access:
        return access.tokens.list()


async def revoke_token(folder: Folder, id_: str) -> None:
    """Revoke a token. Raises `NotFound`."""
    url = folder.daemon_url()
    if url:
        async with client(folder, url) as head:
            await head.revoke_token(id_)
        return
    async with _access(folder) as access:
        await access.tokens.revoke(id_, by=_BY)


@asynccontextmanager
async def _access(folder: Folder) -> AsyncIterator[Access]:
    """Users, devices and tokens of a folder that no daemon here serves."""
    async with _head(folder) as (store, head):
        tokens = Tokens(store)
        await tokens.open()
        yield Access(lambda: head.tree, tokens)


@asynccontextmanager
async def _head(folder: Folder) -> AsyncIterator[tuple[Store, Head]]:
    if folder.settings.etcd is None:
        async with open_head(folder.path) as opened:
            yield opened.store, opened.head
        return
    # Tokens are records of their own, so that several heads may write them; the tree is only read here.
    async with open_store(folder.store_options()) as store:
        await transfer.require_own(store, transfer.Site.of(folder, folder.settings.name))
        async with Head(store, SCHEMA, folder.vault()) as head:
            yield store, head


# Access


async def recover_admin(folder: Folder, name: str, *, clock: Clock | None = None) -> Recovered:
    """Make a user an enabled administrator, with new credentials in the folder, whoever is locked out.

    On SQLite no daemon may run; on an etcd the heads that run take the revision up. Raises `Unavailable`, `Invalid`.
    """
    holder = folder.holder()
    if folder.settings.etcd is None and holder is not None:
        raise errors.Unavailable(
            f"{folder.path} is in use by {holder.words}",
            hint="leave that shell" if holder.is_shell else "stop the daemon first; start it again afterwards",
        )
    async with _head(folder) as (store, head):
        tokens = Tokens(store, clock=clock)
        await tokens.open()
        return await administrator.recover(folder.path, head, tokens, name, clock or SystemClock())


# Certificates


class Issued(NamedTuple):
    """Where a new certificate and its key are, its fingerprint, and until when it is good."""

    certificate: Path
    key: Path
    fingerprint: str
    ends: str


async def issue_certificate(
    folder: Folder, name: str, out: Path, *, is_node: bool, days: int, clock: Clock | None = None
) -> Issued:
    """A client certificate for a user or a node, written as `name.crt` and `name.key`. Raises `AlreadyExists`.

    The head, or its store, is asked what was revoked so far: the certificate must not be taken for one of those."""
    now = (clock or SystemClock()).now()
    certificate, key = out / f"{name}.crt", out / f"{name}.key"
    if not re.fullmatch(NAME, name) or name.startswith("."):
        raise errors.Invalid(
            f"{name!r} cannot be the name of a {'node' if is_node else 'user'}",
            hint="a name has no slash and no control character, and begins with neither a dot nor a dash",
        )
    _refuse_existing(out, certificate, key)
    kind, group = (NODE, NODES) if is_node else (USER, USERS)
    generation = generation_in(await list_revocations(folder), kind, name)
    authority = pki.Authority.for_clients(folder.path)
    pair = authority.client(name, group, now, timedelta(days=days), generation=generation)
    pair.write(out, name)
    return Issued(certificate, key, pki.fingerprint(pair.certificate), rfc3339(now + timedelta(days=days)))


def _refuse_existing(out: Path, certificate: Path, key: Path) -> None:
    if not out.is_dir():
        raise errors.Invalid(f"there is no folder {out} to write to", hint="create it, or choose another with --out")
    if certificate.exists() or key.exists():
        raise errors.AlreadyExists(f"{certificate} or its key already exists", hint="choose another folder with --out")


async def list_revocations(folder: Folder) -> list[headapi.Revocation]:
    """The client certificates that no longer count, oldest first."""
    url = folder.daemon_url()
    if url:
        async with client(folder, url) as head:
            return list(await head.revocations())
    async with _access(folder) as access:
        return access.tokens.revocations.list()


async def revoke_certificates(
    folder: Folder, subject: str = "", *, kind: str = "user", fingerprint: str = "", clock: Clock | None = None
) -> headapi.Revocation:
    """Revoke the certificate with a fingerprint, or all that a user or a node has so far. The administrator's own in
    the folder is then issued again, by its daemon or here, so that the folder's commands go on working."""
    url = folder.daemon_url()
    if url:
        async with client(folder, url) as asked:
            return await asked.revoke_certificates(subject, kind=kind, fingerprint=fingerprint)
    clock = clock or SystemClock()
    async with _head(folder) as (store, head):
        tokens = Tokens(store, clock=clock)
        await tokens.open()
        revocation = await tokens.revocations.revoke(kind=kind, subject=subject, fingerprint=fingerprint, by=_BY)
        keys = SiteKeys(folder, store, folder.vault(), clock)
        await administrator.renew(folder.path, head, tokens, keys, clock)
    return revocation


async def rotate_authority(folder: Folder, *, finish: bool, clock: Clock | None = None) -> headapi.AuthorityState:
    """Begin to replace the site's authority, or finish that; all heads of the site follow. Raises `Conflict`."""
    url = folder.daemon_url()
    if url:
        async with client(folder, url) as asked:
            return await asked.rotate_authority(finish=finish)
    clock = clock or SystemClock()
    async with _head(folder) as (store, head):
        keys, tokens = SiteKeys(folder, store, folder.vault(), clock), Tokens(store, clock=clock)
        await tokens.open()
        await keys.load()
        state = await (keys.finish() if finish else keys.begin())
        await administrator.renew(folder.path, head, tokens, keys, clock)
    return state


def fingerprint_of(file: Path) -> str:
    """The fingerprint of a certificate in a file. Raises `Invalid`."""
    try:
        return pki.fingerprint(file.read_bytes())
    except (OSError, ValueError) as err:
        raise errors.Invalid(f"{file} cannot be read as a certificate: {err}", hint="give a file in PEM") from err


# How it is


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What `bedplate head status` shows."""

    name: str
    data: str
    store: str
    daemon: str
    url: str
    revision: int | None
    standing: str
    active: str
    trouble: str
    certificates: dict[str, str]


async def status(folder: Folder) -> Status:
    """How the folder's head is. Raises `Unavailable` when a daemon holds the folder and does not answer."""
    settings, holder = folder.settings, folder.holder()
    store = "etcd " + ",".join(settings.etcd.endpoints) if settings.etcd is not None else "sqlite"
    ends = {name: pki.good_until(folder.file(f"{name}.crt")) for name in ("ca", "server", ADMIN)}
    certificates = {name: rfc3339(end) if end is not None else "cannot be read" for name, end in ends.items()}
    url, revision, standing, active, trouble = settings.url, None, "", "", ""
    daemon = holder.words if holder is not None else "not running"
    if holder is not None and holder.url:
        url = settings.url if holder.is_shell else holder.url
        async with client(folder, holder.url) as head:
            known = await head.whoami()
        revision, standing = known.revision, "active" if known.is_active else "passive"
        active, trouble = "" if known.is_active else known.active, known.trouble
    elif holder is None and settings.etcd is None:
        async with open_head(folder.path) as opened:
            revision = opened.head.revision
    known_as, path = settings.name, str(folder.path)
    return Status(known_as, path, store, daemon, url, revision, standing, active, trouble, certificates)
