"""The keys that all heads of a site share: how the authority is replaced, and what a head that joins is given.

In: the folder of a head, its store and its vault. Out: files in the folder, and a sealed record in the store
(`/head/authority`) that every head of the site follows; beside it the administrator's certificate, where the user's
object names it by its fingerprint, so that all heads have the one that counts.

The authority is replaced in two steps, so that nobody is cut off: `begin` makes the next one, which all heads trust
beside the present one, and which signs client certificates from then on; once every client has the new `ca.crt`,
`finish` lets it sign the heads' own, and the former one is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head.access import NODES, USER
from bedplate.head.certificates import describe
from bedplate.head.enrolment import Issued, Present
from bedplate.head.folder import pki
from bedplate.head.folder.datafolder import ETCD_FILES, SECRETS_KEY, Folder
from bedplate.head.objects import Secret
from bedplate.head.site import ADMIN
from bedplate.head.vault import Vault
from bedplate.serving import issuing
from bedplate.serving.files import write_private
from bedplate.store.interface import CompareFailed, Entry, Put, Store

__all__ = ["AUTHORITY", "SHARED", "SiteKeys", "recorded_authority"]

AUTHORITY: Final = "/head/authority"
_ADMINISTRATOR: Final = f"{AUTHORITY}/administrator"
SHARED = ("ca.crt", "ca.key", SECRETS_KEY, "admin.crt", "admin.key", "admin.token")
"""What all heads of a site have in common."""
_NEXT = (f"{pki.NEXT}.crt", f"{pki.NEXT}.key")
_LOG = get_logger("head.authority")


class _Pairs(msgspec.Struct, frozen=True, omit_defaults=True):
    """A certificate with its key: the present authority, and during a rotation the next one; PEM."""

    certificate: str
    key: str
    next_certificate: str = ""
    next_key: str = ""


class SiteKeys:
    """The keys in one folder. `on_change` is called when files of the authority were written."""

    def __init__(
        self, folder: Folder, store: Store, vault: Vault, clock: Clock, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._store = store
        self._vault = vault
        self._clock = clock
        self._on_change = on_change

    # The authority

    def state(self) -> headapi.AuthorityState:
        """The certificates to be trusted, and whether a rotation is under way."""
        bundle = self._folder.file("ca.crt").read_bytes()
        next_ = self._folder.file(_NEXT[0])
        return headapi.AuthorityState(
            certificates=bundle.decode(),
            fingerprint=pki.fingerprint(bundle),
            next=pki.fingerprint(next_.read_bytes()) if next_.is_file() else "",
        )

    def certificates(self) -> list[headapi.Certificate]:
        """The authorities, this head's own certificate and the administrator's in the folder; without what cannot be
        read."""
        uses = (("authority", "ca"), ("head", "server"), (USER, ADMIN))
        return [describe(use, der) for use, name in uses for der in pki.ders(self._folder.file(f"{name}.crt"))]

    async def begin(self) -> headapi.AuthorityState:
        """Make the next authority. Raises `Conflict` during a rotation."""
        pairs, revision = await self._read()
        if pairs.next_key:
            raise errors.Conflict(
                "a rotation of the authority is under way",
                hint="bedplate head rotate-authority --finish ends it, once all clients have the new ca.crt",
            )
        pair = pki.Authority.make(self._folder.settings.name, self._clock.now()).pair
        rotating = _Pairs(pairs.certificate, pairs.key, pair.certificate.decode(), pair.key.decode())
        await self._write(rotating, revision)
        return self.state()

    async def finish(self) -> headapi.AuthorityState:
        """Let the next authority take the present one's place. Raises `Conflict` when there is none."""
        pairs, revision = await self._read()
        if not pairs.next_key:
            raise errors.Conflict(
                "no rotation of the authority is under way", hint="bedplate head rotate-authority begins one"
            )
        await self._write(_Pairs(pairs.next_certificate, pairs.next_key), revision)
        return self.state()

    async def load(self) -> None:
        """Write what the store has into the folder; nothing where the authority was never replaced."""
        entry = await self._store.get(AUTHORITY)
        if entry is not None and self._apply(_decoded(entry, self._vault)):
            self._on_change()

    async def _read(self) -> tuple[_Pairs, int]:
        entry = await self._store.get(AUTHORITY)
        if entry is not None:
            return _decoded(entry, self._vault), entry.revision
        own = pki.Authority.load(self._folder.path).pair
        next_ = [self._folder.file(name) for name in _NEXT]
        texts = [file.read_text() for file in next_] if all(file.is_file() for file in next_) else []
        return _Pairs(own.certificate.decode(), own.key.decode(), *texts), 0

    async def _write(self, pairs: _Pairs, revision: int) -> None:
        try:
            await self._store.commit([Put(AUTHORITY, self._sealed(pairs), expect=revision)])
        except CompareFailed:
            raise errors.Conflict("another head node is replacing the authority", hint="try again") from None
        _LOG.info("head.authority_replaced", is_rotating=bool(pairs.next_key))
        self._apply(pairs)
        self._on_change()

    # The administrator's certificate

    async def administrator(self) -> pki.Pair | None:
        """The one that was shared last."""
        entry = await self._store.get(_ADMINISTRATOR)
        if entry is None:
            return None
        pairs = _decoded(entry, self._vault)
        return pki.Pair(pairs.certificate.encode(), pairs.key.encode())

    async def share(self, pair: pki.Pair) -> None:
        """Let all heads of the site have it."""
        pairs = _Pairs(pair.certificate.decode(), pair.key.decode())
        await self._store.commit([Put(_ADMINISTRATOR, self._sealed(pairs))])

    def _sealed(self, pairs: _Pairs) -> bytes:
        return msgspec.json.encode(self._vault.seal(Secret(msgspec.json.encode(pairs).decode())))

    def _apply(self, pairs: _Pairs) -> bool:
        """Whether files of the folder had to be written.

        In an order in which a process may be killed: a key comes before the certificate that it belongs to, which is in
        `ca.crt` already when `ca.key` becomes that of the next authority, and what goes, goes last.
        """
        files = {
            _NEXT[1]: pairs.next_key,
            _NEXT[0]: pairs.next_certificate,
            "ca.key": pairs.key,
            "ca.crt": pairs.certificate + pairs.next_certificate,
        }
        is_written = False
        for name, text in sorted(files.items(), key=lambda item: not item[1]):
            file = self._folder.file(name)
            present = file.read_text() if file.is_file() else ""
            if present == text:
                continue
            is_written = True
            if text:
                write_private(file, text.encode(), mode=0o644 if name.endswith(".crt") else 0o600)
            else:
                file.unlink()
        return is_written

    # Nodes

    def key_of(self, csr: str) -> str:
        """The SHA-256 of the public key of a signing request. Raises `Invalid`."""
        return pki.requested_key(csr.encode())

    def certify(self, csr: str, node: str, generation: int) -> Issued:
        """A client certificate of a node for the key of a signing request; `generation` tells it from those that were
        revoked by name. Raises `Invalid`."""
        now = self._clock.now()
        authority = pki.Authority.for_clients(self._folder.path)
        pem = authority.certify(csr.encode(), node, NODES, now, generation=generation)
        return Issued(pem.decode(), pki.fingerprint(pem), now + pki.LEAF_LIFE)

    def bundle(self) -> str:
        """The authorities that clients have to trust."""
        return self._folder.file("ca.crt").read_text()

    def present(self, der: bytes) -> Present:
        """What is known of a certificate of a node."""
        is_current = pki.is_signed_by(der, self._folder.file(_NEXT[0]), self._folder.file("ca.crt"))
        return Present(*pki.life_of(der), is_current, issuing.generation_of(der))

    # Another head

    def material(self) -> headapi.JoinAnswer:
        """What a head that joins the site needs: keys, credentials, where the tree is, and the files that its etcd asks
        for. Raises `Invalid` where one of those cannot be read."""
        names = [*SHARED, *_NEXT]
        files = {name: self._folder.file(name).read_text() for name in names if self._folder.file(name).is_file()}
        etcd = self._folder.settings.etcd
        for setting, name in ETCD_FILES.items() if etcd is not None else ():
            path = self._folder.etcd_file(getattr(etcd, setting))
            try:
                files |= {name: Path(path).read_text()} if path else {}
            except OSError as err:
                raise errors.Invalid(
                    f"{path} cannot be read: {err.strerror}",
                    hint=f"serve this head with --etcd-{setting} again; the head that joins needs that file",
                ) from err
        return headapi.JoinAnswer(
            files=files,
            endpoints=list(etcd.endpoints) if etcd is not None else [],
            prefix=etcd.prefix if etcd is not None else "",
            site=self._folder.settings.name,
        )


def recorded_authority(entry: Entry, vault: Vault) -> bytes:
    """The certificates that a record of the authority names, as `ca.crt` has them."""
    pairs = _decoded(entry, vault)
    return (pairs.certificate + pairs.next_certificate).encode()


def _decoded(entry: Entry, vault: Vault) -> _Pairs:
    try:
        text = vault.unseal(msgspec.json.decode(entry.value)).reveal()
        return msgspec.json.decode(text, type=_Pairs)
    except (ValueError, msgspec.DecodeError) as err:
        raise errors.Invalid(f"the record {entry.key} cannot be read: {err}", hint="restore a backup") from err
