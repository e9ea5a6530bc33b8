"""The backend over a daemon: the same suite as in one process, and what a lost connection costs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from tests.head.committing import commit, commit_session
from tests.ui.backend_suite import DEFAULT, BackendSuite, set_notes
from tests.ui.wire_tapping import Wire
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Notice, Revision
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.access import USER, Access
from bedplate.head.changes import MASK
from bedplate.head.entities import SCHEMA
from bedplate.head.health import Health
from bedplate.head.notices import Notices
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.head.site import first_tree
from bedplate.head.tokens import Tokens
from bedplate.head.vault import Vault
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore
from bedplate.ui import rest
from bedplate.ui.backend import Backend, Event
from bedplate.ui.remote import RemoteBackend


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with SqliteStore(tmp_path / "head.db", history_s=None) as opened:
        yield opened


@pytest.fixture
async def head(store: Store) -> AsyncIterator[Head]:
    async with Head(store, SCHEMA, Vault(base64.urlsafe_b64encode(bytes(range(32))))) as opened:
        await commit(opened, first_tree("basecm10", 3), "setup", "the site")
        yield opened


@pytest.fixture
async def notices(store: Store) -> AsyncIterator[Notices]:
    async with Notices(store) as opened:
        yield opened


@pytest.fixture
async def tokens(store: Store) -> Tokens:
    opened = Tokens(store)
    await opened.open()
    return opened


@pytest.fixture
async def token(tokens: Tokens) -> str:
    _, text = await tokens.create(USER, "admin", "test", by="test")
    return text


@dataclass(frozen=True)
class Parts:
    """What several daemons of one site share."""

    store: Store
    head: Head
    notices: Notices
    tokens: Tokens


@pytest.fixture
def parts(store: Store, head: Head, notices: Notices, tokens: Tokens) -> Parts:
    return Parts(store, head, notices, tokens)


@contextlib.asynccontextmanager
async def serving(parts: Parts, name: str = "basecm10") -> AsyncIterator[int]:
    """The port of a daemon."""
    access = Access(lambda: parts.head.tree, parts.tokens)
    async with Health(parts.store) as health:
        app = rest.make(rest.Service(parts.head, access, parts.notices, health, name=name))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


@pytest.fixture
async def wire(parts: Parts) -> AsyncIterator[Wire]:
    async with serving(parts) as port, Wire(port) as opened:
        yield opened


@pytest.fixture
async def backend(wire: Wire, token: str) -> AsyncIterator[RemoteBackend]:
    async with HeadClient(wire.url, token=token) as client, RemoteBackend(client, SCHEMA) as opened:
        yield opened


class TestRemoteBackend(BackendSuite):
    """See the suite."""


async def test_a_long_history_is_read_in_pages(
    backend: RemoteBackend, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedplate.ui.remote._PAGE", 2)
    for number in range(4):
        await set_notes(backend, f"{number}")
    assert [revision.number for revision in await backend.log(5000)] == [5, 4, 3, 2, 1]
    assert [revision.number for revision in await backend.log(3)] == [5, 4, 3]
    assert [revision.number for revision in await backend.log(5000, DEFAULT)] == [5, 4, 3, 2, 1]


class Followed:
    """Reads the events of a backend in the background; tests wait for what they want to see among them."""

    def __init__(self, backend: Backend) -> None:
        self.seen: list[Event] = []
        self._backend = backend
        self._moved = asyncio.Condition()

    async def __aenter__(self) -> Followed:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        async for event in self._backend.follow():
            async with self._moved:
                self.seen.append(event)
                self._moved.notify_all()

    async def until(self, found: Callable[[Event], bool]) -> Event:
        async with asyncio.timeout(DEADLINE_S), self._moved:
            await self._moved.wait_for(lambda: any(map(found, self.seen)))
        return next(filter(found, self.seen))

    async def until_notice(self, text: str) -> Notice:
        event = await self.until(lambda event: isinstance(event, Notice) and text in event.text)
        assert isinstance(event, Notice)
        return event

    def revisions(self) -> list[int]:
        return [event.number for event in self.seen if isinstance(event, Revision)]


async def _theirs(head: Head, text: str) -> Revision:
    session = head.session()
    session.set(("device", "node001"), "notes", text)
    made = await commit_session(head, session, "bob")
    assert made is not None
    return made


async def test_what_a_device_reports_is_followed(backend: RemoteBackend, notices: Notices) -> None:
    async with Followed(backend) as followed:
        mine = await set_notes(backend, "x")
        await followed.until(lambda event: isinstance(event, Revision) and event.number == mine.number)
        await notices.add("node001", "Service nginx was reloaded")
        seen = await followed.until_notice("nginx")
    assert (seen.severity, seen.host, seen.text) == ("notice", "node001", "Service nginx was reloaded")


async def test_ones_own_revisions_are_known(backend: RemoteBackend, head: Head) -> None:
    theirs = await _theirs(head, "theirs")
    mine = await set_notes(backend, "mine")
    assert backend.is_own(mine.number)
    assert not backend.is_own(theirs.number)


async def test_a_commit_brings_what_others_committed_before_it(backend: RemoteBackend, head: Head) -> None:
    await _theirs(head, "theirs")
    mine = await set_notes(backend, "mine")
    assert backend.revision == mine.number
    assert backend.tree.get(("device", "node001")).values["notes"] == "theirs"
    assert backend.tree == await backend.tree_at(mine.number)


async def test_who_fell_far_behind_reads_the_tree_anew(backend: RemoteBackend, head: Head) -> None:
    for number in range(60):
        await _theirs(head, f"theirs {number}")
    mine = await set_notes(backend, "mine")
    assert backend.revision == mine.number
    assert backend.tree.get(("device", "node001")).values["notes"] == "theirs 59"


async def test_a_lost_connection_is_made_again_and_nothing_is_missed(
    backend: RemoteBackend, head: Head, wire: Wire
) -> None:
    session = Session(backend.tree)
    session.set(DEFAULT, "notes", "staged before the loss")
    async with Followed(backend) as followed:
        first = await _theirs(head, "before")
        await followed.until(lambda event: isinstance(event, Revision) and event.number == first.number)
        await wire.cut()
        lost = await followed.until_notice("was lost")
        second = await _theirs(head, "meanwhile")
        wire.restore()
        again = await followed.until_notice("reconnected")
        await followed.until(lambda event: isinstance(event, Revision) and event.number == second.number)
        assert followed.revisions() == [first.number, second.number]
    assert (lost.severity, again.severity) == ("warning", "notice")
    assert backend.tree.get(("device", "node001")).values["notes"] == "meanwhile"
    session.follow(backend.tree)
    made = await backend.commit(session.edits())
    assert made is not None and made.number == second.number + 1


async def test_a_commit_whose_answer_was_lost_is_carried_out_once(
    backend: RemoteBackend, head: Head, wire: Wire
) -> None:
    wire.swallow_next("POST")
    made = await set_notes(backend, "once")
    assert wire.lost == 1
    assert head.revision == made.number
    assert made.number == 2
    assert backend.is_own(made.number)


async def test_a_commit_that_was_given_up_is_carried_out_once_when_it_is_asked_for_again(
    head: Head, wire: Wire, token: str
) -> None:
    async with (
        HeadClient(wire.url, token=token, attempts=1) as client,
        RemoteBackend(client, SCHEMA, patience_s=0.0) as backend,
    ):
        session = Session(backend.tree)
        session.set(DEFAULT, "notes", "once")
        wire.swallow_next("POST")
        with pytest.raises(errors.Unavailable, match="not known") as lost:
            await backend.commit(session.edits(), "why")
        assert "commit again" in lost.value.hint
        made = await backend.commit(session.edits(), "why")
        assert made is not None
        assert head.revision == made.number == 2


async def test_a_commit_that_cannot_be_caught_up_with_is_settled_when_it_is_asked_for_again(
    head: Head, wire: Wire, token: str
) -> None:
    async with (
        HeadClient(wire.url, token=token, attempts=1) as client,
        RemoteBackend(client, SCHEMA, patience_s=0.0) as backend,
    ):
        session = Session(backend.tree)
        session.set(DEFAULT, "notes", "mine")
        theirs = await _theirs(head, "theirs")
        wire.swallow_next("GET")
        with pytest.raises(errors.Unavailable):
            await backend.commit(session.edits())
        assert wire.lost == 1
        made = await backend.commit(session.edits())
        assert made is not None and made.number == theirs.number + 1 == head.revision
        assert backend.tree == await backend.tree_at(made.number)


async def test_a_history_that_is_another_one_is_read_anew(backend: RemoteBackend, head: Head) -> None:
    session = head.session()
    session.add(("category",), "new")
    await commit_session(head, session, "bob")
    session.set(("category", "new"), "notes", "x")
    await commit_session(head, session, "bob")
    # As if the tree here had come from elsewhere: revision 3 changes what it does not have.
    backend._revision = 2
    made = await set_notes(backend, "mine")
    assert backend.revision == made.number == 4
    assert backend.tree == await backend.tree_at(4)


async def test_a_cancelled_commit_is_carried_out_once_when_it_is_asked_for_again(
    backend: RemoteBackend, head: Head, wire: Wire
) -> None:
    session = Session(backend.tree)
    session.set(DEFAULT, "notes", "once")
    await wire.cut()
    asking = asyncio.create_task(backend.commit(session.edits()))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    wire.restore()
    made = await backend.commit(session.edits())
    assert made is not None
    assert await backend.commit(session.edits(), force=True) is None
    assert head.revision == made.number


async def test_a_commit_waits_until_the_head_is_back_and_says_so(head: Head, wire: Wire, token: str) -> None:
    waited = asyncio.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        waited.set()

    async with (
        HeadClient(wire.url, token=token, attempts=1) as client,
        RemoteBackend(client, SCHEMA, on_wait=say) as backend,
    ):
        await wire.cut()
        asking = asyncio.create_task(set_notes(backend, "patient"))
        await asyncio.wait_for(waited.wait(), DEADLINE_S)
        wire.restore()
        made = await asyncio.wait_for(asking, DEADLINE_S)
    assert head.revision == made.number
    assert len(said) == 1


async def test_the_next_head_is_asked_when_the_first_is_gone(parts: Parts, head: Head, token: str) -> None:
    async with (
        serving(parts) as one,
        serving(parts, "basecm11") as other,
        Wire(one) as first,
        Wire(other) as second,
        HeadClient([first.url, second.url], token=token) as client,
        RemoteBackend(client, SCHEMA) as backend,
        Followed(backend) as followed,
    ):
        assert backend.name == "basecm10"
        seen = await _theirs(head, "x")
        await followed.until(lambda event: isinstance(event, Revision) and event.number == seen.number)
        await first.cut()
        await followed.until_notice("reconnected")
        assert backend.name == "basecm11"
        assert (await set_notes(backend, "there")).number == head.revision


async def test_a_head_that_came_back_out_of_a_backup_is_believed(
    backend: RemoteBackend, head: Head, wire: Wire, tmp_path: Path, tokens: Tokens, notices: Notices
) -> None:
    async with (
        SqliteStore(tmp_path / "older.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(base64.urlsafe_b64encode(bytes(range(32))))) as older,
    ):
        await commit(older, first_tree("basecm10", 3), "setup", "the site")
        await set_notes(backend, "one")
        await set_notes(backend, "two")
        async with Followed(backend) as followed:
            seen = await _theirs(head, "x")
            await followed.until(lambda event: isinstance(event, Revision) and event.number == seen.number)
            await wire.cut()
            await followed.until_notice("was lost")
            async with serving(Parts(store, older, notices, tokens)) as port:
                wire.lead_to(port)
                wire.restore()
                await followed.until_notice("reconnected")
                assert backend.revision == 1
                assert "notes" not in backend.tree.get(DEFAULT).values
                made = await set_notes(backend, "again")
                assert (made.number, backend.revision) == (2, 2)
                assert backend.tree.get(DEFAULT).values["notes"] == "again"


async def test_a_refused_credential_is_told_at_once(wire: Wire) -> None:
    with pytest.raises(errors.Denied):
        async with HeadClient(wire.url, token="wrong") as client, RemoteBackend(client, SCHEMA):
            pass


async def test_no_secret_is_held_by_the_shell_once_it_is_committed(backend: RemoteBackend, head: Head) -> None:
    session = Session(backend.tree)
    path = session.add(("kubernetes",), "default")
    session.set(path, "kubecakey", "very-secret")
    await backend.commit(session.edits())
    held = backend.tree.get(path).values["kube_ca_key"]
    assert held.reveal() == MASK  # type: ignore[union-attr]
    assert backend.tree == await backend.tree_at(backend.revision)


async def test_an_undo_brings_a_secret_back(backend: RemoteBackend, head: Head) -> None:
    session = Session(backend.tree)
    path = session.add(("kubernetes",), "default")
    session.set(path, "kubecakey", "old-secret")
    await backend.commit(session.edits())
    session = Session(backend.tree)
    session.set(path, "kubecakey", "new-secret")
    made = await backend.commit(session.edits())
    assert made is not None
    session = Session(backend.tree)
    session.stage(await backend.undo_changes(made.number), backend.unseal)
    (change,) = await backend.check(session.edits(), undoes=made.number)
    assert (change.path, change.old, change.new) == ((*path, "kube_ca_key"), MASK, MASK)
    undone = await backend.commit(session.edits(), undoes=made.number)
    assert undone is not None
    assert head.tree.get(path).values["kube_ca_key"].reveal() == "old-secret"  # type: ignore[union-attr]


async def test_a_secret_of_an_undo_is_refused_once_the_undo_was_changed(backend: RemoteBackend) -> None:
    session = Session(backend.tree)
    path = session.add(("kubernetes",), "default")
    session.set(path, "kubecakey", "old-secret")
    await backend.commit(session.edits())
    session = Session(backend.tree)
    session.clear(path, "kubecakey")
    made = await backend.commit(session.edits())
    assert made is not None
    session = Session(backend.tree)
    session.stage(await backend.undo_changes(made.number), backend.unseal)
    session.set(path, "notes", "and more")
    with pytest.raises(errors.Invalid, match=r"a secret of kubernetes\[default\]") as refused:
        await backend.commit(session.edits())
    assert "undo again" in refused.value.hint
