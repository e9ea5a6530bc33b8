"""The shipped NetworkPolicies, evaluated as the API defines them, against the pods, ports and probes beside them.

No network plugin that enforces policies runs here, so no packet is dropped by these tests. They show that a plugin that
does enforce them blocks nothing that a program needs, and opens no port that no program serves: what a pod serves is
read from its command line by the programs' own parsers, and what must be reached from probes, Services and webhooks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.deploy.conftest import CHARTS, ROOT, Program, documents, of_kind
from tests.deploy.test_charts import render
from tests.deploy.test_ipam_overlays import OURS, kustomize, rendered

from bedplate.cloud.manager import options as manager_options
from bedplate.ipam.controller import options as controller_options
from bedplate.ipam.node import options as node_options

__all__ = ["kustomize"]

Object = dict[str, Any]


class Peer(NamedTuple):
    """Who connects: a pod with its labels and those of its namespace, or, without them, an address of a machine."""

    address: str
    labels: dict[str, str] | None = None
    namespace: dict[str, str] | None = None


KUBELET = Peer("192.0.2.10")
API_SERVER = Peer("198.51.100.1")
PROMETHEUS = Peer("10.244.3.7", {"app": "prometheus"}, {"kubernetes.io/metadata.name": "monitoring"})
OUTSIDE = (KUBELET, API_SERVER, PROMETHEUS)


# What the API says about policies


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """A label selector. An empty one selects everything."""
    for rule in selector.get("matchExpressions", ()):
        key, operator, values = rule["key"], rule["operator"], rule.get("values", ())
        is_met = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[operator]
        if not is_met:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def has_type(policy: Object, kind: str) -> bool:
    """Without `policyTypes` a policy is about what comes in, and with rules about what goes out, about that, too."""
    spec = policy["spec"]
    return kind in spec.get("policyTypes", ["Ingress", *(["Egress"] if "egress" in spec else [])])


def policies_of(objects: list[Object], workload: Object, kind: str) -> list[Object]:
    """Those that are about a workload's pods. What happens to pods on their machine's network is not defined."""
    template = workload["spec"]["template"]
    return [
        each
        for each in objects
        if each["kind"] == "NetworkPolicy"
        and each["metadata"].get("namespace") == workload["metadata"].get("namespace")
        and selects(each["spec"]["podSelector"], template["metadata"]["labels"])
        and has_type(each, kind)
    ]


def admits(rule: Object, namespace: str, peer: Peer) -> bool:
    """Whether one of the rule's peers is this one; without any, everybody is."""
    if not rule.get("from"):
        return True
    for each in rule["from"]:
        if "ipBlock" in each:
            block = each["ipBlock"]
            networks = [ipaddress.ip_network(text) for text in (block["cidr"], *block.get("except", ()))]
            inside = [ipaddress.ip_address(peer.address) in network for network in networks]
            if inside[0] and not any(inside[1:]):
                return True
        elif peer.labels is not None and peer.namespace is not None:
            where = each.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": namespace}})
            if selects(where, peer.namespace) and selects(each.get("podSelector", {}), peer.labels):
                return True
    return False


def covers(rule: Object, workload: Object, port: int) -> bool:
    """Whether a rule is about this TCP port; without ports, it is about all of them."""
    names = {each["name"]: each["containerPort"] for each in ports_of(workload) if "name" in each}
    for each in rule.get("ports") or [{}]:
        first = names.get(each.get("port", 0), each.get("port"))
        is_there = first is None or first <= port <= each.get("endPort", first)
        if is_there and each.get("protocol", "TCP") == "TCP":
            return True
    return False


def is_reached(objects: list[Object], workload: Object, port: int, peer: Peer) -> bool:
    """Policies add up; a pod that none is about can be reached by everybody."""
    found = policies_of(objects, workload, "Ingress")
    rules = [(each, rule) for each in found for rule in each["spec"].get("ingress") or ()]
    return not found or any(
        admits(rule, each["metadata"]["namespace"], peer) and covers(rule, workload, port) for each, rule in rules
    )


# What the programs serve, and who must reach it


def workloads(objects: list[Object]) -> list[Object]:
    found = [each for each in objects if each["kind"] in ("Deployment", "DaemonSet")]
    assert found
    return found


