"""Backups of a head: one file with its whole history, made while it is served, and a new folder from such a file.

In: a data folder. Out: a gzipped tar of `manifest.json` (what is in it, with digests), `records` (every record of the
store, as of one moment), `ca.crt`, and the keys only when asked for. Secrets in records stay sealed. Writing one and
restoring one both end with the same proof (`proof`), after the digests.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.head import records
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import administrator, creation, pki, transfer
from bedplate.head.folder.administrator import Recovered
from bedplate.head.folder.datafolder import DATABASE, SECRETS_KEY, Folder, Settings
from bedplate.head.folder.proof import prove
from bedplate.head.folder.sitekeys import AUTHORITY, SHARED, SiteKeys, recorded_authority
from bedplate.head.service import Head
from bedplate.head.tokens import TOKENS, Tokens
from bedplate.head.vault import Vault
from bedplate.serving.files import new_private, write_private
from bedplate.store.interface import Entry, Put
from bedplate.store.open import open_store
from bedplate.store.sqlite import SqliteStore, read_entries

__all__ = ["Content", "backup", "restore"]

FORMAT = "bedplate/head-backup/v1"
_MANIFEST, _RECORDS = "manifest.json", "records"
_KEYS = ("ca.key", SECRETS_KEY, "admin.crt", "admin.key", "admin.token")
_LARGEST = 4 << 30


class _Manifest(msgspec.Struct, frozen=True):
    format: str
    made: str
    name: str
    revision: int
    records: int
    digests: dict[str, str]
    key: str = ""
    """The digest of the key of the secrets (`transfer.digest_of_key`); backups of earlier versions have none."""


class _Line(msgspec.Struct, frozen=True, array_like=True):
    key: str
    value: bytes


class Content(NamedTuple):
    """What a backup holds."""

    name: str
    made: str
    revision: int
    objects: int
    tokens: int
    has_keys: bool
    recovered: Recovered | None = None
    """Whose credentials a restore replaced because those of the backup no longer worked."""


async def backup(folder: Folder, target: Path, *, with_keys: bool, clock: Clock | None = None) -> Content:
    """Write a backup, read it back and prove it; only then it has its name, and a killed one leaves no file.

    Raises `AlreadyExists` for a file that is there, `Unavailable` when the store does not answer, `Damaged` and
    `Invalid` for a store that no head could be restored from.
    """
    clock = clock or SystemClock()
    _refuse_existing(target)
    entries = await _entries(folder)
    content = _described(folder.settings.name, rfc3339(clock.now()), [entry.key for entry in entries], with_keys)
    lines = [msgspec.json.encode(_Line(entry.key, entry.value)) + b"\n" for entry in entries]
    members = {_RECORDS: b"".join(lines), "ca.crt": _read(folder.file("ca.crt"))}
    if with_keys:
        members |= {name: _read(folder.file(name)) for name in _KEYS}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    key = transfer.digest_of_key(_read(folder.file(SECRETS_KEY)))
    manifest = _Manifest(FORMAT, content.made, content.name, content.revision, len(entries), digests, key)
    with new_private(target) as file:
        file.write(_packed({_MANIFEST: msgspec.json.encode(manifest), **members}))
        file.seek(0)
        _proven(target, file, None if with_keys else folder.path)
    return content


async def restore(source: Path, data: Path, *, keys: Path | None = None, clock: Clock | None = None) -> Content:
    """A new folder from a backup; `keys` is a folder of the same site, for a backup that was made without them.

    An administrator's credentials in it work: those of the backup, or new ones (`Content.recovered`). Raises
    `AlreadyExists` unless the folder is empty, `Invalid` for a file that is damaged, or does not fit the keys.
    """
    clock = clock or SystemClock()
    creation.check_empty(data)
    with source.open("rb") as file:
        content, secrets, entries = _proven(source, file, keys)
    with creation.Workshop(data) as folder:
        for name, text in secrets.items():
            write_private(folder / name, text, mode=0o644 if name.endswith(".crt") else 0o600)
        async with SqliteStore(folder / DATABASE, clock=clock) as store:
            await transfer.fill(store, _each(entries))
            # Whoever has seen later revisions must not take those to come for them.
            await store.commit([Put(records.INCARNATION, uuid.uuid4().hex[:8].encode())])
            tokens, vault = Tokens(store, clock=clock), Vault(secrets[SECRETS_KEY])
            await tokens.open()
            await SiteKeys(Folder(folder), store, vault, clock).load()
            async with Head(store, SCHEMA, vault, clock=clock) as head:
                recovered = await administrator.provide(folder, head, tokens, clock)
        authority = pki.Authority.load(folder)
        authority.server(pki.host_names(content.name), content.name, clock.now()).write(folder, "server")
        creation.settle(folder, data, Settings(content.name))
    return content._replace(recovered=recovered)


def _proven(source: Path, file: BinaryIO, keys: Path | None) -> tuple[Content, dict[str, bytes], list[Entry]]:
    """What a backup holds, its keys and records, after the proof that it can be restored. Raises `Invalid`."""
    members = _unpacked(source, file)
    manifest = _checked(source, members)
    secrets = _with_keys(members, keys)
    entries = [_entry(line) for line in members[_RECORDS].splitlines()]
    if keys is not None:
        _check_keys(keys, secrets, manifest, members["ca.crt"], entries)
    content = _described(manifest.name, manifest.made, [entry.key for entry in entries], "ca.key" in manifest.digests)
    if len(entries) != manifest.records or content.revision != manifest.revision:
        raise errors.Invalid(
            f"{source} does not contain the records that its manifest lists",
            hint="the file is damaged: use another backup",
        )
    prove(entries, Vault(secrets[SECRETS_KEY]))
    return content, secrets, entries if keys is None else _without_former(entries, secrets)


# Out


async def _entries(folder: Folder) -> list[Entry]:
    """All records of the folder's head as of one moment, whoever else has its store open."""
    if folder.settings.etcd is None:
        entries = await asyncio.to_thread(read_entries, folder.file(DATABASE), transfer.ROOT)
        return transfer.own_records(entries)
    async with open_store(folder.store_options()) as store:
        await transfer.require_own(store, transfer.Site.of(folder, folder.settings.name))
        return [entry async for entry in transfer.entries(store)]


