"""Why a node or a Service is as it is, from live state: the controllers' own plans, without carrying them out.

In: objects as the API server has them now, the clouds, the manager's options. Out: `Explanation`, a list of findings
that say what is, whether that is how it should be, and why. It asks clouds and writes nothing. A running manager
remembers earlier passes (absences, targets told); what follows only from that is said as "would".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from bedplate.api import core, discovery
from bedplate.cloud import taints
from bedplate.cloud.controllers import (
    lifecycle,
    lifecycle_brake,
    lifecycle_plan,
    node_plan,
    node_refusals,
    service_plan,
    targets,
)
from bedplate.cloud.controllers.nodewrites import in_parallel
from bedplate.cloud.errors import InstanceNotFound
from bedplate.cloud.interface import InstanceMetadata, Placed, Provider, Target, same_status
from bedplate.cloud.routing import Claimed, Clouds, Contested, Foreign, Owned, Unclaimed, Unplaced, Waiting
from bedplate.core import clock, duration
from bedplate.core.explanation import Explanation, Finding, State

__all__ = ["Explanation", "Finding", "State", "explain_node", "explain_service"]

ASK_S = 60.0
CONCURRENT = 5


# Nodes


@dataclass(slots=True)
class _Asked:
    """What the clouds said of a node: who has it, what that one knows, or why there is no answer."""

    provider: Provider | None = None
    metadata: InstanceMetadata | None = None
    failure: str = ""
    is_absent: bool = False
    error: Exception | None = None
    finding: Finding = field(default_factory=lambda: Finding("cloud", "", ""))


async def explain_node(
    node: core.Node,
    nodes: Iterable[core.Node],
    clouds: Clouds,
    *,
    rules: lifecycle_plan.Rules,
    reconciles_labels: bool,
    time: clock.Clock,
    blocked: str = "",
) -> Explanation:
    """Everything about one node; `nodes` are all that the manager manages, this one among them. `blocked` is what the
    manager's last event said about its blocked deletion."""
    asked = await _ask(node, clouds)
    findings = [asked.finding]
    if not isinstance(clouds.place(node), Foreign):
        findings.append(_initialisation(node, asked, clouds, reconciles_labels))
        findings += await _lifecycle(node, list(nodes), clouds, rules, time, blocked)
    findings += [_target(node, provider, clouds) for provider in clouds if provider.load_balancers is not None]
    return Explanation("Node", node.name, tuple(findings))


async def _ask(node: core.Node, clouds: Clouds) -> _Asked:
    match clouds.place(node):
        case Foreign(reason, named):
            if named and taints.is_uninitialized(node):
                reason = f"{reason}; {node_refusals.remedy(node, node_refusals.REASON_FOREIGN_ID)}"
                return _Asked(finding=Finding("cloud", "not ours", reason, State.BAD))
            return _Asked(finding=Finding("cloud", "not ours", reason, State.NOTICE))
        case Owned(provider):
            return await _ask_owner(node, provider, clouds, f"its provider ID {node.spec.provider_id} says so")
    sole = clouds.sole
    if sole is not None:
        return await _ask_owner(node, sole, clouds, "node has no provider ID, and there is no other cloud")
    return await _claim(node, clouds)


async def _ask_owner(node: core.Node, provider: Provider, clouds: Clouds, why: str) -> _Asked:
    instances = clouds.instances(provider)
    if instances is None:
        return _Asked(provider, finding=Finding("cloud", provider.name, f"{why}; it has no machines to query"))
    try:
        async with asyncio.timeout(ASK_S):
            metadata = await instances.metadata(node)
    except InstanceNotFound as err:
        text = f"{why}; it reports that there is no such machine: {err}"
        finding = Finding("cloud", provider.name, text, State.BAD)
        return _Asked(provider, failure=str(err), is_absent=True, error=err, finding=finding)
    except Exception as err:
        # Every other error means unknown, never absent.
        failure = str(err) or type(err).__name__
        finding = Finding("cloud", provider.name, f"{why}; it could not be queried: {failure}", State.UNKNOWN)
        return _Asked(provider, failure=failure, error=err, finding=finding)
    known = ""
    if metadata is not None and metadata.provider_id and metadata.provider_id != node.spec.provider_id:
        known = f" as {metadata.provider_id}"
    return _Asked(provider, metadata, finding=Finding("cloud", provider.name, f"{why}; it knows the machine{known}"))


