"""What holds for a node, why, and what a change would do to whom."""

from __future__ import annotations

import pytest
from tests.head import sites

from bedplate.core import errors
from bedplate.head.affected import affected
from bedplate.head.desired import desired
from bedplate.head.entities.nodes import PhysicalNode
from bedplate.head.explain import Fact, Renderer, explain
from bedplate.head.objects import Obj
from bedplate.head.plan import plan, touched_between
from bedplate.head.resolve import Resolved, Source, inherited, resolve
from bedplate.head.session import Session
from bedplate.head.tree import Tree


def changed(tree: Tree, path: tuple[str, ...], parameter: str, text: str) -> Tree:
    session = Session(tree)
    session.set(path, parameter, text)
    return session.tree


def test_item_014_a_node_inherits_its_image_until_it_sets_its_own() -> None:
    tree = sites.manual()
    node = ("device", "node001")
    assert inherited(tree, tree.get(node), PhysicalNode.software_image) == (
        "default-image",
        Source("category", "default"),
    )
    assert str(Source("category", "default")) == "category:default"
    own = changed(tree, node, "softwareimage", "my-new-image")
    assert inherited(own, own.get(node), PhysicalNode.software_image) == ("my-new-image", None)
    assert resolve(own, "node001").settings["software_image"].value == "my-new-image"
    assert resolve(tree, "node001").settings["install_mode"] == ("AUTO", Source("category", "default"), ())


def test_what_agents_do_about_changes_by_hand_is_told_where_somebody_set_it() -> None:
    tree = sites.manual()
    assert "hand_edits" not in resolve(tree, "node001").settings
    assert "hand_edit_paths" not in resolve(tree, "node001").settings
    site = changed(tree, ("category", "default"), "handedits", "report")
    site = changed(site, ("category", "default"), "handeditpaths", "/etc/motd=KEEP,/srv/*=RESTORE")
    told = desired(site, "node001").settings
    assert (told["hand_edits"], told["hand_edit_paths"]) == ("REPORT", "/etc/motd=KEEP,/srv/*=RESTORE")
    own = changed(site, ("device", "node001"), "handedits", "keep")
    assert desired(own, "node001").settings["hand_edits"] == "KEEP"
    with pytest.raises(errors.Invalid, match="a path pattern and what is done"):
        changed(tree, ("category", "default"), "handeditpaths", "/etc/motd=SOMETIMES")


def test_decision_20_node_beats_overlay_beats_category_and_priority_decides() -> None:
    tree = sites.manual()
    held = resolve(tree, "node001").roles
    assert held["kubelet"].source == Source("configurationoverlay", "kube-default-master", "kubelet")
    assert held["kubelet"].role.values["control_plane"] is True
    assert [str(source) for source in held["kubelet"].beaten] == ["overlay:kube-default-worker"]
    session = Session(tree)
    session.add(("category", "default", "roles"), "kubelet")
    session.set(("category", "default", "roles", "kubelet"), "maxpods", "7")
    assert resolve(session.tree, "node001").roles["kubelet"].beaten[-1] == Source("category", "default", "kubelet")
    session.add(("device", "node001", "roles"), "kubelet")
    winner = resolve(session.tree, "node001").roles["kubelet"]
    assert (winner.source.mode, winner.role.values) == ("device", {})


def test_overlays_of_one_priority_are_decided_by_name() -> None:
    tree = sites.manual()
    mode, obj = sites.overlay("a-first", 510, ("node001",), (), sites.containerd("/first"))
    assert str(resolve(tree.with_object(mode, obj.key, obj), "node001").roles["generic::containerd"].source) == (
        "overlay:a-first"
    )


def test_head_nodes_are_members_where_an_overlay_says_so() -> None:
    tree = sites.manual()
    assert resolve(tree, "basecm10").roles == {}
    every = changed(tree, ("configurationoverlay", "kube-default-worker"), "allheadnodes", "yes")
    assert "kubelet" in resolve(every, "basecm10").roles
    assert affected(tree, every, touched_between(tree, every)) == {"basecm10"}


def test_services_of_roles_belong_to_them_unless_they_are_not_tied() -> None:
    tree = sites.manual()
    services = resolve(tree, "node004").services
    assert sorted(services) == ["containerd", "kubelet"]
    assert services["kubelet"][0].values == {"belongs_to_role": True}
    untied = changed(tree, ("configurationoverlay", "kube-default-worker", "roles", "kubelet"), "addservices", "no")
    assert sorted(resolve(untied, "node004").services) == ["containerd"]
    session = Session(tree)
    session.set(session.add(("device", "node004", "services"), "containerd"), "timeout", "30")
    service, source = resolve(session.tree, "node004").services["containerd"]
    assert service.values == {"timeout": 30, "belongs_to_role": True}
    assert source == Source("device", "node004")


def test_labels_come_by_node_and_category_and_the_last_set_by_name_wins() -> None:
    labels = resolve(sites.manual(), "node005").labels
    assert labels["nvidia.com/amd-gpu-accelerator"].value == ""
    assert (labels["tier"].value, labels["tier"].source.part) == ("b", "zone")
    assert labels["tier"].beaten == (("a", Source("kubernetes", "default", "amd")),)
    assert resolve(sites.manual(), "node004").labels == {}


