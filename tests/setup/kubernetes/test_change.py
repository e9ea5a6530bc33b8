"""Nodes added to a cluster and taken out of it: what becomes of the overlays, and what is refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.head.clusters import kubesites
from tests.head.clusters.kubesites import ETCD, PLANES, WORKERS

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.setup.engine import order
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import change, cluster, nodes


def test_item_109_nodes_are_added_to_the_workers_or_to_the_control_plane() -> None:
    tree = kubesites.tree()
    assert change.assigned(tree, "default", ["node005", "node004"], is_plane=False) == {
        WORKERS: ["node002", "node003", "node004", "node005"]
    }
    assert change.assigned(tree, "default", ["node004"], is_plane=True) == {PLANES: ["node001", "node004"]}


def test_item_110_nodes_are_taken_out_of_every_overlay_that_names_them() -> None:
    three = ("node001", "node002", "node003")
    tree = kubesites.tree(planes=three, workers=three)
    assert change.unassigned(tree, "default", ["node002"]) == {
        overlay: ["node001", "node003"] for overlay in (ETCD, PLANES, WORKERS)
    }
    assert change.unassigned(kubesites.tree(), "default", ["node003"]) == {WORKERS: ["node002"]}


def test_everything_that_is_wrong_with_nodes_to_add_is_told_at_once() -> None:
    session = Session(kubesites.tree())
    session.clear(("device", "node004"), "ip")
    with pytest.raises(errors.Invalid) as caught:
        change.assigned(session.tree, "default", ["node003", "node004", "nope"], is_plane=False)
    assert list(caught.value.problems) == [
        "node003 is part of the cluster default already",
        "node004 has no IP address, and could not be reached by the others",
        "nope: there is no such device",
    ]


def test_everything_that_is_wrong_with_nodes_to_take_out_is_told_at_once() -> None:
    session = Session(kubesites.tree())
    session.set(("device", "node005"), "category", "gpu")
    with pytest.raises(errors.Invalid) as caught:
        change.unassigned(session.tree, "default", ["node004", "node005", "nope"])
    first, second, third = caught.value.problems
    assert first == "node004 is not part of the cluster default"
    assert second.startswith("node005 is part of default by its category gpu or a role: set another one")
    assert third == "nope: there is no such device"


def test_a_cluster_that_the_head_does_not_manage_is_left_alone() -> None:
    tree = kubesites.tree(lifecycle="")
    for work in (
        lambda: change.assigned(tree, "default", ["node004"], is_plane=False),
        lambda: change.unassigned(tree, "default", ["node003"]),
    ):
        with pytest.raises(errors.Invalid, match="does not join and drain the nodes") as caught:
            work()
        assert "set -e node_lifecycle managed" in caught.value.hint


def test_the_stages_are_in_order_and_what_they_write_can_be_undone() -> None:
    answers = {"cluster": "default", "nodes": ["node004"], "control_plane": False}
    for stages, writes in ((change.adding(answers), "Assign Roles"), (change.removing(answers), "Unassign Roles")):
        order.check(stages)
        assert [stage.name for stage in stages if stage.undo is not None] == [writes]


def test_nodes_of_a_cluster_that_is_restored_or_upgraded_wait_for_its_end() -> None:
    tree = kubesites.tree(lifecycle="paused")
    with pytest.raises(errors.Invalid, match="being restored or upgraded") as caught:
        change.assigned(tree, "default", ["node004"], is_plane=False)
    assert "--resume --cluster default" in caught.value.hint


class _Head:
    """A head that takes commits, all of whose nodes are up; `done` is what was written and waited for, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
        self.tree, self.done = tree, list[Any]()

        async def applied(context: Context, number: int) -> None:
            self.done.append(("applied", number))

        async def until_gone(folder: Any, name: str, names: list[str], *rest: Any) -> None:
            self.done.append(("gone", *names))

        async def until_ready(client: Any, names: list[str], *rest: Any) -> None:
            self.done.append(("ready", *names))

        @contextlib.asynccontextmanager
        async def connected(*place: Any) -> AsyncIterator[None]:
            yield None

        monkeypatch.setattr(nodes, "applied", applied)
        for name, fake in (("until_gone", until_gone), ("until_ready", until_ready), ("connected", connected)):
            monkeypatch.setattr(cluster, name, fake)

    async def catch_up(self) -> None:
        pass

    async def get(self, mode: str, key: str) -> Any:
        return SimpleNamespace(type="ConfigurationOverlay", values={}, extras={}, children={}, revision=6)

    async def commit(self, edits: list[headapi.Edit], message: str) -> Any:
        self.done += [(edit.key, *(edit.object or {})["values"]["nodes"]) for edit in edits]
        return SimpleNamespace(number=7)

    async def nodes(self, names: list[str]) -> list[Any]:
        return []

    async def undo(self, stages: list[Any], notes: dict[str, Any]) -> list[Any]:
        services = SimpleNamespace(backend=self, data=None, state=None)
        (stage,) = [each for each in stages if each.undo is not None]
        context: Any = SimpleNamespace(notes=notes, services=services, clock=ManualClock(), say=print)
        await stage.undo(context)
        return self.done

    @property
    def fleet(self) -> _Head:
        return self


_ASKED = {"cluster": "default", "nodes": ["node003"]}


async def test_an_addition_is_undone_when_the_nodes_have_left_and_others_that_came_meanwhile_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = _Head(monkeypatch, kubesites.tree(workers=("node002", "node003", "node004")))
    notes = {"nodes of overlays before": {WORKERS: ["node002"]}}
    assert await head.undo(change.adding(_ASKED), notes) == [
        (WORKERS, "node002", "node004"),
        ("gone", "node003"),
        ("applied", 7),
    ]


async def test_a_removal_is_undone_when_the_nodes_are_part_of_the_cluster_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = _Head(monkeypatch, kubesites.tree(workers=("node002",)))
    notes = {"nodes of overlays before": {WORKERS: ["node002", "node003"]}}
    assert await head.undo(change.removing(_ASKED), notes) == [
        (WORKERS, "node002", "node003"),
        ("applied", 7),
        ("ready", "node003"),
    ]


@pytest.mark.parametrize("stages", [change.adding, change.removing])
async def test_a_run_that_was_killed_before_it_wrote_anything_has_nothing_to_undo(
    monkeypatch: pytest.MonkeyPatch, stages: Any
) -> None:
    assert await _Head(monkeypatch, kubesites.tree()).undo(stages(_ASKED), {}) == []
