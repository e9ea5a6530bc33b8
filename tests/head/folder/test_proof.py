"""A backup proves what it wrote, and fails where no head could be restored from it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.apps import headprograms as heads
from tests.head.committing import commit
from tests.head.folder.serving import serving
from tests.waiting import until, wait_until

from bedplate.api.headapi import Notice
from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import administration, backups, creation
from bedplate.head.folder.datafolder import DATABASE, Folder, open_head
from bedplate.head.objects import Obj
from bedplate.head.session import Edit, Session
from bedplate.store.interface import Delete, Op, Put
from bedplate.store.sqlite import Damaged, SqliteStore
from bedplate.ui.remote import RemoteBackend


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    made = await creation.make(tmp_path / "site", name="basecm10", nodes=2)
    async with open_head(made.path) as opened:
        for name in ("a", "b", "c"):
            await commit(opened.head, [Edit("category", name, None, Obj("Category", name))], "admin")
    return made


DAMAGES: dict[str, tuple[list[Op], str]] = {
    "a revision is missing": ([Delete("/head/revisions/000000000002")], "revision 2 is missing"),
    "the last revision is missing": ([Delete("/head/revisions/000000000004")], "ends at revision 3"),
    "a revision is cut": ([Put("/head/revisions/000000000003", b'{"number":3,')], "cannot be read"),
    "an object is gone": ([Delete("/head/objects/category/b")], "do not match"),
    "an object is another": (
        [Put("/head/objects/category/b", b'{"revision":3,"object":{"type":"Category","values":{"notes":"x"}}}')],
        "do not match",
    ),
    "an object is of no mode": ([Put("/head/objects/nonsense/b", b'{"revision":3,"object":{"type":"X"}}')], "nonsense"),
    "an object cannot be decoded": ([Put("/head/objects/category/b", b"\x00\xff")], "cannot be read"),
    "the mark is not a number": ([Put("/head/latest", b"many")], "cannot be read"),
    "a token is cut": ([Put("/head/tokens/0123456789", b"{")], "cannot be read"),
}


@pytest.mark.parametrize(("ops", "reason"), list(DAMAGES.values()), ids=list(DAMAGES))
async def test_a_backup_of_a_damaged_store_fails_and_writes_nothing(
    folder: Folder, tmp_path: Path, ops: list[Op], reason: str
) -> None:
    async with SqliteStore(folder.file(DATABASE)) as store:
        await store.commit(ops)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(errors.Invalid, match=reason):
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=True)
    assert sorted(tmp_path.iterdir()) == before


async def test_a_backup_of_a_file_with_overwritten_pages_fails(folder: Folder, tmp_path: Path) -> None:
    with folder.file(DATABASE).open("r+b") as file:
        file.seek(8192 * 2)
        file.write(b"\xff" * 4096)
    with pytest.raises((Damaged, errors.Invalid)):
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=True)
    assert not (tmp_path / "b.tar.gz").exists()


@pytest.mark.parametrize("is_missing", [True, False])
async def test_a_backup_of_no_database_fails(folder: Folder, tmp_path: Path, is_missing: bool) -> None:
    folder.file(DATABASE).write_bytes(b"")
    if is_missing:
        folder.file(DATABASE).unlink()
    with pytest.raises(Damaged, match="is missing" if is_missing else "is empty"):
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=True)
    assert folder.file(DATABASE).exists() != is_missing


async def test_a_backup_writes_nothing_into_the_data_folder(folder: Folder, tmp_path: Path) -> None:
    async with open_head(folder.path):
        before = {path.name for path in folder.path.iterdir()}
        folder.path.chmod(0o500)
        try:
            await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=True)
        finally:
            folder.path.chmod(0o700)
        assert {path.name for path in folder.path.iterdir()} == before


def test_a_backup_of_a_damaged_store_is_told_by_the_program(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "1")
    (data / DATABASE).write_bytes(b"")
    refused = heads.bedplate("head", "backup", tmp_path / "b.tar.gz", "--data", data, code=1)
    assert "is empty" in refused.stderr
    assert not (tmp_path / "b.tar.gz").exists()


# Killed halfway

_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from bedplate.head.folder import {module}
from bedplate.head.folder.datafolder import Folder

def stop(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

{patch} = stop
asyncio.run({call})
"""