async def _claim(node: core.Node, clouds: Clouds) -> _Asked:
    """Several clouds, no provider ID: all are asked for the name."""
    match await clouds.claim(node):
        case Claimed(provider, metadata):
            finding = Finding("cloud", provider.name, "it has no provider ID, and this cloud alone has its name")
            return _Asked(provider, metadata, finding=finding)
        case Contested(reason):
            return _Asked(failure=reason, finding=Finding("cloud", "ambiguous", reason, State.BAD))
        case Waiting(reason):
            return _Asked(failure=reason, finding=Finding("cloud", "not known yet", reason, State.UNKNOWN))
        case Unclaimed(reason, is_unknown):
            finding = Finding("cloud", "none", reason, State.BAD)
            return _Asked(failure=reason, is_absent=is_unknown, error=InstanceNotFound(reason), finding=finding)


def _initialisation(node: core.Node, asked: _Asked, clouds: Clouds, reconciles_labels: bool) -> Finding:
    is_tainted = taints.is_uninitialized(node)
    answer = "no" if is_tainted else "yes"
    if asked.provider is None or asked.failure:
        if is_tainted:
            state = State.BAD if asked.is_absent else State.UNKNOWN
            why = f"no cloud has its machine: {asked.failure}"
            if asked.error is not None:
                why += f"; {node_refusals.remedy_for(node, asked.error)}"
            return Finding("initialised", answer, why, state)
        return Finding("initialised", answer, "it does not carry the uninitialized taint")
    name = asked.provider.name
    if is_tainted:
        verdict = node_plan.initialise(node, asked.metadata, clouds, name)
        return Finding("initialised", answer, verdict.reason, State.BAD)
    verdict = node_plan.refresh(node, asked.metadata, reconciles_labels=reconciles_labels)
    state = State.NOTICE if verdict.kind is node_plan.Kind.CORRECT or verdict.warnings else State.GOOD
    why = "; ".join((verdict.reason, *verdict.warnings))
    return Finding("initialised", answer, why, state)


async def _lifecycle(
    node: core.Node,
    nodes: list[core.Node],
    clouds: Clouds,
    rules: lifecycle_plan.Rules,
    time: clock.Clock,
    blocked: str,
) -> list[Finding]:
    """One pass of the lifecycle controller over this node's cloud, with nothing carried out."""
    own = _cloud_name(node, clouds)
    mine = [other for other in nodes if _cloud_name(other, clouds) == own]
    others = [other for other in nodes if _cloud_name(other, clouds) not in (own, None)]
    moment = lifecycle_plan.Moment(time.monotonic(), time.now())
    surveyed = lifecycle_plan.survey(mine, lifecycle_plan.Memory(), rules, moment)
    asked = [provider for provider in clouds.with_instances() if own in ("", provider.name)]
    instances = tuple(instances_of for other in asked if (instances_of := clouds.instances(other)) is not None)
    answers: dict[str, lifecycle_plan.Answer] = {}

    async def ask(question: lifecycle_plan.Question) -> None:
        answers[question.node.metadata.uid] = await lifecycle.ask(instances, question, time)

    is_settled = any(verdict.node.name == node.name for verdict in surveyed.verdicts)
    if not is_settled:
        await in_parallel(surveyed.questions, CONCURRENT, ask)
    elsewhere = lifecycle_brake.Census(lifecycle_plan.count_managed(others), 0)
    sighting = lifecycle_brake.Sighting()
    if lifecycle_plan.is_braked(surveyed, answers, rules, moment, elsewhere):
        sighting = await lifecycle.sight(instances, mine)
    judged = lifecycle_plan.judge(surveyed, answers, rules, moment, elsewhere, sighting)
    verdict = next(other for other in (*surveyed.verdicts, *judged.verdicts) if other.node.name == node.name)
    answer = answers.get(node.metadata.uid)
    findings = [Finding("lifecycle", _action(verdict), verdict.reason, _lifecycle_state(verdict, answer))]
    if verdict.action is lifecycle_plan.Action.BLOCK:
        findings.append(_brake(judged, time.now(), blocked))
    return findings


