"""Loading a store: its file, the journal behind it, and what to do when one of them is broken.

In: the bytes of the file, of its journal and of the previous snapshot. Out: the document they add up to, and what was
wrong with them (`assess`, pure); and the effects that follow from it (`load`): leftovers removed, broken and foreign
files set aside. Nothing is deleted that might be the only copy of an acknowledged reservation.

A broken file is replaced by the sum of what can be read: the previous snapshot, the reservations in the broken file
that are whole, and the journal's calls. An address that may be held counts as held: the cleaner frees it once its pod
is proven gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

from bedplate.core.logging import get_logger
from bedplate.ipam.node import gojson, journal, storefile
from bedplate.ipam.node.disk import Disk
from bedplate.ipam.node.gojson import Corrupt
from bedplate.ipam.node.journal import Journal
from bedplate.ipam.node.reservations import Reservation, key_of
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord

__all__ = ["Assessment", "Loaded", "Recovery", "assess", "load"]

log = get_logger("ipam.node.store")


class Recovery(msgspec.Struct, frozen=True):
    """What was found broken, and what became of it. It stands until `Ledger.adopt` was called."""

    what: str
    set_aside: tuple[str, ...]
    restored: int
    """How many reservations could be read."""


class Assessment(msgspec.Struct, frozen=True):
    """What a store's files add up to."""

    document: Document
    file: tuple[int, int] | None
    """Checksum and size of the store file; None when it is broken."""
    pending: int = 0
    """Calls that stand in the journal alone."""
    broken_file: str = ""
    """Why the file cannot be used."""
    broken_journal: str = ""
    """Why a call may be missing from the journal."""
    is_foreign: bool = False
    """The journal does not belong to the file, and holds calls."""
    torn: int = 0
    """Bytes at the journal's end that were being written."""
    place: int | None = None
    """The journal's mark up to which the file holds everything."""
    journal: Journal | None = None


def assess(content: bytes, journal_content: bytes | None, previous: bytes | None) -> Assessment:
    """Add up the store file, its journal and the previous snapshot."""
    log_book = journal.read(journal_content) if journal_content is not None else None
    try:
        document, checksum = storefile.decode(content)
    except Corrupt as error:
        return _rebuild(content, str(error), log_book, previous)
    file = (checksum, len(content))
    if log_book is None:
        return Assessment(document, file)
    place = log_book.place_of(*file)
    if place is None and log_book.damaged:
        # The line that names this file may be the one that cannot be read.
        calls, known = log_book.after(0), Document()
        unusable = [*_replay(known, calls), *log_book.damaged]
        _add_missing(document, [entry.reservation for pool in known.pools.values() for entry in pool.entries.values()])
        return Assessment(document, file, len(calls), broken_journal=_damage(unusable), journal=log_book)
    if place is None:
        return Assessment(document, file, is_foreign=bool(log_book.calls), journal=log_book)
    calls = log_book.after(place)
    unusable = _replay(document, calls)
    begin = min((line.begin for line in log_book.lines if line.mark == place), default=0)
    unusable += [at for at in log_book.damaged if at > begin]
    return Assessment(
        document,
        file,
        pending=len(calls),
        broken_journal=_damage(unusable),
        torn=0 if log_book.damaged else log_book.size - log_book.end,
        place=place,
        journal=log_book,
    )


def _damage(places: list[int]) -> str:
    return f"{len(places)} of its lines cannot be read, starting at byte {min(places)}" if places else ""


def _replay(document: Document, calls: list[journal.Line]) -> list[int]:
    """Do the calls again; where those stand that make no sense."""
    unusable = []
    for line in calls:
        try:
            journal.apply(document, line)
        except ValueError:
            unusable.append(line.begin)
    return unusable


def _rebuild(content: bytes, why: str, log_book: Journal | None, previous: bytes | None) -> Assessment:
    document, place = Document(), None
    if previous is not None:
        try:
            document, checksum = storefile.decode(previous)
            place = log_book.place_of(checksum, len(previous)) if log_book else None
        except Corrupt as error:
            log.warning("store.previous_broken", reason=str(error))
    _add_missing(document, _whole_reservations(content))
    calls: list[journal.Line] = []
    if log_book is not None:
        calls = log_book.after(place or 0)
    unusable = [*_replay(document, calls), *(log_book.damaged if log_book else ())]
    return Assessment(
        document, None, pending=len(calls), broken_file=why, broken_journal=_damage(unusable), journal=log_book
    )


