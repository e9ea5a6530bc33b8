"""Trees to test with: the one the manual shows, and large ones."""

from __future__ import annotations

from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.tree import Tree


def node(name: str, category: str = "default", **values: str) -> tuple[str, Obj]:
    return "device", Obj("PhysicalNode", name, {"category": category, **values})


def overlay(
    name: str, priority: int, nodes: tuple[str, ...], categories: tuple[str, ...], *roles: Obj
) -> tuple[str, Obj]:
    values = {"priority": priority, "nodes": nodes, "categories": categories}
    defaults = {"priority": 500, "nodes": (), "categories": ()}
    kept = {key: value for key, value in values.items() if value != defaults[key]}
    return "configurationoverlay", Obj(
        "ConfigurationOverlay", name, kept, children={"roles": {r.key: r for r in roles}}
    )


def kubelet(cluster: str, **values: bool) -> Obj:
    return Obj("KubeletRole", "kubelet", {"kubernetes_cluster": cluster, **values})


def containerd(pattern: str = "/var/lib/containerd") -> Obj:
    snippet = Obj("ExcludeListSnippet", "containerd", {"exclude_list": (pattern,)})
    variable = Obj("GenericRoleEnvironment", "sandbox", {"value": "pause", "node_environment": True})
    children = {"exclude_list_snippets": {"containerd": snippet}, "environments": {"sandbox": variable}}
    return Obj("GenericRole", "generic::containerd", {"services_run": ("containerd",)}, children=children)


def manual() -> Tree:
    """A cluster `default` of three control plane nodes and three workers, after the manual's examples."""
    labels = Obj(
        "LabelSet", "amd", {"labels": ("nvidia.com/amd-gpu-accelerator=", "tier=a"), "categories": ("gpu-nodes",)}
    )
    more = Obj("LabelSet", "zone", {"labels": ("tier=b",), "nodes": ("node005",)})
    masters, workers = ("node001", "node002", "node003"), ("node004", "node005", "node006")
    return Tree(
        SCHEMA,
        [
            ("softwareimage", Obj("SoftwareImage", "default-image", {"path": "/cm/images/default-image"})),
            ("softwareimage", Obj("SoftwareImage", "my-new-image", {"path": "/cm/images/my-new-image"})),
            ("category", Obj("Category", "default", {"software_image": "default-image"})),
            ("category", Obj("Category", "gpu-nodes", {"software_image": "default-image"})),
            ("device", Obj("HeadNode", "basecm10")),
            *(node(name) for name in (*masters, "node004", "node007")),
            *(node(name, "gpu-nodes") for name in ("node005", "node006")),
            ("etcd", Obj("EtcdCluster", "kube-default")),
            (
                "kubernetes",
                Obj(
                    "KubeCluster",
                    "default",
                    {"etcd_cluster": "kube-default"},
                    children={"label_sets": {"amd": labels, "zone": more}},
                ),
            ),
            overlay(
                "kube-default-etcd",
                500,
                masters,
                (),
                Obj("EtcdHostRole", "Etcd::Host", {"etcd_cluster": "kube-default"}),
            ),
            overlay("kube-default-master", 510, masters, (), containerd(), kubelet("default", control_plane=True)),
            overlay("kube-default-worker", 500, workers, ("default",), containerd("/worker"), kubelet("default")),
        ],
    )


def large(count: int, overlays: int = 20) -> Tree:
    """`count` nodes in 20 categories, an overlay for each twentieth of them, and one for five nodes by name."""
    names = [f"node{number:05d}" for number in range(count)]
    objects: list[tuple[str, Obj]] = [
        ("softwareimage", Obj("SoftwareImage", "image")),
        ("kubernetes", Obj("KubeCluster", "default")),
        *(("category", Obj("Category", f"c{number}", {"software_image": "image"})) for number in range(overlays)),
        *(node(name, f"c{index % overlays}") for index, name in enumerate(names)),
        *(
            overlay(f"o{number}", 500 + number, (), (f"c{number}",), containerd(), kubelet("default"))
            for number in range(1, overlays)
        ),
        overlay("few", 600, tuple(names[:5]), (), containerd("/few")),
    ]
    return Tree(SCHEMA, objects)
