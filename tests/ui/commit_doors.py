"""Every way to a revision, behind one interface: stage something as somebody, then try to commit it.

A site serves REST and the page over one head in this process. Its history is the same for every case: revision 1 holds
the tree as the steps under test would leave it, revision 2 takes that back. So every door can try the same steps, and
a door that undoes tries to undo revision 2.
"""

from __future__ import annotations

import base64
import contextlib
import pathlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.head.committing import commit, commit_session
from tests.ui.web.reading import Reader

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.access import USER, Access
from bedplate.head.entities import SCHEMA
from bedplate.head.health import Health
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj, Secret
from bedplate.head.policy import Identity
from bedplate.head.service import Head, NotActive
from bedplate.head.session import Edit, Session
from bedplate.head.site import first_tree
from bedplate.head.tokens import Tokens
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore
from bedplate.ui import rest
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend
from bedplate.ui.remote import RemoteBackend
from bedplate.ui.web import mount

KEY = base64.urlsafe_b64encode(bytes(range(32)))
NORMAL = 2
"""The revision that takes the steps back."""


class Step(NamedTuple):
    """Set one field of a top-level object, or remove the object when no field is named."""

    mode: str
    key: str
    attribute: str = ""
    value: str = ""

    @property
    def parameter(self) -> str:
        """The field as the shell calls it."""
        return self.attribute.replace("_", "")

    def stage(self, session: Session) -> None:
        path = (self.mode, self.key)
        if self.attribute:
            session.set(path, self.parameter, self.value)
        else:
            session.remove(path)


class Refused(Exception):
    """What a door said instead of committing."""


class Passive:
    """The standing of a head while another one is active."""

    is_active, active_name, active_url, trouble = False, "other", "", ""

    def refuse_writes(self) -> None:
        raise NotActive("other", "")


@dataclass
class World:
    """A served site, and what its doors need."""

    head: Head
    url: str
    folder: pathlib.Path
    tokens: dict[str, str]
    opened: contextlib.AsyncExitStack
    server: TestServer
    lines: list[str] = field(default_factory=list)

    async def client(self, user: str) -> HeadClient:
        return await self.opened.enter_async_context(HeadClient(self.url, token=self.tokens[user], attempts=1))


@contextlib.asynccontextmanager
async def world(
    folder: pathlib.Path, steps: Sequence[Step], admins: Sequence[str] = ("admin",)
) -> AsyncIterator[World]:
    """A site with those administrators, the operator olga and the auditor arno, at revision 2."""
    async with contextlib.AsyncExitStack() as opened:
        store = await opened.enter_async_context(SqliteStore(folder / "head.db", history_s=None))
        head = await opened.enter_async_context(Head(store, SCHEMA, Vault(KEY)))
        normal = _seed(head, admins)
        before = Session(normal.tree)
        for step in steps:
            step.stage(before)
        await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in before.tree.objects()], "setup")
        restoring = head.session()
        for mode, obj in normal.tree.objects():
            restoring.put((mode, obj.key), obj)
        await commit_session(head, restoring, "setup")
        assert head.revision == NORMAL
        tokens = Tokens(store)
        texts = {name: (await tokens.create(USER, name, "test"))[1] for name in head.tree.mode("user")}
        notices = await opened.enter_async_context(Notices(store))
        health = await opened.enter_async_context(Health(store))
        access = Access(lambda: head.tree, tokens)
        service = rest.Service(head, access, notices, health)
        app = rest.make(service)
        mount(app, service)
        server = await opened.enter_async_context(TestServer(app))
        yield World(head, f"http://{server.host}:{server.port}", folder, texts, opened, server)


