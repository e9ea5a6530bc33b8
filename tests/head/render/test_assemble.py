"""What a node gets from roles, overlays and its cluster together, and how it is told: explain, plan, desired state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.head.render import rooms

from bedplate.api.desired import Desired
from bedplate.api.steps import steps
from bedplate.core import errors
from bedplate.head.affected import affected
from bedplate.head.desired import desired
from bedplate.head.explain import Renderer, explain, facts
from bedplate.head.plan import PlannedAction, touched_between
from bedplate.head.render import RENDERERS, docker, proxy, rendered_file
from bedplate.head.session import Session
from bedplate.head.tree import Tree


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def customize(session: Session, overlay: str, path: str, content: str) -> tuple[str, ...]:
    place = session.add(("configurationoverlay", overlay, "customizations"), "custom")
    session.set(place, "filename", path)
    session.set(place, "content", content)
    return place


def test_an_overlays_file_beats_a_roles_and_who_lost_is_named(session: Session) -> None:
    place = customize(session, rooms.WORKER, proxy.CONF, "mine\n")
    assert rooms.file_of(session.tree, "node004", proxy.CONF).content == "mine\n"
    ((fact, _),) = explain(session.tree, "node004", proxy.CONF, RENDERERS)
    assert (str(fact.source), fact.source.part, fact.next_best) == (
        f"overlay:{rooms.WORKER}",
        "custom",
        f"overlay:{rooms.WORKER}",
    )
    session.set(place, "disabled", "yes")
    state = desired(session.tree, "node004")
    assert proxy.CONF in state.unmanaged
    assert all(file.path != proxy.CONF for file in state.files)


def test_every_managed_thing_is_explained_with_its_cause(session: Session) -> None:
    session.add_indexed((*rooms.KUBELET, "options"), ["kube-apiserver.yaml", "", "v", "4"])
    found = {(fact.kind, fact.name): str(fact.source) for fact, _ in explain(session.tree, "node001", "", RENDERERS)}
    assert found["file", proxy.CONF] == f"overlay:{rooms.MASTER}"
    assert found["flag", "kube-apiserver.yaml:kube-apiserver:v"] == f"overlay:{rooms.MASTER}"
    assert found["label", "node-role.kubernetes.io/master"] == f"overlay:{rooms.MASTER}"
    assert found["taint", "node-role.kubernetes.io/control-plane:NoSchedule"] == f"overlay:{rooms.MASTER}"
    assert found["service", "etcd"] == "overlay:kube-default-etcd"
    assert found["package", "cm-etcd"] == "overlay:kube-default-etcd"
    assert found["check", "ssh2node"] == "healthcheck:ssh2node"
    assert found["environment", "CM_KUBE_EXTERNAL_FQDN"] == "kubernetes:default"


def test_one_file_is_shown_and_one_that_is_not_managed_is_named(session: Session) -> None:
    assert "upstream kube-default-api" in rendered_file(session.tree, "node004", proxy.CONF).content
    with pytest.raises(errors.NotFound, match="/etc/passwd is managed on node004"):
        rendered_file(session.tree, "node004", "/etc/passwd")


def test_the_environment_of_nodes_is_a_file_that_any_shell_reads(session: Session) -> None:
    place = (*rooms.CLUSTER, "app_groups", "system", "applications", "ingress_controller", "environment")
    session.set((*place, "CM_KUBE_EXTERNAL_FQDN"), "value", "it's; rm -rf $HOME")
    text = rooms.file_of(session.tree, "node004", "/etc/profile.d/bedplate.sh").content
    assert """export CM_KUBE_EXTERNAL_FQDN='it'"'"'s; rm -rf $HOME'\n""" in text
    assert "replicas" not in text
    session.set((*rooms.CLUSTER, "app_groups", "system"), "enabled", "no")
    assert "FQDN" not in rooms.file_of(session.tree, "node004", "/etc/profile.d/bedplate.sh").content


def test_rows_of_a_service_are_told(session: Session) -> None:
    place = session.add(("device", "node006", "services"), "docker")
    for parameter, text in [("autostart", "no"), ("timeout", "5"), ("sicknesscheckscript", "/bin/check")]:
        session.set(place, parameter, text)
    (service,) = desired(session.tree, "node006").services
    assert (service.name, service.autostart, service.monitored, service.timeout, service.sickness_script) == (
        "docker",
        False,
        True,
        5,
        "/bin/check",
    )


def test_an_unassigned_role_takes_its_files_away_and_stops_its_services(session: Session) -> None:
    before = session.tree
    session.remove(rooms.DOCKER)
    done = [
        (step.kind, step.name, step.verb)
        for step in steps(desired(before, "node006"), desired(session.tree, "node006"))
    ]
    assert done[0] == ("service", "docker", "stop")
    assert ("file", docker.CONF, "remove") in done
    actions = rooms.planned(before, session)
    stopped = [action for action in actions if (action.kind, action.name) == ("service", "docker")]
    assert [(action.verb, action.effect) for action in stopped] == [("remove", "stop")]


def test_checks_run_where_they_mean_something(session: Session) -> None:
    def checks(node: str) -> list[str]:
        return [check.name for check in desired(session.tree, node).checks]

    assert checks("node006") == ["Docker", "ssh2node"]
    assert checks("node004") == ["KubernetesNodesStatus", "ssh2node"]
    before = session.tree
    session.set(("healthcheck", "Docker"), "enabled", "no")
    assert checks("node006") == ["ssh2node"]
    assert {action.node for action in rooms.planned(before, session)} == {"node006"}


def test_the_digest_changes_with_the_state_alone(session: Session) -> None:
    before = desired(session.tree, "node004", 5)
    session.set(("device", "node004"), "notes", "new disk")
    session.set(rooms.DOCKER, "debug", "yes")
    assert desired(session.tree, "node004", 6).digest == before.digest
    session.set(rooms.CLUSTER, "kubernetesapiserverproxyport", "6444")
    assert desired(session.tree, "node004", 7).digest != before.digest


def test_a_desired_state_survives_json() -> None:
    for node in rooms.full().mode("device"):
        state = desired(rooms.full(), node, 3)
        assert msgspec.json.decode(msgspec.json.encode(state), type=Desired) == state


# Whatever changes

NODES = ["basecm10", *(f"node00{number}" for number in range(1, 8))]
edit = st.sampled_from(
    [
        (("device", "node001"), "ip", "10.141.7.7"),
        (("device", "node007"), "category", "docker"),
        (("device", "basecm10"), "network", "kube-default-pod"),
        (("network", "internalnet"), "netmaskbits", "20"),
        (rooms.CLUSTER, "kubernetesapiserverproxyport", "6444"),
        (rooms.CLUSTER, "podnetwork", ""),
        (rooms.CLUSTER, "kubecakey", "other"),
        (("etcd", "kube-default"), "ca", "/ca"),
        (("etcd", "kube-default"), "electiontimeout", "2000"),
        (rooms.KUBELET, "controlplane", "no"),
        (rooms.KUBELET, "maxpods", "50"),
        (rooms.FIREWALL, "backend", "nftables"),
        (rooms.DOCKER, "iptables", "no"),
        (("configurationoverlay", rooms.MASTER), "nodes", "node001,node004"),
        (("configurationoverlay", rooms.MASTER), "priority", "1"),
        (("configurationoverlay", rooms.WORKER), "categories", "default"),
        (("configurationoverlay", rooms.WORKER), "allheadnodes", "yes"),
        (("configurationoverlay", "kube-default-etcd"), "nodes", "node001"),
        (("healthcheck", "Docker"), "enabled", "no"),
        (("healthcheck", "ssh2node"), "interval", "60s"),
        ((*rooms.CONTAINERD, "configurations", "containerd-cri"), "disabled", "yes"),
        ((*rooms.CONTAINERD, "configurations", "containerd-cri"), "content", "version = 2\n"),
    ]
)
removal = st.sampled_from(
    [
        ("configurationoverlay", rooms.MASTER),
        ("configurationoverlay", "kube-default-etcd"),
        ("healthcheck", "ssh2node"),
        rooms.DOCKER,
        rooms.FIREWALL,
        (*rooms.CONTAINERD, "configurations", "containerd-cri"),
    ]
)
extra = st.sampled_from(["ingress_proxy_enable=true", "ingress_proxy_listen_port=8443"])


def staged(edits: list[object]) -> tuple[Tree, Session]:
    before = rooms.full()
    session = Session(before)
    for change in edits:
        if isinstance(change, str):
            session.set_extra(rooms.CLUSTER, *change.split("=", 1))
            continue
        assert isinstance(change, tuple)
        path = change[0] if isinstance(change[0], tuple) else change
        try:
            session.tree.get(path)
        except errors.NotFound:
            continue
        if isinstance(change[0], tuple):
            session.set(*change)
        else:
            session.remove(change)
    return before, session


@settings(max_examples=60)
@given(st.lists(st.one_of(edit, removal, extra), min_size=1, max_size=4))
def test_nobody_whose_state_differs_is_forgotten(edits: list[object]) -> None:
    before, session = staged(edits)
    after = session.tree
    named = affected(before, after, touched_between(before, after))
    for node in NODES:
        if desired(before, node) != desired(after, node) or facts(before, node, RENDERERS) != facts(
            after, node, RENDERERS
        ):
            assert node in named


@settings(max_examples=60)
@given(st.lists(st.one_of(edit, removal, extra), min_size=1, max_size=4), st.permutations(NODES))
def test_facts_shared_by_a_group_are_those_that_each_node_has_alone(edits: list[object], order: list[str]) -> None:
    _, session = staged(edits)
    for node in order:
        shared = facts(session.tree, node, RENDERERS) if session.tree.find("device", node) is not None else {}
        alone = Tree(session.tree.schema, session.tree.objects())
        assert shared == (facts(alone, node, [Renderer(RENDERERS[0].whole)]) if shared else {})


@settings(max_examples=60)
@given(st.lists(st.one_of(edit, removal, extra), min_size=1, max_size=4))
def test_the_plan_says_what_nodes_then_do(edits: list[object]) -> None:
    before, session = staged(edits)
    actions = rooms.planned(before, session)
    for node in NODES:
        done = steps(desired(before, node), desired(session.tree, node))
        did = {(step.kind, step.name, step.verb) for step in done if step.kind in ("file", "service")}
        told = {(action.kind, action.name, _step(action)) for action in actions if action.node == node}
        assert did <= told
        # What another object gives now, and rows of a service, are told, and nothing is done about them.
        assert {place for place in told - did if place[0] in ("file", "service")} <= {
            (action.kind, action.name, _step(action))
            for action in actions
            if action.node == node and action.verb == "change" and not action.effect
        }


def _step(action: PlannedAction) -> str:
    words = {
        "file": {"add": "write", "change": "write"},
        "service": {"add": "start", "remove": "stop"},
    }
    return words.get(action.kind, {}).get(action.verb, action.verb)
