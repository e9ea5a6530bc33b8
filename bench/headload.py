"""What the head is measured with: a site of any size, a daemon over it as a process, and readers of its events.

In: how many nodes. Out: objects for a data folder; a running `bedplate head serve`; counts of what event streams gave.
"""

from __future__ import annotations

from collections.abc import Iterator

from bedplate.head.objects import Obj, Value

__all__ = ["CATEGORIES", "OVERLAYS", "node", "objects"]

CATEGORIES = 20
OVERLAYS = 20
FEW = 5
"""Members of the overlay whose role is changed when `plan` is asked: what it costs must not depend on the others."""


def node(number: int) -> str:
    return f"node{number:05d}"


def objects(count: int) -> Iterator[tuple[str, Obj]]:
    """`count` nodes in 20 categories; 19 overlays over a category each, one over five nodes by name."""
    yield "softwareimage", Obj("SoftwareImage", "bench-image", {"path": "/cm/images/bench-image"})
    yield "etcd", Obj("EtcdCluster", "bench")
    yield "kubernetes", Obj("KubeCluster", "bench", {"etcd_cluster": "bench"})
    for number in range(CATEGORIES):
        yield "category", Obj("Category", f"c{number}", {"software_image": "bench-image"})
    for number in range(count):
        mac = ":".join(f"{byte:02X}" for byte in (2, 0, *number.to_bytes(4, "big")))
        address = f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        values: dict[str, Value] = {"category": f"c{number % CATEGORIES}", "mac": mac, "ip": address}
        yield "device", Obj("PhysicalNode", node(number), values)
    for number in range(1, OVERLAYS):
        roles = (_kubelet(), _containerd(), _proxy())
        yield _overlay(f"o{number}", 500 + number, {"categories": (f"c{number}",)}, *roles)
    few = tuple(node(number) for number in range(min(FEW, count)))
    yield _overlay("few", 900, {"nodes": few}, _firewall(), _containerd())


def _overlay(name: str, priority: int, members: dict[str, Value], *roles: Obj) -> tuple[str, Obj]:
    values = {"priority": priority, **members}
    held = {role.key: role for role in roles}
    return "configurationoverlay", Obj("ConfigurationOverlay", name, values, children={"roles": held})


def _kubelet() -> Obj:
    return Obj("KubeletRole", "kubelet", {"kubernetes_cluster": "bench"})


def _proxy() -> Obj:
    return Obj("KubernetesApiServerProxyRole", "Kubernetes::ApiServerProxy", {"kubernetes_cluster": "bench"})


def _containerd() -> Obj:
    values: dict[str, Value] = {"filename": "/etc/containerd/conf.d/bench.toml", "content": "[bench]\n"}
    configurations = {"bench": Obj("static", "bench", values)}
    return Obj(
        "GenericRole",
        "generic::containerd",
        {"services_run": ("containerd",)},
        children={"configurations": configurations},
    )


def _firewall() -> Obj:
    ports = {"0": Obj("OpenPort", "0", {"port": "10443"})}
    return Obj("FirewallRole", "firewall", children={"open_ports": ports})
