"""`--upgrade VERSION --rehearse`: the same upgrade in a lab of this machine, and nothing of it on the cluster.

In: the flags. Out: what the lab stands for, the run there, a line for each stage with its time, what a client that
wrote once a second saw, and the exit code: 0 for a rehearsal that succeeded. The cluster is asked what stands in its
way, which changes nothing, and is then left alone: the head is closed before the lab starts. The lab is a managed one,
its cluster is deployed and upgraded by the operations that deploy and upgrade real ones. It is taken down in any case;
after kill -9 it is what `bedplate lab down` removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bedplate.api.resources import CONFIG_MAPS, custom
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.kube import Client
from bedplate.lab import binaries, managed, packages, state
from bedplate.lab import cluster as labs
from bedplate.lab.plan import Options
from bedplate.setup.answers import document
from bedplate.setup.answers import site as sites
from bedplate.setup.engine.events import Line, Output
from bedplate.setup.engine.journal import Journal
from bedplate.setup.engine.reporter import Reporter
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes.upgrade import planning
from bedplate.setup.kubernetes.upgrade.seeing import nodes_of
from bedplate.setup.rehearsal import casting
from bedplate.setup.rehearsal.outcome import Outcome, Writes
from bedplate.setup.rehearsal.writing import Writer
from bedplate.setup.tool import heads, operations, output, upgrading
from bedplate.setup.tool.flags import FLAGS

__all__ = ["missing", "of_lab", "perform"]

_KEPT = ("json", "output_remote_execution_runner", "verbose", "log_file")
"""Flags that every run of a rehearsal has."""
_ALSO = ("upgrade", "batch", "drain_timeout", *upgrading.CONSENTS, "skip_image_update")
"""Flags of the upgrade itself."""
_PROXY = "kube-proxy"
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""What kubectl rollout restart sets."""
_DAEMON_SETS = custom("apps", "v1", "daemonsets", "DaemonSet", True)


def perform(values: Mapping[str, Any]) -> int:
    """Rehearse an upgrade; its exit code. Raises what refuses it before anything is started."""
    clock = SystemClock()
    version = upgrading.target(values)
    labs.check_machine(is_managed=True)
    folder = heads.state_folder(values["state"], None)
    with output.reporter(values, folder, clock, has_log=False) as reporter:
        seen = asyncio.run(_look(values, version, clock, reporter))
        if seen is None:
            return 0
        lines = [*seen.lines, f"The cluster {seen.answers['kubernetes']['name']} itself is not changed."]
        reporter.emit(Output("\n".join(lines)))
        _refuse_missing(seen.answers["kubernetes"]["version"], str(version))
        if values["plan"]:
            return 0
        return _Rehearsal(seen, str(version), values, reporter, clock).perform()


async def _look(
    values: Mapping[str, Any], version: planning.Version, clock: Clock, reporter: Reporter
) -> casting.Cast | None:
    """What the lab has to be like; None where there is nothing to upgrade. Raises `Conflict` for what is in the way."""
    async with heads.reach(values) as reached:
        await heads.check_standing(reached.backend, is_allowed=bool(values["allow_running_from_secondary"]))
        tree = reached.backend.tree
        known = sites.of_tree(tree, reached.backend.name).clusters
        cluster = heads.sole(values["cluster"], sorted(known), "rehearse")
        folder = reached.data or heads.state_folder(values["state"], reached.data) / cluster
        seen = await upgrading.look(tree, cluster, version, folder, {**values, "plan": True}, clock)
        if seen.has_work and not seen.is_blocked:
            async with clusters.connected(folder, cluster) as client:
                mode = _mode_of(await _proxy_config(client))
            going = planning.plan_of(seen.answers["plan"])
            oldest = str(min(planning.Version.parse(step.current) for step in going.steps))
            is_mixed = any(step.current != oldest for step in going.steps) or set(going.nodes) != set(
                nodes_of(tree, cluster)
            )
            originals, traits = casting.of_tree(tree, cluster, oldest, mode, is_mixed=is_mixed)
            most = values["rehearse_workers"]
            return casting.cast(originals, traits, casting.WORKERS if most is None else most)
    reporter.emit(Output("\n".join(seen.lines)))
    if not seen.has_work:
        return None
    raise errors.Conflict(
        f"the cluster {cluster} is not fit to be upgraded to {version}: nothing was rehearsed",
        hint="put right what is in the way, or give the flags that accept it, then rehearse again",
    )


def missing(*releases: str) -> dict[str, list[str]]:
    """The programs that the cache lacks for a lab with these versions of Kubernetes, by version."""
    names = (*packages.TAKEN, *managed.IMAGED)
    lacking = {version: binaries.missing(names, version) for version in releases}
    return {version: absent for version, absent in lacking.items() if absent}


def _refuse_missing(*releases: str) -> None:
    lacking = missing(*releases)
    if not lacking:
        return
    told = [f"Kubernetes {version}: {', '.join(names)}" for version, names in lacking.items()]
    commands = [f"bedplate binaries get {' '.join(names)} --kubernetes {each}" for each, names in lacking.items()]
    raise errors.NotFound(
        f"the cache has not all programs of the lab ({'; '.join(told)}): nothing was started",
        hint=f"{' && '.join(commands)} builds them, which takes minutes; then rehearse again",
    )


