"""The manager that works for a cluster, found from outside: its flags, its environment, the files that it mounts.

In: a client, and the kubeconfig it was made from. Out: `Manager`s: those of Deployments, DaemonSets and static pods, or
the one of `bedplate up`, which leaves its flags beside its kubeconfig. `taken_over` reads the Secrets and ConfigMaps
that such a manager uses, into a folder that only this user can read and that goes with the block. Nothing is written to
the cluster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bedplate.api import coordination, names, resources
from bedplate.cloud import registry
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager.options import Options
from bedplate.core import errors
from bedplate.kube.client import Client

__all__ = [
    "FLAGS_FILE",
    "Manager",
    "choose",
    "find",
    "is_held",
    "kubeconfig_file",
    "leaders",
    "leaders_seen",
    "of_workload",
    "taken_over",
    "write_flags",
]

FLAGS_FILE = "manager.flags"
PROGRAM = "-cloud-controller-manager"
DAEMON_SETS = resources.custom("apps", "v1", "daemonsets", "DaemonSet", True)
PODS = resources.PODS.raw()
RUNNING_POD_OWNERS = {"ReplicaSet", "DaemonSet", "StatefulSet", "Job"}


@dataclasses.dataclass(frozen=True, slots=True)
class Manager:
    """One manager. `spec` and `container` are of its pods; empty for that of `bedplate up`."""

    where: str
    options: Options
    namespace: str = ""
    account: str = ""
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    container: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def providers(self) -> tuple[str, ...]:
        return self.options.generic.cloud_provider


def write_flags(folder: Path, words: Sequence[str]) -> None:
    """Leave a manager's flags beside the kubeconfig that it uses, one per line."""
    (folder / FLAGS_FILE).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def kubeconfig_file(given: str, environ: Mapping[str, str]) -> Path | None:
    """The file that names the cluster; None for that of the user's home and for a pod's account."""
    first = given or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else None


async def find(client: Client, kubeconfig: Path | None) -> list[Manager]:
    """The managers of this cluster; raises when the cluster cannot be asked."""
    if kubeconfig is not None and (file := kubeconfig.parent / FLAGS_FILE).is_file():
        words = file.read_text(encoding="utf-8").splitlines()
        return [Manager(f"bedplate up in {kubeconfig.parent}", _options(words, ""))]
    managers: list[Manager] = []
    for kind, ref in (("Deployment", resources.DEPLOYMENTS), ("DaemonSet", DAEMON_SETS)):
        for workload in (await client.list(ref)).items:
            template = (workload.get("spec") or {}).get("template") or {}
            managers += of_workload(kind, workload.get("metadata") or {}, template.get("spec") or {})
    for pod in (await client.list(PODS, names.NAMESPACE_SYSTEM)).items:
        metadata = pod.get("metadata") or {}
        if not any(owner.get("kind") in RUNNING_POD_OWNERS for owner in metadata.get("ownerReferences") or ()):
            managers += of_workload("Pod", metadata, pod.get("spec") or {})
    return managers


async def leaders_seen(client: Client) -> str:
    """Who leads with a Lease that looks like a manager's, wherever it runs; empty when nobody is seen to."""
    try:
        leases = (await client.list(resources.LEASES, names.NAMESPACE_SYSTEM)).items
    except errors.BedplateError:
        return ""
    return leaders(lease for lease in leases if PROGRAM.strip("-") in lease.name and is_held(lease, datetime.now(UTC)))


def leaders(leases: Iterable[coordination.Lease]) -> str:
    """Who holds these Leases."""
    return ", ".join(f"{lease.spec.holder_identity} leads with Lease {lease.name}" for lease in leases)


def is_held(lease: coordination.Lease, now: datetime) -> bool:
    """Whether its holder has renewed it in time."""
    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return False
    return now - spec.renew_time <= timedelta(seconds=spec.lease_duration_seconds or 15)


def of_workload(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Manager]:
    """The managers in the containers of a pod's specification."""
    namespace = str(metadata.get("namespace", ""))
    for container in spec.get("containers") or ():
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        programs = [Path(word).name for word in words if not word.startswith("-")]
        program = next((name for name in programs if name.endswith(PROGRAM)), "")
        options = _options([word for word in words if word.startswith("-")], program.removesuffix(PROGRAM))
        chosen = options.generic.cloud_provider
        if chosen and set(chosen) <= set(registry.names()):
            yield Manager(
                f"{kind} {namespace}/{metadata.get('name', '')}",
                options,
                namespace,
                str(spec.get("serviceAccountName") or "default"),
                spec,
                container,
            )


def _options(words: Sequence[str], provider: str) -> Options:
    options = reading.read(words).options
    if options.generic.cloud_provider or provider not in registry.names():
        return options
    return dataclasses.replace(options, generic=dataclasses.replace(options.generic, cloud_provider=(provider,)))