def _add_missing(document: Document, reservations: Iterable[Reservation]) -> None:
    """Add what a document lacks, unless the interface or the address is known there."""
    addresses = {
        (name, entry.reservation.address) for name, pool in document.pools.items() for entry in pool.entries.values()
    }
    for reservation in reservations:
        pool = document.pools.setdefault(reservation.pool, PoolRecord(reservation.pool))
        key = key_of(reservation.container_id, reservation.interface_name)
        if key not in pool.entries and (reservation.pool, reservation.address) not in addresses:
            addresses.add((reservation.pool, reservation.address))
            pool.entries[key] = Entry(reservation, storefile.encode_entry(key, reservation))


_POOL = re.compile(r'"((?:[^"\\]|\\.)+)":\{"name":"(?:[^"\\]|\\.)*","entries":')
_SCANNER = json.JSONDecoder(object_pairs_hook=gojson.Pairs)


def _whole_reservations(content: bytes) -> Iterator[Reservation]:
    """The reservations in a broken file whose own text is whole."""
    text = content.decode("utf-8", "replace")
    pools = [(match.end(), match.group(1)) for match in _POOL.finditer(text)]
    for match in re.finditer(r'\{"container_id":', text):
        names = [name for end, name in pools if end <= match.start()]
        if not names:
            continue
        try:
            pool = json.loads(f'"{names[-1]}"')
            reservation = storefile.decode_reservation(pool, _SCANNER.raw_decode(text, match.start())[0])
        except (ValueError, RecursionError):
            continue
        if reservation.container_id and reservation.interface_name and reservation.address:
            yield reservation


class Loaded(msgspec.Struct, frozen=True):
    """A store that was read."""

    assessment: Assessment
    recovery: Recovery | None

    @property
    def is_current(self) -> bool:
        """The store file holds everything and nothing lies beside it."""
        assessment = self.assessment
        return assessment.file is not None and assessment.place is None and not assessment.broken_journal


def load(disk: Disk, stamp: str) -> Loaded:
    """Read a store, clear up behind a killed process, and set aside what is broken, with `stamp` in its name."""
    _remove_leftovers(disk)
    content = disk.read(disk.name) or b""
    log_name = disk.journal
    assessment = assess(content, disk.read(log_name), disk.read(disk.previous))
    recovery = _unfinished(disk)
    if assessment.broken_file or assessment.broken_journal:
        recovery = _set_aside_broken(disk, assessment, stamp)
    elif assessment.is_foreign:
        aside = f"{log_name}.foreign-{stamp}"
        disk.rename(log_name, aside)
        log.warning(
            "store.journal_foreign",
            reason="the store file is not the one that the journal extends: another daemon has written it since",
            set_aside=aside,
        )
    elif assessment.journal is not None and assessment.place is None:
        disk.unlink(log_name)
    if assessment.torn:
        log.warning(
            "store.journal_torn", bytes=assessment.torn, reason="a call was being written when the daemon ended"
        )
    if assessment.pending:
        log.info("store.replayed", calls=assessment.pending)
    return Loaded(assessment, recovery)


def _remove_leftovers(disk: Disk) -> None:
    pattern = re.compile(rf"\.{re.escape(disk.name)}(\.journal)?[0-9]+")
    for name in disk.names():
        if pattern.fullmatch(name):
            disk.unlink(name)
            log.info("store.leftover_removed", file=name)


def _set_aside_broken(disk: Disk, assessment: Assessment, stamp: str) -> Recovery:
    """Keep the broken files under other names. They keep their own, too, until the store is written again."""
    asides, reasons = [], []
    for reason, name in ((assessment.broken_file, disk.name), (assessment.broken_journal, disk.journal)):
        if reason:
            aside = f"{name}.corrupt-{stamp}"
            disk.unlink(aside)
            disk.link(name, aside)
            asides.append(aside)
            reasons.append(f"{name}: {reason}")
    restored = sum(len(pool.entries) for pool in assessment.document.pools.values())
    recovery = Recovery("; ".join(reasons), tuple(asides), restored)
    note = disk.open(disk.recovering, 0o1101, 0o600)
    try:
        disk.write(note, [msgspec.json.encode(recovery)])
        disk.sync(note)
    finally:
        disk.close(note)
    log.error(
        "store.broken",
        what=recovery.what,
        set_aside=", ".join(asides),
        restored=restored,
        next="addresses that pods report are restored; addresses of pods that do not report any may be allocated again",
    )
    return recovery


def _unfinished(disk: Disk) -> Recovery | None:
    note = disk.read(disk.recovering)
    if note is None:
        return None
    try:
        return msgspec.json.decode(note, type=Recovery)
    except (msgspec.MsgspecError, UnicodeError):
        return Recovery("an earlier recovery was not finished", (), 0)
