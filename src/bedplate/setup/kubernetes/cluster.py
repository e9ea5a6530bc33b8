"""What stages do through the API server of the new cluster, and the administrator's kubeconfig that they do it with.

In: settings and the folder of kubeconfigs. Out: applied manifests, nodes that are Ready. Nodes are made before their
kubelets start (`head/clusters/joining.py`): a kubelet whose Node is there already has its CSINode at the first try, and
is Ready at once; one that has to register itself first tries again after 4 s, 23 s and two minutes.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bedplate.api import core
from bedplate.api.resources import NODES, ResourceRef, custom
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head.kubenodes import file_of
from bedplate.head.schema.ranges import natural
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType
from bedplate.serving import issuing
from bedplate.setup.engine.journal import write_atomically

__all__ = [
    "MANAGER",
    "STRATEGIC",
    "apply",
    "authority",
    "authority_of",
    "connected",
    "kubeconfig",
    "node_names",
    "remove_kubeconfig",
    "until_gone",
    "until_ready",
    "write_kubeconfig",
]

MANAGER = "cm-kubernetes-setup"
STRATEGIC = PatchType.STRATEGIC
"""How a part of a list is changed, by the names in it."""
_LIFE = timedelta(days=3650)
_POLL_S = 0.2
_READY_S, _GONE_S = 300.0, 120.0
_KIND_S = 20.0


def authority(clock: Clock) -> issuing.Pair:
    """The certificate authority of a new cluster."""
    return issuing.Authority.create("kubernetes", clock.now(), _LIFE).pair


def authority_of(folder: Path, cluster: str) -> bytes:
    """The certificate of a cluster's authority (PEM), as the administrator's kubeconfig has it; empty for none."""
    try:
        content = kubeconfig(folder, cluster).read_text()
    except OSError:
        return b""
    match = re.search(r"certificate-authority-data:\s*[\"']?([A-Za-z0-9+/=]+)", content)
    return base64.b64decode(match[1]) if match is not None else b""


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


async def node_names(client: Client) -> list[str]:
    """The nodes of the cluster, as kubectl lists them."""
    return sorted((node.metadata.name for node in (await client.list(NODES)).items), key=natural)


async def _node(client: Client, name: str) -> core.Node | None:
    try:
        return await client.get(NODES, name)
    except errors.NotFound:
        return None


async def until_gone(
    folder: Path, cluster: str, names: Iterable[str], clock: Clock, waits: Callable[[], Awaitable[str]]
) -> None:
    """Wait until no Node of a cluster has one of these names; `waits` says what for. Raises `Unavailable` with those
    that are still there after a while. The kubeconfig is read each time: it may name one of these nodes, and the head
    then names another one."""
    end_s, left = clock.monotonic() + _GONE_S, list(names)
    while left:
        try:
            async with connected(folder, cluster) as client:
                left = [name for name in left if await _node(client, name) is not None]
                why = ""
        except errors.Unavailable as err:
            why = str(err)
        if left and clock.monotonic() > end_s:
            why = why or await waits()
            raise errors.Unavailable(
                f"{', '.join(left)} did not leave within {_GONE_S:g} s{f': {why}' if why else ''}",
                hint="put the cause right, then resume: the head goes on by itself meanwhile",
            )
        if left:
            await clock.sleep(_POLL_S)


async def until_ready(client: Client, names: Iterable[str], labels: Mapping[str, Iterable[str]], clock: Clock) -> None:
    """Wait until every node is Ready and has its labels. Raises `Unavailable` with those that are not."""
    end_s, expected = clock.monotonic() + _READY_S, list(names)
    while True:
        late = []
        for name in expected:
            node = await _node(client, name)
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