def choose(managers: Iterable[Manager], providers: Collection[str]) -> Manager | None:
    """The one that works for these clouds (none named: the only one); raises `Invalid` where there are several."""
    fitting = [manager for manager in managers if not providers or set(providers) <= set(manager.providers)]
    if len(fitting) > 1:
        raise errors.Invalid(
            "several managers work for this cluster",
            problems=[f"{manager.where}: --cloud-provider={','.join(manager.providers)}" for manager in fitting],
            hint="choose one with --cloud-provider",
        )
    return fitting[0] if fitting else None


@contextlib.asynccontextmanager
async def taken_over(client: Client, manager: Manager) -> AsyncIterator[tuple[Options, dict[str, str]]]:
    """Its options and environment, with paths that exist here; those of its own serving and cluster are left out."""
    with tempfile.TemporaryDirectory(prefix="bedplate-manager-") as folder:
        mounts = await _mounts(client, manager, Path(folder))
        environ = {name: _moved(value, mounts) for name, value in (await _environ(client, manager)).items()}
        options = manager.options
        moved = tuple(_moved(text, mounts) for text in options.generic.cloud_config)
        yield (
            Options(
                generic=dataclasses.replace(options.generic, cloud_config=moved),
                cloud=options.cloud,
                cloud_node=options.cloud_node,
                lifecycle=options.lifecycle,
                service_lb=options.service_lb,
                route=options.route,
            ),
            environ,
        )


async def _mounts(client: Client, manager: Manager, folder: Path) -> dict[str, str]:
    """Where the manager's mounted Secrets and ConfigMaps are in this folder, by the path that they have in its pod."""
    volumes = {volume.get("name"): volume for volume in manager.spec.get("volumes") or ()}
    contents: dict[str, dict[str, bytes]] = {}
    for mount in manager.container.get("volumeMounts") or ():
        data = await _volume(client, manager.namespace, volumes.get(mount.get("name")) or {})
        if data:
            contents[str(mount["mountPath"]).rstrip("/")] = data
    mounts = {path: str(folder / str(number)) for number, path in enumerate(contents)}
    for path, data in contents.items():
        for name, content in data.items():
            target = Path(mounts[path]) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # A configuration names files of the pod: a token, an authority.
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as opened:
                opened.write(_moved(content.decode("utf-8", "surrogateescape"), mounts))
    return mounts


async def _volume(client: Client, namespace: str, volume: Mapping[str, Any]) -> dict[str, bytes]:
    sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
    data: dict[str, bytes] = {}
    for source in sources:
        for key, field in (("secret", "secretName"), ("configMap", "name")):
            part = source.get(key)
            if not part:
                continue
            content = await _content(client, key, str(part.get(field) or part.get("name")), namespace)
            items = {item["key"]: item["path"] for item in part.get("items") or ()}
            data |= {items.get(name, name): value for name, value in content.items() if not items or name in items}
    return {name: value for name, value in data.items() if ".." not in Path(name).parts and not name.startswith("/")}


async def _content(client: Client, kind: str, name: str, namespace: str) -> dict[str, bytes]:
    """What a Secret or a ConfigMap has; nothing when it does not exist, as a pod may call it optional."""
    try:
        if kind == "secret":
            return dict((await client.get(resources.SECRETS, name, namespace)).data)
        config_map = await client.get(resources.CONFIG_MAPS, name, namespace)
    except errors.NotFound:
        return {}
    return {**{key: text.encode() for key, text in config_map.data.items()}, **config_map.binary_data}


async def _environ(client: Client, manager: Manager) -> dict[str, str]:
    environ: dict[str, str] = {}
    for source in manager.container.get("envFrom") or ():
        for key, kind in (("secretRef", "secret"), ("configMapRef", "configMap")):
            if part := source.get(key):
                content = await _content(client, kind, str(part["name"]), manager.namespace)
                environ |= {source.get("prefix", "") + name: value.decode() for name, value in content.items()}
    for variable in manager.container.get("env") or ():
        origin = variable.get("valueFrom") or {}
        if not origin:
            environ[variable["name"]] = str(variable.get("value", ""))
        for key, kind in (("secretKeyRef", "secret"), ("configMapKeyRef", "configMap")):
            if part := origin.get(key):
                content = await _content(client, kind, str(part["name"]), manager.namespace)
                if part["key"] in content:
                    environ[variable["name"]] = content[part["key"]].decode()
    return environ


def _moved(text: str, mounts: Mapping[str, str]) -> str:
    """A text with the paths that its files have here; the longest path first, as mounts may lie in each other."""
    for path in sorted(mounts, key=len, reverse=True):
        text = text.replace(path + "/", mounts[path] + "/")
    return text
