"""Filling a shared store from a folder: whole, once, and never over another site's tree."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.head.committing import commit

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import creation, transfer
from bedplate.head.folder.datafolder import Folder, open_head
from bedplate.head.objects import Obj
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.store.interface import Put
from bedplate.store.sqlite import Damaged, SqliteStore

OWN, STRANGER = transfer.Site("ours", "key", "basecm10"), transfer.Site("theirs", "theirs", "other")


async def folder_with(data: Path, commits: int) -> Folder:
    folder = await creation.make(data, name="basecm10", nodes=1)
    async with open_head(data) as opened:
        for number in range(commits):
            name = f"c{number}"
            await commit(opened.head, [Edit("category", name, None, Obj("Category", name))], "admin")
    return folder


async def claim(store: SqliteStore, folder: Folder | None, own: transfer.Site = OWN) -> list[str]:
    told: list[str] = []
    database = folder.file("head.db") if folder is not None else None
    await transfer.claim(store, own, database, lambda: told.append("ours"), ManualClock())
    return told


async def test_the_store_gets_every_revision_and_token_and_the_same_tree(tmp_path: Path) -> None:
    folder = await folder_with(tmp_path / "site", 130)
    async with SqliteStore(tmp_path / "shared.db") as store:
        assert await claim(store, folder) == ["ours", "ours"]
        keys = [entry.key async for entry in transfer.entries(store)]
        assert sum(key.startswith("/head/tokens/") for key in keys) == 1
        async with Head(store, SCHEMA, folder.vault()) as head:
            assert head.revision == 131
            tree = {(mode, obj.key): (obj, obj.revision) for mode, obj in head.tree.objects()}
            await commit(head, [Edit("category", "more", None, Obj("Category", "more"))], "admin")
        async with Head(store, SCHEMA, folder.vault()) as again:
            assert again.revision == 132
    async with open_head(folder.path) as opened:
        assert {(mode, obj.key): (obj, obj.revision) for mode, obj in opened.head.tree.objects()} == tree


async def test_a_filled_store_is_not_filled_again(tmp_path: Path) -> None:
    folder = await folder_with(tmp_path / "site", 1)
    async with SqliteStore(tmp_path / "shared.db") as store:
        await claim(store, folder)
        at = await store.revision()
        assert await claim(store, folder) == ["ours"]
        assert await store.revision() == at


async def test_a_filling_that_was_broken_off_is_completed(tmp_path: Path) -> None:
    folder = await folder_with(tmp_path / "site", 5)
    async with SqliteStore(tmp_path / "shared.db") as store:
        async with SqliteStore(folder.file("head.db")) as source:
            some = [entry async for entry in transfer.entries(source) if "/revisions/" in entry.key][:3]
        await store.commit([Put(entry.key, entry.value) for entry in some])
        await claim(store, folder)
        async with Head(store, SCHEMA, folder.vault()) as head:
            assert head.revision == 6


async def test_another_sites_store_is_refused_untouched_and_unremembered(tmp_path: Path) -> None:
    one, other = await folder_with(tmp_path / "one", 1), await folder_with(tmp_path / "other", 1)
    async with SqliteStore(tmp_path / "shared.db") as store:
        await claim(store, one)
        at = await store.revision()
        told: list[str] = []
        with pytest.raises(errors.Invalid, match="another site"):
            await transfer.claim(store, STRANGER, other.file("head.db"), lambda: told.append(""), ManualClock())
        assert told == [] and await store.revision() == at


async def test_a_head_with_another_key_for_secrets_is_refused(tmp_path: Path) -> None:
    folder = await folder_with(tmp_path / "site", 0)
    async with SqliteStore(tmp_path / "shared.db") as store:
        await claim(store, folder)
        with pytest.raises(errors.Invalid, match="encrypted with another key") as refused:
            await claim(store, None, transfer.Site("ours", "other", "basecm11"))
        assert "basecm10" in refused.value.hint


async def test_a_head_that_missed_a_rotation_of_the_authority_is_of_the_site(tmp_path: Path) -> None:
    folder = await folder_with(tmp_path / "site", 0)
    async with SqliteStore(tmp_path / "shared.db") as store:
        await claim(store, folder)
        await claim(store, None, transfer.Site("the next authority", OWN.key, "basecm11"))


async def test_what_another_site_began_is_not_gone_on_with(tmp_path: Path) -> None:
    one, other = await folder_with(tmp_path / "one", 1), await folder_with(tmp_path / "other", 1)
    async with SqliteStore(tmp_path / "shared.db") as store:
        async with SqliteStore(one.file("head.db")) as source:
            first = await source.get("/head/revisions/000000000001")
        assert first is not None
        await store.commit([Put(first.key, first.value)])
        with pytest.raises(errors.Invalid, match="part of another site"):
            await claim(store, other, STRANGER)


@pytest.mark.parametrize("has_empty_database", [False, True])
async def test_who_has_no_tree_waits_for_the_one_who_has(tmp_path: Path, has_empty_database: bool) -> None:
    folder = await folder_with(tmp_path / "site", 1)
    clock = ManualClock()
    async with SqliteStore(tmp_path / "shared.db") as store:
        empty = tmp_path / "empty.db" if has_empty_database else None
        if empty is not None:
            async with SqliteStore(empty):
                pass
        waiting = asyncio.create_task(transfer.claim(store, OWN, empty, lambda: None, clock))
        await clock.advance(5.0)
        assert not waiting.done() and await store.get(transfer.SITE) is None
        await claim(store, folder)
        async with asyncio.timeout(60):
            while not waiting.done():
                await clock.advance(1.0)
                await asyncio.sleep(0.01)
        await waiting


async def test_an_empty_file_is_not_taken_for_a_database_without_a_tree(tmp_path: Path) -> None:
    (tmp_path / "head.db").write_bytes(b"")
    async with SqliteStore(tmp_path / "shared.db") as store:
        with pytest.raises(Damaged, match="is empty"):
            await transfer.claim(store, OWN, tmp_path / "head.db", lambda: None, ManualClock())
    assert (tmp_path / "head.db").read_bytes() == b""


async def test_a_retired_database_is_kept_and_never_replaced(tmp_path: Path) -> None:
    folder = await folder_with(tmp_path / "site", 0)
    content = folder.file("head.db").read_bytes()
    folder.retire_database()
    assert not folder.file("head.db").exists() and folder.file("before-etcd.db").read_bytes() == content
    folder.file("head.db").write_bytes(b"")
    folder.retire_database()
    assert folder.file("before-etcd.db").read_bytes() == content