def _brake(judged: lifecycle_plan.Judgement, now: datetime, blocked: str) -> Finding:
    """When the brake opens: the manager counts, and its event says how far it is."""
    if judged.memory.proof.stage in (lifecycle_brake.Stage.OFF, lifecycle_brake.Stage.BROKEN):
        return Finding("brake", "stays closed", judged.outlook, State.BAD)
    opens = lifecycle_brake.opening_told(blocked)
    if opens is None or opens < now:
        why = f"{judged.outlook}; no event of the manager says that it counts already"
        return Finding("brake", "closed", why, State.NOTICE)
    left = duration.format_duration(float(round((opens - now).total_seconds())))
    why = f"it opens by itself at {clock.rfc3339(opens)} if every look until then finds the same, as the manager says"
    return Finding("brake", f"opens in {left}", why, State.NOTICE)


def _cloud_name(node: core.Node, clouds: Clouds) -> str | None:
    """The cloud by whose monitor a node is watched; empty for those that all are asked about, None for foreign ones."""
    match clouds.place(node):
        case Owned(provider):
            return provider.name
        case Unplaced():
            return clouds.sole.name if clouds.sole is not None else ""
    return None


def _action(verdict: lifecycle_plan.Verdict) -> str:
    match verdict.action:
        case lifecycle_plan.Action.KEEP if verdict.withheld:
            return "would be deleted"
        case lifecycle_plan.Action.BLOCK:
            return "not deleted: brake"
        case lifecycle_plan.Action.DELETE:
            return "is deleted"
        case lifecycle_plan.Action.TAINT:
            return "is tainted"
        case lifecycle_plan.Action.UNTAINT:
            return "taint goes"
    return "kept"


def _lifecycle_state(verdict: lifecycle_plan.Verdict, answer: lifecycle_plan.Answer | None) -> str:
    if answer is not None and answer.exists is None:
        return State.UNKNOWN
    if verdict.action is not lifecycle_plan.Action.KEEP or verdict.withheld:
        return State.BAD
    return State.GOOD if verdict.node.is_ready else State.NOTICE


def _target(node: core.Node, provider: Provider, clouds: Clouds) -> Finding:
    verdict = targets.verdict(node, provider.name, clouds.place)
    topic = f"target of {provider.name}"
    if not verdict.is_target:
        return Finding(topic, "no", verdict.why, State.NOTICE)
    if provider.load_balancers is not None and provider.load_balancers.needs_ready_nodes and not node.is_ready:
        return Finding(topic, "yes, not ready", f"{verdict.why}; traffic goes elsewhere after --lb-failover-delay")
    return Finding(topic, "yes", verdict.why)


# Services


async def explain_service(
    service: core.Service,
    nodes: Sequence[core.Node],
    slices: Iterable[discovery.EndpointSlice],
    clouds: Clouds,
    *,
    ownership: service_plan.Ownership,
    cluster: str,
) -> Explanation:
    """Everything about one Service's load balancer."""
    owner = ownership.owner(service)
    step = service_plan.plan(service, None, ownership, None)[0]
    findings = [
        Finding("load balancer of", owner.provider or "nobody here", owner.why, _owner_state(owner)),
        _finalizer(service, owner),
        Finding("next step", type(step).__name__.lower(), step.why, _step_state(step)),
    ]
    provider = next((cloud for cloud in clouds if cloud.name == owner.provider), None)
    if provider is not None and provider.load_balancers is not None:
        findings.append(await _published(service, provider, cluster))
        ready = targets.nodes_with_endpoints(slices) if targets.is_local(service) else None
        obstacles = await _obstacles(service, nodes, provider, clouds, cluster)
        findings += _targets(nodes, provider, clouds, ready, obstacles)
    return Explanation("Service", f"{service.namespace}/{service.name}", tuple(findings))


def _owner_state(owner: service_plan.Owner) -> str:
    return State.GOOD if owner.provider else State.NOTICE


def _step_state(step: service_plan.Step) -> str:
    match step:
        case service_plan.Delete() | service_plan.Release():
            return State.BAD
        case service_plan.Ensure(announces=True):
            return State.BAD
    return State.GOOD


