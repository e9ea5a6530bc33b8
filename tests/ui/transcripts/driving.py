"""Somebody at a shell: types lines, reads what is printed, looks at the prompt. For transcripts and checklists.

In: a head, and sites made by scripts of the shell itself (`sites/*.cmsh`). Out: what was said, and tables taken apart
by their rulers, so that blanks do not count.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.head.committing import commit_session

from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh.machine import Host
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend

__all__ = ["Desk", "Said", "Table", "head_with", "opened", "read_table", "sized_files", "tree_of"]

HERE = Path(__file__).resolve().parent
KEY = base64.urlsafe_b64encode(bytes(range(32)))
HEAD = "basecm10"
STACK = {"empty": (), "plain": ("plain",), "deployed": ("plain", "deployed"), "capi": ("plain", "deployed", "capi")}
SIZES = (645, 690, 914, 1034, 1219, 249856)

_trees: dict[str, Tree] = {}


class Said(NamedTuple):
    """What one line did."""

    code: int
    out: str
    err: str


class Table(NamedTuple):
    """A printed table: the headers and the cells, without the blanks that fill them."""

    headers: list[str]
    rows: list[list[str]]

    def column(self, header: str) -> list[str]:
        place = self.headers.index(header)
        return [row[place] for row in self.rows]


def read_table(text: str) -> Table:
    """Take a table apart where its ruler says."""
    header, ruler, *rows = text.rstrip("\n").split("\n")
    assert set(ruler) <= {"-", " "} and "-" in ruler, f"no ruler below the headers in:\n{text}"
    starts = [at for at, sign in enumerate(ruler) if sign == "-" and (at == 0 or ruler[at - 1] == " ")]
    ends = [*starts[1:], None]

    def cells(line: str) -> list[str]:
        return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]

    return Table(cells(header), [cells(row) for row in rows])


def sized_files(folder: Path) -> Path:
    """A folder with files of the sizes that the manual's tables show, and a manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        (folder / str(size)).write_text("#" * (size - 1) + "\n")
    (folder / "dashboard_ingress.yaml").write_bytes((HERE / "files/dashboard_ingress.yaml").read_bytes())
    return folder


@dataclass
class Desk:
    """A shell and whoever sits at it. `edits` are what the editor saves, one after another; `path` leads host
    commands to scripts of the test's; `backend` is a head elsewhere."""

    head: Head
    user: str = "admin"
    files: Path = Path()
    path: str = ""
    edits: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    interactive: bool = False
    backend: Backend | None = None

    def __post_init__(self) -> None:
        self._out: list[str] = []
        self._err: list[str] = []
        self.shell = self._new()

    def _new(self) -> Shell:
        backend = self.backend or LocalBackend(self.head, name=HEAD, identity=Identity.local(self.user))
        host = Host(edit=self._edit, run=self._run)
        return Shell(backend, self._out.append, self._err.append, host=host, interactive=self.interactive)

    def finish(self) -> str:
        """What a script's end says."""
        self._err.clear()
        self.shell.finish()
        return "".join(self._err)

    def leave(self) -> None:
        """Another shell, at the top, with nothing staged."""
        self.shell = self._new()

    @property
    def prompt(self) -> str:
        return self.shell.prompt()

    async def type(self, line: str) -> Said:
        """Run one line, whatever becomes of it."""
        self._out.clear()
        self._err.clear()
        self.shell.new_entry()
        code = await self.shell.run_line(line.replace("{files}", str(self.files)))
        return Said(code, "".join(self._out), "".join(self._err))

    async def do(self, *lines: str) -> str:
        """Run lines that must work; what the last one printed."""
        out = ""
        for line in lines:
            said = await self.type(line)
            assert said.code == 0 and (self.interactive or not said.err), f"{line!r} at {self.prompt}: {said}"
            out = said.out
        return out

    async def fails(self, line: str) -> Said:
        """Run a line that must be refused, in words; what it said."""
        said = await self.type(line)
        assert said.code != 0, f"{line!r} was taken: {said}"
        assert said.err and "Traceback" not in said.err + said.out, said
        return said

    async def table(self, line: str) -> Table:
        return read_table(await self.do(line))

    def completes(self, text: str) -> list[str]:
        return [completion.text.strip() for completion in self.shell.complete(text)]

    async def _edit(self, text: str, suffix: str) -> str | None:
        self.edited.append(text)
        return self.edits.pop(0) if self.edits else text

    async def _run(self, command: str, text: str | None) -> tuple[int, str]:
        environment = {**os.environ, **self.environment}
        if self.path:
            environment["PATH"] = f"{self.path}:{environment['PATH']}"
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE if text is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        out, _ = await process.communicate(text.encode() if text is not None else None)
        return process.returncode or 0, out.decode()


@contextlib.asynccontextmanager
async def head_with(site: str, folder: Path) -> AsyncIterator[Head]:
    """A head on a store of its own that holds the tree of a site."""
    tree = await tree_of(site, folder)
    async with opened(folder / "head.db") as head:
        session = head.session()
        for mode, obj in tree.objects():
            session.put((mode, obj.key), obj)
        await commit_session(head, session, "setup", "the site")
        yield head


@contextlib.asynccontextmanager
async def opened(file: Path) -> AsyncIterator[Head]:
    """The head of a store."""
    async with (
        SqliteStore(file, history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=ManualClock()) as head,
    ):
        yield head


async def tree_of(site: str, folder: Path) -> Tree:
    """The tree that the scripts of a site make; they run once."""
    if site not in _trees:
        files = sized_files(folder / "site-files")
        async with opened(folder / f"{site}.db") as head:
            desk = Desk(head, files=files)
            for script in STACK[site]:
                desk.leave()
                for line in (HERE / f"sites/{script}.cmsh").read_text().splitlines():
                    await desk.do(line)
                assert not desk.shell.left(), "a site's script commits everything"
            _trees[site] = head.tree
    return _trees[site]
