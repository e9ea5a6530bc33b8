"""What stages do through the API server of the new cluster, and the administrator's kubeconfig that they do it with.

In: settings and the folder of kubeconfigs. Out: Nodes before their kubelets start, applied manifests, nodes that are
Ready. A kubelet whose Node is there already has its CSINode at the first try, and is Ready at once; one that has to
register itself first tries again after 4 s, 23 s and two minutes.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bedplate.api.resources import NODES, ResourceRef, custom
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head.kubenodes import file_of
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType
from bedplate.serving import issuing
from bedplate.setup.engine.journal import write_atomically
from bedplate.setup.kubernetes.settings import Settings

__all__ = [
    "MANAGER",
    "administrator",
    "apply",
    "authority",
    "connected",
    "kubeconfig",
    "make_nodes",
    "remove_kubeconfig",
    "until_ready",
    "write_kubeconfig",
]

MANAGER = "cm-kubernetes-setup"
_LIFE = timedelta(days=3650)
_GROUP = "kubeadm:cluster-admins"
_POLL_S = 0.2
_READY_S = 300.0
_KIND_S = 20.0


def authority(clock: Clock) -> issuing.Pair:
    """The certificate authority of a new cluster."""
    return issuing.Authority.create("kubernetes", clock.now(), _LIFE).pair


def administrator(pair: issuing.Pair, server: str, cluster: str, clock: Clock) -> str:
    """A kubeconfig of an administrator, whose certificate the cluster's authority issues."""
    own = issuing.Authority.load(pair).issue(
        "kubernetes-admin", clock.now(), _LIFE - timedelta(days=1), uses=(issuing.Use.CLIENT,), groups=(_GROUP,)
    )

    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    user, name = "kubernetes-admin", f"kubernetes-admin@{cluster}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": data(pair.certificate)}}
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": data(own.certificate), "client-key-data": data(own.key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": cluster, "user": user}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def kubeconfig(folder: Path, cluster: str) -> Path:
    """Where the administrator's kubeconfig of a cluster is."""
    return file_of(folder, cluster)


def write_kubeconfig(folder: Path, cluster: str, text: str) -> None:
    """Write it for its owner alone."""
    file = kubeconfig(folder, cluster)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(file, text.encode())


def remove_kubeconfig(folder: Path, cluster: str) -> bool:
    """Remove it, and its folder when that is empty then; whether it was there."""
    file = kubeconfig(folder, cluster)
    is_there = file.exists()
    file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        file.parent.rmdir()
    return is_there


@contextlib.asynccontextmanager
async def connected(folder: Path, cluster: str) -> AsyncIterator[Client]:
    """A client of the cluster, as its administrator."""
    settings = config.load(kubeconfig(folder, cluster), environ={}).with_user_agent(MANAGER)
    async with Client(settings) as client:
        yield client


async def make_nodes(client: Client, ranges: Mapping[str, ipaddress.IPv4Network], nodes: Iterable[str]) -> None:
    """Nodes with their ranges of pod addresses, before their kubelets start; for one that is there its range."""
    for name in nodes:
        range_ = ranges.get(name)
        spec = {"podCIDR": str(range_), "podCIDRs": [str(range_)]} if range_ is not None else {}
        try:
            await client.create(NODES, {"metadata": {"name": name}, "spec": spec}, field_manager=MANAGER)
        except errors.AlreadyExists:
            present = await client.get(NODES, name)
            if spec and not present.spec.pod_cidr:
                await client.patch(NODES, name, {"spec": spec}, field_manager=MANAGER)


async def apply(client: Client, manifests: Iterable[Mapping[str, Any]], clock: Clock) -> None:
    """Apply manifests, one after the other; kinds that one of them defines are known a moment later."""
    for manifest in manifests:
        ref = await _ref(client, manifest, clock)
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", "default") if ref.namespaced else None
        await client.patch(
            ref,
            metadata["name"],
            dict(manifest),
            namespace,
            type=PatchType.APPLY,
            field_manager=MANAGER,
            force=True,
        )


async def _ref(client: Client, manifest: Mapping[str, Any], clock: Clock) -> ResourceRef[dict[str, Any]]:
    """The resource of a manifest, as the server says. Raises `Invalid` for a kind that it does not have."""
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    kind = str(manifest["kind"])
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    end_s = clock.monotonic() + _KIND_S
    while True:
        with contextlib.suppress(errors.NotFound):
            answer = msgspec.json.decode((await client.request("GET", path)).body)
            for each in answer.get("resources", ()):
                if each["kind"] == kind and "/" not in each["name"]:
                    return custom(group, version, each["name"], kind, bool(each["namespaced"]))
        if clock.monotonic() > end_s:
            raise errors.Invalid(f"the API server has no kind {kind} in {manifest['apiVersion']}")
        await clock.sleep(_POLL_S)


async def until_ready(client: Client, settings: Settings, labels: Mapping[str, Iterable[str]], clock: Clock) -> None:
    """Wait until every node is Ready and has its labels. Raises `Unavailable` with those that are not."""
    end_s = clock.monotonic() + _READY_S
    while True:
        late = []
        nodes = {node.metadata.name: node for node in (await client.list(NODES)).items}
        for name in settings.kubernetes_nodes:
            node = nodes.get(name)
            if node is None:
                late.append(f"{name} has not registered")
            elif not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
                late.append(f"{name} is not Ready")
            elif not set(labels.get(name, ())) <= set(node.metadata.labels):
                late.append(f"{name} has no labels of its role")
        if not late:
            return
        if clock.monotonic() > end_s:
            raise errors.Unavailable(
                f"{'; '.join(late)} after {_READY_S:g} s", hint="see kubectl describe node, then resume"
            )
        await clock.sleep(_POLL_S)
