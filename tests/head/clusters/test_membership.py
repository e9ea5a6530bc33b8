"""Who is part of a cluster: what a commit means for it, and which commits are refused."""

from __future__ import annotations

import ipaddress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.head.clusters import kubesites
from tests.head.clusters.kubesites import ETCD, PLANES, WORKERS, joined, with_nodes, without

from bedplate.core import errors
from bedplate.head.clusters.joining import missing, with_ranges
from bedplate.head.clusters.membership import Membership, allocate, cluster_of, moves, refusals
from bedplate.head.session import Session

NOW = "2026-01-01T00:00:00Z"
THREE = ("node001", "node002", "node003")


def up(*down: str) -> object:
    return lambda node: node not in down


def moved(before: object, after: object, records: dict[str, Membership]) -> dict[str, str]:
    found = moves(records, list(records), before, after, 7, NOW)  # type: ignore[arg-type]
    return {node: known.state for node, known in found.items()}


def test_item_109_a_node_of_a_category_is_missing_once_the_category_is_a_workers() -> None:
    tree = kubesites.tree()
    assert missing(tree, "default", joined(*THREE)) == []
    session = Session(tree)
    session.set(("device", "node005"), "category", "gpu")
    assert cluster_of(session.tree, "node005") == "default"
    assert missing(session.tree, "default", joined(*THREE)) == ["node005"]


def test_nobody_is_missing_in_a_cluster_that_the_setup_tool_is_working_on() -> None:
    assert missing(kubesites.tree(lifecycle=""), "default", {}) == []
    assert missing(kubesites.tree(lifecycle="manual"), "default", {}) == []


def test_who_leaves_or_was_joined_is_not_missing_and_who_is_joining_is() -> None:
    records = joined(*THREE)
    for state, names in (("joining", ["node003"]), ("resetting", []), ("deleting", []), ("draining", [])):
        records["node003"] = Membership("default", state)  # type: ignore[arg-type]
        assert missing(kubesites.tree(), "default", records) == names


def test_item_109_only_the_new_node_gets_a_range_and_the_others_keep_theirs() -> None:
    (edit,) = with_ranges(kubesites.tree(), "default", come=["node005"])
    assert edit.new is not None
    assert edit.new.extras["pod_ranges"].split() == [
        "node001=172.29.0.0/24",
        "node002=172.29.1.0/24",
        "node003=172.29.2.0/24",
        "node005=172.29.3.0/24",
    ]
    assert with_ranges(kubesites.tree(), "default", come=["node003"]) == []
    assert with_ranges(kubesites.tree(ranges=""), "default", come=["node005"]) == []


def test_a_range_that_was_given_back_is_given_out_again() -> None:
    (edit,) = with_ranges(kubesites.tree(), "default", come=["node005"], gone=["node002"])
    assert edit.new is not None
    assert "node005=172.29.1.0/24" in edit.new.extras["pod_ranges"].split()
    assert "node002" not in edit.new.extras["pod_ranges"]


@given(some.lists(some.sampled_from([f"n{number}" for number in range(12)]), unique=True), some.data())
def test_no_range_of_pod_addresses_is_given_twice(nodes: list[str], data: some.DataObject) -> None:
    pods = ipaddress.IPv4Network("10.0.0.0/24")
    free = list(pods.subnets(new_prefix=28))
    known = {node: data.draw(some.sampled_from(free)) for node in nodes[::2]}
    known = {
        node: range_ for index, (node, range_) in enumerate(known.items()) if range_ not in [*known.values()][:index]
    }
    ranges = allocate(pods, 28, nodes, known)
    assert len(set(ranges.values())) == len(nodes)
    assert {node: ranges[node] for node in known} == known


def test_a_pod_network_that_is_used_up_is_told() -> None:
    with pytest.raises(errors.Invalid, match="no range of 24 bits left for c"):
        allocate(ipaddress.IPv4Network("10.0.0.0/23"), 24, ["a", "b", "c"], {})


def test_item_110_a_worker_that_loses_its_role_is_drained_and_keeps_what_it_has_until_then() -> None:
    before = kubesites.tree()
    after = with_nodes(before, WORKERS, "node002")
    records = moves(joined(*THREE), THREE, before, after, 7, NOW)
    assert records == {"node003": Membership("default", "draining", 7, since=NOW)}
    assert records["node003"].held


def test_item_110_the_other_members_of_etcd_wait_until_the_one_that_leaves_is_drained() -> None:
    before = kubesites.tree(planes=THREE, workers=())
    after = with_nodes(with_nodes(before, PLANES, "node001", "node002"), ETCD, "node001", "node002")
    (known,) = moves(joined(*THREE), THREE, before, after, 7, NOW).values()
    assert (known.state, known.others) == ("draining", ("node001", "node002"))
    # Its part in etcd alone ends at once.
    assert moved(before, with_nodes(before, ETCD, "node001", "node002"), joined(*THREE)) == {}


def test_a_node_that_gets_its_role_back_before_it_left_returns() -> None:
    before = kubesites.tree(workers=("node002",))
    records = {"node003": Membership("default", "draining", 5, ("node001",), "uid", NOW, text="waits")}
    (known,) = moves(records, THREE, before, kubesites.tree(), 7, NOW).values()
    assert (known.state, known.base, known.others, known.text) == ("returning", 0, (), "")
    # Who is being reset goes on, and joins again afterwards.
    records["node003"] = msgspec.structs.replace(records["node003"], state="resetting")
    assert moved(before, kubesites.tree(), records) == {}


