"""What every backend does, wherever its head runs: the same tests for the one in this process and the one over REST.

A module that inherits `BackendSuite` gives two fixtures: `backend`, which holds a site with a head node, node001 to
node003 and a category, and `head`, the head behind it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.head.committing import commit_session
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Revision
from bedplate.core import errors
from bedplate.head import renaming
from bedplate.head.changes import MASK
from bedplate.head.objects import Secret
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.ui.backend import Backend

DEFAULT = ("category", "default")


async def set_notes(backend: Backend, text: str, *, message: str = "") -> Revision:
    session = Session(backend.tree)
    session.set(DEFAULT, "notes", text)
    made = await backend.commit(session.edits(), message)
    assert made is not None
    return made


class BackendSuite:
    """What every backend does alike; a class derived from it gives the fixture `backend`."""

    async def test_it_says_who_is_asking_whom(self, backend: Backend) -> None:
        assert backend.name == "basecm10"
        assert backend.user == "admin"

    async def test_the_tree_holds_a_commit_as_soon_as_it_is_acknowledged(self, backend: Backend) -> None:
        before = backend.revision
        made = await set_notes(backend, "new", message="because")
        assert (made.number, made.author, made.message) == (before + 1, "admin", "because")
        assert backend.revision == made.number
        assert backend.tree.get(DEFAULT).values["notes"] == "new"
        assert backend.tree.get(DEFAULT).revision == made.number

    async def test_edits_that_change_nothing_make_no_revision(self, backend: Backend) -> None:
        made = await set_notes(backend, "same")
        session = Session(backend.tree)
        session.set(DEFAULT, "notes", "other")
        edits = [edit._replace(new=backend.tree.get(DEFAULT)) for edit in session.edits()]
        assert await backend.commit(edits) is None
        assert backend.revision == made.number

    async def test_a_stale_commit_is_refused_and_names_the_other_author(self, backend: Backend, head: Head) -> None:
        mine = Session(backend.tree)
        mine.set(DEFAULT, "notes", "mine")
        theirs = head.session()
        theirs.set(DEFAULT, "notes", "theirs")
        made = await commit_session(head, theirs, "bob")
        assert made is not None
        with pytest.raises(errors.Conflict) as refused:
            await backend.commit(mine.edits())
        assert "bob" in str(refused.value) and str(made.number) in str(refused.value)
        with pytest.raises(errors.Conflict):
            await backend.check(mine.edits())
        forced = await backend.commit(mine.edits(), force=True)
        assert forced is not None
        assert backend.tree.get(DEFAULT).values["notes"] == "mine"

    async def test_whoever_does_not_follow_can_catch_up(self, backend: Backend, head: Head) -> None:
        theirs = head.session()
        for text in ("one", "two", "three"):
            theirs.set(DEFAULT, "notes", text)
            await commit_session(head, theirs, "bob")
        await backend.catch_up()
        assert backend.revision == head.revision
        assert backend.tree.get(DEFAULT).values["notes"] == "three"
        await backend.catch_up()
        await set_notes(backend, "four")

    async def test_what_is_wrong_is_refused_whole(self, backend: Backend) -> None:
        session = Session(backend.tree)
        session.set(DEFAULT, "softwareimage", "nowhere")
        session.set(DEFAULT, "notes", "x")
        before = backend.revision
        for ask in (backend.commit, backend.check):
            with pytest.raises(errors.Invalid, match="nowhere"):
                await ask(session.edits())
        assert backend.revision == before
        assert "notes" not in backend.tree.get(DEFAULT).values

    async def test_check_tells_the_changes_and_makes_none(self, backend: Backend) -> None:
        session = Session(backend.tree)
        session.set(DEFAULT, "notes", "looked at")
        before = backend.revision
        (change,) = await backend.check(session.edits())
        assert (change.path, change.old, change.new) == ((*DEFAULT, "notes"), None, "looked at")
        assert backend.revision == before

    async def test_the_past_can_be_read(self, backend: Backend) -> None:
        first = await set_notes(backend, "one", message="first")
        second = await set_notes(backend, "two")
        assert (await backend.tree_at(first.number)).get(DEFAULT).values["notes"] == "one"
        assert "notes" not in (await backend.tree_at(first.number - 1)).get(DEFAULT).values
        assert (await backend.read(first.number)).message == "first"
        newest = await backend.log(limit=2, path=DEFAULT)
        assert [revision.number for revision in newest] == [second.number, first.number]
        assert await backend.log(path=("device", "node001"), limit=1) != newest
        entry = (await backend.audit(path=DEFAULT, limit=1))[0]
        assert (entry.author, entry.path, entry.old, entry.new) == ("admin", (*DEFAULT, "notes"), "one", "two")
        for ask in (backend.read, backend.tree_at):
            with pytest.raises(errors.NotFound):
                await ask(second.number + 100)

    async def test_an_undo_is_staged_and_refused_when_something_stands_in_the_way(self, backend: Backend) -> None:
        first = await set_notes(backend, "one")
        second = await set_notes(backend, "two")
        with pytest.raises(errors.Conflict, match=str(second.number)):
            await backend.undo_changes(first.number)
        for number in (second.number, first.number):
            session = Session(backend.tree)
            session.stage(await backend.undo_changes(number), backend.unseal)
            made = await backend.commit(session.edits(), undoes=number)
            assert made is not None and made.undoes == number
        assert "notes" not in backend.tree.get(DEFAULT).values

    async def test_a_secret_survives_an_edit_beside_it_and_shows_nowhere(self, backend: Backend, head: Head) -> None:
        session = Session(backend.tree)
        path = session.add(("kubernetes",), "default")
        session.set(path, "kubecakey", "very-secret")
        made = await backend.commit(session.edits())
        assert made is not None
        session = Session(backend.tree)
        session.set(path, "notes", "beside")
        await backend.commit(session.edits())
        held = head.tree.get(path).values["kube_ca_key"]
        assert isinstance(held, Secret) and held.reveal() == "very-secret"
        seen = [*(await backend.read(made.number)).changes, *await backend.audit()]
        assert "very-secret" not in repr(seen) + await backend.export_document()
        assert MASK in repr(seen)

    async def test_a_renamed_object_keeps_its_secrets(self, backend: Backend, head: Head) -> None:
        session = Session(backend.tree)
        for name in ("a", "b"):
            path = session.add(("kubernetes",), name)
            session.set(path, "kubecakey", f"secret of {name}")
        await backend.commit(session.edits())
        session = Session(backend.tree)
        renaming.rename(session, ("kubernetes", "a"), "c")
        await backend.commit(session.edits())
        session = Session(backend.tree)
        renaming.swap(session, ("kubernetes", "b"), ("kubernetes", "c"))
        await backend.commit(session.edits(("kubernetes", "b")))
        held = {name: head.tree.get(("kubernetes", name)).values["kube_ca_key"] for name in ("b", "c")}
        assert {name: secret.reveal() for name, secret in held.items() if isinstance(secret, Secret)} == {
            "b": "secret of a",
            "c": "secret of b",
        }
        assert head.tree.find("kubernetes", "a") is None

    async def test_a_secret_does_not_come_from_a_name_that_stays(self, backend: Backend) -> None:
        session = Session(backend.tree)
        session.set(session.add(("kubernetes",), "a"), "kubecakey", "very-secret")
        await backend.commit(session.edits())
        session = Session(backend.tree)
        session.set(session.add(("kubernetes",), "thief"), "kubecakey", MASK)
        (edit,) = session.edits()
        with pytest.raises(errors.Invalid):
            await backend.commit([edit._replace(was="a")])

    async def test_the_tree_can_be_exported(self, backend: Backend) -> None:
        document = await backend.export_document()
        assert document == await backend.export_document()
        assert "node001:" in document

    async def test_revisions_are_followed_and_the_tree_is_there_first(self, backend: Backend, head: Head) -> None:
        seen: list[tuple[int, bool]] = []
        is_ready = asyncio.Event()

        async def read() -> None:
            events = backend.follow()
            pending = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            is_ready.set()
            while len(seen) < 2:
                event = await pending
                pending = asyncio.ensure_future(anext(events))
                if isinstance(event, Revision):
                    seen.append((event.number, backend.revision >= event.number))
            pending.cancel()

        reading = asyncio.create_task(read())
        await is_ready.wait()
        mine = await set_notes(backend, "mine")
        session = head.session()
        session.set(DEFAULT, "notes", "theirs")
        theirs = await commit_session(head, session, "bob")
        assert theirs is not None
        await asyncio.wait_for(reading, DEADLINE_S)
        assert seen == [(mine.number, True), (theirs.number, True)]
        assert backend.tree.get(DEFAULT).values["notes"] == "theirs"

    async def test_nodes_that_never_reported_have_applied_nothing(self, backend: Backend) -> None:
        states = await backend.states(["node001", "node002"])
        assert [(state.node, state.state, state.applied) for state in states] == [
            ("node001", "UNKNOWN", 0),
            ("node002", "UNKNOWN", 0),
        ]
        assert len(await backend.states()) == 4
        assert (await backend.health("node001")).history == []
        assert await backend.notices() == []
        with pytest.raises(errors.NotFound):
            await backend.health("nobody")

    async def test_it_says_what_the_head_takes_the_caller_for(self, backend: Backend) -> None:
        who = await backend.whoami()
        assert (who.user, who.role, who.head, who.revision) == ("admin", "admin", "basecm10", backend.revision)

    async def test_of_an_edits_base_only_the_revision_counts(self, backend: Backend) -> None:
        session = Session(backend.tree)
        session.set(DEFAULT, "notes", "x")
        (edit,) = session.edits()
        assert edit.base is not None
        bare = edit._replace(base=replace(edit.base, values={}, children={}))
        assert await backend.commit([bare]) is not None
