"""How much rendering does, counted: what one node costs must not grow with the others."""

from __future__ import annotations

import pytest
from tests.head import sites
from tests.head.test_cost import calls

from bedplate.head.desired import desired
from bedplate.head.explain import explain
from bedplate.head.objects import Obj
from bedplate.head.plan import plan, touched_between
from bedplate.head.render import RENDERERS
from bedplate.head.session import Session
from bedplate.head.tree import Tree


def with_proxies(count: int) -> Tree:
    """A large tree with three control plane nodes, and a proxy on every node of an overlay."""
    tree = sites.large(count)
    proxy = Obj("KubernetesApiServerProxyRole", "Kubernetes::ApiServerProxy", {"kubernetes_cluster": "default"})
    planes = tuple(f"node0000{number}" for number in range(3))
    masters = sites.overlay("masters", 900, planes, (), sites.kubelet("default", control_plane=True), proxy)
    tree = tree.with_object(masters[0], "masters", masters[1])
    for number in range(1, 20):
        overlay = tree.get(("configurationoverlay", f"o{number}"))
        tree = tree.with_object("configurationoverlay", overlay.key, overlay.with_child("roles", proxy.key, proxy))
    return tree


@pytest.fixture(scope="module")
def small() -> Tree:
    return with_proxies(400)


@pytest.fixture(scope="module")
def big() -> Tree:
    return with_proxies(4000)


def test_item_219_the_desired_state_of_a_node_costs_the_same_in_a_large_tree(small: Tree, big: Tree) -> None:
    assert calls(lambda: desired(big, "node00007")) <= calls(lambda: desired(small, "node00007")) * 1.2


def test_item_219_explaining_a_node_costs_the_same_in_a_large_tree(small: Tree, big: Tree) -> None:
    few = calls(lambda: explain(small, "node00008", "", RENDERERS))
    assert calls(lambda: explain(big, "node00008", "", RENDERERS)) <= few * 1.2


def planning(tree: Tree, overlay: str) -> int:
    session = Session(tree)
    session.set(("configurationoverlay", overlay, "roles", "generic::containerd"), "services", "other")
    after = session.tree
    found: list[str] = []
    count = calls(lambda: found.extend(a.node for a in plan(tree, after, touched_between(tree, after), RENDERERS)))
    assert found
    return count


def test_item_219_planning_a_role_of_five_nodes_does_not_look_at_others(small: Tree, big: Tree) -> None:
    """Three of the five are the control plane, whose files are not what changes."""
    assert planning(big, "few") <= planning(small, "few") * 1.3


def test_item_219_planning_grows_with_the_nodes_that_change_alone(small: Tree, big: Tree) -> None:
    assert planning(big, "o3") <= planning(small, "o3") * 10 * 1.3


def test_a_plan_of_all_nodes_works_out_once_what_they_have_in_common(big: Tree) -> None:
    """Alone, a node costs about 450 calls in both trees."""
    session = Session(big)
    for number in range(1, 20):
        session.set(("configurationoverlay", f"o{number}", "roles", "generic::containerd"), "services", "other")
    after, found = session.tree, set[str]()
    count = calls(lambda: found.update(a.node for a in plan(big, after, touched_between(big, after), RENDERERS)))
    assert len(found) > 3500
    assert count < 250 * len(found)
