"""A restore that meets nodes which are down, kills and failures: the data is the former one or the restored one, never
a mixture, and what is needed to get there is not thrown away."""

from __future__ import annotations

import asyncio
import hashlib
import types
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.head.clusters import kubesites
from tests.setup.engine import fakes
from tests.waiting import until

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.clusters.membership import LIFECYCLE
from bedplate.head.clusters.snapshots import FOLDER
from bedplate.setup.engine.journal import Journal
from bedplate.setup.engine.run import Run
from bedplate.setup.kubernetes import cluster, restore
from bedplate.setup.services import Services

NODES = ("node001", "node002", "node003")
_INFO = "clusters:\n- cluster:\n    certificate-authority-data: Zm9ybWVy\n    server: https://127.0.0.1:10443\n"
"""What joining nodes read, with the authority `former`."""


class Head:
    """Three members, each with its data; `down` nodes take nothing, `broken` are actions that fail on nodes."""

    def __init__(self) -> None:
        self.data = dict.fromkeys(NODES, "former")
        self.aside = dict.fromkeys(NODES, "")
        self.serving = dict.fromkeys(NODES, True)
        self.down: set[str] = set()
        self.broken: dict[str, str] = {}
        self.lifecycle = "managed"
        self.ended: list[headapi.ErrandState] = []
        self.during: dict[str, Any] = {}
        self.tree = kubesites.tree(planes=NODES, workers=())

    # What stages ask

    async def catch_up(self) -> None:
        return None

    @property
    def fleet(self) -> Head:
        return self

    async def nodes(self, names: Sequence[str]) -> list[Any]:
        return [types.SimpleNamespace(node=name, state="DOWN" if name in self.down else "UP") for name in names]

    async def get(self, mode: str, key: str) -> headapi.Object:
        return headapi.Object(mode=mode, key=key, type="KubeCluster", revision=1, extras={LIFECYCLE: self.lifecycle})

    async def commit(self, edits: Sequence[headapi.Edit], message: str) -> None:
        (edit,) = edits
        assert edit.object is not None
        self.lifecycle = edit.object["extras"][LIFECYCLE]

    async def errands(self, names: Sequence[str]) -> list[headapi.ErrandState]:
        return self.ended

    async def ask_errand(
        self, names: Sequence[str], kind: str, *, lasts_s: float, care: headapi.Care
    ) -> list[headapi.ErrandState]:
        asked = []
        for node in names:
            why = "" if node in self.down else self._do(node, care.action)
            state: Any = "expired" if node in self.down else "failed" if why else "done"
            asked.append(
                headapi.ErrandState(
                    id=f"{len(self.ended) + len(asked)}",
                    node=node,
                    kind="care",
                    state=state,
                    asked="",
                    until="",
                    by="",
                    text=why or ("" if node in self.down else care.action),
                    care=care.action,
                )
            )
        self.ended += asked
        if care.action in self.during:
            self.during.pop(care.action)()
        return asked

    def _do(self, node: str, action: str) -> str:
        if self.broken.get(action) == node:
            return "no space left on device"
        if action == "fetch":
            self.aside[node] = "restored"
        elif action == "drop":
            self.aside[node] = ""
        elif action in ("halt", "go-on"):
            self.serving[node] = action == "go-on"
        elif action == "replace":
            assert self.aside[node], "unpacked before"
            self.data[node] = "restored"
        elif action == "put-back" and self.aside[node]:
            self.data[node] = "former"
        return ""


