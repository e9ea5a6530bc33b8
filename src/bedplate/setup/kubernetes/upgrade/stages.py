"""The stages of an upgrade: checks, then node after node, then what has to know the version.

In: the plan, as the journal keeps it, and what may be lost when nodes are drained. Out: `stages`. Each looks up what is
there, so that a run that was interrupted goes on where it was. A node is drained, its agent runs kubeadm and restarts
its kubelet, and pods come back once it reports the version; nobody joins or leaves meanwhile. What was upgraded stays
so: undoing an upgrade lets pods come to the nodes again, and no more.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from bedplate.api import headapi
from bedplate.api.resources import DEPLOYMENTS, NODES
from bedplate.core import errors
from bedplate.head.clusters import draining
from bedplate.head.clusters import seeing as cluster_seeing
from bedplate.kube import Client
from bedplate.setup.engine.journal import write_atomically
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import cluster, coredns, drain, images, modules, nodes, pausing, repositories
from bedplate.setup.kubernetes.deploy import PLUGIN, folder_of
from bedplate.setup.kubernetes.upgrade import planning, seeing
from bedplate.setup.kubernetes.upgrade.planning import Plan, Step, Version

__all__ = ["answers", "consent_of", "stages"]

_CORDONED = "cordoned before"
_POLL_S = 0.5
_READY_S = 300.0
_DNS_S = 120.0
_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

Action = Callable[[Context, Plan], Awaitable[None]]


def answers(
    going: Plan,
    consent: draining.Consent,
    timeout_s: float,
    *,
    has_repositories: bool = False,
    skips_images: bool = False,
) -> dict[str, Any]:
    """What the journal of an upgrade keeps. `has_repositories`: the head writes the package repositories of nodes."""
    lost = {"emptydir": consent.emptydir, "unmanaged": consent.unmanaged, "budgets": consent.budgets}
    return {
        "cluster": going.cluster,
        "plan": planning.saved(going),
        "consent": lost,
        "drain_timeout": timeout_s,
        "repositories": has_repositories,
        "skip": {"image_update": skips_images},
    }


def consent_of(values: Mapping[str, Any]) -> draining.Consent:
    """What may be lost, as the journal has it."""
    return draining.Consent(**values["consent"])


def stages(values: Mapping[str, Any]) -> list[Stage]:
    """What upgrades a cluster, in order. Control plane nodes wait for all before them, workers for the batch before."""
    going = planning.plan_of(values["plan"])
    stage = functools.partial(_stage, going)
    repos = stage("Update Package Repositories", _repos, _former_repos, effects="package repositories of the nodes")
    image = stage("Update Software Images", _images, _keep_images, effects="repository and packages of software images")
    ordered = [
        stage("Check Cluster", _check, inputs="health, nodes, APIs in use, budgets, volumes, certificates"),
        *([repos] if values.get("repositories") else []),
        stage("Check Packages", _packages, inputs="the package repositories of the nodes"),
        stage(pausing.PAUSE, _pause, _resume, effects=pausing.EFFECTS),
        *([] if (values.get("skip") or {}).get("image_update") else [image]),
    ]
    for step in going.steps:
        if step.kind != "worker":
            ordered += _node(going, step, None)
    planes = tuple(each.name for each in ordered[-1:])
    dns = "Update Cluster DNS"
    ordered.append(stage(dns, _dns, effects="the image of CoreDNS"))
    before: tuple[str, ...] = (*planes, dns)
    for batch in sorted({step.batch for step in going.steps if step.kind == "worker"}):
        own = [_node(going, step, before) for step in going.steps if step.batch == batch]
        ordered += [each for three in own for each in three]
        before = tuple(three[-1].name for three in own)
    return [
        *ordered,
        stage("Record Version", _record, effects="the version of the Kubernetes cluster on the head"),
        stage("Write Module File", _module, effects="the environment module"),
        stage(pausing.RESUME, _resume, effects=pausing.EFFECTS),
        stage("Print Summary", _summary, inputs="the cluster"),
    ]


def _stage(
    going: Plan, name: str, run: Action, undo: Action | None = None, *, inputs: str = "", effects: str = ""
) -> Stage:
    back = functools.partial(_with_plan, going, undo) if undo is not None else None
    return Stage(name, PLUGIN, functools.partial(_with_plan, going, run), back, inputs=inputs, effects=effects)


def _node(going: Plan, step: Step, needs: tuple[str, ...] | None) -> list[Stage]:
    """Drain, upgrade, uncordon."""
    drained, upgraded, back = (f"{verb} {step.node}" for verb in ("Drain", "Upgrade", "Uncordon"))
    versions = f"{step.current} -> {going.version}"
    command = f"kubeadm upgrade {'apply' if step.kind == 'apply' else 'node'}"
    return [
        Stage(
            drained,
            PLUGIN,
            functools.partial(_drain, step),
            functools.partial(_no_drain, step),
            needs,
            effects=f"pods leave {step.node}",
        ),
        Stage(
            upgraded,
            PLUGIN,
            functools.partial(_upgrade, going, step),
            needs=None if needs is None else (drained,),
            effects=f"{command}, kubelet and kubectl on {step.node}: {versions}",
        ),
        Stage(
            back,
            PLUGIN,
            functools.partial(_uncordon, going, step),
            needs=None if needs is None else (upgraded,),
            inputs=f"the version that {step.node} reports",
            effects=f"pods come to {step.node} again",
        ),
    ]


async def _with_plan(going: Plan, run: Action, context: Context) -> None:
    await context.services.backend.catch_up()
    await run(context, going)


@contextlib.asynccontextmanager
async def _client(context: Context) -> AsyncIterator[Client]:
    async with cluster.connected(folder_of(context), context.services.cluster) as client:
        yield client


# Before anything


async def _check(context: Context, going: Plan) -> None:
    tree, version = context.services.backend.tree, Version.parse(going.version)
    async with _client(context) as client:
        consent, now = consent_of(context.answers), context.clock.now()
        results = await seeing.look(client, tree, going.cluster, version, going.nodes, consent, now)
    for finding in results:
        if not finding.blocks:
            context.say(f"Warning: {finding}")
    blocking = [str(finding) for finding in results if finding.blocks]
    if blocking:
        raise errors.Invalid(
            f"the cluster {going.cluster} is not fit to be upgraded to {going.version}", problems=blocking
        )
    context.say(f"{len(going.steps)} nodes are upgraded to {going.version}")


async def _packages(context: Context, going: Plan) -> None:
    states = {state.node: state for state in await nodes.head_of(context).nodes(going.nodes)}
    away = [name for name in going.nodes if name not in states or states[name].state != "UP"]
    if away:
        raise errors.Unavailable(
            f"the agent of {', '.join(away)} does not report",
            hint="see cmsh: device status; start the agents, then try again",
        )
    await nodes.kubeadm(context, going.nodes, "upgrade-check", going.cluster, going.version)


async def _repos(context: Context, going: Plan) -> None:
    await repositories.update(context, going.cluster, going.version)


async def _former_repos(context: Context, going: Plan) -> None:
    await repositories.restore(context, going.cluster)


async def _images(context: Context, going: Plan) -> None:
    """Before the first node, so that one that is installed again meanwhile is not older than its cluster."""
    await images.update(context, going.nodes, going.version, has_repository=True)


async def _keep_images(context: Context, going: Plan) -> None:
    images.tell_what_stays(context)


async def _pause(context: Context, going: Plan) -> None:
    await pausing.pause(context, going.cluster)


async def _resume(context: Context, going: Plan) -> None:
    await pausing.resume(context, going.cluster)


# One node


async def _drain(step: Step, context: Context) -> None:
    async with _client(context) as client:
        place = f"{_CORDONED} {step.node}"
        if place not in context.notes:
            context.notes[place] = bool((await client.get(NODES, step.node)).spec.unschedulable)
        consent, timeout_s = consent_of(context.answers), float(context.answers["drain_timeout"])
        gone = await drain.drain(
            client, step.node, context.clock, consent=consent, timeout_s=timeout_s, say=context.log.info
        )
        context.say(f"{step.node}: {len(gone.evicted) + len(gone.ending)} pods left, {len(gone.ignored)} stay")


async def _no_drain(step: Step, context: Context) -> None:
    async with _client(context) as client:
        await _open(context, client, step)


async def _open(context: Context, client: Client, step: Step) -> None:
    if context.notes.get(f"{_CORDONED} {step.node}", False):
        context.say(f"{step.node} was cordoned before, and stays so")
    else:
        await drain.uncordon(client, step.node)


async def _upgrade(going: Plan, step: Step, context: Context) -> None:
    await nodes.kubeadm(context, [step.node], step.action, going.cluster, going.version)


async def _uncordon(going: Plan, step: Step, context: Context) -> None:
    async with _client(context) as client:
        await _until(context, functools.partial(_late, client, going, step), _READY_S)
        await _open(context, client, step)


async def _late(client: Client, going: Plan, step: Step) -> str:
    """Why a node is not where it should be; nothing once it is."""
    node = await client.get(NODES, step.node)
    kubelet = Version.parse(node.status.node_info.kubelet_version)
    if str(kubelet) != going.version:
        return f"{step.node} still reports {kubelet}"
    if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
        return f"{step.node} is not Ready"
    if step.kind == "worker":
        return ""
    static = await cluster_seeing.static_pods(client)
    for component in _COMPONENTS:
        tag = seeing.server_image(static, step.node, component)
        if tag.removeprefix("v") != going.version:
            return f"{component} of {step.node} is {tag or 'not there'}"
    late = [pod.metadata.name for pod in static if pod.spec.node_name == step.node and not _is_ready(pod)]
    return f"{', '.join(late)} is not ready" if late else ""


def _is_ready(pod: Any) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


async def _until(context: Context, late: Callable[[], Awaitable[str]], timeout_s: float) -> None:
    """Wait until nothing is late any more. Raises `Unavailable` with what is."""
    end_s = context.clock.monotonic() + timeout_s
    while True:
        try:
            why = await late()
        except (errors.Unavailable, errors.Denied) as err:
            # The API server of an upgraded node restarts, and refuses everybody until it has read its rules.
            why = str(err)
        if not why:
            return
        if context.clock.monotonic() > end_s:
            raise errors.Unavailable(f"{why}, after {timeout_s:g} s", hint="put the cause right, then resume")
        await context.clock.sleep(_POLL_S)


# After the control plane, and after all


async def _dns(context: Context, going: Plan) -> None:
    """kubeadm leaves cluster DNS alone, as it would give its Service another address."""
    async with _client(context) as client:
        try:
            present = await client.get(DEPLOYMENTS, "coredns", "kube-system")
        except errors.NotFound:
            context.say("There is no Deployment coredns; cluster DNS is somebody else's")
            return
        image = next((each["image"] for each in _containers(present) if each["name"] == "coredns"), "")
        newer = coredns.updated(image, going.version)
        if newer == image:
            context.say(f"CoreDNS stays {image or 'as it is'}")
            return
        containers = [{"name": "coredns", "image": newer}]
        change = {"spec": {"template": {"spec": {"containers": containers}}}}
        await client.patch(
            DEPLOYMENTS, "coredns", change, "kube-system", type=cluster.STRATEGIC, field_manager=cluster.MANAGER
        )
        context.say(f"CoreDNS: {image} -> {newer}")

        async def late() -> str:
            status = (await client.get(DEPLOYMENTS, "coredns", "kube-system")).get("status", {})
            is_on = status.get("updatedReplicas", 0) and status.get("availableReplicas", 0)
            return "" if is_on else "the new CoreDNS is not available"

        try:
            await _until(context, late, _DNS_S)
        except errors.Unavailable as err:
            context.say(f"Warning: {err}; see kubectl -n kube-system get pods")


def _containers(deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return containers


async def _record(context: Context, going: Plan) -> None:
    obj = await nodes.head_of(context).get("kubernetes", going.cluster)
    init = re.sub(
        r"(?m)^kubernetesVersion: .*$",
        f"kubernetesVersion: v{going.version}",
        str(obj.values.get("kubeadm_init_file", "")),
    )
    values = {**obj.values, "version": going.version, **({"kubeadm_init_file": init} if init else {})}
    if values == obj.values:
        return
    whole = {"type": obj.type, "values": values, "extras": obj.extras, "children": obj.children}
    edit = headapi.Edit(mode="kubernetes", key=obj.key, base=obj.revision, object=whole)
    await nodes.commit(context, [edit], f"the Kubernetes cluster {going.cluster} runs {going.version}")


async def _module(context: Context, going: Plan) -> None:
    folder = folder_of(context)
    file = modules.place(folder, going.cluster, going.version)
    file.parent.mkdir(parents=True, exist_ok=True)
    config = cluster.kubeconfig(folder, going.cluster)
    write_atomically(file, modules.text(modules.TEMPLATE, going.cluster, going.version, config).encode(), 0o644)
    for other in file.parent.iterdir():
        if other != file:
            other.unlink()


async def _summary(context: Context, going: Plan) -> None:
    context.say(f"The cluster {going.cluster} runs Kubernetes {going.version}.")
    context.say(f"To use kubectl load the module file: kubernetes/{going.cluster}/{going.version}")