def test_item_126_exclude_snippets_appear_in_the_effective_list() -> None:
    excludes = resolve(sites.manual(), "node004").excludes
    assert [(exclude.mode, exclude.pattern) for exclude in excludes] == [("sync", "/worker"), ("update", "/worker")]
    assert str(excludes[0].source) == "overlay:kube-default-worker"


def test_variables_reach_the_node_when_they_say_so() -> None:
    assert resolve(sites.manual(), "node001").environment["sandbox"].value == "pause"


def test_an_unknown_node_is_named() -> None:
    with pytest.raises(errors.NotFound, match="node999"):
        resolve(sites.manual(), "node999")


def test_explain_names_the_cause_its_revision_and_who_would_win_next() -> None:
    tree = sites.manual()
    cause = tree.get(("configurationoverlay", "kube-default-master"))
    tree = tree.with_object(
        "configurationoverlay", cause.key, Obj(cause.type, cause.key, cause.values, {}, cause.children, 42)
    )
    ((fact, revision),) = explain(tree, "node001", "kubelet")[:1]
    assert (fact.kind, str(fact.source), fact.next_best, revision) == (
        "role",
        "overlay:kube-default-master",
        "overlay:kube-default-worker",
        42,
    )
    assert {fact.kind for fact, _ in explain(tree, "node005")} == {
        "environment",
        "exclude",
        "label",
        "role",
        "service",
        "setting",
    }


def test_rendered_facts_are_part_of_the_explanation_and_of_the_plan() -> None:
    tree = sites.manual()

    def renderer(tree: Tree, held: Resolved) -> list[Fact]:
        if "kubelet" not in held.roles:
            return []
        port = tree.get(("kubernetes", "default")).values.get("kubernetes_api_server_proxy_port", 10443)
        return [Fact("file", "/etc/nginx/nginx.conf", f"listen {port}", held.roles["kubelet"].source)]

    renderers = [Renderer(renderer)]
    assert any(fact.name == "/etc/nginx/nginx.conf" for fact, _ in explain(tree, "node004", renderers=renderers))
    after = changed(tree, ("kubernetes", "default"), "kubernetesapiserverproxyport", "6444")
    actions = plan(tree, after, [("kubernetes", "default")], renderers)
    assert (actions[0].node, actions[0].verb, actions[0].new) == ("node001", "change", "listen 6444")
    assert {action.node for action in actions} == {f"node00{number}" for number in range(1, 8)}


def test_a_plan_says_what_changes_on_which_node_and_nothing_else() -> None:
    tree = sites.manual()
    after = changed(tree, ("configurationoverlay", "kube-default-worker", "roles", "kubelet"), "maxpods", "50")
    actions = plan(tree, after, touched_between(tree, after))
    assert [(action.node, action.kind, action.name, action.verb) for action in actions] == [
        ("node004", "role", "kubelet", "change"),
        ("node005", "role", "kubelet", "change"),
        ("node006", "role", "kubelet", "change"),
        ("node007", "role", "kubelet", "change"),
    ]
    assert plan(tree, changed(tree, ("device", "node001"), "notes", "x"), [("device", "node001")]) == []


def test_a_removed_overlay_removes_what_it_gave() -> None:
    tree = sites.manual()
    after = tree.with_object("configurationoverlay", "kube-default-worker", None)
    actions = plan(tree, after, [("configurationoverlay", "kube-default-worker")])
    gone = {(action.node, action.name) for action in actions if action.verb == "remove" and action.kind == "service"}
    assert gone == {(f"node00{number}", name) for number in range(4, 8) for name in ("containerd", "kubelet")}


def test_files_of_overlays_are_facts_and_the_winner_hides_the_other() -> None:
    tree = sites.manual()
    for name, text in [("kube-default-master", "one"), ("kube-default-etcd", "two")]:
        session = Session(tree)
        path = session.add(("configurationoverlay", name, "customizations"), "motd")
        session.set(path, "filename", "/etc/motd")
        session.set(path, "content", text)
        tree = session.tree
    ((fact, _),) = explain(tree, "node001", "/etc/motd")
    assert (str(fact.source), fact.next_best) == ("overlay:kube-default-master", "overlay:kube-default-etcd")


def test_a_node_that_joins_an_overlay_is_the_only_one_touched() -> None:
    tree = sites.large(200)
    session = Session(tree)
    session.append(("configurationoverlay", "few"), "nodes", "node00100")
    assert affected(tree, session.tree, session_touched(session)) == {"node00100"}


def session_touched(session: Session) -> list[tuple[str, str]]:
    return [(edit.mode, edit.key) for edit in session.edits()]


def test_a_control_plane_node_touches_its_whole_cluster() -> None:
    tree = sites.manual()
    after = changed(tree, ("device", "node001"), "ip", "10.141.0.1")
    assert affected(tree, after, [("device", "node001")]) == {f"node00{number}" for number in range(1, 8)}


def test_a_change_leaves_every_node_that_it_does_not_touch_as_it_was() -> None:
    tree = sites.large(400)
    after = changed(tree, ("configurationoverlay", "o3", "roles", "kubelet"), "maxpods", "50")
    touched = affected(tree, after, touched_between(tree, after))
    assert len(touched) == 20
    for name in tree.mode("device"):
        assert (resolve(after, name) == resolve(tree, name)) == (name not in touched)