def test_nodes_of_a_cluster_that_is_being_removed_are_reset_without_a_drain() -> None:
    before = kubesites.tree(lifecycle="")
    assert moved(before, with_nodes(before, WORKERS), joined(*THREE)) == {
        "node002": "resetting",
        "node003": "resetting",
    }


def test_a_device_that_is_removed_leaves_nothing_but_its_node_to_delete() -> None:
    before = with_nodes(kubesites.tree(), WORKERS, "node002")
    records = {"node003": Membership("default", "resetting", 5)}
    assert moved(before, without(before, "node003"), records) == {"node003": "deleting"}


def test_the_last_control_plane_node_cannot_be_taken_away() -> None:
    before = kubesites.tree(etcd=("node004",))
    (sentence,) = refusals(joined(*THREE), before, with_nodes(before, PLANES, "node005"), up())  # type: ignore[arg-type]
    assert "the last control plane node of the Kubernetes cluster default (node001)" in sentence
    assert "cm-kubernetes-setup --remove --cluster default" in sentence
    # A second one that has joined makes it possible.
    before = kubesites.tree(planes=("node001", "node002"), workers=("node003",), etcd=("node004",))
    assert refusals(joined(*THREE), before, with_nodes(before, PLANES, "node002"), up()) == []  # type: ignore[arg-type]
    # One that has not joined yet does not count.
    records = {**joined("node001", "node003"), "node002": Membership("default", "joining")}
    assert refusals(records, before, with_nodes(before, PLANES, "node002"), up())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "left", "down", "text"),
    [
        (("node001",), (), (), "every member of the etcd cluster kube-default"),
        (("node001",), ("node002",), (), "every member of the etcd cluster kube-default .* has its data .node001."),
        (("node001",), ("node001", "node002"), (), ""),
        (THREE, ("node001",), (), "2 of 3 members .* at once: take 1 at a time"),
        (THREE, ("node001", "node002"), ("node002",), "1 of 2 members up, and lose its quorum: bring node002 back"),
        (THREE, ("node001", "node002"), ("node003",), ""),
        (("node001", "node002"), ("node001",), (), ""),
        (("node001", "node002"), ("node001",), ("node001",), "0 of 1 members up"),
        (THREE, THREE, ("node001", "node002"), ""),
    ],
)
def test_a_quorum_of_etcd_cannot_be_taken_away(
    members: tuple[str, ...], left: tuple[str, ...], down: tuple[str, ...], text: str
) -> None:
    before = kubesites.tree(etcd=members)
    sentences = refusals(joined(*THREE), before, with_nodes(before, ETCD, *left), up(*down))  # type: ignore[arg-type]
    if text:
        with pytest.raises(AssertionError, match=text):
            raise AssertionError(*sentences)
    else:
        assert sentences == []


def test_members_of_etcd_leave_one_after_the_other() -> None:
    five = tuple(f"node00{number}" for number in range(1, 6))
    before = with_nodes(kubesites.tree(planes=five, workers=()), ETCD, *five[:4])
    records = {**joined(*five[:4]), "node005": Membership("default", "draining", 5, five[:4])}
    after = with_nodes(with_nodes(before, ETCD, *five[:3]), PLANES, *five[:3])
    (sentence,) = refusals(records, before, after, up())  # type: ignore[arg-type]
    assert "node005 is leaving" in sentence


def test_a_device_in_a_cluster_cannot_be_removed_unless_it_leaves_and_is_down() -> None:
    before = with_nodes(kubesites.tree(), WORKERS, "node002")
    after = without(before, "node003")
    (sentence,) = refusals(joined(*THREE), before, after, up())  # type: ignore[arg-type]
    assert sentence.startswith("device[node003] is part of the Kubernetes cluster default: take it out first")
    records = {**joined("node001", "node002"), "node003": Membership("default", "draining", 5)}
    assert "wait until it has left" in refusals(records, before, after, up())[0]  # type: ignore[arg-type]
    assert refusals(records, before, after, up("node003")) == []  # type: ignore[arg-type]


def test_a_cluster_that_the_head_does_not_manage_is_not_guarded() -> None:
    before = kubesites.tree(lifecycle="")
    assert refusals(joined(*THREE), before, with_nodes(before, PLANES), up()) == []  # type: ignore[arg-type]


def test_a_paused_cluster_stays_guarded_and_its_control_plane_and_etcd_stay_what_they_are() -> None:
    before = kubesites.tree(planes=THREE, workers=("node004",), lifecycle="paused")
    records = joined(*THREE, "node004")
    for overlay in (ETCD, PLANES):
        for names in (THREE[:2], (*THREE, "node005")):
            (sentence,) = refusals(records, before, with_nodes(before, overlay, *names), up())  # type: ignore[arg-type]
            assert "the Kubernetes cluster default is being restored or upgraded" in sentence
    after = with_nodes(before, WORKERS)
    assert refusals(records, before, after, up()) == []  # type: ignore[arg-type]
    assert moved(before, after, records) == {"node004": "draining"}, "drained when the pause is over, not reset at once"
    session = Session(before)
    session.set_extra(("kubernetes", "default"), "node_lifecycle", None)
    assert refusals(records, before, with_nodes(session.tree, PLANES), up()) == []  # type: ignore[arg-type]
