"""Commits, revisions, staleness, undo, audit, secrets; on SQLite and on a real etcd."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Sequence

import pytest
from tests.head.committing import commit_session, undo

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head import records
from bedplate.head.entities import SCHEMA
from bedplate.head.notices import Notices
from bedplate.head.objects import Secret
from bedplate.head.policy import Identity
from bedplate.head.service import Head, Stale
from bedplate.head.session import Session
from bedplate.head.vault import Vault
from bedplate.store.interface import Op, OutcomeUnknown, Store

CATEGORY = ("category", "default")


async def first(head: Head) -> Session:
    session = head.session()
    session.add(("category",), "default")
    session.add(("softwareimage",), "default-image")
    session.set(CATEGORY, "softwareimage", "default-image")
    revision = await commit_session(head, session, "alice", "first tree")
    assert revision is not None
    assert revision.number == 1
    return session


async def test_item_006_a_commit_survives_a_new_head(head: Head, store: Store, vault: Vault) -> None:
    await first(head)
    async with Head(store, SCHEMA, vault, clock=ManualClock()) as other:
        assert other.tree == head.tree
        assert other.revision == 1
        assert other.tree.get(CATEGORY).values == {"software_image": "default-image"}
        assert other.tree.get(CATEGORY).revision == 1


async def test_item_007_what_was_not_committed_is_gone(head: Head, store: Store, vault: Vault) -> None:
    session = await first(head)
    session.set(CATEGORY, "notes", "never committed")
    async with Head(store, SCHEMA, vault) as other:
        assert other.tree.get(CATEGORY).values == {"software_image": "default-image"}


async def test_item_036_a_stale_commit_is_refused_with_the_other_author_named(head: Head) -> None:
    await first(head)
    mine, theirs = head.session(), head.session()
    mine.set(CATEGORY, "notes", "mine")
    theirs.set(CATEGORY, "notes", "theirs")
    await commit_session(head, theirs, "bob")
    with pytest.raises(Stale, match=r"category\[default\] was changed by bob in revision 2"):
        await commit_session(head, mine, "alice")
    assert mine.is_changed(CATEGORY)
    assert head.tree.get(CATEGORY).values["notes"] == "theirs"
    forced = await commit_session(head, mine, "alice", force=True)
    assert forced is not None
    assert forced.changes[0].old == "theirs"
    assert head.tree.get(CATEGORY).values["notes"] == "mine"


async def test_a_removal_by_another_is_named_too(head: Head) -> None:
    await first(head)
    mine, theirs = head.session(), head.session()
    mine.set(CATEGORY, "notes", "mine")
    theirs.remove(CATEGORY)
    await commit_session(head, theirs, "bob")
    with pytest.raises(Stale, match="was removed by bob in revision 2"):
        await commit_session(head, mine, "alice")


async def test_commits_to_different_objects_never_meet(head: Head) -> None:
    await first(head)
    mine, theirs = head.session(), head.session()
    mine.set(CATEGORY, "notes", "mine")
    theirs.set(("softwareimage", "default-image"), "notes", "theirs")
    await commit_session(head, theirs, "bob")
    await commit_session(head, mine, "alice")
    assert head.revision == 3


async def test_a_commit_that_changes_nothing_makes_no_revision(head: Head) -> None:
    session = await first(head)
    assert await commit_session(head, session, "alice") is None
    assert head.revision == 1


async def test_references_must_exist_and_what_is_used_cannot_go(head: Head) -> None:
    session = await first(head)
    session.remove(("softwareimage", "default-image"))
    with pytest.raises(errors.Invalid, match=r"is used by category\[default\] \(softwareimage\)"):
        await commit_session(head, session, "alice")
    session.drop()
    session.set(CATEGORY, "softwareimage", "nothing")
    with pytest.raises(errors.Invalid, match="names softwareimage 'nothing', which does not exist"):
        await commit_session(head, session, "alice")
    session.drop()
    session.remove(("softwareimage", "default-image"))
    session.remove(CATEGORY)
    assert await commit_session(head, session, "alice") is not None


async def test_a_dry_run_says_what_a_commit_would_change_and_writes_nothing(head: Head) -> None:
    session = await first(head)
    session.set(CATEGORY, "notes", "x")
    (change,) = await head.check_as(Identity.local("alice"), session.edits())
    assert (change.path, change.old, change.new) == ((*CATEGORY, "notes"), None, "x")
    assert head.revision == 1


async def test_unique_values_and_overlapping_networks_are_refused(head: Head) -> None:
    session = head.session()
    for name in ["node001", "node002"]:
        path = session.add(("device",), name, "physicalnode")
        session.set(path, "mac", "00:11:22:33:44:5A" if name == "node001" else "00:11:22:33:44:5a")
    with pytest.raises(errors.Invalid, match=r"already used by device\[node00"):
        await commit_session(head, session, "alice")
    session.drop()
    for name, base in [("pods", "172.29.0.0"), ("services", "10.150.0.0")]:
        session.set(session.add(("network",), name), "baseaddress", base)
    cluster = session.add(("kubernetes",), "default")
    session.set(cluster, "podnetwork", "pods")
    session.set(cluster, "servicenetwork", "services")
    await commit_session(head, session, "alice")
    session.set(("network", "services"), "baseaddress", "172.29.0.0")
    with pytest.raises(errors.Invalid, match=r"kubernetes\[default\]: servicenetwork: .* overlaps"):
        await commit_session(head, session, "alice")


async def test_item_222_the_audit_says_who_changed_which_parameter_when(head: Head) -> None:
    session = await first(head)
    session.set(CATEGORY, "notes", "one")
    await commit_session(head, session, "alice", "why")
    session.set(CATEGORY, "notes", "two")
    await commit_session(head, session, "bob")
    found = await head.audit((*CATEGORY, "notes"))
    assert [(entry.revision, entry.author, entry.old, entry.new) for entry in found][:2] == [
        (3, "bob", "one", "two"),
        (2, "alice", None, "one"),
    ]
    assert found[0].time.startswith("2026-01-01T")
    assert [revision.number for revision in await head.log(path=("softwareimage",))] == [1]
    assert [revision.message for revision in await head.log(limit=2)] == ["", "why"]


async def test_an_undo_is_a_revision_and_names_what_stands_in_its_way(head: Head) -> None:
    session = await first(head)
    session.set(CATEGORY, "notes", "one")
    await commit_session(head, session, "alice")
    session.set(CATEGORY, "notes", "two")
    await commit_session(head, session, "bob")
    with pytest.raises(errors.Conflict, match=r"revision 3 of bob changed category.default.notes after revision 2"):
        await undo(head, 2, "carol")
    undone = await undo(head, 3, "carol")
    assert undone is not None
    assert (undone.number, undone.undoes, undone.author) == (4, 3, "carol")
    assert head.tree.get(CATEGORY).values["notes"] == "one"
    await undo(head, 2, "carol")
    assert "notes" not in head.tree.get(CATEGORY).values
    with pytest.raises(errors.Conflict, match="was undone by revision 5"):
        await undo(head, 2, "carol")
    with pytest.raises(errors.NotFound, match="no revision 99"):
        await undo(head, 99, "carol")
    forced = await undo(head, 3, "carol", force=True)
    assert forced is not None
    assert forced.undoes == 0
    assert head.tree.get(CATEGORY).values["notes"] == "one"


async def test_the_tree_at_any_revision_can_be_read(head: Head) -> None:
    session = await first(head)
    trees = [head.tree]
    for text in ["one", "two", "three"]:
        session.set(CATEGORY, "notes", text)
        await commit_session(head, session, "alice")
        trees.append(head.tree)
    for number, tree in enumerate(trees, 1):
        assert await head.tree_at(number) == tree
    assert list((await head.tree_at(0)).objects()) == []
    with pytest.raises(errors.NotFound):
        await head.tree_at(9)


async def test_secrets_are_sealed_in_the_store_and_masked_in_the_history(
    head: Head, store: Store, vault: Vault
) -> None:
    session = head.session()
    cluster = session.add(("kubernetes",), "default")
    session.set(cluster, "kubecakey", "hush-one")
    await commit_session(head, session, "alice")
    session.set(cluster, "kubecakey", "hush-two")
    await commit_session(head, session, "alice")
    for entry in (await store.list("/")).entries:
        assert b"hush" not in entry.value
    seen = repr([await head.log(), await head.audit(), await head.read(2)])
    assert "hush" not in seen
    assert "sealed" not in seen
    assert "*****" in seen
    await undo(head, 2, "alice")
    async with Head(store, SCHEMA, vault) as other:
        assert other.tree.get(cluster).values["kube_ca_key"] == Secret("hush-one")


async def test_two_heads_on_one_store_take_turns_and_lose_nothing(head: Head, store: Store, vault: Vault) -> None:
    await first(head)
    async with Head(store, SCHEMA, vault, clock=ManualClock()) as other:

        async def work(on: Head, who: str) -> None:
            for number in range(10):
                session = on.session()
                session.add(("category",), f"{who}-{number}")
                await commit_session(on, session, who)

        async with asyncio.TaskGroup() as group:
            group.create_task(work(head, "a"))
            group.create_task(work(other, "b"))
        await head.catch_up()
        await other.catch_up()
        assert head.tree == other.tree
        assert head.revision == other.revision == 21
        assert len(head.tree.mode("category")) == 21
        stale = other.session()
        stale.set(CATEGORY, "notes", "x")
        session = head.session()
        session.set(CATEGORY, "notes", "y")
        await commit_session(head, session, "alice")
        with pytest.raises(Stale, match="alice in revision 22"):
            await commit_session(other, stale, "bob")


async def test_a_head_that_follows_sees_the_others_commits_as_notices(head: Head, store: Store, vault: Vault) -> None:
    async with Head(store, SCHEMA, vault) as passive:
        following = asyncio.create_task(passive.follow())
        try:
            await first(head)
            async with asyncio.timeout(60):
                async for revision in passive.revisions(after=0):
                    assert (revision.number, revision.author) == (1, "alice")
                    break
            assert passive.tree == head.tree
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


class Doubtful:
    """A store that loses the answer of the next commit, which it writes at once, after the next read, or never."""

    def __init__(self, store: Store, writes: str) -> None:
        self._store = store
        self._writes = writes
        self._late: Sequence[Op] = ()
        self.doubt = False

    async def get(self, key: str, *, revision: int = 0) -> object:
        found = await self._store.get(key, revision=revision)
        late, self._late = self._late, ()
        if late:
            await self._store.commit(late)
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, ops: Sequence[Op]) -> int:
        if not self.doubt:
            return await self._store.commit(ops)
        self.doubt = False
        if self._writes == "at once":
            await self._store.commit(ops)
        elif self._writes == "late":
            self._late = ops
        raise OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize("writes", ["at once", "late", "never"])
async def test_a_lost_answer_neither_loses_nor_repeats_a_commit(store: Store, vault: Vault, writes: str) -> None:
    doubtful = Doubtful(store, writes)
    async with Head(doubtful, SCHEMA, vault) as head:  # type: ignore[arg-type]
        await first(head)
        doubtful.doubt = True
        session = head.session()
        session.set(CATEGORY, "notes", "x")
        revision = await commit_session(head, session, "alice")
        assert revision is not None
        assert revision.number == 2
        assert len((await store.list(records.REVISIONS)).entries) == 2
        assert head.tree.get(CATEGORY).values["notes"] == "x"


class Broken(Doubtful):
    """A store whose disk fails to sync: from some moment on it cannot tell of any commit whether it was written."""

    commits = 0

    async def commit(self, ops: Sequence[Op]) -> int:
        if not self.doubt:
            return await self._store.commit(ops)
        self.commits += 1
        raise OutcomeUnknown("the disk failed to sync", hint="restart once the disk is repaired")


async def test_a_broken_store_is_reported_in_its_own_words(store: Store, vault: Vault) -> None:
    broken = Broken(store, "never")
    async with Head(broken, SCHEMA, vault) as head, Notices(broken) as notices:  # type: ignore[arg-type]
        await first(head)
        broken.doubt = True
        session = head.session()
        session.set(CATEGORY, "notes", "x")
        with pytest.raises(OutcomeUnknown, match="the disk failed to sync"):
            await commit_session(head, session, "alice")
        with pytest.raises(OutcomeUnknown, match="the disk failed to sync"):
            await notices.add("node001", "text")
        assert broken.commits == 6
        assert head.revision == 1


def test_the_key_of_the_secrets_is_made_once_and_readable_by_its_owner_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "data" / "secrets.key"
    one, other = Vault.open(path), Vault.open(path)
    assert other.unseal(one.seal(Secret("hush"))) == Secret("hush")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secrets.key"]
    with pytest.raises(ValueError, match="cannot be decrypted"):
        Vault.open(tmp_path / "other.key").unseal(one.seal(Secret("hush")))
    path.write_bytes(b"short")
    with pytest.raises(errors.Invalid, match="damaged"):
        Vault.open(path)
