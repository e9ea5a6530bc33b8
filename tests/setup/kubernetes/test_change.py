"""Nodes added to a cluster and taken out of it: what becomes of the overlays, and what is refused."""

from __future__ import annotations

import pytest
from tests.head.clusters import kubesites
from tests.head.clusters.kubesites import ETCD, PLANES, WORKERS

from bedplate.core import errors
from bedplate.head.session import Session
from bedplate.setup.engine import order
from bedplate.setup.kubernetes import change


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
