"""The cloud node lifecycle controller: taints nodes whose machine is off, deletes those whose machine is gone.

In: the cache of Nodes (only those below `--node-selector`), and the clouds. Out: taints, deletions, events, metrics.
Each cloud has its own timer and its own pass, so that the slow answers of one hold up no other's nodes; nodes without a
provider ID have one of theirs when there are several clouds, and are absent only when every cloud says so. Everything
is decided in `lifecycle_plan`; this module asks, and carries out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry, Counter, Gauge

from bedplate.api import core
from bedplate.api.resources import NODES
from bedplate.cloud import taints
from bedplate.cloud.controllers import lifecycle_plan
from bedplate.cloud.controllers.lifecycle_brake import Census, Sighting, Stage
from bedplate.cloud.controllers.lifecycle_plan import Action, Answer, Memory, Moment, Question, Rules, Verdict
from bedplate.cloud.controllers.nodewrites import ASK_TIMEOUT_S, RECONCILE, NodeWriter, in_parallel
from bedplate.cloud.errors import InstanceNotFound
from bedplate.cloud.interface import Instances, Provider
from bedplate.cloud.labels import is_excluded
from bedplate.cloud.routing import Clouds, Owned, Unplaced
from bedplate.core import clock, errors, logging
from bedplate.core.metrics import shared
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.runtime import events
from bedplate.runtime.cache import Cache
from bedplate.runtime.leaderelection import Recorder
from bedplate.runtime.manager import Leading

__all__ = ["COMPONENT", "REASON_BLOCKED", "LifecycleController", "LifecycleOptions", "ask", "sight"]

COMPONENT = "cloud-node-lifecycle-controller"
DELETE_TRIES = 3
REPORT_S = 60.0
REASON_DELETING, REASON_FAILED, REASON_BLOCKED = "DeletingNode", "DeletingNodeFailed", "NodeDeletionBlocked"
log = logging.get_logger("cloud.lifecycle")


@dataclass(frozen=True, slots=True)
class LifecycleOptions:
    """The flags of the same names."""

    node_monitor_period_s: float = 5.0
    concurrent_node_lifecycle_checks: int = 5
    node_deletion_confirmations: int = 2
    max_node_deletions_percent: int = 20
    mass_deletion_hold_s: float = 900.0
    node_startup_grace_period_s: float = 120.0
    node_out_of_service_taint: bool = False

    @property
    def rules(self) -> Rules:
        """What the plan needs of them."""
        return Rules(
            period_s=self.node_monitor_period_s,
            confirmations=self.node_deletion_confirmations,
            max_percent=self.max_node_deletions_percent,
            hold_s=self.mass_deletion_hold_s,
            grace_s=self.node_startup_grace_period_s,
            is_out_of_service_tainted=self.node_out_of_service_taint,
        )


class LifecycleMetrics:
    """Deletions, done and withheld."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deletions = Counter(
            "ccm_node_deletions", "Nodes deleted because their machine does not exist.", registry=registry
        )
        self.blocked = Counter(
            "ccm_node_deletions_blocked",
            "Deletions withheld in a pass although the machine does not exist, by reason.",
            ("reason",),
            registry=registry,
        )
        self.opens = Gauge(
            "ccm_node_deletion_brake_opens_timestamp_seconds",
            "When the brake on deletions opens by itself if its proof goes on; 0 while no proof runs.",
            ("cloud",),
            registry=registry,
        )
        self.unmanaged = Gauge(
            "ccm_unmanaged_nodes", "Nodes whose provider ID belongs to no cloud of this manager.", registry=registry
        )


