"""The store on the disk: the whole file, or a journal behind it.

In: the text of a document, lines of a journal. Out: both on the disk when a method returns; `OSError` when they are
not, and then nothing that was acknowledged before is lost. Called by one thread at a time, but for `prepare`. Which
of the two ways is taken, and when, is decided in `commits.py`.

A new file is written under a temporary name, locked, synced, and given the store's name; the one before it stays
beside it as `store.previous`. A journal is cut back after a failed write. Where that fails, too, or where nobody
knows what a failed sync left on the disk, `must_rewrite` says that only a new file can be trusted.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable

import msgspec

from bedplate.core.logging import get_logger
from bedplate.ipam.node import journal, storefile
from bedplate.ipam.node.book import Text
from bedplate.ipam.node.disk import Disk, Locks
from bedplate.ipam.node.storeload import Assessment

__all__ = ["Prepared", "Storage"]

log = get_logger("ipam.node.store")


class Prepared(msgspec.Struct, frozen=True):
    """A new store file that has not got its name yet."""

    name: str
    file: int
    checksum: int
    size: int


class Storage:
    """The files of a store that this process has locked."""

    journal_limit = 4 << 20
    """Bytes after which a journal is cut down to what the last two files lack."""

    def __init__(self, disk: Disk, locks: Locks, assessment: Assessment, stamp: Callable[[], str]) -> None:
        self._disk, self._locks, self._stamp = disk, locks, stamp
        self._file = assessment.file
        """Checksum and size of the store file; None when that is not known for sure."""
        self._log: int | None = None
        self._end = 0
        self._is_torn = False
        self._mark = assessment.journal.last_mark if assessment.journal else 0
        self._marks: dict[int, int] = {}
        """Where marks stand in the journal whose files are not there yet."""
        self._places: list[int] = []
        """Where the marks of the last two files stand."""
        self._numbers = itertools.count(int.from_bytes(os.urandom(4), "big"))
        """For the names of files that are being written: `.store123`, the original's form."""
        self._guard = threading.Lock()
        """Held while the store's open file is looked at or changed: a snapshot is prepared by another thread."""
        self.has_journal = assessment.journal is not None and (
            assessment.place is not None or assessment.file is None or bool(assessment.broken_journal)
        )
        """A journal lies beside the file."""
        if assessment.place is not None and assessment.journal is not None and not assessment.broken_journal:
            self._log, self._end = disk.open(disk.journal), assessment.journal.end
            disk.truncate(self._log, self._end)

    @property
    def must_rewrite(self) -> bool:
        """Only a new file can be trusted."""
        return self._file is None or self._is_torn

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the store file and of its journal."""
        return self._file[1] if self._file else 0, self._end

    def next_mark(self) -> int:
        """A number for the next place in the journal."""
        self._mark += 1
        return self._mark

    def write_whole(self, text: Text, version: int, *, keeps_previous: bool = True) -> None:
        """Replace the file; a journal is not needed then."""
        new = self.prepare(text, version)
        try:
            if self._log is not None and not self._is_torn:
                # Should the next steps be the last ones, the journal is known to be that of the new file.
                mark = self.next_mark()
                self._append([journal.mark(mark), journal.file(mark, new.checksum, new.size)])
            self._replace(new, keeps_previous=keeps_previous)
        except BaseException:
            self.discard(new)
            raise
        if self.has_journal:
            self.drop_journal()

    def append(self, lines: list[bytes], mark: int | None = None, at: int = 0) -> None:
        """Add lines to the journal; the one with index `at` is that mark."""
        if self._log is None:
            self._start_journal(lines)
        else:
            self._append(lines)
        if mark is not None:
            self._marks[mark] = self._end - sum(map(len, lines[at:]))

    def prepare(self, text: Text, version: int) -> Prepared:
        """Write a new file, without giving it the store's name. Other threads may be busy with the journal."""
        body = storefile.body_of(text)
        checksum, head = storefile.seal(body, version)
        with self._guard:
            status = self._disk.status(self._locks.store)
        mode = status.st_mode & 0o7777 if status.st_nlink else None
        name = f".{self._disk.name}{next(self._numbers)}"
        file = self._disk.create(name, 0o664 if mode is None else 0o600)
        new = Prepared(name, file, checksum, len(head) + len(body))
        try:
            if mode not in (None, 0o600):
                self._disk.chmod(file, mode or 0)
            if not self._disk.lock(file):
                raise OSError(f"{name} was locked by another process")
            self._disk.write(file, (head, body))
            self._disk.sync(file)
        except BaseException:
            self.discard(new)
            raise
        return new

    def discard(self, new: Prepared) -> None:
        """Remove a file that is not wanted any more, unless it has become the store."""
        if self._locks.store == new.file:
            return
        try:
            self._disk.close(new.file)
            self._disk.unlink(new.name)
        except OSError as error:
            log.warning("store.leftover", file=new.name, reason=str(error))

    def install(self, new: Prepared, mark: int) -> None:
        """Make a prepared file the store: it holds everything before a mark of the journal."""
        try:
            self._append([journal.file(mark, new.checksum, new.size)])
            self._replace(new)
        except BaseException:
            self.discard(new)
            raise
        self._places = [*self._places[-1:], self._marks.get(mark, 0)]
        self._marks = {}
        if self._end > self.journal_limit:
            self._shorten()

    def drop_journal(self) -> None:
        """Remove the journal: the file holds everything."""
        if self._log is not None:
            self._disk.close(self._log)
        self._log, self._end, self._places, self._marks, self._is_torn = None, 0, [], {}, False
        if not self.has_journal:
            return
        try:
            self._disk.unlink(self._disk.journal)
            self.has_journal = False
        except OSError as error:
            # It says itself that the file holds everything.
            log.warning("store.journal_not_removed", reason=str(error))

    def release(self) -> None:
        """Let go of everything."""
        if self._log is not None:
            self._disk.close(self._log)
            self._log = None
        self._locks.release()
        self._disk.release()

    def _append(self, lines: list[bytes]) -> None:
        assert self._log is not None, "a journal was started"
        try:
            self._disk.write(self._log, lines)
        except OSError:
            try:
                self._disk.truncate(self._log, self._end)
            except OSError:
                self._is_torn = True
            raise
        try:
            self._disk.sync(self._log)
        except OSError:
            self._is_torn = True
            raise
        self._end += sum(map(len, lines))

    def _start_journal(self, lines: list[bytes]) -> None:
        assert self._file is not None, "what a journal extends is known"
        # Whoever put the file there, an administrator with `cp` perhaps, may not have waited for the disk.
        self._disk.sync(self._locks.store)
        name, mark = self._disk.journal, self.next_mark()
        self._disk.unlink(name)
        file = self._disk.create(name, 0o600)
        begin = [journal.mark(mark), journal.file(mark, *self._file)]
        try:
            self._disk.write(file, [*begin, *lines])
            self._disk.sync(file)
            self._disk.sync_folder()
        except BaseException:
            self.has_journal = self._is_torn = True  # Unless it can be removed.
            self._disk.close(file)
            self._disk.unlink(name)
            self.has_journal = self._is_torn = False
            raise
        self._log, self.has_journal, self._places = file, True, [0]
        self._end = sum(map(len, begin)) + sum(map(len, lines))

    def _replace(self, new: Prepared, *, keeps_previous: bool = True) -> None:
        self._keep_foreign()
        if keeps_previous and self._file is not None and self._file[1]:
            self._keep_previous()
        self._file = None
        self._disk.rename(new.name, self._disk.name)
        with self._guard:
            self._locks.renew(new.file)
        self._disk.sync_folder()
        self._file = (new.checksum, new.size)

    def _keep_previous(self) -> None:
        try:
            self._disk.unlink(self._disk.previous)
            self._disk.link(self._disk.name, self._disk.previous)
        except OSError as error:
            # A file system without hard links: the store is written all the same.
            log.v(2).info("store.previous_not_kept", reason=str(error))

    def _keep_foreign(self) -> None:
        """Somebody put another file in the store's place while this process holds it: it is about to be replaced."""
        there = self._disk.look(self._disk.name)
        if there is None or there.st_ino == self._disk.status(self._locks.store).st_ino:
            return
        aside = f"{self._disk.name}.foreign-{self._stamp()}-{next(self._numbers)}"
        try:
            self._disk.link(self._disk.name, aside)
        except OSError as error:
            aside = f"not possible: {error}"
        log.error("store.overwritten", reason="another process replaced the store file", set_aside=aside)

    def _shorten(self) -> None:
        """Begin the journal at the mark of the file before the present one: should this one break, nothing is lost."""
        begin = self._places[0]
        if not begin:
            return
        content = self._disk.read(self._disk.journal)
        if content is None:
            self._is_torn = True
            return
        name = f".{self._disk.journal}{next(self._numbers)}"
        file = self._disk.create(name, 0o600)
        try:
            self._disk.write(file, [content[begin : self._end]])
            self._disk.sync(file)
            self._disk.rename(name, self._disk.journal)
        except OSError as error:
            self._disk.close(file)
            self._disk.unlink(name)
            log.warning("store.journal_not_shortened", reason=str(error))
            return
        assert self._log is not None, "there is a journal"
        self._disk.close(self._log)
        self._log, self._end = file, self._end - begin
        self._places = [place - begin for place in self._places]
        try:
            self._disk.sync_folder()
        except OSError as error:
            # After a power failure the old journal might be back, without what is appended from now on.
            self._is_torn = True
            log.warning("store.folder_not_synced", reason=str(error))