def _described(name: str, created: str, keys: list[str], has_keys: bool) -> Content:
    def count(prefix: str) -> int:
        return sum(key.startswith(prefix) for key in keys)

    revisions = [key for key in keys if key.startswith(records.REVISIONS)]
    last = int(revisions[-1].removeprefix(records.REVISIONS)) if revisions else 0
    return Content(name, created, last, count(records.OBJECTS), count(TOKENS), has_keys)


def _packed(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o600
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise errors.AlreadyExists(f"{target} already exists; nothing was written", hint="choose another name")
    if not target.absolute().parent.is_dir():
        raise errors.Invalid(
            f"the folder {target.absolute().parent} of the backup does not exist", hint="create it, or choose another"
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise errors.Invalid(f"{path} cannot be read: {err.strerror}", hint="check its path and mode") from err


# Back in


def _unpacked(source: Path, file: BinaryIO) -> dict[str, bytes]:
    """The members of the archive. Nothing is ever written under a name that the archive chose."""
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:gz") as tar:
            for info in tar:
                member = tar.extractfile(info) if info.isreg() and info.size <= _LARGEST else None
                if member is not None:
                    members[info.name] = member.read()
    except (OSError, EOFError, tarfile.TarError) as err:
        raise errors.Invalid(
            f"{source} cannot be read as a backup: {err}", hint="the file is damaged: use another backup"
        ) from err
    return members


def _checked(source: Path, members: Mapping[str, bytes]) -> _Manifest:
    try:
        manifest = msgspec.json.decode(members[_MANIFEST], type=_Manifest)
    except (KeyError, msgspec.DecodeError) as err:
        raise errors.Invalid(
            f"{source} is not a backup of a head: its manifest is missing or damaged",
            hint="give a file that bedplate head backup wrote",
        ) from err
    if manifest.format != FORMAT:
        raise errors.Invalid(
            f"{source} has the format {manifest.format!r}; this program reads {FORMAT}",
            hint="restore it with the version that wrote it",
        )
    for name in {_RECORDS, "ca.crt"} | manifest.digests.keys():
        data = members.get(name)
        if data is None or hashlib.sha256(data).hexdigest() != manifest.digests.get(name):
            raise errors.Invalid(
                f"{source} is damaged: {name} has changed since it was written", hint="use another backup"
            )
    return manifest


def _with_keys(members: Mapping[str, bytes], keys: Path | None) -> dict[str, bytes]:
    """The shared files of the new folder, from the backup, or the keys alone from a folder of the same site."""
    if keys is not None:
        files = {name: _read(keys / name) for name in ("ca.crt", "ca.key", SECRETS_KEY)}
        next_ = [name for name in (f"{pki.NEXT}.crt", f"{pki.NEXT}.key") if (keys / name).is_file()]
        return files | {name: _read(keys / name) for name in next_}
    if "ca.key" in members:
        return {name: members[name] for name in SHARED if name in members}
    raise errors.Invalid(
        "the backup contains no keys, and without them its secrets cannot be read",
        hint="pass --keys with a folder that has ca.key and secrets.key of the same site",
    )


def _check_keys(
    keys: Path, files: Mapping[str, bytes], manifest: _Manifest, authority: bytes, entries: list[Entry]
) -> None:
    """Raise `Invalid` for the keys of another site. The authority may have been replaced since; the key of the secrets
    never is. The proof finds out about a backup that does not name that key, if it holds a secret."""
    if manifest.key:
        is_own = manifest.key == transfer.digest_of_key(files[SECRETS_KEY])
    else:
        is_own = files["ca.crt"] == authority or any(b'{"sealed":"' in entry.value for entry in entries)
    if not is_own:
        raise errors.Invalid(f"the keys in {keys} belong to another site", hint="give the keys of this backup's site")


def _without_former(entries: list[Entry], files: Mapping[str, bytes]) -> list[Entry]:
    """Without the authority that the records name, if the one in the files took its place later."""
    recorded = next((entry for entry in entries if entry.key == AUTHORITY), None)
    if recorded is None:
        return entries
    certificates = recorded_authority(recorded, Vault(files[SECRETS_KEY]))
    # Both may be of one second; the record is then the later state, for it is made by a rotation alone.
    if pki.begin(certificates) >= pki.begin(files["ca.crt"]):
        return entries
    return [entry for entry in entries if entry is not recorded]


def _entry(line: bytes) -> Entry:
    try:
        record = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as err:
        raise errors.Invalid(
            f"a record of the backup cannot be read: {err}", hint="the file is damaged: use another backup"
        ) from err
    return Entry(record.key, record.value, 0, 0)


async def _each(entries: list[Entry]) -> AsyncIterator[Entry]:
    for entry in entries:
        yield entry