def _seed(head: Head, admins: Sequence[str]) -> Session:
    session = head.session()
    users = {**dict.fromkeys(admins, "admin"), "olga": "operator", "arno": "auditor"}
    objects = [(edit.mode, edit.new) for edit in first_tree("basecm10", 1) if edit.mode != "user"]
    objects += [
        ("user", Obj("User", name, {"role": role} if role != "auditor" else {})) for name, role in users.items()
    ]
    objects += [("softwareimage", Obj("SoftwareImage", "old-image", {"path": "/cm/images/old"}))]
    objects += [("etcd", Obj("EtcdCluster", "kube-default"))]
    objects += [("kubernetes", Obj("KubeCluster", "default", {"kube_ca_key": Secret("kept")}))]
    objects += [("kubernetes", Obj("KubeCluster", "heads"))]
    kubelet = Obj("KubeletRole", "kubelet", {"kubernetes_cluster": "heads"})
    reaching = {"roles": {"kubelet": kubelet}}
    objects += [("configurationoverlay", Obj("ConfigurationOverlay", "tools"))]
    objects += [
        (
            "configurationoverlay",
            Obj("ConfigurationOverlay", "on-heads", {"nodes": ("basecm10",)}, children=reaching),
        )
    ]
    for mode, obj in objects:
        assert obj is not None
        session.put((mode, obj.key), obj)
    return session


class Door(ABC):
    """Somebody at one front end. `is_local` doors are opened by whoever has the data folder."""

    is_local = False
    is_undo = False
    replaces = False
    """Whether what is committed takes the place of whatever is there."""

    def __init__(self, world: World, user: str) -> None:
        self.world = world
        self.user = user

    @abstractmethod
    async def stage(self, steps: Sequence[Step]) -> None: ...

    @abstractmethod
    async def commit(self) -> None:
        """Commit what is staged. Raises `Refused`."""

    async def attempt(self, steps: Sequence[Step]) -> None:
        await self.stage(steps)
        await self.commit()


class PageDoor(Door):
    """Forms of the page."""

    async def stage(self, steps: Sequence[Step]) -> None:
        client: TestClient[web.Request, web.Application] = TestClient(self.world.server)
        self.world.opened.push_async_callback(client.session.close)
        self.reader = Reader(client)
        await self.reader.sign_in(self.world.tokens[self.user])
        for step in steps:
            await self._stage(step)

    async def _stage(self, step: Step) -> None:
        place = f"{step.mode}/{step.key}"
        if step.attribute:
            await self._taken(await self.reader.get(f"/edit/{place}"))
            await self._taken(await self.reader.submit(f"/edit/{place}", **{f"f__{step.attribute}": step.value}))
        else:
            await self._taken(await self.reader.get(f"/show/{place}"))
            await self._taken(await self.reader.submit(f"/remove/{place}"))

    async def commit(self) -> None:
        await self._taken(await self.reader.get("/changes"))
        await self._taken(await self.reader.submit("/changes/commit", message=""))

    async def _taken(self, page: object) -> None:
        if self.reader.page.status >= 400:
            raise Refused(self.reader.page.text)


class PageUndoDoor(PageDoor):
    """The page's form that undoes a revision."""

    is_undo = True

    async def stage(self, steps: Sequence[Step]) -> None:
        await super().stage(())

    async def commit(self) -> None:
        address = f"/history/{NORMAL}/undo"
        await self._taken(await self.reader.get(address))
        await self._taken(await self.reader.submit(address, message=""))


class RestDoor(Door):
    """`POST /commits`."""

    async def stage(self, steps: Sequence[Step]) -> None:
        self.client = await self.world.client(self.user)
        self.edits = []
        for step in steps:
            obj = await self.client.get(step.mode, step.key)
            self.edits.append(headapi.Edit(mode=step.mode, key=step.key, base=obj.revision, object=_changed(obj, step)))

    async def commit(self) -> None:
        with _refusals():
            await self._send()

    async def _send(self) -> None:
        await self.client.commit(self.edits)


class RestObjectDoor(RestDoor):
    """`PUT` and `DELETE` of one object."""

    async def _send(self) -> None:
        for edit in self.edits:
            if edit.object is None:
                await self.client.delete(edit.mode, edit.key, base=edit.base)
            else:
                values, type_ = edit.object["values"], str(edit.object["type"])
                await self.client.put(edit.mode, edit.key, values, type=type_, base=edit.base)


class RestImportDoor(Door):
    """`POST /import` of an exported document that was changed."""

    replaces = True

    async def stage(self, steps: Sequence[Step]) -> None:
        self.client = await self.world.client(self.user)
        self.text, self.prune = _document(await self.client.export(), steps)

    async def commit(self) -> None:
        with _refusals():
            await self.client.import_(self.text, prune=self.prune)


