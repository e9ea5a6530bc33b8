"""The stages of a deployment: from answers to nodes that are Ready.

In: answers. Out: `stages`. Each stage makes its settings from the answers and the tree of the head, so that a resumed
run needs nothing of the process before it; each can be undone. kubeadm joins all nodes at once, and cluster DNS starts
meanwhile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import secrets as random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from bedplate.head.clusters import administrator
from bedplate.head.clusters.joining import UNINITIALIZED, make_nodes
from bedplate.head.clusters.membership import LIFECYCLE, MANAGED, allocate
from bedplate.head.schema.kinds import Seed
from bedplate.serving.issuing import Pair
from bedplate.setup.answers.features import NETQ
from bedplate.setup.answers.site import Site
from bedplate.setup.engine.journal import write_atomically
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import (
    addons,
    charts,
    checks,
    clouds,
    cluster,
    coredns,
    distributions,
    docker,
    firewall,
    hardware,
    images,
    modules,
    netq,
    nodes,
    objects,
    packages,
    protection,
    reboots,
    repositories,
)
from bedplate.setup.kubernetes.settings import Settings, known_ranges, of_answers

__all__ = ["PLUGIN", "folder_of", "stages"]

PLUGIN = "kubernetes"
DOCKER = "docker"
_SECRETS = "kubernetes secrets"

Step = Callable[[Context, Settings], Awaitable[None]]


def stages(answers: Mapping[str, Any], site: Site) -> list[Stage]:
    """What makes the cluster of the answers, in order."""
    initialized = ("Initialize Control Plane",)
    network = "Install Network Plugin"
    defined = _charts(answers, initialized)
    joined = (
        *("Join Control Plane Nodes", "Join Worker Nodes", "Install Cluster DNS", "Write Cloud Config", network),
        *(stage.name for stage in defined),
    )
    with_docker = [
        _stage(
            "Assign Docker Role",
            docker.assign,
            docker.unassign,
            effects="the overlay of Docker",
            tag="docker",
            plugin=DOCKER,
        )
    ]
    return [
        _stage(
            "Check Distribution",
            distributions.check,
            needs=(),
            inputs="the systems of the nodes",
            tag="distro-check",
        ),
        _stage("Check Nodes", checks.members, inputs="the state of the nodes"),
        _stage("Check Add-ons", addons.check, inputs="manifests and charts of add-ons"),
        *_netq(answers),
        _stage("Create Networks", _networks, _no_networks, effects="networks of pods and Services"),
        _stage("Create Etcd Cluster", _etcd, _no_etcd, effects="the etcd cluster"),
        _stage(
            "Protect Etcd Nodes",
            protection.protect,
            protection.unprotect,
            effects="the data node setting of etcd nodes",
            tag="disk-setup",
        ),
        _stage("Create Kube Cluster", _cluster, _no_cluster, effects="authority, kubeconfig, the Kubernetes cluster"),
        _stage("Create Applications", addons.create, addons.withdraw, effects="app group system, label sets"),
        _stage(
            "Write Package Repositories",
            repositories.write,
            repositories.withdraw,
            effects="repositories of Kubernetes and Helm, on nodes and in software images",
            tag="install-repos",
        ),
        _stage(
            "Update Software Images",
            _images,
            _keep_images,
            effects="packages in software images of the nodes",
            tag="image-update",
        ),
        *(with_docker if (answers.get("docker") or {}).get("install") else []),
        _stage("Assign Roles", _overlays, _no_overlays, effects="overlays; services on nodes"),
        _stage("Install Packages", packages.install, _no_packages, effects="packages on nodes", tag="packages"),
        _stage(
            "Reboot Nodes",
            reboots.reboot,
            _gone_by,
            effects="a reboot of nodes whose system asks for one",
            tag="reboot",
        ),
        _stage("Initialize Control Plane", _init, _reset_first, effects="kubeadm init on the first control plane node"),
        _stage("Write Cloud Config", _cloud, needs=initialized, undo=_gone, effects="settings of the cloud"),
        _stage("Install Cluster DNS", _dns, needs=initialized, undo=_gone, effects="CoreDNS"),
        *defined,
        _stage(network, _plugin, needs=initialized, undo=_gone, effects="the pod network"),
        _stage("Join Control Plane Nodes", _join_planes, _reset_planes, needs=initialized, effects="kubeadm join"),
        _stage("Join Worker Nodes", _join_workers, _reset_workers, needs=initialized, effects="kubeadm join"),
        _stage("Wait For Nodes", _ready, needs=joined, inputs="the conditions of the nodes"),
        _stage("Wait For Applications", _applied, inputs="the applications of the cluster"),
        _stage("Check Hardware", _hardware, inputs="the capacity of the nodes"),
        _stage("Open Firewall Ports", _open, _close, effects="rows of the head node's firewall role"),
        _stage("Add Health Checks", _checks, _no_checks, effects="health checks"),
        _stage("Write Module File", _module, _no_module, effects="the environment module"),
        _stage("Manage Nodes", _manage, _unmanage, effects="the head joins and drains nodes from here on"),
        _stage("Print Summary", _summary, inputs="the cluster"),
    ]


def _charts(answers: Mapping[str, Any], needs: tuple[str, ...]) -> list[Stage]:
    """What applies the definitions of charts, where there is a chart."""
    if not charts.of_answers(answers):
        return []
    effects = "custom definitions of charts"
    return [_stage("Install Chart Definitions", _definitions, needs=needs, undo=_gone, effects=effects)]


def _netq(answers: Mapping[str, Any]) -> list[Stage]:
    """The check of what NetQ needs, where it is one of the operators."""
    if NETQ not in answers["kubernetes"]["operators"]:
        return []
    look = _stage("Check NetQ Prerequisites", netq.check, inputs="nodes for NetQ, the head's port")
    return [dataclasses.replace(look, tags=frozenset({"netq-checks"}))]


def _stage(
    name: str,
    run: Step,
    undo: Step | None = None,
    *,
    needs: tuple[str, ...] | None = None,
    inputs: str = "",
    effects: str = "",
    tag: str = "",
    plugin: str = PLUGIN,
) -> Stage:
    return Stage(
        name,
        plugin,
        functools.partial(_with_settings, run),
        functools.partial(_with_settings, undo) if undo is not None else None,
        needs,
        inputs,
        effects,
        frozenset({tag} - {""}),
    )


async def _with_settings(step: Step, context: Context) -> None:
    backend = context.services.backend
    await backend.catch_up()
    await step(context, of_answers(context.answers, backend.tree, backend.name))


def folder_of(context: Context) -> Path:
    """Where kubeconfigs and module files are: the head's data folder, where it is on this machine."""
    folder: Path = context.services.data or context.services.state
    return folder


