"""Which nodes are upgraded, in which order, and what is refused."""

from __future__ import annotations

import pytest

from bedplate.core import errors
from bedplate.setup.kubernetes.upgrade import planning
from bedplate.setup.kubernetes.upgrade.planning import Member, Version, described, plan, target

_OLD, _NEW = Version(34, 4), Version(35, 4)


def _member(name: str, kubelet: Version = _OLD, server: Version | None = None) -> Member:
    return Member(name, server is not None, kubelet, server)


def _cluster(planes: int, workers: int) -> list[Member]:
    made = [_member(f"node{number:03}", server=_OLD) for number in range(1, planes + 1)]
    return [*made, *(_member(f"node{number:03}") for number in range(planes + 1, planes + workers + 1))]


def test_versions_are_read_as_people_and_kubelets_write_them() -> None:
    assert Version.parse("v1.34.4") == Version.parse("1.34.4-150500.2.1") == Version(34, 4)
    assert target("1.35") == Version(35, 4)
    assert target("v1.35.1") == Version(35, 1)
    assert str(Version(35, 4)) == "1.35.4"


@pytest.mark.parametrize("text", ["", "1", "2.0.1", "1.35.x", "../1.35", "1.35.4; reboot", "latest"])
def test_what_is_not_a_version_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid):
        target(text)


def test_item_166_a_version_that_is_not_supported_is_refused_with_those_that_are() -> None:
    with pytest.raises(errors.Invalid, match=r"1\.19\.3 is not supported") as refused:
        target("1.19.3")
    assert "1.35" in refused.value.hint


def test_item_166_a_minor_version_is_never_skipped_and_nothing_goes_back() -> None:
    members = [_member("node001", Version(33, 1), Version(33, 1)), _member("node002", Version(33, 1))]
    with pytest.raises(errors.Invalid) as refused:
        plan("default", _NEW, members)
    assert refused.value.problems == (
        "node001 runs 1.33.1: a minor version is never skipped, upgrade to 1.34 first",
        "node002 runs 1.33.1: a minor version is never skipped, upgrade to 1.34 first",
    )
    with pytest.raises(errors.Invalid, match=r"node001 runs 1\.34\.4: there is no way back to 1\.34\.1"):
        plan("default", Version(34, 1), _cluster(1, 0))


def test_item_166_a_worker_that_lags_or_leads_is_in_the_way() -> None:
    members = [*_cluster(1, 0), _member("node002", Version(33, 9)), _member("node003", Version(36, 0))]
    with pytest.raises(errors.Invalid) as refused:
        plan("default", _NEW, members)
    assert [text.split()[0] for text in refused.value.problems] == ["node002", "node003"]


def test_item_167_the_first_control_plane_applies_the_others_follow_and_workers_come_in_batches() -> None:
    going = plan("default", _NEW, reversed(_cluster(3, 5)), batch=2)
    assert [(step.node, step.kind, step.action, step.batch) for step in going.steps] == [
        ("node001", "apply", "upgrade-apply", 0),
        ("node002", "plane", "upgrade-node", 0),
        ("node003", "plane", "upgrade-node", 0),
        ("node004", "worker", "upgrade-node", 1),
        ("node005", "worker", "upgrade-node", 1),
        ("node006", "worker", "upgrade-node", 2),
        ("node007", "worker", "upgrade-node", 2),
        ("node008", "worker", "upgrade-node", 3),
    ]
    lines = described(going)
    assert lines[:2] == [
        "Upgrade of the cluster default to 1.35.4",
        "1. node001  1.34.4 -> 1.35.4  control plane: drain, kubeadm upgrade apply, kubelet, uncordon",
    ]
    assert lines[-1] == "8. node008  1.34.4 -> 1.35.4  worker, batch 3: drain, kubeadm upgrade node, kubelet, uncordon"


def test_nodes_that_have_the_version_are_left_out_and_one_that_was_left_halfway_is_not() -> None:
    members = [
        _member("node001", _NEW, _NEW),
        _member("node002", _OLD, _NEW),
        _member("node003", _NEW),
        _member("node004"),
    ]
    going = plan("default", _NEW, members)
    assert [(step.node, step.kind, step.current) for step in going.steps] == [
        ("node002", "plane", "1.34.4"),
        ("node004", "worker", "1.34.4"),
    ]
    assert plan("default", _OLD, _cluster(1, 2)).steps == ()
    assert "nothing to do" in described(plan("default", _OLD, _cluster(1, 2)))[0]


def test_a_cluster_without_a_control_plane_node_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="no control plane node"):
        plan("default", _NEW, [_member("node001")])


def test_a_plan_comes_back_from_the_journal_as_it_was() -> None:
    going = plan("default", _NEW, _cluster(2, 3), batch=2)
    assert planning.plan_of(planning.saved(going)) == going