def of_lab(values: Mapping[str, Any], folder: Path, *names: str, **more: Any) -> dict[str, Any]:
    """The flags of an operation on a lab's head: of those that were given, `names` and what every run has."""
    kept = {*_KEPT, *names}
    empty = {flag.attribute: () if flag.is_multiple else (False if flag.kind is None else None) for flag in FLAGS}
    given = {name: values[name] for name in kept}
    # At a terminal nobody is asked: the lab would wait for an answer.
    own = {"data": managed.head_folder(folder), "state": folder / "setup", "served": True}
    return {**empty, **given, **own, "on_error_action": values["on_error_action"] or "abort", **more}


class _Rehearsal:
    """One lab, from its start to its end."""

    def __init__(
        self, cast: casting.Cast, version: str, values: Mapping[str, Any], reporter: Reporter, clock: Clock
    ) -> None:
        self._cast = cast
        self._version = version
        self._values = values
        self._reporter = reporter
        self._clock = clock
        self._shelf = state.Shelf()
        self._folder = self._shelf.folder(cast.lab)
        self._cluster: str = cast.answers["kubernetes"]["name"]

    def perform(self) -> int:
        self._say(
            f"The lab is called {self._cast.lab}; should this be killed: bedplate lab down --name {self._cast.lab}"
        )
        options = Options(
            name=self._cast.lab,
            nodes=len(self._cast.parts),
            kubernetes=self._cast.answers["kubernetes"]["version"],
            next_kubernetes=self._version,
            managed=True,
        )
        with _interruptible() as heed:
            programs = labs.gather(options, self._say)
            # A lab of that name that is up is somebody's: it is refused here, and not taken down below.
            asyncio.run(labs.up(options, programs, self._say, self._shelf))
            is_good = False
            try:
                is_good = self._rehearse(heed)
            finally:
                self._down(is_good=is_good)
        self._say(f"The rehearsal of the upgrade to {self._version} {'succeeded' if is_good else 'failed'}.")
        return 0 if is_good else 1

    def _rehearse(self, heed: Callable[[], None]) -> bool:
        answers = self._folder / "rehearsal.yaml"
        answers.write_text(document.save(self._cast.answers))
        self._say(f"Deploying {self._cluster} in the lab")
        deployment = operations.Operation(of_lab(self._values, self._folder, config=answers), self._clock)
        code = asyncio.run(deployment.perform("deploy"))
        heed()
        if code != 0:
            self._say("The cluster could not be deployed in the lab; nothing was rehearsed", "error")
            return False
        asyncio.run(self._take_over_proxy_mode())
        self._say(f"Upgrading {self._cluster} in the lab, while a client writes once a second")
        writes = asyncio.run(self._upgrade())
        heed()
        journal = Journal.load(self._folder / "setup", self._cluster)
        originals = {part.name: part.original.name for part in self._cast.parts}
        stages = journal.record.stages if journal is not None and journal.record.operation == "upgrade" else []
        outcome = Outcome(stages, writes, self._cast.planes, originals)
        self._reporter.emit(Output("\n".join(outcome.lines())))
        return outcome.is_good

    async def _take_over_proxy_mode(self) -> None:
        """kube-proxy as the cluster has it: kubeadm keeps its configuration over an upgrade."""
        mode = self._cast.proxy_mode
        async with self._connected() as client:
            config = await _proxy_config(client)
            if not mode or _mode_of(config) == mode:
                return
            changed = yaml.safe_dump({**yaml.safe_load(config), "mode": mode})
            await client.patch(CONFIG_MAPS, _PROXY, {"data": {"config.conf": changed}}, "kube-system")
            annotations = {_RESTARTED: self._clock.now().isoformat(timespec="seconds")}
            change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            await client.patch(_DAEMON_SETS, _PROXY, change, "kube-system")
        self._say(f"kube-proxy of the lab has the mode {mode}")

    async def _upgrade(self) -> Writes:
        """Upgrade the lab's cluster while a client writes, as the proxy lets it."""
        values = of_lab(self._values, self._folder, *_ALSO)
        async with self._connected() as client:
            writer, is_over = Writer(client, self._clock), asyncio.Event()
            writing = asyncio.create_task(writer.write(is_over.is_set))
            try:
                await operations.Operation(values, self._clock).perform("upgrade")
            finally:
                is_over.set()
                await writing
            try:
                lost: tuple[str, ...] | None = tuple(await writer.lost())
            except errors.BedplateError:
                lost = None
        return Writes(len(writer.written), tuple(writer.retries), lost, writer.slowest_s)

    def _connected(self) -> contextlib.AbstractAsyncContextManager[Client]:
        return clusters.connected(managed.head_folder(self._folder), self._cluster)

    def _down(self, *, is_good: bool) -> None:
        kept = None if is_good else labs.keep_logs(self._folder, self._shelf)
        labs.down(self._cast.lab, self._shelf)
        self._say(f"The lab {self._cast.lab} is gone{f'; its logs are in {kept}' if kept else ''}")

    def _say(self, text: str, level: str = "info") -> None:
        self._reporter.emit(Line(text, level))


async def _proxy_config(client: Client) -> str:
    """The configuration of kubeadm's kube-proxy; empty for a cluster without."""
    try:
        return (await client.get(CONFIG_MAPS, _PROXY, "kube-system")).data.get("config.conf", "")
    except errors.NotFound:
        return ""


def _mode_of(config: str) -> str:
    """The mode of a configuration of kube-proxy; an empty one is that of the kernel's tables."""
    return str((yaml.safe_load(config) or {}).get("mode") or "iptables") if config else ""


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP interrupt as Ctrl-C does, so that all three take the lab down. A run of stages has handlers of
    its own and leaves none: what is yielded sets these again."""
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def heed() -> None:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)

    before = [signal.getsignal(number) for number in numbers]
    heed()
    try:
        yield heed
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