def ports_of(workload: Object) -> list[Object]:
    return [port for one in workload["spec"]["template"]["spec"]["containers"] for port in one.get("ports", ())]


def served(workload: Object) -> set[int]:
    """The TCP ports that the pod's program opens to others, from its command line."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    program, *words = [*container["command"], *container.get("args", ())]
    words = [word.replace("$(POD_NAMESPACE)", "kube-system").replace("$(NODE_NAME)", "node") for word in words]
    if program == "/ipam-node":
        node = node_options.read(words)
        assert not node.problems
        flags = node.options.daemon
        return {port_of(flags.metrics_bind_address), port_of(flags.health_probe_bind_address)}
    if program == "/ipam-controller":
        controller = controller_options.read(words)
        assert not controller.problems
        chosen = controller.options.controlling
        webhook = {controller.options.webhook.webhook_port} if chosen.webhook else set()
        return webhook | {port_of(chosen.metrics_bind_address), port_of(chosen.health_probe_bind_address)}
    assert program.endswith("-cloud-controller-manager")
    manager = manager_options.read(words)
    assert not manager.problems
    return {manager.options.secure_serving.secure_port}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def needed(objects: list[Object], workload: Object) -> Iterator[tuple[int, Peer]]:
    """Which port must be reached by whom: probes by the kubelet, a webhook by the API server, Services by anybody."""
    template = workload["spec"]["template"]
    for container in template["spec"]["containers"]:
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if probe in container:
                yield container[probe]["httpGet"]["port"], KUBELET
    called = {
        webhook["clientConfig"]["service"]["name"]
        for each in objects
        if each["kind"] == "ValidatingWebhookConfiguration"
        for webhook in each["webhooks"]
    }
    for service in [each for each in objects if each["kind"] == "Service"]:
        if service["spec"]["selector"].items() <= template["metadata"]["labels"].items():
            for port in service["spec"]["ports"]:
                yield port["targetPort"], API_SERVER if service["metadata"]["name"] in called else PROMETHEUS


def tried(objects: list[Object], ports: set[int]) -> set[int]:
    """The ports at which an answer can change: those that are named anywhere, and their neighbours."""
    rules = [rule for each in objects if each["kind"] == "NetworkPolicy" for rule in each["spec"].get("ingress") or ()]
    written = [port for rule in rules for port in rule.get("ports", ())]
    named = {*ports, *(one[key] for one in written for key in ("port", "endPort") if isinstance(one.get(key), int))}
    return {1, 65535, *(port + step for port in named for step in (-1, 0, 1))}


def judge(objects: list[Object]) -> None:
    """Every pod with a network of its own is reached at what it serves and nowhere else, and may call everybody."""
    chosen: set[str] = set()
    for workload in workloads(objects):
        name = workload["metadata"]["name"]
        ingress, egress = (policies_of(objects, workload, kind) for kind in ("Ingress", "Egress"))
        chosen |= {each["metadata"]["name"] for each in ingress}
        assert not egress, f"{name} must call the API server and its cloud, wherever they are"
        if workload["spec"]["template"]["spec"].get("hostNetwork"):
            assert not ingress, f"{name} is on its machine's network: a policy about it promises what it cannot hold"
            continue
        assert ingress, f"no policy is about {name}"
        ports = served(workload)
        for port, peer in needed(objects, workload):
            assert port in ports, f"nobody serves {port} in {name}"
            assert is_reached(objects, workload, port, peer), f"{peer} must reach {port} of {name}"
        for peer in OUTSIDE:
            open_ports = {port for port in tried(objects, ports) if is_reached(objects, workload, port, peer)}
            assert open_ports == ports, f"{name}, {peer}: open {open_ports - ports}, closed {ports - open_ports}"
    assert chosen == {each["metadata"]["name"] for each in objects if each["kind"] == "NetworkPolicy"}, "about nobody"


@pytest.mark.parametrize("overlay", OURS)
def test_every_program_may_be_reached_at_its_ports_only(overlay: str, kustomize: Program) -> None:
    objects = rendered(kustomize, overlay)
    judge(objects)
    reached = {port for each in workloads(objects) for port, _ in needed(objects, each)}
    assert reached == ({8081} if overlay in ("no-webhook", "containerd") else {8081, 9443})


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("is_host", [True, False])
def test_a_manager_may_be_reached_at_its_port_only(chart: str, is_host: bool, helm: Program) -> None:
    values = {"deployment": {"hostNetwork": is_host}, "metrics": {"service": True}, "securePort": 10300}
    objects = render(helm, chart, values)
    judge(objects)
    assert {port for port, _ in needed(objects, of_kind(objects, "Deployment"))} == {10300}
    open_to_all = render(helm, chart, values | {"networkPolicy": {"enabled": False}})
    assert not [each for each in open_to_all if each["kind"] == "NetworkPolicy"]


def test_manifests_on_the_network_of_their_machines_have_no_policy(kubectl_program: Path, tmp_path: Path) -> None:
    kubectl = Program(kubectl_program, tmp_path)
    for path in sorted((ROOT / "manifests").glob("*.yaml")):
        judge(documents(path.read_text()))
    for overlay in ("high-availability", "mixed"):
        judge(documents(kubectl("kustomize", ROOT / "deploy" / "overlays" / overlay)))


# The judgement itself


def policy(**spec: Any) -> Object:
    meta = {"name": "policy", "namespace": "kube-system"}
    return {"kind": "NetworkPolicy", "metadata": meta, "spec": {"podSelector": {}, **spec}}


def daemon(**more: Any) -> Object:
    container = {"name": "node", "command": ["/ipam-node"], "args": ["--node-name=n"], **more}
    template = {"metadata": {"labels": {"name": "node"}}, "spec": {"containers": [container]}}
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "node", "namespace": "kube-system"},
        "spec": {"template": template},
    }


RIGHT = [{"ports": [{"port": 8080}, {"port": 8081, "protocol": "TCP"}]}]


def with_ports(*ports: Object) -> Object:
    return policy(ingress=[{"ports": list(ports)}])


def only_from(peer: Object) -> Object:
    return policy(ingress=[{**RIGHT[0], "from": [peer]}])


WRONG: dict[str, tuple[str, Object]] = {
    "a port that nobody serves": ("open {9443}", with_ports({"port": 8080, "endPort": 8081}, {"port": 9443})),
    "a closed probe": ("must reach 8081", with_ports({"port": 8080})),
    "another protocol": ("must reach 8081", with_ports({"port": 8080}, {"port": 8081, "protocol": "UDP"})),
    "nothing may come in": ("must reach 8081", policy(policyTypes=["Ingress"])),
    "only pods of the namespace": ("must reach 8081", only_from({"podSelector": {}})),
    "only machines": ("closed {8080, 8081}", only_from({"ipBlock": {"cidr": "192.0.0.0/8"}})),
    "nothing may go out": ("must call", policy(policyTypes=["Ingress", "Egress"], ingress=RIGHT)),
    "other pods": ("no policy is about", policy(podSelector={"matchLabels": {"name": "other"}}, ingress=RIGHT)),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_policy_that_blocks_or_opens_too_much_is_found(case: str) -> None:
    said, wrong = WRONG[case]
    pod = daemon(readinessProbe={"httpGet": {"port": 8081}})
    judge([pod, policy(ingress=RIGHT)])
    with pytest.raises(AssertionError) as told:
        judge([pod, wrong])
    assert said in str(told.value)


def test_a_policy_about_nobody_and_one_about_a_machines_network_are_found() -> None:
    other = policy(podSelector={"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["node"]}]})
    other["metadata"]["name"] = "other"
    with pytest.raises(AssertionError, match="about nobody"):
        judge([daemon(), policy(ingress=RIGHT), other])
    on_host = daemon()
    on_host["spec"]["template"]["spec"]["hostNetwork"] = True
    with pytest.raises(AssertionError, match="machine's network"):
        judge([on_host, policy(ingress=RIGHT)])


@pytest.mark.parametrize("chart", CHARTS)
def test_a_policy_of_a_chart_selects_what_its_deployment_selects(chart: str, helm: Program) -> None:
    objects = render(helm, chart, {"deployment": {"hostNetwork": False, "podLabels": {"mine": "x"}}})
    selector = of_kind(objects, "Deployment")["spec"]["selector"]
    assert of_kind(objects, "NetworkPolicy")["spec"]["podSelector"] == selector