# Objects of the head


async def _networks(context: Context, settings: Settings) -> None:
    # A new site has networks of the first cluster already.
    places = {("network", name): obj for name, obj in objects.networks(settings).items()}
    await nodes.adopt(context, places, f"networks of the Kubernetes cluster {settings.name}")
    context.say(f"Pods: {settings.pods}, Services: {settings.services}")


async def _no_networks(context: Context, settings: Settings) -> None:
    places = [("network", name) for name in objects.networks(settings)]
    await nodes.withdraw(context, places, f"no networks of the Kubernetes cluster {settings.name}")


async def _etcd(context: Context, settings: Settings) -> None:
    seed = Seed().parse(Seed.GENERATE)
    obj = objects.etcd(seed.reveal())  # type: ignore[union-attr]
    await nodes.create(context, {("etcd", settings.etcd): obj}, f"etcd of the Kubernetes cluster {settings.name}")


async def _no_etcd(context: Context, settings: Settings) -> None:
    await nodes.withdraw(context, [("etcd", settings.etcd)], f"no etcd of the Kubernetes cluster {settings.name}")


async def _cluster(context: Context, settings: Settings) -> None:
    """The authority is in the journal until the run is over: a cluster that a killed run wrote has the one of the
    kubeconfig that it wrote before."""
    known = context.notes.get(_SECRETS)
    if known is None:
        pair = cluster.authority(context.clock)
        known = [pair.certificate.decode(), pair.key.decode(), random.token_hex(32)]
        for secret in known[1:]:
            context.mask(secret)
        context.notes[_SECRETS] = known
    own = objects.Secrets(*known)
    pair = Pair(own.authority.encode(), own.authority_key.encode())
    server = f"https://{settings.addresses[settings.first]}:{settings.port}"
    config = administrator.text(pair, server, settings.name, context.clock.now())
    cluster.write_kubeconfig(folder_of(context), settings.name, config)
    obj = objects.cluster(settings, own, _ranges(context, settings))
    message = f"the Kubernetes cluster {settings.name}"
    await nodes.create(context, {("kubernetes", settings.name): obj}, message)


