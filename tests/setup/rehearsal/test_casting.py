"""Which lab stands for a cluster: its roles, its order, its bounds, and what it does not show."""

from __future__ import annotations

import dataclasses

from tests.setup.kubernetes.sites import settings, tree

from bedplate.head import Obj, Tree
from bedplate.setup.answers import document, fitting, site
from bedplate.setup.kubernetes import objects
from bedplate.setup.rehearsal import casting
from bedplate.setup.rehearsal.casting import Original, Traits, cast

_TRAITS = Traits("default", "1.34.4", 10444, 25, has_bridge=True, has_flags=False, proxy_mode="nftables")


def _nodes(planes: int, workers: int, *, are_members: bool = True, run_pods: bool = False) -> list[Original]:
    made = [Original(f"cp{number}", True, run_pods, are_members) for number in range(1, planes + 1)]
    return [*made, *(Original(f"w{number:02}", is_worker=True) for number in range(1, workers + 1))]


def _stood_for(chosen: casting.Cast) -> dict[str, str]:
    return {part.name: part.original.name for part in chosen.parts}


def _places(chosen: casting.Cast) -> dict[str, list[str]]:
    return {role: part["nodes"] for role, part in chosen.answers["kubernetes"]["nodes"].items()}


def test_a_lab_has_at_most_three_control_plane_nodes_and_two_workers_and_says_who_is_left_out() -> None:
    chosen = cast(_nodes(5, 30), _TRAITS)
    assert _stood_for(chosen) == {
        "node001": "cp1", "node002": "cp2", "node003": "cp3", "node004": "w01", "node005": "w02",
    }  # fmt: skip
    assert _places(chosen) == {
        "masters": ["node001", "node002", "node003"],
        "workers": ["node004", "node005"],
        "etcd": ["node001", "node002", "node003"],
    }
    assert "node001 stands for cp1: control plane, etcd" in chosen.lines
    assert "Not in the lab: cp4, cp5, w03, w04, w05 and 25 more; others like them are" in chosen.lines
    assert chosen.planes == 3


def test_more_workers_are_taken_when_they_are_asked_for_and_none_when_zero_are() -> None:
    assert len(cast(_nodes(1, 30), _TRAITS, 4).parts) == 5
    assert len(cast(_nodes(1, 30), _TRAITS, 0).parts) == 1
    assert len(cast(_nodes(1, 1), _TRAITS, 4).parts) == 2


def test_nodes_that_are_control_plane_and_worker_are_both_in_the_lab() -> None:
    chosen = cast(_nodes(3, 0, run_pods=True), _TRAITS)
    assert _places(chosen) == {role: ["node001", "node002", "node003"] for role in ("masters", "workers", "etcd")}


def test_an_etcd_that_has_lost_a_member_is_an_odd_one_in_the_lab() -> None:
    chosen = cast(_nodes(2, 1), _TRAITS)
    assert _places(chosen)["etcd"] == ["node001"]
    assert "Not rehearsed: etcd of the lab has 1 member in place of 2" in chosen.lines
    there = site.of_tree(tree(), "basecm10")
    assert fitting.problems(fitting.complete(chosen.answers, there), there) == []


def test_where_only_some_control_plane_nodes_run_pods_none_of_the_lab_does() -> None:
    chosen = cast([*_nodes(1, 1, run_pods=True), Original("cp2", is_plane=True)], _TRAITS)
    assert _places(chosen)["workers"] == ["node003"]
    there = site.of_tree(tree(), "basecm10")
    assert fitting.problems(fitting.complete(chosen.answers, there), there) == []


def test_members_of_etcd_that_are_nodes_of_their_own_or_workers_are_so_in_the_lab() -> None:
    etcd = [Original(f"e{number}", is_etcd=True) for number in range(1, 6)]
    chosen = cast([*etcd, *_nodes(1, 1, are_members=False)], _TRAITS)
    assert _stood_for(chosen) == {
        "node001": "cp1", "node002": "w01", "node003": "e1", "node004": "e2", "node005": "e3",
    }  # fmt: skip
    assert _places(chosen)["etcd"] == ["node003", "node004", "node005"]
    worker = Original("w00", is_worker=True, is_etcd=True)
    mixed = cast([*_nodes(2, 3), worker], _TRAITS)
    assert _stood_for(mixed) == {"node001": "cp1", "node002": "cp2", "node003": "w01", "node004": "w00"}
    assert _places(mixed)["etcd"] == ["node001", "node002", "node004"]


def test_the_answers_have_the_traits_of_the_cluster_and_fit_the_lab() -> None:
    chosen = cast(_nodes(3, 2), _TRAITS)
    kubernetes = document.load(document.save(chosen.answers)).values["kubernetes"]
    assert (kubernetes["name"], kubernetes["version"]) == ("default", "1.34.4")
    assert (kubernetes["proxy"]["port"], kubernetes["networks"]["pod_node_mask"]) == (10444, 25)
    assert (kubernetes["cni"], kubernetes["cgroup_driver"]) == ("bridge", "cgroupfs")
    there = site.of_tree(tree(), "basecm10")
    assert fitting.problems(fitting.complete(chosen.answers, there), there) == []


def test_what_the_lab_does_not_show_is_told() -> None:
    told = "\n".join(cast(_nodes(3, 2), _TRAITS).lines)
    assert "network plugin" not in told and "flags" not in told and "kube-proxy" not in told
    changed = dataclasses.replace(_TRAITS, has_bridge=False, has_flags=True, proxy_mode="", is_mixed=True)
    mixed = [*_nodes(1, 0, run_pods=True), Original("cp2", True)]
    told = "\n".join(cast(mixed, changed).lines)
    for words in ("network plugin", "flags of static pods", "no kube-proxy", "only some", "several versions"):
        assert words in told, words


def test_a_name_of_a_lab_is_never_too_long() -> None:
    assert casting.lab_name("default") == "rehearsal-default"
    assert casting.lab_name(f"{'a' * 19}-{'b' * 12}") == f"rehearsal-{'a' * 19}"


def _deployed(**changes: object) -> Tree:
    """A head with a cluster in its tree, as a deployment leaves it."""
    own = settings(**changes)
    secrets = objects.Secrets("", "", "")
    values = [("etcd", {own.etcd: objects.etcd("a" * 64)}), ("network", objects.networks(own))]
    values += [("kubernetes", {own.name: objects.cluster(own, secrets, {})})]
    values += [("configurationoverlay", objects.overlays(own))]
    return tree().with_objects((mode, key, _obj(key, obj)) for mode, some in values for key, obj in some.items())


def _obj(key: str, obj: objects.Object) -> Obj:
    children = {
        kind: {name: _obj(name, each) for name, each in some.items()} for kind, some in obj.get("children", {}).items()
    }
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in obj.get("values", {}).items()}
    return Obj(obj["type"], key, values, obj.get("extras", {}), children)


def test_the_tree_of_the_head_says_who_does_what() -> None:
    there = _deployed(nodes__masters__nodes=["node001", "node002"], nodes__etcd__nodes=["node006"])
    originals, traits = casting.of_tree(there, "default", "1.34.4", "nftables")
    assert originals == [
        Original("node001", is_plane=True),
        Original("node002", is_plane=True),
        Original("node003", is_worker=True),
        Original("node006", is_etcd=True),
    ]
    assert (traits.port, traits.node_mask, traits.has_flags) == (10443, 24, False)
