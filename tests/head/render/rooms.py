"""A tree that has every role, after the manual's example cluster, and helpers to ask what it means for a node."""

from __future__ import annotations

from bedplate.api.desired import Desired, File
from bedplate.head.desired import desired
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj, Secret
from bedplate.head.plan import PlannedAction, plan, touched_between
from bedplate.head.render import RENDERERS
from bedplate.head.session import Session
from bedplate.head.tree import Tree

MASTERS = ("node001", "node002", "node003")
WORKERS = ("node004", "node005")
MASTER, WORKER = "kube-default-master", "kube-default-worker"
KUBELET = ("configurationoverlay", MASTER, "roles", "kubelet")
CONTAINERD = ("configurationoverlay", WORKER, "roles", "generic::containerd")
DOCKER = ("category", "docker", "roles", "Docker::Host")
FIREWALL = ("device", "basecm10", "roles", "firewall")
CLUSTER = ("kubernetes", "default")

CRI = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$sandbox_image"
"""


def _node(number: int, category: str = "default") -> tuple[str, Obj]:
    values = {"category": category, "ip": f"10.141.0.{number}", "network": "internalnet"}
    return "device", Obj("PhysicalNode", f"node{number:03d}", values)


def _network(name: str, base: str) -> tuple[str, Obj]:
    return "network", Obj("Network", name, {"base_address": base})


def _overlay(name: str, priority: int, nodes: tuple[str, ...], *roles: Obj) -> tuple[str, Obj]:
    values = {"nodes": nodes, **({"priority": priority} if priority != 500 else {})}
    return "configurationoverlay", Obj(
        "ConfigurationOverlay", name, values, children={"roles": {role.key: role for role in roles}}
    )


def _containerd() -> Obj:
    cri = Obj(
        "static",
        "containerd-cri",
        {"filename": "/cm/local/apps/containerd/var/etc/conf.d/cri.toml", "content": CRI},
    )
    nvidia = Obj(
        "static",
        "nvidia-cri",
        {
            "filename": "/cm/local/apps/containerd/var/etc/conf.d/nvidia-cri.toml",
            "content": 'version = 2\n[plugins."io.containerd.internal.v1.opt"]\n  path = "/opt/containerd"\n',
            "filemask": "0640",
            "user_name": "root",
            "group_name": "adm",
            "service_action_on_write": "RELOAD",
        },
    )
    image = Obj(
        "GenericRoleEnvironment", "sandbox_image", {"value": "registry.k8s.io/pause:3.9", "node_environment": True}
    )
    snippet = Obj("ExcludeListSnippet", "containerd", {"exclude_list": ("/var/lib/containerd",)})
    return Obj(
        "GenericRole",
        "generic::containerd",
        {"services_run": ("containerd",)},
        children={
            "configurations": {"containerd-cri": cri, "nvidia-cri": nvidia},
            "environments": {"sandbox_image": image},
            "exclude_list_snippets": {"containerd": snippet},
        },
    )


def _proxy() -> Obj:
    return Obj("KubernetesApiServerProxyRole", "Kubernetes::ApiServerProxy", {"kubernetes_cluster": "default"})


def _kubelet(*, control_plane: bool) -> Obj:
    values: dict[str, str | bool] = {"kubernetes_cluster": "default"}
    return Obj("KubeletRole", "kubelet", values | ({"control_plane": True, "worker": False} if control_plane else {}))


def _firewall() -> Obj:
    ports = {
        "0": Obj("OpenPort", "0", {"port": "30080", "description": "Kubernetes 'default' Ingress HTTP"}),
        "1": Obj("OpenPort", "1", {"port": "30443", "description": "Kubernetes 'default' Ingress HTTPS"}),
    }
    return Obj("FirewallRole", "firewall", children={"open_ports": ports})


def _cluster() -> Obj:
    variables = {
        "CM_KUBE_EXTERNAL_FQDN": Obj(
            "ApplicationEnvironment",
            "CM_KUBE_EXTERNAL_FQDN",
            {"value": "kube.example.com", "nodes_environment": True},
        ),
        "replicas": Obj("ApplicationEnvironment", "replicas", {"value": "1"}),
    }
    ingress = Obj("Application", "ingress_controller", children={"environment": variables})
    labels = Obj("LabelSet", "nvidia", {"labels": ("brightcomputing.com/gpu=yes",), "nodes": ("node005",)})
    return Obj(
        "KubeCluster",
        "default",
        {
            "etcd_cluster": "kube-default",
            "internal_network": "internalnet",
            "pod_network": "kube-default-pod",
            "service_network": "kube-default-service",
            "kube_ca_cert": Secret("-----BEGIN CERTIFICATE-----\n"),
            "kube_ca_key": Secret("-----BEGIN PRIVATE KEY-----\n"),
        },
        children={
            "app_groups": {"system": Obj("AppGroup", "system", children={"applications": {ingress.key: ingress}})},
            "label_sets": {"nvidia": labels},
        },
    )


def full() -> Tree:
    """Three control plane nodes, two workers, a head node with proxy and firewall, one with Docker, an empty one."""
    head = Obj(
        "HeadNode",
        "basecm10",
        {"ip": "10.141.255.254", "network": "internalnet"},
        children={"roles": {"firewall": _firewall(), "Kubernetes::ApiServerProxy": _proxy()}},
    )
    etcd = Obj("EtcdHostRole", "Etcd::Host", {"etcd_cluster": "kube-default"})
    docker = Obj("Category", "docker", children={"roles": {"Docker::Host": Obj("DockerHostRole", "Docker::Host")}})
    return Tree(
        SCHEMA,
        [
            ("category", Obj("Category", "default")),
            ("category", docker),
            _network("internalnet", "10.141.0.0"),
            _network("kube-default-pod", "172.29.0.0"),
            _network("kube-default-service", "10.150.0.0"),
            ("device", head),
            *(_node(number) for number in range(1, 6)),
            _node(6, "docker"),
            _node(7),
            ("etcd", Obj("EtcdCluster", "kube-default")),
            ("kubernetes", _cluster()),
            ("healthcheck", Obj("HealthCheck", "Docker")),
            ("healthcheck", Obj("HealthCheck", "KubernetesNodesStatus")),
            ("healthcheck", Obj("HealthCheck", "ssh2node")),
            _overlay("kube-default-etcd", 500, MASTERS, etcd),
            _overlay(MASTER, 510, MASTERS, _containerd(), _kubelet(control_plane=True), _proxy()),
            _overlay(WORKER, 500, WORKERS, _containerd(), _kubelet(control_plane=False), _proxy()),
        ],
    )


def file_of(tree: Tree, node: str, path: str) -> File:
    """One file as the node gets it."""
    return {file.path: file for file in desired(tree, node).files}[path]


def planned(before: Tree, session: Session) -> list[PlannedAction]:
    """What the staged changes would do."""
    return plan(before, session.tree, touched_between(before, session.tree), RENDERERS)


def verbs(actions: list[PlannedAction], node: str, kind: str, name: str) -> list[str]:
    return [action.verb for action in actions if (action.node, action.kind, action.name) == (node, kind, name)]


def described(state: Desired, only: tuple[str, ...] = ("/",)) -> str:
    """A desired state as text: first the files of some folders as they are written, then the rest."""
    lines: list[str] = []
    for file in state.files:
        if not file.path.startswith(only):
            continue
        about = [f"--- {file.path}", file.mode, f"{file.owner}:{file.group}", f"folder {file.folder_mode or 'must be'}"]
        about += ["block"] if file.block else []
        about += ["secret"] if file.secret else []
        about += [f"test {' '.join(file.test)}"] if file.test else []
        about += [f"{file.action} {','.join(file.services)}"] if file.action != "NONE" else []
        about += ["stop on failure"] if file.stop_on_failure else []
        lines += ["; ".join(about), file.content.rstrip("\n"), ""]
    lines += ["--- the rest", f"packages: {' '.join(state.packages)}"]
    lines += [f"service: {service.name} {service.serial}".rstrip() for service in state.services]
    lines += [f"label: {name}={value}" for name, value in state.labels.items()]
    lines += [f"taint: {taint.text}" for taint in state.taints]
    lines += [f"flag: {flag.name} {flag.argument}" for flag in state.flags]
    lines += [f"environment: {name}={value}" for name, value in state.environment.items()]
    lines += [f"exclude ({mode}): {' '.join(patterns)}" for mode, patterns in state.excludes.items()]
    lines += [f"check: {check.name} every {check.interval_s:g} s" for check in state.checks]
    lines += [f"unmanaged: {path}" for path in state.unmanaged]
    lines += [f"setting: {name}={value}" for name, value in state.settings.items()]
    lines += [f"data node: {'yes' if state.data_node else 'no'}"]
    lines += [f"warning: {warning}" for warning in state.warnings]
    return "\n".join(lines) + "\n"