def _ranges(context: Context, settings: Settings) -> Any:
    if settings.cni != "bridge":
        return {}
    known = known_ranges(context.services.backend.tree, settings.name)
    return allocate(settings.pods, settings.node_mask, settings.kubernetes_nodes, known)


async def _no_cluster(context: Context, settings: Settings) -> None:
    await nodes.withdraw(context, [("kubernetes", settings.name)], f"no Kubernetes cluster {settings.name}")
    cluster.remove_kubeconfig(folder_of(context), settings.name)


async def _overlays(context: Context, settings: Settings) -> None:
    """Who installs packages waits for the nodes in the stage after this one."""
    if not settings.has_packages:
        await packages.check(context, settings)
    places = {("configurationoverlay", name): obj for name, obj in objects.overlays(settings).items()}
    message = f"roles of the Kubernetes cluster {settings.name}"
    is_awaited = not settings.has_packages
    context.notes[packages.REVISION] = await nodes.create(context, places, message, is_awaited=is_awaited)


async def _no_overlays(context: Context, settings: Settings) -> None:
    places = [("configurationoverlay", name) for name in settings.overlays.values()]
    await nodes.withdraw(context, places, f"no roles of the Kubernetes cluster {settings.name}")


async def _no_packages(context: Context, settings: Settings) -> None:
    context.say("They go with the roles")


async def _images(context: Context, settings: Settings) -> None:
    await images.update(context, settings.kubernetes_nodes, settings.version)


async def _keep_images(context: Context, settings: Settings) -> None:
    images.tell_what_stays(context)


async def _gone_by(context: Context, settings: Settings) -> None:
    context.say("There is nothing to take back")


# kubeadm


async def _init(context: Context, settings: Settings) -> None:
    await nodes.kubeadm(context, [settings.first], "init", settings.name)
    async with cluster.connected(folder_of(context), settings.name) as client:
        taints = [UNINITIALIZED] if addons.of_answers(context.answers, settings).cloud else []
        await make_nodes(client, _ranges(context, settings), settings.kubernetes_nodes, taints)


async def _reset_first(context: Context, settings: Settings) -> None:
    await nodes.kubeadm(context, [settings.first], "reset", settings.name)


async def _join_planes(context: Context, settings: Settings) -> None:
    await nodes.kubeadm(context, settings.further_masters, "join", settings.name)


async def _reset_planes(context: Context, settings: Settings) -> None:
    await nodes.kubeadm(context, settings.further_masters, "reset", settings.name)


async def _join_workers(context: Context, settings: Settings) -> None:
    await nodes.kubeadm(context, settings.workers, "join", settings.name)


async def _reset_workers(context: Context, settings: Settings) -> None:
    await nodes.kubeadm(context, settings.workers, "reset", settings.name)


# In the cluster


async def _dns(context: Context, settings: Settings) -> None:
    async with cluster.connected(folder_of(context), settings.name) as client:
        await cluster.apply(client, coredns.manifests(settings), context.clock)


async def _definitions(context: Context, settings: Settings) -> None:
    rendered = await asyncio.to_thread(charts.render, charts.of_answers(context.answers), settings.version)
    async with cluster.connected(folder_of(context), settings.name) as client:
        await cluster.apply(client, [dict(each) for each in rendered.definitions], context.clock)
    context.say(f"{len(rendered.definitions)} definitions")