class RestUndoDoor(RestDoor):
    """`POST /revisions/{number}/undo`."""

    is_undo = True

    async def stage(self, steps: Sequence[Step]) -> None:
        self.client = await self.world.client(self.user)

    async def _send(self) -> None:
        await self.client.undo(NORMAL)


class ShellDoor(Door):
    """`cmsh` over a head in this process: no daemon runs."""

    is_local = True

    async def stage(self, steps: Sequence[Step]) -> None:
        self.said: list[str] = []
        self.shell = Shell(await self._backend(), self.said.append, self.said.append)
        for line in self._lines(steps):
            await self._run(line)

    async def _backend(self) -> LocalBackend | RemoteBackend:
        return LocalBackend(self.world.head, name="basecm10", identity=Identity.local(self.user))

    def _lines(self, steps: Sequence[Step]) -> list[str]:
        lines = []
        for step in steps:
            if step.attribute:
                lines.append(f"/; {step.mode}; use {step.key}; set {step.parameter} {step.value}")
            else:
                lines.append(f"/; {step.mode}; remove {step.key}")
        return lines

    async def commit(self) -> None:
        await self._run("/")
        await self._run("commit")

    async def _run(self, line: str) -> None:
        self.said.clear()
        if await self.shell.run_line(line):
            raise Refused("".join(self.said))


class ShellImportDoor(ShellDoor):
    """`import` and `commit` without a daemon."""

    def _lines(self, steps: Sequence[Step]) -> list[str]:
        from bedplate.head import exchange

        text, prune = _document(exchange.export(self.world.head.tree), steps)
        file = self.world.folder / "changed.yaml"
        file.write_text(text)
        return [f"import {file}{' --prune' if prune else ''}"]


class ShellUndoDoor(ShellDoor):
    """`undo` and `commit` without a daemon."""

    is_undo = True

    def _lines(self, steps: Sequence[Step]) -> list[str]:
        return [f"undo {NORMAL}"]


class _Remote(ShellDoor):
    is_local = False

    async def _backend(self) -> LocalBackend | RemoteBackend:
        backend = RemoteBackend(await self.world.client(self.user), SCHEMA, patience_s=0.0)
        return await self.world.opened.enter_async_context(backend)


class RemoteShellDoor(_Remote, ShellDoor):
    """`cmsh` over the daemon's REST API."""


class RemoteShellImportDoor(_Remote, ShellImportDoor):
    """`import` and `commit` over the daemon's REST API."""


class RemoteShellUndoDoor(_Remote, ShellUndoDoor):
    """`undo` and `commit` over the daemon's REST API."""


DOORS: tuple[type[Door], ...] = (
    PageDoor,
    PageUndoDoor,
    RestDoor,
    RestObjectDoor,
    RestImportDoor,
    RestUndoDoor,
    ShellDoor,
    ShellImportDoor,
    ShellUndoDoor,
    RemoteShellDoor,
    RemoteShellImportDoor,
    RemoteShellUndoDoor,
)


def _changed(obj: headapi.Object, step: Step) -> dict[str, object] | None:
    if not step.attribute:
        return None
    value: object = step.value == "yes" if step.value in ("yes", "no") else step.value
    return {"type": obj.type, "values": {**obj.values, step.attribute: value}, "children": obj.children}


def _document(text: str, steps: Sequence[Step]) -> tuple[str, bool]:
    """An export with the steps in it, and whether it removes what it does not name."""
    document = yaml.safe_load(text)
    for step in steps:
        if step.attribute:
            value: object = step.value == "yes" if step.value in ("yes", "no") else step.value
            document[step.mode][step.key].setdefault("values", {})[step.attribute] = value
        else:
            del document[step.mode][step.key]
    return yaml.safe_dump(document), any(not step.attribute for step in steps)


@contextlib.contextmanager
def _refusals() -> contextlib.AbstractContextManager[None]:  # type: ignore[misc]
    try:
        yield
    except errors.BedplateError as err:
        raise Refused(str(err)) from err
