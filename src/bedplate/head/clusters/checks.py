"""Runs the checks of one cluster, again and again.

In: a kubeconfig, the declarations of the checks (enabled, interval), what agents report. Out: results in `Health` under
the name of the cluster, and notices when a check turns. A cluster has its checks while it is in the tree and has a
kubeconfig.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bedplate.api import core
from bedplate.api.headapi import Result
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head import resolve
from bedplate.head.clusters import judging, seeing
from bedplate.head.clusters.judging import CHILDREN, COMPONENTS, NAMES, NODES, PODS, Agent, Beat
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.entities.site import HealthCheck
from bedplate.head.health import Health, news
from bedplate.head.notices import Notices
from bedplate.head.service import Head
from bedplate.head.tree import Tree
from bedplate.kube import Client, config

if TYPE_CHECKING:
    from bedplate.head.health import Condition

__all__ = ["INTERVAL_S", "ClusterChecks", "due", "host_of"]

_LOG = get_logger("head.clusters")
INTERVAL_S = 120.0
_SHORTEST_S = 5.0
_ALIVE_S = 100.0
"""At least so often something is recorded, so that results of rare checks do not count as old."""
T = TypeVar("T")


def host_of(cluster: str) -> str:
    """Under which name the results of a cluster are kept; no device can have it."""
    return f"kubernetes:{cluster}"


def due(tree: Tree) -> dict[str, float]:
    """The checks that are enabled, with their intervals in seconds. One that is not declared runs as usual."""
    checks = {}
    for name in NAMES:
        declared = tree.find("healthcheck", name)
        if declared is None:
            checks[name] = INTERVAL_S
        elif HealthCheck.enabled.value(declared):
            interval = HealthCheck.interval.value(declared)
            assert isinstance(interval, float | int)
            checks[name] = max(_SHORTEST_S, float(interval))
    return checks


def members(tree: Tree, cluster: str, health: Health) -> Iterator[Agent]:
    """The nodes of a cluster, with what their agents report; of a node that does not report nothing is worked out."""
    for name, device in tree.mode("device").items():
        state = health.state(name)
        if state != "UP":
            continue
        given = resolve.roles_of(tree, device).get("kubelet")
        if given is not None and KubeletRole.kubernetes_cluster.value(given.role) == cluster:
            yield Agent(name, state, _fault(health.of(name)))


def _fault(condition: Condition | None) -> str:
    verdict = condition.checks.get(CHILDREN) if condition is not None else None
    if verdict is None or verdict.last.status != "FAIL":
        return ""
    return verdict.last.info or "the kubelet or the container runtime does not run"


class ClusterChecks:
    """The checks of one cluster, while its kubeconfig stays the same."""

    def __init__(self, name: str, head: Head, health: Health, notices: Notices, clock: Clock) -> None:
        self._name = name
        self._head = head
        self._health = health
        self._notices = notices
        self._clock = clock
        self._beats: dict[str, Beat] = {}
        self._measured_s: dict[str, float] = {}
        self._told_s = -_ALIVE_S

    async def run(self, file: Path) -> None:
        """Check until cancelled."""
        settings = config.load(file, environ={}).with_user_agent("bedplate-head")
        async with Client(settings) as client:
            while True:
                await self.look(client)
                await self._clock.sleep(_SHORTEST_S)

    async def look(self, client: Client) -> None:
        """Run the checks that are due."""
        now, enabled = self._clock.monotonic(), due(self._head.tree)
        names = [name for name, span in enabled.items() if now - self._measured_s.get(name, now - span) >= span]
        known = self._health.of(host_of(self._name))
        has_more = known is not None and not set(known.checks) <= set(enabled)
        is_quiet = now - self._told_s < _ALIVE_S
        if (not names and not has_more and is_quiet) or not self._head.standing.is_active:
            return
        self._told_s = now
        results = await self._results(client, set(names))
        self._measured_s.update(dict.fromkeys(names, now))
        self._head.standing.refuse_writes()
        measured = await self._health.record(host_of(self._name), results, checks=list(enabled))
        turned = [item._replace(host=self._name) for item in news(host_of(self._name), (), (), measured)]
        if turned:
            await self._notices.add_all(turned)

    async def _results(self, client: Client, names: set[str]) -> list[Result]:
        listed: list[core.Node] | errors.BedplateError | None = None
        if names & {NODES, CHILDREN}:
            listed = await _asked(lambda: seeing.nodes(client))
        results = []
        if COMPONENTS in names:
            results.append(await self._components(client))
        if NODES in names:
            assert listed is not None
            is_error = isinstance(listed, errors.BedplateError)
            results.append(judging.unknown(NODES, str(listed)) if is_error else judging.nodes(listed))  # type: ignore[arg-type]
        if CHILDREN in names:
            agents = members(self._head.tree, self._name, self._health)
            results.append(judging.children(agents, None if isinstance(listed, errors.BedplateError) else listed))
        if PODS in names:
            bad = await _asked(lambda: seeing.pods(client))
            is_unknown = isinstance(bad, errors.BedplateError)
            results.append(judging.unknown(PODS, str(bad)) if is_unknown else judging.pods(bad))  # type: ignore[arg-type]
        return results

    async def _components(self, client: Client) -> Result:
        try:
            unready = await seeing.failing(client)
            static = await seeing.static_pods(client) if not unready else []
            now_s = self._clock.monotonic()
            if not unready:
                self._beats = await seeing.beats(client, self._beats, now_s)
        except errors.BedplateError as err:
            return judging.unknown(COMPONENTS, str(err))
        # While the API server does not take renewals, nobody can be blamed for not renewing.
        return judging.components(unready, static, judging.stopped(self._beats, now_s) if not unready else ())


async def _asked(question: Callable[[], Awaitable[T]]) -> T | errors.BedplateError:
    try:
        return await question()
    except errors.BedplateError as err:
        return err