class LifecycleController:
    """The parts that run while leading: one monitor for each cloud that has instances."""

    def __init__(
        self,
        client: Client,
        clouds: Clouds,
        nodes: Cache[core.Node],
        recorder: Recorder,
        options: LifecycleOptions | None = None,
        time: clock.Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.client = client
        self.clouds = clouds
        self.nodes = nodes
        self.recorder = recorder
        self.options = options if options is not None else LifecycleOptions()
        self.time = time if time is not None else clock.SystemClock()
        self.metrics = shared(registry if registry is not None else CollectorRegistry(), LifecycleMetrics)
        self.absent: dict[str, int] = {}
        """How many nodes seemed absent in each monitor's last pass, for the brakes of the others."""

    def parts(self) -> list[Leading]:
        """What a manager runs while leading; nothing when no cloud has instances."""
        providers = self.clouds.with_instances()
        if not providers:
            log.warning("lifecycle_controller.skipped", reason="no cloud provider has instances")
            return []
        monitors: list[Leading] = [
            Monitor(COMPONENT if number == 0 else f"{COMPONENT}-{provider.name}", self, provider)
            for number, provider in enumerate(providers)
        ]
        if len(self.clouds) == len(providers) > 1:
            # With a cloud that cannot be asked for machines it is unknown whether any cloud has a name.
            monitors.append(Monitor(f"{COMPONENT}-unplaced", self, None))
        return monitors


class Monitor:
    """Looks at the nodes of one cloud (None: at those without a provider ID) again and again."""

    def __init__(self, name: str, owner: LifecycleController, provider: Provider | None) -> None:
        self.name = name
        self._owner = owner
        self._provider = provider
        self._rules = owner.options.rules
        self._writer = NodeWriter(owner.client, COMPONENT, owner.time)
        self._cloud = provider.name if provider is not None else "any"
        self._log = log.bind(cloud=self._cloud)
        self._stage = Stage.OFF
        self._unanswered_at: float | None = None
        clouds = owner.clouds
        asked = (provider,) if provider is not None else clouds.with_instances()
        self._instances = tuple(instances for cloud in asked if (instances := clouds.instances(cloud)) is not None)

    async def run(self) -> None:
        """Pass after pass, a period after the last has ended, until cancelled."""
        await self._owner.nodes.synced.wait()
        memory = Memory()
        while True:
            try:
                memory = await self.look(memory)
            except Exception:
                # What this pass learned is lost, so what earlier ones learned no longer counts either.
                self._log.exception("lifecycle.bug")
                memory = Memory(is_first=False)
            await self._owner.time.sleep(self._rules.period_s)

    async def look(self, memory: Memory) -> Memory:
        """One pass; takes the memory of the last one and gives that for the next."""
        owner, rules = self._owner, self._rules
        mine, others = self._sort()
        surveyed = lifecycle_plan.survey(mine, memory, rules, self._moment())
        await self._carry_out(surveyed.verdicts)
        answers: dict[str, Answer] = {}

        async def put(question: Question) -> None:
            answers[question.node.metadata.uid] = await ask(self._instances, question, owner.time)

        await in_parallel(surveyed.questions, owner.options.concurrent_node_lifecycle_checks, put)
        sighting = Sighting()
        if lifecycle_plan.is_braked(surveyed, answers, rules, self._moment(), self._elsewhere(others)):
            sighting = await sight(self._instances, mine)
        # From here to the new count nothing is awaited: no other cloud's pass may judge by an old one.
        judged = lifecycle_plan.judge(surveyed, answers, rules, self._moment(), self._elsewhere(others), sighting)
        owner.absent[self.name] = judged.census.absent
        self._report(answers)
        self._report_proof(judged)
        deleted = await self._carry_out(judged.verdicts)
        return lifecycle_plan.after_deletions(judged.memory, deleted)

    def _elsewhere(self, others: Sequence[core.Node]) -> Census:
        absent = sum(count for name, count in self._owner.absent.items() if name != self.name)
        return Census(lifecycle_plan.count_managed(others), absent)

    def _sort(self) -> tuple[list[core.Node], list[core.Node]]:
        """The nodes of this monitor, and those of the others; what is left is foreign, and counted."""
        mine: list[core.Node] = []
        others: list[core.Node] = []
        foreign = 0
        place_of, own = self._owner.clouds.place, self._provider
        for node in self._owner.nodes:
            place = place_of(node)
            if isinstance(place, Owned):
                is_mine = own is not None and place.provider.name == own.name
            elif isinstance(place, Unplaced):
                is_mine = own is self._owner.clouds.sole
            else:
                foreign += 1
                continue
            (mine if is_mine else others).append(node)
        self._owner.metrics.unmanaged.set(foreign)
        return mine, others

    def _moment(self) -> Moment:
        return Moment(self._owner.time.monotonic(), self._owner.time.now())

    def _report(self, answers: dict[str, Answer]) -> None:
        """Log questions that stayed open: when that begins, and once a minute while it lasts."""
        failed = [answer.error for answer in answers.values() if answer.exists is None]
        now = self._owner.time.monotonic()
        if not failed:
            self._unanswered_at = None
        elif self._unanswered_at is None or now - self._unanswered_at >= REPORT_S:
            self._unanswered_at = now
            self._log.warning("lifecycle.unanswered", nodes=len(failed), error=failed[0])

    def _report_proof(self, judged: lifecycle_plan.Judgement) -> None:
        """The metric, and a line in the log when the brake's proof begins, breaks or is complete."""
        proof, now = judged.memory.proof, self._moment()
        opens = 0.0
        if proof.opens_at is not None:
            opens = now.wall.timestamp() + proof.opens_at - now.monotonic
        self._owner.metrics.opens.labels(self._cloud).set(opens)
        if proof.stage is not self._stage:
            self._stage = proof.stage
            if proof.stage is Stage.PROVEN:
                self._log.warning("lifecycle.brake_opens", reason="every look proved that the machines are gone")
            elif judged.outlook:
                self._log.warning("lifecycle.brake", stage=proof.stage, reason=judged.outlook)

    # Carrying out

    async def _carry_out(self, verdicts: tuple[Verdict, ...]) -> list[str]:
        """Do what was decided; the uids of the nodes that were deleted."""
        deleted: list[str] = []

        async def one(verdict: Verdict) -> None:
            if await self._carry_out_one(verdict):
                deleted.append(verdict.node.metadata.uid)

        todo = [verdict for verdict in verdicts if verdict.action is not Action.KEEP or verdict.withheld]
        await in_parallel(todo, self._owner.options.concurrent_node_lifecycle_checks, one)
        return deleted

    async def _carry_out_one(self, verdict: Verdict) -> bool:
        self._log.v(4).info("lifecycle.verdict", node=verdict.node.name, action=verdict.action, reason=verdict.reason)
        if verdict.withheld in lifecycle_plan.HOLDS:
            self._owner.metrics.blocked.labels(verdict.withheld).inc()
        match verdict.action:
            case Action.DELETE:
                return await self._delete(verdict)
            case Action.BLOCK if verdict.is_told:
                self._log.warning(
                    "lifecycle.blocked", node=verdict.node.name, reason=verdict.reason, outlook=verdict.outlook
                )
                message = f"Node {verdict.node.name} is not deleted: {verdict.reason}; {verdict.outlook}"
                self._event(verdict.node, events.WARNING, REASON_BLOCKED, message)
            case Action.TAINT | Action.UNTAINT:
                await self._taint(verdict)
        return False

    async def _taint(self, verdict: Verdict) -> None:
        is_added = verdict.action is Action.TAINT

        def decide(node: core.Node) -> dict[str, object] | None:
            if node.is_ready is is_added or (is_added and is_excluded(node.metadata.labels)):
                return None
            now = node.spec.taints
            for taint in verdict.taints:
                now = taints.added(now, taint) if is_added else taints.removed(now, taint)
            if now == node.spec.taints:
                return None
            exact = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
            return {"metadata": exact, "spec": {"taints": taints.on_the_wire(now)}}

        try:
            if await self._writer.patch(verdict.node, decide(verdict.node), decide, RECONCILE) is not None:
                self._log.info("lifecycle.tainted", node=verdict.node.name, reason=verdict.reason)
        except errors.BedplateError as err:
            self._log.warning("lifecycle.taint_failed", node=verdict.node.name, error=errors.describe(err))

    async def _delete(self, verdict: Verdict) -> bool:
        """Delete this very node in this very state; whether it is gone."""
        judged = verdict.node
        is_told = False
        try:
            for _ in range(DELETE_TRIES):
                current = await self._owner.client.get(NODES, judged.name)
                if changed := lifecycle_plan.may_still_delete(judged, current):
                    self._log.info("lifecycle.spared", node=judged.name, reason=changed)
                    self._owner.metrics.blocked.labels("changed").inc()
                    return False
                if not is_told:
                    self._tell_deletion(verdict)
                    is_told = True
                try:
                    await self._owner.client.delete(
                        NODES, judged.name, uid=current.metadata.uid, resource_version=current.metadata.resource_version
                    )
                except errors.Conflict:
                    continue
                self._owner.metrics.deletions.inc()
                return True
        except kube_errors.NotFound:
            return True
        except errors.BedplateError as err:
            self._log.warning("lifecycle.delete_failed", node=judged.name, error=errors.describe(err))
            self._event(judged, events.WARNING, REASON_FAILED, f"Deleting node {judged.name} failed: {err}")
        return False

    def _tell_deletion(self, verdict: Verdict) -> None:
        self._log.info("lifecycle.deleting", node=verdict.node.name, reason=verdict.reason)
        name = verdict.node.name
        message = f"Deleting node {name} because it does not exist in the cloud provider"
        self._event(verdict.node, events.NORMAL, REASON_DELETING, message)

    def _event(self, node: core.Node, type_: str, reason: str, message: str) -> None:
        self._owner.recorder.event(events.reference(NODES, node), type_, reason, message)


async def sight(instances: tuple[Instances, ...], nodes: Sequence[core.Node]) -> Sighting:
    """List the machines of these clouds: every list must be readable, and the emptiest counts."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            listings = [await cloud.listing(nodes) for cloud in instances]
    except Exception as err:
        # Known or not: there is no list, and so no proof.
        return Sighting(error=str(err) or type(err).__name__)
    if not listings:
        return Sighting()
    shown = frozenset[str]().union(*(listing.nodes for listing in listings))
    return Sighting(min(listing.machines for listing in listings), shown, error="")


async def ask(instances: tuple[Instances, ...], question: Question, time: clock.Clock) -> Answer:
    """What the clouds say of a node: there when one has it, absent only when each of them says so for certain."""
    answers = await asyncio.gather(*(_ask_one(reply, question, time) for reply in instances))
    for existence in (True, None):
        for answer in answers:
            if answer.exists is existence:
                return answer
    if not answers:
        return Answer(None, time.monotonic(), time.monotonic(), error="no cloud to ask")
    first, last = min(reply.asked_at for reply in answers), max(reply.answered_at for reply in answers)
    return Answer(False, first, last, question.is_fresh)


async def _ask_one(instances: Instances, question: Question, time: clock.Clock) -> Answer:
    asked_at = time.monotonic()

    def answered(exists: bool | None, error: str = "") -> Answer:
        return Answer(exists, asked_at, time.monotonic(), question.is_fresh, error)

    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            exists: object = await instances.exists(question.node, fresh=question.is_fresh)
    except InstanceNotFound:
        return answered(False)
    except Exception as err:
        # Known or not: a failure to find out, never absence.
        return answered(None, str(err) or type(err).__name__)
    if exists is not True:
        # Nothing but a plain no is absence.
        return answered(False) if exists is False else answered(None, f"unreadable response {exists!r}")
    return await _with_shutdown(instances, question, answered(True))


async def _with_shutdown(instances: Instances, question: Question, answer: Answer) -> Answer:
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            is_shutdown = await instances.is_shutdown(question.node, fresh=question.is_fresh)
            return replace(answer, is_shutdown=is_shutdown is True)
    except Exception as err:
        return replace(answer, error=str(err) or type(err).__name__)