def killed(module: str, patch: str, call: str) -> None:
    program = _KILLED.format(module=module, patch=patch, call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_backup_leaves_nothing_behind(folder: Folder, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    call = f"backups.backup(Folder(Path({str(folder.path)!r})), Path({str(tmp_path / 'b.tar.gz')!r}), with_keys=True)"
    killed("backups", "backups._proven", call)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("patch", ["creation.create_site", "creation.settle", "creation.Folder.__init__"])
async def test_what_a_killed_init_left_is_removed_by_the_next(tmp_path: Path, patch: str) -> None:
    data = tmp_path / "site"
    call = f"creation.make(Path({str(data)!r}), name='basecm10', nodes=1)"
    killed("creation", patch, call)
    await creation.make(data, name="basecm10", nodes=1)
    assert not [path for path in data.iterdir() if path.name.startswith(".")]
    async with open_head(data) as opened:
        assert opened.head.revision == 1


async def test_an_init_that_was_killed_while_it_moved_its_files_is_made_again(tmp_path: Path) -> None:
    data = tmp_path / "site"
    once = "lambda old, new, really=os.rename: really(old, new) if 'ca' in str(new) else stop()"
    program = _KILLED.format(
        module="creation",
        patch="_",
        call=f"creation.make(Path({str(data)!r}), name='basecm10', nodes=1)",
    ).replace("_ = stop", f"creation.os.rename = {once}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    await creation.make(data, name="basecm10", nodes=1)
    async with open_head(data) as opened:
        assert opened.head.revision == 1


async def test_what_another_init_is_making_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "site"
    with creation.Workshop(data) as workshop:
        with pytest.raises(errors.AlreadyExists, match="not empty"):
            creation.check_empty(data)
        assert workshop.exists()


async def test_files_of_a_whole_folder_are_never_taken_for_leftovers(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=1)
    workshop = folder.path / ".making.1"
    workshop.mkdir()
    (workshop / "moving").write_text("head.db\nca.key")
    (folder.path / "head.yaml").unlink()
    with pytest.raises(errors.AlreadyExists, match="not empty"):
        await creation.make(folder.path, name="basecm10", nodes=1)
    assert folder.file("head.db").exists() and folder.file("ca.key").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_init_that_is_told_to_end_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "site"
    slow = "import time; from bedplate.head.folder import creation; creation.settle = lambda *_: time.sleep(600);"
    program = f"{slow} from bedplate.cli.head.command import head; head()"
    process = subprocess.Popen([sys.executable, "-c", program, "init", "--data", str(data), "--nodes", "0"])
    wait_until(lambda: any(data.glob(".making.*/admin.token")), "the folder is almost made")
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert not data.exists()


# Restored


async def test_every_restore_begins_a_history_of_its_own(folder: Folder, tmp_path: Path) -> None:
    seen = []
    for name in ("one", "two"):
        await backups.backup(folder, tmp_path / f"{name}.tar.gz", with_keys=True)
        await backups.restore(tmp_path / f"{name}.tar.gz", tmp_path / name)
        folder = Folder(tmp_path / name)
        async with open_head(folder.path) as opened:
            seen.append(opened.head.incarnation)
            assert opened.head.revision == 4
    assert len({"", *seen}) == 3


async def test_whoever_is_there_when_a_backup_is_restored_is_told(folder: Folder, tmp_path: Path) -> None:
    """A shell with staged edits, another one with an open stream, a program with an ETag: the numbers of the revisions
    come again, and nobody takes one for another."""
    place, new, said = ("category", "b"), Folder(tmp_path / "new"), list[str]()
    headers = {"Authorization": f"Bearer {folder.admin_token()}"}

    async def listen() -> None:
        async for event in listener.follow():
            if isinstance(event, Notice):
                said.append(event.text)

    async with (
        contextlib.AsyncExitStack() as opened,
        aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=False)) as http,
    ):
        async with serving(folder) as daemon:
            url = f"{daemon.url}/api/v1/objects/category/b"
            client = await opened.enter_async_context(administration.client(folder, daemon.url))
            await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=True)
            await client.patch(*place, {"notes": "after the backup"})
            quiet = await opened.enter_async_context(RemoteBackend(client, SCHEMA))
            listener = await opened.enter_async_context(RemoteBackend(client, SCHEMA))
            session = Session(quiet.tree)
            session.set(place, "notes", "staged")
            listening = asyncio.create_task(listen())
            opened.callback(listening.cancel)
            await client.patch(*place, {"notes": "told"})
            await until(lambda: listener.revision == 6)
            async with http.get(url) as answer:
                tag = answer.headers["ETag"]
        await backups.restore(tmp_path / "b.tar.gz", new.path)
        async with serving(new, int(daemon.url.rpartition(":")[2])):
            for notes in ("another", "and another"):
                await client.patch(*place, {"notes": notes})
            for commit_ in (quiet.commit, quiet.check):
                with pytest.raises(errors.Conflict, match="restored from a backup"):
                    await commit_(session.edits())
            async with http.put(url, json={}, headers={"If-Match": tag}) as answer:
                assert answer.status == 412, await answer.text()
            async with http.get(url, headers={"If-None-Match": tag}) as answer:
                assert answer.status == 200
                assert answer.headers["ETag"].startswith(tag[:-1] + "-"), "the same number"
            await until(lambda: any("restored from a backup" in text for text in said))
            assert listener.tree.get(place).values["notes"] == "and another"
            await listener.commit(session.edits(), force=True)
