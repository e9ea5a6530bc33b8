"""Whatever changes: a node that is not named as affected has the same facts before and after."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.head import sites

from bedplate.head.affected import affected
from bedplate.head.explain import Fact, Renderer, facts
from bedplate.head.plan import plan, touched_between
from bedplate.head.resolve import Resolved, resolve
from bedplate.head.session import Session
from bedplate.head.tree import Tree

NODES = [f"node00{number}" for number in range(1, 8)]
OVERLAYS = ["kube-default-etcd", "kube-default-master", "kube-default-worker"]

edit = st.one_of(
    st.tuples(
        st.just("device"), st.sampled_from(NODES), st.just("category"), st.sampled_from(["default", "gpu-nodes"])
    ),
    st.tuples(st.just("device"), st.sampled_from(NODES), st.just("ip"), st.sampled_from(["10.0.0.1", "10.0.0.2"])),
    st.tuples(st.just("category"), st.just("default"), st.just("softwareimage"), st.just("my-new-image")),
    st.tuples(st.just("configurationoverlay"), st.sampled_from(OVERLAYS), st.just("nodes"), st.sampled_from(NODES)),
    st.tuples(
        st.just("configurationoverlay"),
        st.sampled_from(OVERLAYS),
        st.just("categories"),
        st.sampled_from(["gpu-nodes", ""]),
    ),
    st.tuples(
        st.just("configurationoverlay"), st.sampled_from(OVERLAYS), st.just("priority"), st.sampled_from(["1", "999"])
    ),
    st.tuples(st.just("configurationoverlay"), st.sampled_from(OVERLAYS), st.just("allheadnodes"), st.just("yes")),
    st.tuples(st.just("kubernetes"), st.just("default"), st.just("version"), st.sampled_from(["1", "2"])),
    st.tuples(st.just("softwareimage"), st.just("default-image"), st.just("path"), st.just("/elsewhere")),
)
removal = st.tuples(st.just("configurationoverlay"), st.sampled_from(OVERLAYS))


def backends(tree: Tree, held: Resolved) -> list[Fact]:
    """As the proxy's file would: the addresses of all control plane nodes, and the cluster's version."""
    if "kubelet" not in held.roles:
        return []
    found = []
    for name, node in sorted(tree.mode("device").items()):
        role = resolve(tree, name).roles.get("kubelet")
        if role is not None and role.role.values.get("control_plane"):
            found.append(f"{name}={node.values.get('ip', '')}")
    version = tree.get(("kubernetes", "default")).values.get("version", "")
    return [Fact("file", "/etc/nginx/nginx.conf", f"{version} {found}", held.roles["kubelet"].source)]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(edit, removal), min_size=1, max_size=3))
def test_nobody_is_forgotten(edits: list[tuple[str, ...]]) -> None:
    before = sites.manual()
    session = Session(before)
    for mode, key, *words in edits:
        if session.tree.find(mode, key) is None:
            continue
        if words:
            session.set((mode, key), words[0], words[1])
        else:
            session.remove((mode, key))
    after = session.tree
    touched = touched_between(before, after)
    named = affected(before, after, touched)
    differing = {
        name
        for name in before.mode("device")
        if facts(before, name, [Renderer(backends)]) != facts(after, name, [Renderer(backends)])
    }
    assert differing <= named
    assert {action.node for action in plan(before, after, touched, [Renderer(backends)])} <= named
