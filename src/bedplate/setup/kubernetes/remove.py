"""The stages that remove a cluster, whole or half deployed, until nothing of it is left.

In: the name of a cluster. Out: twenty stages. What is there is looked up in every
stage, so that a removal that was interrupted goes on where it was, and removing what a failed deployment left works.
A removed cluster does not come back: these stages have no undo.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Tree, resolve
from bedplate.head.affected import members
from bedplate.head.clusters.membership import LIFECYCLE
from bedplate.head.schema.ranges import natural
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import (
    ceph,
    cluster,
    docker,
    firewall,
    modules,
    nodes,
    objects,
    protection,
    repositories,
)
from bedplate.setup.kubernetes.deploy import PLUGIN, folder_of

__all__ = ["Remains", "remains", "stages"]

_REMAINS = "removed nodes"
_DOWN = "nodes that were down"


class Remains(NamedTuple):
    """What there is of a cluster in the tree. `nodes` have a kubelet of it, `others` its etcd alone."""

    cluster: str
    is_there: bool
    overlays: tuple[str, ...]
    networks: tuple[str, ...]
    has_etcd: bool
    nodes: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.is_there or self.overlays or self.networks or self.has_etcd)


def remains(tree: Tree, name: str) -> Remains:
    """Pure."""
    overlays = [*(f"kube-{name}-{role}" for role in ("etcd", "master", "worker")), docker.name_of(name)]
    overlays += repositories.overlays_of(tree, name)
    overlays = [each for each in overlays if tree.find("configurationoverlay", each) is not None]
    touched: set[str] = set()
    for overlay in overlays:
        touched |= members(tree, tree.get(("configurationoverlay", overlay)))
    kubelets = set()
    for device in touched:
        given = resolve.roles_of(tree, tree.get(("device", device))).get("kubelet")
        if given is not None and given.role.values.get("kubernetes_cluster") == name:
            kubelets.add(device)
    return Remains(
        name,
        tree.find("kubernetes", name) is not None,
        tuple(overlays),
        tuple(f"kube-{name}-{kind}" for kind in ("pod", "service") if tree.find("network", f"kube-{name}-{kind}")),
        tree.find("etcd", f"kube-{name}") is not None,
        tuple(sorted(kubelets, key=natural)),
        tuple(sorted(touched - kubelets, key=natural)),
    )


Step = Callable[[Context, Remains], Awaitable[None]]


def stages(name: str, pool: ceph.Pool | None = None) -> list[Stage]:
    """What removes a cluster, in order; with a pool of Ceph that goes along."""
    stage = functools.partial(_stage, name)
    storage = [] if pool is None else [_storage(pool)]
    return [
        stage("Get Kube Cluster", _get, inputs="the cluster"),
        stage("Check Kube Cluster Exists", _exists, inputs="the cluster"),
        stage("Find Installed Components", _find, inputs="overlays and roles"),
        stage("Find Files On Headnodes", _find_files, inputs="kubeconfig and module file"),
        stage("Firewall Zone Close", _nothing, inputs="zones of the firewall"),
        stage("Firewall Interface Close", _nothing, inputs="interfaces of the firewall"),
        stage("Firewall Policy Close", _nothing, inputs="policies of the firewall"),
        stage("Nginx Reverse Proxy Close", _no_ingress, effects="the ingress on the proxy"),
        stage("IP Ports Close", _ports, effects="rows of the head node's firewall role"),
        stage("Remove Health Checks", _checks, effects="health checks of Kubernetes"),
        stage("Unassign Roles", _roles, effects="kubeadm reset; roles, packages and services of the nodes"),
        *storage,
        stage("Remove Config Overlays", _overlays, effects="overlays of the cluster"),
        stage("Remove Installed Components", _components, effects="the module file"),
        stage("Remove Files On Headnodes", _files, effects="the administrator's kubeconfig"),
        stage("Remove Etcd Spool", _etcd, effects="the etcd cluster and its data"),
        stage("Remove Networks", _networks, effects="networks of pods and Services"),
        stage("Set Reboot Required", _reboot),
        stage("Collection Update Provisioners", _nothing, inputs="provisioning nodes"),
        stage("Remove Kube Cluster", _cluster, effects="the Kubernetes cluster"),
        stage("Print Summary", _summary),
    ]


def _storage(pool: ceph.Pool) -> Stage:
    """Once the nodes were reset: no pod writes to its volume any more."""
    what = f"the pool {pool.name} of the Ceph cluster {pool.fsid}, with all volumes in it"
    return Stage("Remove Ceph Storage", PLUGIN, functools.partial(ceph.remove, pool), effects=what)


def _stage(cluster: str, name: str, run: Step, *, inputs: str = "", effects: str = "") -> Stage:
    return Stage(name, PLUGIN, functools.partial(_with_remains, cluster, run), inputs=inputs, effects=effects)


async def _with_remains(cluster: str, step: Step, context: Context) -> None:
    backend = context.services.backend
    await backend.catch_up()
    await step(context, remains(backend.tree, cluster))


async def _get(context: Context, left: Remains) -> None:
    context.notes[_REMAINS] = len(left.nodes) + len(left.others)
    context.notes[nodes.MAY_BE_DOWN] = True


async def _exists(context: Context, left: Remains) -> None:
    folder = folder_of(context)
    has_files = cluster.kubeconfig(folder, left.cluster).exists() or modules.is_there(folder, left.cluster)
    if left.is_empty and not has_files:
        raise errors.NotFound(f"there is no cluster {left.cluster}, and nothing of it is left")
    if not left.is_there:
        context.say(f"There is no cluster {left.cluster}; what a deployment left of it is removed")


async def _find(context: Context, left: Remains) -> None:
    for overlay in left.overlays:
        context.say(f"Overlay {overlay}")
    away = await nodes.down(context, [*left.nodes, *left.others])
    context.notes[_DOWN] = [node.node for node in away]
    for node in away:
        heard = f", last heard of {node.heard}" if node.heard else ""
        context.say(f"Warning: {node.node} is {node.state}{heard}: it is not waited for")


async def _find_files(context: Context, left: Remains) -> None:
    file = cluster.kubeconfig(folder_of(context), left.cluster)
    if file.exists():
        context.say(str(file))


async def _nothing(context: Context, left: Remains) -> None:
    """Deployments of this tool do not change it."""


async def _no_ingress(context: Context, left: Remains) -> None:
    obj = await nodes.find(nodes.head_of(context), "kubernetes", left.cluster)
    if obj is not None and "ingress_proxy_enable" in obj.extras:
        extras = {name: text for name, text in obj.extras.items() if not name.startswith("ingress_proxy_")}
        whole = {"type": obj.type, "values": obj.values, "extras": extras, "children": obj.children}
        edit = headapi.Edit(mode="kubernetes", key=obj.key, base=obj.revision, object=whole)
        await nodes.commit(context, [edit], f"no ingress of {left.cluster} on the proxy")


async def _ports(context: Context, left: Remains) -> None:
    await firewall.close_ports(context, left.cluster)


async def _checks(context: Context, left: Remains) -> None:
    """They are those of all clusters: the last one takes them along. Only nodes of clusters have them, and these are
    waited for when their roles go."""
    tree = context.services.backend.tree
    if all(name == left.cluster for name in tree.mode("kubernetes")):
        places = [("healthcheck", name) for name in objects.CHECKS]
        await _delete(context, places, "no health checks of Kubernetes", is_awaited=not left.overlays)


async def _roles(context: Context, left: Remains) -> None:
    """kubeadm is run while it is still there. Who is down keeps its files until it is back and was reset."""
    message = f"the Kubernetes cluster {left.cluster} is being removed"
    await nodes.set_extra(context, ("kubernetes", left.cluster), LIFECYCLE, None, message)
    away = {node.node for node in await nodes.down(context, left.nodes)}
    context.notes[_DOWN] = sorted({*context.notes.get(_DOWN, []), *away}, key=natural)
    await nodes.kubeadm(context, [name for name in left.nodes if name not in away], "reset", left.cluster)
    head, edits = nodes.head_of(context), []
    for name in left.overlays:
        obj = await head.get("configurationoverlay", name)
        children = {kind: below for kind, below in obj.children.items() if kind != "roles"}
        whole = {**nodes.whole(obj), "children": children}
        edits.append(headapi.Edit(mode="configurationoverlay", key=name, base=obj.revision, object=whole))
    await nodes.commit(context, edits, f"no roles of the Kubernetes cluster {left.cluster}")


async def _overlays(context: Context, left: Remains) -> None:
    places = [("configurationoverlay", name) for name in left.overlays]
    await _delete(context, places, f"no overlays of the Kubernetes cluster {left.cluster}")


async def _components(context: Context, left: Remains) -> None:
    modules.remove(folder_of(context), left.cluster)


async def _files(context: Context, left: Remains) -> None:
    cluster.remove_kubeconfig(folder_of(context), left.cluster)


async def _etcd(context: Context, left: Remains) -> None:
    if left.has_etcd:
        await _clear(context, left.cluster, ("etcd_cluster",))
        etcd = await nodes.head_of(context).get("etcd", f"kube-{left.cluster}")
        edits = [*await protection.released(context, etcd), headapi.Edit(mode="etcd", key=etcd.key, base=etcd.revision)]
        await nodes.commit(context, edits, f"no etcd of the Kubernetes cluster {left.cluster}")


async def _networks(context: Context, left: Remains) -> None:
    if left.networks:
        await _clear(context, left.cluster, ("pod_network", "service_network"))
        places = [("network", name) for name in left.networks]
        await _delete(context, places, f"no networks of the Kubernetes cluster {left.cluster}")


async def _reboot(context: Context, left: Remains) -> None:
    count = context.notes.get(_REMAINS, 0)
    context.say(f"You need to reboot {count} node{'s' * (count != 1)} to cleanup the network configuration")


async def _cluster(context: Context, left: Remains) -> None:
    await _delete(context, [("kubernetes", left.cluster)], f"no Kubernetes cluster {left.cluster}")


async def _summary(context: Context, left: Remains) -> None:
    context.say(f"The cluster {left.cluster} is removed; installed packages that were there before it stay.")
    for name in context.notes.get(_DOWN, []):
        context.say(
            f"Warning: {name} was down: its kubelet, containers, etcd data and files of the cluster are still on it. "
            "The head resets it as soon as it is back (cmsh: device status shows it as held until then)"
        )


async def _clear(context: Context, name: str, values: tuple[str, ...]) -> None:
    """Take pointers of the cluster away, so that what they point at can go."""
    obj = await nodes.find(nodes.head_of(context), "kubernetes", name)
    if obj is not None and set(values) & set(obj.values):
        kept = {key: value for key, value in obj.values.items() if key not in values}
        whole = {"type": obj.type, "values": kept, "extras": obj.extras, "children": obj.children}
        edit = headapi.Edit(mode="kubernetes", key=name, base=obj.revision, object=whole)
        await nodes.commit(context, [edit], f"the Kubernetes cluster {name} is being removed")


async def _delete(context: Context, places: list[tuple[str, str]], message: str, *, is_awaited: bool = True) -> None:
    head, edits = nodes.head_of(context), []
    for mode, key in places:
        present = await nodes.find(head, mode, key)
        if present is not None:
            edits.append(headapi.Edit(mode=mode, key=key, base=present.revision))
    await nodes.commit(context, edits, message, is_awaited=is_awaited)
