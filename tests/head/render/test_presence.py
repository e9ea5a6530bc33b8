"""Packages that are there already: a cluster says so, and its roles bring none."""

from __future__ import annotations

from tests.head.clusters import kubesites

from bedplate.head.desired import desired
from bedplate.head.objects import Obj
from bedplate.head.render.presence import PACKAGES, PRESENT
from bedplate.head.tree import Tree


def _with(tree: Tree, text: str) -> Tree:
    cluster = tree.get(("kubernetes", "default"))
    changed = Obj(cluster.type, cluster.key, cluster.values, {**cluster.extras, PACKAGES: text}, cluster.children)
    return tree.with_objects([("kubernetes", "default", changed)])


def test_roles_of_a_cluster_whose_packages_are_present_bring_none_and_all_else_stays() -> None:
    tree = kubesites.tree()
    before = desired(tree, "node001")
    assert {"kubelet", "cm-etcd"} <= set(before.packages)
    after = desired(_with(tree, PRESENT), "node001")
    assert after.packages == ()
    assert [file.path for file in after.files] == [file.path for file in before.files]
    assert after.services == before.services
    assert desired(_with(tree, "installed"), "node001").packages == before.packages


def test_another_role_of_the_node_keeps_its_packages() -> None:
    tree = kubesites.tree()
    node = tree.get(("device", "node002"))
    docker = Obj("DockerHostRole", "Docker::Host", {})
    own = Obj(node.type, node.key, node.values, node.extras, {**node.children, "roles": {"Docker::Host": docker}})
    tree = _with(tree.with_objects([("device", "node002", own)]), PRESENT)
    assert desired(tree, "node002").packages == ("cm-docker",)
