"""The role `kubelet`: the node's part in a Kubernetes cluster, before and after kubeadm has made it one.

In: a tree, a resolved node and the role. Out: the kubelet's own flags, the cluster's authority, labels and taints, and
the flags of the submode `options`. Those are told twice: as flags that the agent keeps in the static pods' manifests,
and as patches that kubeadm applies whenever it rewrites the manifests, so that it does not lose them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from bedplate.api.desired import File, Flag, Taint
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.roles import KubeletOption, KubeletRole
from bedplate.head.objects import Obj, Secret
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.tree import Tree

__all__ = ["ENVIRONMENT", "PATCHES", "UNIT", "render"]

ENVIRONMENT = "/etc/kubernetes/kubelet.env"
UNIT = "/etc/systemd/system/kubelet.service.d/20-bedplate.conf"
PATCHES = "/etc/kubernetes/patches"
_ROLE_LABEL = "node-role.kubernetes.io/"
_UNIT_FILE = File(
    path=UNIT, content=f"[Service]\nEnvironmentFile={ENVIRONMENT}\n", services=("kubelet",), action="RESTART"
)


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node: but for the flags of its kubelet the same for all that got it from one object."""
    node = resolved.node
    place = ("kubelet", given.source, node.type)
    part: Part | None = tree.derived.get(place)
    if part is None:
        part = tree.derived[place] = _part(tree, node.type, given.role)
    warnings = [f"kubelet on {node.key}: {warning}" for warning in part.warnings]
    return replace(part, files=[_environment(node, given.role), *part.files], warnings=warnings)


def _part(tree: Tree, node_type: str, role: Obj) -> Part:
    cluster = tree.find("kubernetes", str(KubeletRole.kubernetes_cluster.value(role)))
    planes, worker = bool(KubeletRole.control_plane.value(role)), bool(KubeletRole.worker.value(role))
    flags = _flags(role) if planes else []
    files = [_UNIT_FILE, *_patches(flags)]
    warnings = []
    if cluster is None:
        warnings.append("no Kubernetes cluster is set, so the node cannot join one")
    else:
        files += _authority(cluster, planes)
    words = [*(["control-plane", "master"] if planes else []), *(["worker"] if worker else [])]
    tainted = planes and (not worker or node_type == "HeadNode")
    return Part(
        files=files,
        packages=["conntrack", "kubeadm", "kubectl", "kubelet"],
        labels={_ROLE_LABEL + word: "" for word in words},
        taints=[Taint(key=_ROLE_LABEL + "control-plane", effect="NoSchedule")] if tainted else [],
        flags=flags,
        warnings=warnings,
    )


def _environment(node: Obj, role: Obj) -> File:
    """Flags in a file of our own: the package's file, which the unit reads before, stays the site's."""
    ip = str(node.values.get("ip", ""))
    flags = [f"--max-pods={KubeletRole.max_pods.value(role)}", *([f"--node-ip={ip}"] if ip else [])]
    content = f"KUBELET_EXTRA_ARGS={' '.join(flags)}\n"
    return File(path=ENVIRONMENT, content=content, services=("kubelet",), action="RESTART")


def _flags(role: Obj) -> list[Flag]:
    flags = []
    for option in role.below("options").values():
        manifest = str(KubeletOption.filename.value(option))
        container = str(KubeletOption.container.value(option)) or manifest.removesuffix(".yaml")
        key, value = str(KubeletOption.key.value(option)), str(KubeletOption.value.value(option))
        flags.append(Flag(manifest=manifest, container=container, key=key, value=value))
    return sorted(flags, key=lambda flag: flag.name)


def _patches(flags: Iterable[Flag]) -> list[File]:
    """JSON patches by manifest. kubeadm's manifests have one container, called as the manifest; flags of others are
    kept by the agent alone."""
    patches: dict[str, list[dict[str, str]]] = {}
    for flag in flags:
        if f"{flag.container}.yaml" == flag.manifest:
            added = {"op": "add", "path": "/spec/containers/0/command/-", "value": flag.argument}
            patches.setdefault(flag.container, []).append(added)
    return [
        File(path=f"{PATCHES}/{component}0+json.json", content=json.dumps(patch, indent=2) + "\n")
        for component, patch in sorted(patches.items())
    ]


def _authority(cluster: Obj, planes: bool) -> list[File]:
    """The cluster's certificate authority where it is known already; its key on control plane nodes alone."""
    folder = f"/etc/kubernetes/pki/{cluster.key}"
    files = []
    certificate, key = KubeCluster.kube_ca_cert.value(cluster), KubeCluster.kube_ca_key.value(cluster)
    if isinstance(certificate, Secret) and certificate.reveal():
        files.append(File(path=f"{folder}/ca.crt", content=certificate.reveal(), secret=True))
    if planes and isinstance(key, Secret) and key.reveal():
        files.append(File(path=f"{folder}/ca.key", content=key.reveal(), mode="0600", secret=True))
    return files
