"""A backend over a daemon: the tree is read once, then kept up to date by the daemon's events.

In: an open `HeadClient`. Out: what `Backend` promises. Secrets are stars here; where one was not typed again the stars
go back, and the head keeps what it has. Staged edits are not known here, so a lost connection costs none: `follow`
makes it again, to another head if need be, and says so among the notices.

A commit has a nonce. One whose answer was lost is asked for again with the same nonce, for some time here, and whenever
the same edits are committed once more, so that it is carried out once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from bedplate.api import headapi
from bedplate.api.headapi import AuditEntry, Change, NodeHealth, NodeState, Notice, Revision, Whoami
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.head import Edit, Obj, Path, Schema, Secret, Tree, changes
from bedplate.head.rollout import Batches
from bedplate.head.schema import codec
from bedplate.ui.backend import Event

__all__ = ["RemoteBackend"]

T = TypeVar("T")
_PATIENCE_S = 45.0
_NAMED = 50
"""More nodes, or more missed revisions, than this are asked for as a whole."""

_QUEUED = 1000
_PAGE = 1000
"""The most revisions that a head tells in one answer."""
_BEFORE = Secret(f"{changes.MASK} as it was")
"""A secret that an undo puts back: another one than the head has now, and known to the head alone."""


class RemoteBackend:
    """Open with `async with`; the client is opened and closed by its owner.

    `on_wait` is told, in a line, when a commit has to wait for a head that does not answer, at most `patience_s`.
    """

    def __init__(
        self,
        client: HeadClient,
        schema: Schema,
        *,
        clock: Clock | None = None,
        nonce: Callable[[], str] = lambda: uuid.uuid4().hex,
        patience_s: float = _PATIENCE_S,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._nonce = nonce
        self._patience_s = patience_s
        self._on_wait = on_wait
        self._tree = Tree(schema)
        self._revision = 0
        self._history: str | None = None
        self._name = ""
        self._user = ""
        self._own: set[int] = set()
        self._unsettled: tuple[bytes, str] = (b"", "")
        self._moving = asyncio.Lock()

    async def __aenter__(self) -> RemoteBackend:
        # One after the other: a second connection would cost more than it saves.
        who = await self._client.whoami()
        self._user, self._name = who.user, who.head
        self._put(await self._client.tree())
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    @property
    def name(self) -> str:
        return self._name

    @property
    def user(self) -> str:
        return self._user

    @property
    def tree(self) -> Tree:
        return self._tree

    @property
    def revision(self) -> int:
        return self._revision

    def is_own(self, number: int) -> bool:
        """Whether a revision was committed through this backend."""
        return number in self._own

    # Writing

    async def commit(
        self,
        edits: Sequence[Edit],
        message: str = "",
        *,
        force: bool = False,
        undoes: int = 0,
        batches: Batches | None = None,
    ) -> Revision | None:
        sent = [self._wire(edit, is_undo=bool(undoes)) for edit in edits]
        print_ = hashlib.sha256(msgspec.json.encode((sent, message, force, undoes, batches))).digest()
        size, max_failed, settle_s = batches or Batches("")
        known, nonce = self._unsettled
        if known != print_:
            nonce = self._nonce()
            self._unsettled = (print_, nonce)
        try:
            revision = await self._patiently(
                lambda: self._client.commit(
                    sent,
                    message,
                    force=force,
                    undoes=undoes,
                    nonce=nonce,
                    batch=size,
                    max_failed=max_failed,
                    settle_s=settle_s,
                    history=self._history,
                )
            )
            if revision is not None:
                self._own.add(revision.number)
                await self._patiently(lambda: self._take(revision))
        except errors.Unavailable as err:
            raise errors.Unavailable(
                f"it is not known whether the commit was made: {err}",
                hint="it stays staged: commit again when the head is available; it is made only once",
            ) from err
        except errors.BedplateError:
            self._unsettled = (b"", "")
            raise
        self._unsettled = (b"", "")
        return revision

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, or for as long as anybody may want to wait."""
        until, backoff = self._clock.monotonic() + self._patience_s, Backoff(first_s=0.2, cap_s=5.0)
        tell = self._on_wait
        while True:
            try:
                return await ask()
            except errors.Unavailable as err:
                if self._clock.monotonic() >= until:
                    raise
                if tell is not None:
                    tell(f"the head does not respond ({err}); waiting for it, Ctrl-C gives up")
                    tell = None
            await self._clock.sleep(backoff.next())

    async def check(self, edits: Sequence[Edit], *, force: bool = False, undoes: int = 0) -> list[Change]:
        sent = [self._wire(edit, is_undo=bool(undoes)) for edit in edits]
        return list(await self._client.check(sent, force=force, undoes=undoes, history=self._history))

    def _wire(self, edit: Edit, *, is_undo: bool = False) -> headapi.Edit:
        def told(secret: Secret) -> str:
            if secret == _BEFORE and not is_undo:
                raise errors.Invalid(
                    f"a secret of {edit.mode}[{edit.key}] comes from an undo, which has changed since it was staged",
                    hint="revert, undo again, and commit that alone; or set the secret itself",
                )
            return changes.MASK if secret == _BEFORE else secret.reveal()

        data = None if edit.new is None else codec.encode(self._tree.schema, edit.new, told)
        base = None if edit.base is None else edit.base.revision
        return headapi.Edit(mode=edit.mode, key=edit.key, base=base, object=data, was=edit.was or None)

    # Reading

    async def catch_up(self) -> None:
        for newest in await self._client.revisions(1):
            await self._take(newest)

    async def tree_at(self, number: int) -> Tree:
        return Tree(self._tree.schema, self._objects(await self._client.tree(at=number)))

    async def read(self, number: int) -> Revision:
        return await self._client.revision(number)

    async def log(self, limit: int = 20, path: Path = ()) -> list[Revision]:
        revisions: list[Revision] = []
        while len(revisions) < limit:
            before = revisions[-1].number if revisions else 0
            if before == 1:
                break
            page = await self._client.revisions(min(limit - len(revisions), _PAGE), path=path, before=before)
            revisions += page
            if len(page) < _PAGE:
                break
        return revisions

    async def audit(self, path: Path = (), limit: int = 100) -> list[AuditEntry]:
        return list(await self._client.audit(path, limit))

    async def undo_changes(self, number: int, *, force: bool = False) -> list[Change]:
        return list(await self._client.undo_changes(number, force=force))

    def unseal(self, sealed: Any) -> Secret:
        return _BEFORE

    async def export_document(self, *, with_secrets: bool = False) -> str:
        return await self._client.export(with_secrets=with_secrets)

    async def whoami(self) -> Whoami:
        return await self._client.whoami()

    async def states(self, nodes: Sequence[str] = ()) -> Sequence[NodeState]:
        names = set(nodes)
        states = await self._client.nodes(nodes if len(nodes) <= _NAMED else ())
        return [state for state in states if not names or state.node in names]

    async def progress(self, number: int) -> headapi.RevisionProgress:
        return await self._client.progress(number)

    async def health(self, node: str, check: str = "") -> NodeHealth:
        return await self._client.health(node, check)

    @property
    def fleet(self) -> HeadClient:
        return self._client

    async def notices(self, limit: int = 100, *, host: str = "") -> Sequence[Notice]:
        return await self._client.notices(limit, host=host)

    # Following

    async def follow(self) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Revision | Notice | headapi.Reset | errors.BedplateError | None] = asyncio.Queue(_QUEUED)
        pump = asyncio.create_task(self._pump(queue))
        given = self._revision
        try:
            while True:
                item = await queue.get()
                if isinstance(item, errors.BedplateError):
                    raise item
                if item is None:
                    yield await self._regained()
                    given = min(given, self._revision)
                elif isinstance(item, headapi.Reset):
                    async with self._moving:
                        self._put(await self._client.tree())
                    given = self._revision
                    yield self._says("warning", f"the head is back at revision {given}: it was restored from a backup")
                elif isinstance(item, Notice):
                    yield item
                elif item.number > given:
                    # A commit of one's own may have brought the tree beyond it already.
                    await self._take(item)
                    given = item.number
                    yield item
        finally:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump

    async def _pump(self, queue: asyncio.Queue[Any]) -> None:
        """Put what the daemon tells into a queue, and with it the state of the connection: None is "back again"."""
        was_lost = False

        def on_link(is_up: bool, words: str) -> None:
            nonlocal was_lost
            # A full queue means that nobody reads; then nobody misses the note.
            with contextlib.suppress(asyncio.QueueFull):
                if not is_up:
                    queue.put_nowait(self._says("warning", f"the connection to the head was lost ({words})"))
                elif was_lost:
                    queue.put_nowait(None)
            was_lost = not is_up

        try:
            async for event in self._client.events(self._revision, types=("revision", "notice"), on_link=on_link):
                if event.revision is not None:
                    await queue.put(event.revision)
                elif event.notice is not None:
                    await queue.put(event.notice)
                elif event.reset is not None:
                    await queue.put(event.reset)
        except errors.BedplateError as err:
            await queue.put(err)

    async def _regained(self) -> Notice:
        # Another head may be the active one now; or the same one with a tree of the past, out of a backup.
        with contextlib.suppress(errors.BedplateError):
            who = await self._client.whoami()
            self._name = who.head
            if who.revision < self._revision:
                async with self._moving:
                    self._put(await self._client.tree())
        return self._says("notice", f"reconnected to {self._client.url}; what is staged is still staged")

    def _says(self, severity: headapi.Severity, text: str) -> Notice:
        return Notice(id=0, time=rfc3339(self._clock.now()), severity=severity, host=self._name, text=text)

    # The tree

    async def _take(self, revision: Revision) -> None:
        """Let the tree hold a revision, and those before it that did not come here."""
        async with self._moving:
            missed = revision.number - self._revision - 1
            if missed > _NAMED:
                self._put(await self._client.tree())
                return
            try:
                for number in range(self._revision + 1, revision.number):
                    self._apply(await self._client.revision(number))
                if revision.number == self._revision + 1:
                    self._apply(revision)
            except (errors.NotFound, errors.Invalid):
                # Not the history this tree has come from: a backup was restored meanwhile.
                self._put(await self._client.tree())

    def _apply(self, revision: Revision) -> None:
        self._tree = changes.apply(self._tree, revision.changes, _masked, revision.number)
        self._revision = revision.number

    def _put(self, document: headapi.TreeDocument) -> None:
        self._tree = Tree(self._tree.schema, self._objects(document))
        self._revision, self._history = document.revision, document.history

    def _objects(self, document: headapi.TreeDocument) -> Iterable[tuple[str, Obj]]:
        schema = self._tree.schema
        for item in document.objects:
            data = {"type": item.type, "values": item.values, "extras": item.extras, "children": item.children}
            obj = codec.decode(schema, schema.mode(item.mode), item.key, data, _masked)
            yield item.mode, replace(obj, revision=item.revision)


def _masked(value: Any) -> Secret:
    return Secret(str(value))