async def _plugin(context: Context, settings: Settings) -> None:
    if settings.cni == "bridge":
        context.say(f"Each node has a bridge, and routes to the pods of {len(settings.kubernetes_nodes) - 1} others")
        return
    manifests = addons.network(addons.of_answers(context.answers, settings), settings)
    async with cluster.connected(folder_of(context), settings.name) as client:
        await cluster.apply(client, manifests, context.clock)


async def _cloud(context: Context, settings: Settings) -> None:
    chosen = addons.of_answers(context.answers, settings)
    if not chosen.cloud:
        context.say("There is no cloud controller manager")
        return
    async with cluster.connected(folder_of(context), settings.name) as client:
        await cluster.apply(client, [clouds.config(chosen.cloud, chosen.cloud_config)], context.clock)


async def _applied(context: Context, settings: Settings) -> None:
    await addons.until_applied(context, settings.name)


async def _gone(context: Context, settings: Settings) -> None:
    context.say("It goes with the cluster")


async def _ready(context: Context, settings: Settings) -> None:
    role = "node-role.kubernetes.io/"
    plane = [f"{role}control-plane", f"{role}master"]
    labels = dict.fromkeys(settings.members.masters, plane) | {name: [f"{role}worker"] for name in settings.workers}
    has_daemon = context.services.data is not None
    async with cluster.connected(folder_of(context), settings.name) as client:
        await cluster.until_ready(client, settings.kubernetes_nodes, labels if has_daemon else {}, context.clock)
    context.say(f"{len(settings.kubernetes_nodes)} nodes are Ready")


async def _hardware(context: Context, settings: Settings) -> None:
    async with cluster.connected(folder_of(context), settings.name) as client:
        hardware.tell(context, await hardware.read(client, settings.kubernetes_nodes))


# Around the cluster


async def _open(context: Context, settings: Settings) -> None:
    await firewall.open_ports(context, settings)


async def _close(context: Context, settings: Settings) -> None:
    await firewall.close_ports(context, settings.name)


async def _checks(context: Context, settings: Settings) -> None:
    head = nodes.head_of(context)
    missing = {
        ("healthcheck", name): obj
        for name, obj in objects.checks().items()
        if await nodes.find(head, "healthcheck", name) is None
    }
    await nodes.create(context, missing, "health checks of Kubernetes")


async def _no_checks(context: Context, settings: Settings) -> None:
    await nodes.withdraw(context, [("healthcheck", name) for name in objects.CHECKS], "no health checks of Kubernetes")


async def _module(context: Context, settings: Settings) -> None:
    folder = folder_of(context)
    file = modules.place(folder, settings.name, settings.version)
    file.parent.mkdir(parents=True, exist_ok=True)
    config = cluster.kubeconfig(folder, settings.name)
    text = modules.text(modules.TEMPLATE, settings.name, settings.version, config)
    write_atomically(file, text.encode(), 0o644)


async def _no_module(context: Context, settings: Settings) -> None:
    modules.remove(folder_of(context), settings.name)


async def _manage(context: Context, settings: Settings) -> None:
    message = f"the head joins and drains nodes of {settings.name}"
    await nodes.set_extra(context, ("kubernetes", settings.name), LIFECYCLE, MANAGED, message)


async def _unmanage(context: Context, settings: Settings) -> None:
    message = f"the head leaves the nodes of {settings.name} alone"
    await nodes.set_extra(context, ("kubernetes", settings.name), LIFECYCLE, None, message)


async def _summary(context: Context, settings: Settings) -> None:
    for line in summary(settings, cluster.kubeconfig(folder_of(context), settings.name)):
        context.say(line)
    for line in addons.summary(addons.of_answers(context.answers, settings), settings):
        context.say(line)


def summary(settings: Settings, config: Path) -> list[str]:
    """What people need to know of the new cluster. Pure."""
    return [
        "Installation completed. Pods might still be initializing.",
        "",
        "To add users to the cluster use: refer to `cm-kubernetes-setup --help`",
        "",
        f"To use kubectl load the module file: kubernetes/{settings.name}/{settings.version}",
        f"The administrator's kubeconfig: {config}",
        "Common URLs:",
        f"- Kubernetes API server: https://{settings.fqdn}:{settings.port}",
    ]
