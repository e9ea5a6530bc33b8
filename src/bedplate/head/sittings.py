"""Logins of the page with what they have staged, kept in the store: they outlast a restart, and a takeover.

In: a login's cookie, and what is to be kept of it. Out: the same again, on any head of the store. A record
(`/head/logins/<digest of the cookie>`) is sealed with the key of the secrets, as it holds a credential and staged
secrets; only when it was last used can be read without. Backups leave these records out.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from bedplate.core.logging import get_logger
from bedplate.head.objects import Secret
from bedplate.head.vault import Vault
from bedplate.store.interface import Delete, Op, Put, Store

__all__ = ["LOGINS", "Kept", "Sitting", "Sittings"]

LOGINS: Final = "/head/logins/"
_LOG = get_logger("head.page")
_LARGEST = 1 << 20
_BATCH = 100


class Sitting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a login: who signed in and with what, and what is staged (`Session.dump`)."""

    user: str
    form_token: str
    token: str = ""
    subject: dict[str, list[str]] = {}
    der: bytes = b""
    staged: Any = None


class _Record(msgspec.Struct, frozen=True):
    seen: float
    sealed: Any


class Kept(NamedTuple):
    """A sitting as the store has it: when it was last used (seconds since 1970), and the revision of its record."""

    sitting: Sitting
    seen: float
    revision: int


class Sittings:
    """The records of one store."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def read(self, cookie: str) -> Kept | None:
        """What is kept for a cookie; None where there is nothing, or nothing that can be read."""
        entry = await self._store.get(_key(cookie))
        if entry is None:
            return None
        try:
            record = msgspec.json.decode(entry.value, type=_Record)
            sitting = msgspec.json.decode(self._vault.unseal(record.sealed).reveal(), type=Sitting)
        except (ValueError, msgspec.DecodeError) as err:
            _LOG.warning("head.login_unreadable", error=str(err))
            return None
        return Kept(sitting, record.seen, entry.revision)

    async def write(self, cookie: str, sitting: Sitting, seen: float) -> int:
        """Keep it; the revision of its record, 0 when it is too large to be kept."""
        text = msgspec.json.encode(sitting).decode()
        if len(text) > _LARGEST:
            _LOG.warning("head.login_not_kept", user=sitting.user, bytes=len(text), most=_LARGEST)
            return 0
        record = _Record(seen, self._vault.seal(Secret(text)))
        return await self._store.commit([Put(_key(cookie), msgspec.json.encode(record))])

    async def remove(self, cookie: str) -> None:
        """Forget it."""
        await self._store.commit([Delete(_key(cookie))])

    async def sweep(self, before: float) -> None:
        """Forget what was not used since a time."""
        old: list[Op] = []
        for entry in (await self._store.list(LOGINS)).entries:
            try:
                is_old = msgspec.json.decode(entry.value, type=_Record).seen < before
            except msgspec.DecodeError:
                is_old = True
            if is_old:
                old.append(Delete(entry.key))
        for start in range(0, len(old), _BATCH):
            await self._store.commit(old[start : start + _BATCH])


def _key(cookie: str) -> str:
    return LOGINS + hashlib.sha256(cookie.encode()).hexdigest()