def _finalizer(service: core.Service, owner: service_plan.Owner) -> Finding:
    if service_plan.has_finalizer(service):
        return Finding("finalizer", "set", "its load balancer is removed before it is deleted")
    if not owner.provider:
        return Finding("finalizer", "none", "it has no load balancer of this manager")
    return Finding("finalizer", "none", "it is set before anything is created in the cloud", State.BAD)


async def _published(service: core.Service, provider: Provider, cluster: str) -> Finding:
    """What the cloud has, against what the Service says."""
    assert provider.load_balancers is not None, "the caller has looked"
    name = provider.load_balancers.name(cluster, service)
    try:
        async with asyncio.timeout(ASK_S):
            published = await provider.load_balancers.get(cluster, service)
    except Exception as err:
        failure = str(err) or type(err).__name__
        return Finding("in the cloud", "?", f"{name}: {provider.name} could not be queried: {failure}", State.UNKNOWN)
    if published is None:
        return Finding("in the cloud", "absent", f"{provider.name} has no load balancer {name}", State.BAD)
    shown = ", ".join(ingress.ip or ingress.hostname for ingress in published.ingress) or "no address"
    if same_status(published, service.status.load_balancer):
        return Finding("in the cloud", "present", f"{name} with {shown}, as its status says")
    stated = ", ".join(ingress.ip or ingress.hostname for ingress in service.status.load_balancer.ingress) or "nothing"
    return Finding("in the cloud", "differs", f"{name} has {shown}; its status says {stated}", State.BAD)


async def _obstacles(
    service: core.Service, nodes: Sequence[core.Node], provider: Provider, clouds: Clouds, cluster: str
) -> Mapping[str, str] | Exception:
    """Why nodes cannot take the Service, where its load balancer sits on one of them; or why that is not known."""
    if not isinstance(provider.load_balancers, Placed):
        return {}
    eligible = [Target(node) for node in nodes if targets.verdict(node, provider.name, clouds.place).is_target]
    try:
        async with asyncio.timeout(ASK_S):
            return await provider.load_balancers.obstacles(cluster, service, eligible)
    except Exception as err:
        return err


def _targets(
    nodes: Sequence[core.Node],
    provider: Provider,
    clouds: Clouds,
    ready: frozenset[str] | None,
    obstacles: Mapping[str, str] | Exception,
) -> Iterable[Finding]:
    if isinstance(obstacles, Exception):
        failure = str(obstacles) or type(obstacles).__name__
        yield Finding("ports", "?", f"whether other Services take them is not known: {failure}", State.UNKNOWN)
        obstacles = {}
    verdicts = [(node, targets.verdict(node, provider.name, clouds.place)) for node in nodes]
    if not any(verdict.is_target for _, verdict in verdicts):
        yield Finding("targets", "none", "no node is eligible to carry its traffic", State.BAD)
    yield from _room([node.name for node, verdict in verdicts if verdict.is_target], obstacles)
    for node, verdict in sorted(verdicts, key=lambda pair: pair[0].name):
        words = [verdict.why]
        answer = "yes" if verdict.is_target else "no"
        if verdict.is_target and not node.is_ready:
            words.append("it is not ready")
            answer = "not ready"
        if verdict.is_target and ready is not None and node.name not in ready:
            words.append("it has no ready endpoint, and traffic must stay local")
            answer = "no endpoint"
        if verdict.is_target and node.name in obstacles:
            words.append(obstacles[node.name])
            answer = "taken"
        state = State.GOOD if answer == "yes" else State.NOTICE
        yield Finding(f"target {node.name}", answer, "; ".join(words), state)


def _room(eligible: Sequence[str], obstacles: Mapping[str, str]) -> Iterable[Finding]:
    """Whether the Service could go to a node at all, and to another one."""
    room = [name for name in eligible if name not in obstacles]
    if obstacles and not room:
        text = "every node that could carry it is taken, see below: add a node, or use other ports"
        yield Finding("room", "none", text, State.BAD)
    elif obstacles and len(room) == 1:
        text = f"every node but {room[0]} is taken, see below: it cannot move when {room[0]} fails; add a node"
        yield Finding("room", "one node", text, State.NOTICE)