class World:
    """A head, a data folder with a snapshot, and the engine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.head, self.folder = Head(), folder
        place = folder / FOLDER / "default"
        place.mkdir(parents=True)
        body = bytes(1024)
        (place / "one.db").write_bytes(body + hashlib.sha256(body).digest())
        (place / "one.json").write_text("{}")
        self.answers: dict[str, Any] = {"cluster": "default", "snapshot": "one"}
        self.bench = fakes.Bench(folder / "state")
        self.is_ready = True
        self.info: str | None = _INFO
        self.refusals: list[Exception] = []
        monkeypatch.setattr(cluster, "connected", self._connected)
        monkeypatch.setattr(cluster, "node_names", self._names)

    @asynccontextmanager
    async def _connected(self, folder: Path, name: str) -> AsyncIterator[Any]:
        yield self

    async def request(self, *words: Any, **more: Any) -> None:
        if not self.is_ready:
            await self.bench.clock.advance(400.0)  # type: ignore[attr-defined]
            raise errors.Unavailable("connection refused")

    async def get(self, ref: Any, name: str, namespace: str) -> Any:
        if self.info is None:
            raise errors.NotFound(f"{namespace}/{name}")
        return types.SimpleNamespace(data={"kubeconfig": self.info})

    async def patch(self, ref: Any, name: str, body: Any, namespace: str) -> None:
        if self.refusals:
            raise self.refusals.pop()
        assert (name, namespace) == ("cluster-info", "kube-public")
        self.info = body["data"]["kubeconfig"]

    async def _names(self, client: Any) -> list[str]:
        return ["node001", "node002", "node009"]

    def run(self, on_error: str = "undo") -> Run:
        stages = restore.stages(self.answers)
        journal = Journal.load(self.bench.state, "default")
        journal = journal if journal is not None and not journal.is_over else None
        run = self.bench.run(stages, on_error=on_error, journal=journal, answers=self.answers)
        run.services = Services(self.head, self.bench.state / "default", "default", self.folder)  # type: ignore[arg-type]
        return run

    @property
    def everywhere(self) -> set[str]:
        return set(self.head.data.values())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def test_item_181_a_restore_pauses_the_nodes_and_ends_with_all_members_restored(world: World) -> None:
    seen: list[str] = []
    world.head.during["replace"] = lambda: seen.append(world.head.lifecycle)
    assert await world.run().execute() == "completed", world.bench.printed
    assert (world.everywhere, seen, world.head.lifecycle) == ({"restored"}, ["paused"], "managed")
    assert set(world.head.aside.values()) == {""} and all(world.head.serving.values())
    assert "Warning: node003 is not in the snapshot: start its kubelet again" in world.bench.printed
    assert "Warning: node009 is in the snapshot and has left the cluster" in world.bench.printed


@pytest.mark.parametrize("action", ["fetch", "halt", "replace", "go-on"])
async def test_item_181_a_restore_that_fails_on_one_node_leaves_the_former_data(world: World, action: str) -> None:
    world.head.broken = {action: "node002"}
    world.head.during["put-back"] = world.head.broken.clear
    status = await world.run().execute()
    assert world.everywhere == {"former"}, world.bench.printed
    assert "node002: no space left on device" in world.bench.printed
    assert status == "undone" or action == "halt"
    world.head.broken.clear()
    if status != "undone":
        assert await world.run().undo() == "undone"
    assert all(world.head.serving.values()) and set(world.head.aside.values()) == {""}
    assert world.head.lifecycle == "managed"


async def test_item_181_an_api_server_that_does_not_come_back_takes_the_restore_back(world: World) -> None:
    world.is_ready = False
    assert await world.run().execute() == "undone", world.bench.printed
    assert world.everywhere == {"former"} and all(world.head.serving.values())


async def test_item_181_a_node_that_is_down_is_told_before_anything_changes(world: World) -> None:
    world.head.down = {"node003"}
    assert await world.run().execute() != "completed"
    assert "the agent of node003 does not report; nothing was changed" in world.bench.printed
    assert world.head.ended == [] and world.head.lifecycle == "managed"


async def test_item_181_a_member_that_dies_meanwhile_puts_its_data_back_when_it_is_up(world: World) -> None:
    world.head.during["replace"] = lambda: world.head.down.add("node003")
    world.head.during["go-on"] = lambda: None
    assert await world.run().execute() == "failed", world.bench.printed
    assert [world.head.data[node] for node in NODES] == ["former", "former", "restored"]
    assert world.head.aside["node003"], "what is needed to put the former data back is still there"
    assert "its agent did not take the request in time" in world.bench.printed
    assert world.head.serving["node001"], "two of three members have the former data, which is a quorum"
    world.head.down.clear()
    assert await world.run().undo() == "undone", world.bench.printed
    assert world.everywhere == {"former"} and all(world.head.serving.values())
    assert set(world.head.aside.values()) == {""} and world.head.lifecycle == "managed"


async def test_item_181_api_servers_stay_halted_while_the_former_data_has_no_quorum(world: World) -> None:
    world.head.during["replace"] = lambda: world.head.down.update(("node002", "node003"))
    assert await world.run().execute() == "failed"
    assert not any(world.head.serving.values())
    assert "the API servers stay halted: without node002, node003 the former data has no quorum" in world.bench.printed
    world.head.down.clear()
    assert await world.run().undo() == "undone", world.bench.printed
    assert world.everywhere == {"former"} and all(world.head.serving.values())


async def test_item_181_a_folder_that_cannot_be_removed_does_not_take_a_restore_back(world: World) -> None:
    world.head.during["go-on"] = lambda: world.head.broken.update(drop="node002")
    assert await world.run().execute() == "completed", world.bench.printed
    assert world.everywhere == {"restored"}
    assert "Warning: the folder restore beside the data of etcd stays: node002: no space left" in world.bench.printed


@pytest.mark.parametrize("action", ["fetch", "halt", "replace", "go-on", "drop"])
@pytest.mark.parametrize("way", ["resume", "undo"])
async def test_item_181_an_interrupted_restore_is_followed_by_the_whole_restore_or_by_none(
    world: World, action: str, way: str
) -> None:
    def end() -> None:
        raise errors.Terminal("the process ended here")

    world.head.during[action] = end
    assert await world.run("abort").execute() == "aborted"
    run = world.run()
    status = await (run.execute() if way == "resume" else run.undo())
    assert status == ("completed" if way == "resume" else "undone"), world.bench.printed
    # Once the API server has answered, and what was unpacked is being removed, there is no way back.
    assert world.everywhere == {"restored" if way == "resume" or action == "drop" else "former"}
    assert all(world.head.serving.values()) and set(world.head.aside.values()) == {""}
    assert world.head.lifecycle == "managed"


async def test_item_181_a_member_that_cannot_put_its_data_back_keeps_what_it_needs_for_that(world: World) -> None:
    world.is_ready = False
    world.head.broken = {"put-back": "node003"}
    assert await world.run().execute() == "failed", world.bench.printed
    assert world.head.data["node003"] == "restored" and world.head.aside["node003"]
    assert "node003 may still need it to put the former data back" in world.bench.printed
    world.head.broken.clear()
    assert await world.run().undo() == "undone", world.bench.printed
    assert world.everywhere == {"former"} and set(world.head.aside.values()) == {""}


async def test_item_181_a_restore_that_succeeded_is_not_taken_back_on_the_members_that_still_could(
    world: World,
) -> None:
    def end() -> None:
        world.head.broken.clear()
        raise errors.Terminal("the process ended here")

    world.head.broken = {"drop": "node002"}
    world.head.during["drop"] = end
    assert await world.run("abort").execute() == "aborted"
    assert world.head.aside["node002"]
    assert await world.run().undo() == "undone", world.bench.printed
    assert world.everywhere == {"restored"} and "The restore had succeeded, and stays" in world.bench.printed


def test_joining_nodes_are_told_another_authority_and_nothing_else() -> None:
    told = restore.republished(_INFO, b"own")
    assert told == _INFO.replace("Zm9ybWVy", "b3du")
    assert restore.republished("", b"own") == ""


async def test_item_181_a_snapshot_with_another_authority_is_followed_by_that_of_the_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "authority_of", lambda folder, name: b"own")
    assert await world.run().execute() == "completed"
    assert world.info == _INFO, "a snapshot of the cluster has its authority"
    world.answers[restore.FOREIGN] = True
    # It refuses everybody until it has read its rules.
    world.refusals = [errors.Denied("not yet")]
    run = world.run()
    assert [stage.name for stage in run.stages][6:8] == ["Wait For API Server", "Publish Authority"]
    waiting = asyncio.create_task(run.execute())
    await until(lambda: world.bench.clock.sleepers, "it waits")  # type: ignore[attr-defined]
    await world.bench.clock.advance(5.0)  # type: ignore[attr-defined]
    assert await asyncio.wait_for(waiting, 20) == "completed", world.bench.printed
    assert world.info == _INFO.replace("Zm9ybWVy", "b3du")
    assert "Warning: the snapshot has another authority" in world.bench.printed


async def test_item_181_a_snapshot_without_cluster_info_is_restored_with_a_warning(world: World) -> None:
    world.answers[restore.FOREIGN], world.info = True, None
    assert await world.run().execute() == "completed", world.bench.printed
    assert "Warning: there is no ConfigMap cluster-info" in world.bench.printed
