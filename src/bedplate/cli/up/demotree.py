"""The tree that `bedplate up` shows: two categories, and a Kubernetes cluster over the nodes that are there.

In: the first tree of a head (`head/site`). Out: staged edits that add a category with GPUs, an etcd and a Kubernetes
cluster, and overlays that disagree here and there, so that `explain` and `plan` have something to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bedplate.head.objects import Obj, Value
from bedplate.head.schema.ranges import natural
from bedplate.head.session import Session
from bedplate.head.tree import Tree

__all__ = ["CLUSTER", "GPU_CATEGORY", "stage"]

GPU_CATEGORY = "gpu"
CLUSTER = "default"
ETCD = "kube-default"
_CONTAINERD = "/cm/local/apps/containerd/var/etc/conf.d"
_NVIDIA = """\
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""
_LOGGING = """\
[debug]
  level = "info"
"""


def stage(session: Session) -> None:
    """Stage the whole of it; what is there already stays as it is."""
    nodes = sorted((key for key, obj in session.tree.mode("device").items() if obj.type == "PhysicalNode"), key=natural)
    masters, builders, gpus = nodes[:3], nodes[len(nodes) // 2 - 1 : len(nodes) // 2], nodes[len(nodes) // 2 :]
    workers = [name for name in nodes[3 : len(nodes) // 2] if name not in builders]
    for mode, obj in (
        *_categories(session.tree),
        *_networks(),
        *_checks(),
        *_clusters(),
        *_overlays(masters, workers, builders),
    ):
        if session.tree.find(mode, obj.key) is None:
            session.put((mode, obj.key), obj)
    for name in gpus:
        session.set(("device", name), "category", GPU_CATEGORY)


def _categories(tree: Tree) -> Iterable[tuple[str, Obj]]:
    default = tree.get(("category", "default"))
    yield "softwareimage", Obj("SoftwareImage", "gpu-image", {"path": "/cm/images/gpu-image"})
    yield "category", Obj("Category", GPU_CATEGORY, {**default.values, "software_image": "gpu-image"})


def _networks() -> Iterable[tuple[str, Obj]]:
    for name, base in (("kube-default-pod", "172.29.0.0"), ("kube-default-service", "10.150.0.0")):
        values: Mapping[str, Value] = {"base_address": base, "domain_name": f"{name}.local"}
        yield "network", Obj("Network", name, values)


def _checks() -> Iterable[tuple[str, Obj]]:
    for name, interval_s, about in (
        ("disk-space", 30.0, "the fullest file system is below 90 %"),
        ("load", 15.0, "the load is below twice the number of cores"),
        ("gpu-temperature", 15.0, "every GPU is below 85 degrees"),
        ("ntp", 30.0, "the clock is right by less than 100 ms"),
    ):
        yield "healthcheck", Obj("HealthCheck", name, {"interval": interval_s, "description": about})


def _clusters() -> Iterable[tuple[str, Obj]]:
    yield "etcd", Obj("EtcdCluster", ETCD)
    labels = {"labels": ("nvidia.com/gpu.present=true", "tier=train"), "categories": (GPU_CATEGORY,)}
    sets = {"gpu": Obj("LabelSet", "gpu", labels)}
    variable = Obj("ApplicationEnvironment", "site", {"value": "demo"})
    dashboard = Obj("Application", "dashboard", {"config": _DASHBOARD}, children={"environment": {"site": variable}})
    groups = {"system": Obj("AppGroup", "system", children={"applications": {"dashboard": dashboard}})}
    values: dict[str, Value] = {
        "etcd_cluster": ETCD,
        "pod_network": "kube-default-pod",
        "service_network": "kube-default-service",
        "version": "1.35.4",
        "trusted_domains": ("cluster.local",),
    }
    yield "kubernetes", Obj("KubeCluster", CLUSTER, values, children={"label_sets": sets, "app_groups": groups})


_DASHBOARD = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: dashboard, namespace: kube-system}
data: {site: $site}
"""


def _overlays(masters: Sequence[str], workers: Sequence[str], builders: Sequence[str]) -> Iterable[tuple[str, Obj]]:
    proxy = Obj("KubernetesApiServerProxyRole", "Kubernetes::ApiServerProxy", {"kubernetes_cluster": CLUSTER})
    member = Obj("EtcdHostRole", "Etcd::Host", {"etcd_cluster": ETCD})
    yield _overlay("kube-default-etcd", 500, masters, (), member)
    plane = Obj("KubeletRole", "kubelet", {"kubernetes_cluster": CLUSTER, "control_plane": True, "worker": False})
    yield _overlay("kube-default-master", 510, masters, (), plane, proxy, _containerd(("logging", _LOGGING)))
    kubelet = Obj("KubeletRole", "kubelet", {"kubernetes_cluster": CLUSTER})
    worker = (kubelet, proxy, _containerd(("logging", _LOGGING)))
    yield _overlay("kube-default-worker", 500, workers, (GPU_CATEGORY,), *worker)
    # Beats the workers' containerd on the nodes that are in both.
    yield _overlay("gpu-runtime", 600, (), (GPU_CATEGORY,), _containerd(("logging", _LOGGING), ("nvidia", _NVIDIA)))
    yield _overlay("firewall", 500, (), ("default",), _firewall())
    storage = {"storage_backends": {"overlay2": Obj("overlay2", "overlay2")}}
    yield _overlay("builders", 500, builders, (), Obj("DockerHostRole", "Docker::Host", children=storage))


def _overlay(
    name: str, priority: int, nodes: Sequence[str], categories: tuple[str, ...], *roles: Obj
) -> tuple[str, Obj]:
    values: dict[str, Value] = {"nodes": tuple(nodes), "categories": categories}
    kept = {key: value for key, value in values.items() if value}
    if priority != 500:
        kept["priority"] = priority
    roles_by_key = {role.key: role for role in roles}
    return "configurationoverlay", Obj("ConfigurationOverlay", name, kept, children={"roles": roles_by_key})


def _containerd(*drop_ins: tuple[str, str]) -> Obj:
    files = {
        name: Obj("static", name, {"filename": f"{_CONTAINERD}/{name}.toml", "content": content})
        for name, content in drop_ins
    }
    paths: tuple[str, ...] = ("/var/lib/containerd",)
    snippets = {"containerd": Obj("ExcludeListSnippet", "containerd", {"exclude_list": paths})}
    children = {"configurations": files, "exclude_list_snippets": snippets}
    return Obj("GenericRole", "generic::containerd", {"services_run": ("containerd",)}, children=children)


def _firewall() -> Obj:
    rules = [("10443", "API server proxy"), ("6443", "API server"), ("22", "SSH")]
    ports = {
        str(index): Obj("OpenPort", str(index), {"port": port, "description": about})
        for index, (port, about) in enumerate(rules)
    }
    return Obj("FirewallRole", "firewall", children={"open_ports": ports})
