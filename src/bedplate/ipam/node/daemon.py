"""Everything put together: store, socket, watches, cleaner, probes.

In: options, environment. Out: `Daemon.run`, the whole program, in this order: files are installed, the pools are asked
for, and while their list is under way the store is locked and loaded and the socket is bound; everything else runs
beside it. Where another daemon still serves the node, store and socket wait for its end (`standby.py`). It stops in the
reverse order: no more calls, the last ones answered, the store written. The API server may be away all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bedplate.core import clock, errors, figures, logging, metrics
from bedplate.core.metrics import shared
from bedplate.ipam.addresses import Address
from bedplate.ipam.node import install, proofs, standby
from bedplate.ipam.node.cleaner import Cleaner, CleanerOptions, PodAsker
from bedplate.ipam.node.cri import Runtime, Sandbox
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.metrics import CallMetrics, CleanerMetrics, Snapshot, StateCollector, StoreMetrics
from bedplate.ipam.node.options import Options, cri_path, uids
from bedplate.ipam.node.poolview import LEAN_CIDRPOOLS, LEAN_IPPOOLS, LeanPool, PoolView
from bedplate.ipam.node.proofs import LEAN_PODS, LeanPod
from bedplate.ipam.node.readiness import ApiSource, Readiness
from bedplate.ipam.node.reservations import StaticIPCheck, StoreBusy
from bedplate.ipam.node.server import Server, parse_bind
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.config import find
from bedplate.kube.metrics import RequestMetrics
from bedplate.program.options import listener
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import WARNING, EventRecorder
from bedplate.runtime.manager import Manager
from bedplate.serving.health import Checks

__all__ = ["Daemon"]

log = logging.get_logger("ipam.node")
PROGRAM = "ipam-node"
SERVICE = "bedplate.ipam.node.service"
STOPPED = "a part of the daemon stopped unexpectedly"
FOREIGN, FULL, WRONG = "StaticIPInForeignBlock", "NoFreeAddresses", "PoolInvalidOnNode"
STOP_S = 5.0
LOCK_S, LOCK_POLL_S = 10.0, 0.05
"""How long a store may be locked by a daemon that no longer listens: it answers its last calls and writes."""
QPS, BURST = 20.0, 30
TURN_S = 0.0005
HTTP_WITHIN_S = 1.0
"""Probes and metrics are served so much later at most, if pools have not been listed by then."""


class Daemon:
    """One daemon. `run` ends when it is cancelled, and raises when a part fails."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        plugin: Path | None = None,
        *,
        time: clock.Clock | None = None,
    ) -> None:
        self._options = options
        self._environ = environ
        self._plugin = plugin
        self._time = time if time is not None else clock.SystemClock()
        self._node = options.daemon.node_name
        self.registry = figures.Waiting()
        self.readiness = Readiness()
        self.view = PoolView(self._node, on_problem=self._pool_is_wrong)
        self.server: Server | None = None
        self._calls = CallMetrics(self.registry)
        self._store = StoreMetrics(self.registry)
        self._runtime = Runtime(cri_path(options.checks.cri_socket)) if options.checks.cri_socket else None
        self._events: _Events | None = None

    async def run(self) -> None:
        """The whole program."""
        chosen = self._options.daemon
        install.install(self._options.cni, self._plugin)
        config = find(chosen.kubeconfig, self._environ).with_rate(QPS, BURST).with_user_agent(PROGRAM)
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                Client(config, time=self._time, metrics=shared(self.registry, RequestMetrics))
            )
            self._events = await stack.enter_async_context(_Events(replace(config, qps=1.0, burst=10), time=self._time))
            manager, pods = self._watch(client)
            opened: asyncio.Future[tuple[Ledger, Cleaner]] = asyncio.get_running_loop().create_future()
            manager.serve(lambda: self._settle(opened, pods))
            manager.serve(self._serve_http)
            running = asyncio.ensure_future(manager.run())
            stack.push_async_callback(_stop, running)
            ledger = await self._open_store(running)
            with _taking_turns():
                stack.push_async_callback(ledger.close)
                self._store.loaded(Path(chosen.store_file))
                self.readiness.must_recover = ledger.recovery is not None
                self.readiness.has_store = True
                cleaner = self._cleaner(ledger, client, pods)
                self.server = await self._serve(ledger, cleaner)
            opened.set_result((ledger, cleaner))
            # What is here now stays: no need to look at it again and again.
            gc.freeze()
            gc.enable()
            await self._run_until_stopped(self.server, running)

    async def _open_store(self, running: asyncio.Future[None]) -> Ledger:
        """The store, once no other daemon serves this node."""
        chosen = self._options.daemon
        socket_path = parse_bind(chosen.bind_address).path
        until: float | None = None
        while True:
            if socket_path and await self._stand_by(socket_path, running):
                until = None
            try:
                with _taking_turns():
                    return await Ledger.open(Path(chosen.store_file), clock=self._time, options=self._ledger_options())
            except StoreBusy as err:
                # A daemon of ours gives up its socket first; and another one that stood by may be quicker.
                if not socket_path or (until is not None and self._time.monotonic() >= until):
                    raise
                if until is None:
                    until = self._time.monotonic() + LOCK_S
                    log.info("store.locked", reason=str(err), effect=f"this is tried again for {LOCK_S:g} s")
            await self._time.sleep(LOCK_POLL_S)

    async def _stand_by(self, socket_path: str, running: asyncio.Future[None]) -> bool:
        """Wait until no other daemon listens on the socket; whether one did."""

        async def begin() -> None:
            self.readiness.is_standing_by = True
            # This may last.
            gc.enable()
            log.info(
                "standby.begun",
                socket=socket_path,
                reason="another daemon serves this node",
                effect="this one serves as soon as the other one has ended",
            )
            await asyncio.to_thread(importlib.import_module, SERVICE)

        waiting = asyncio.ensure_future(standby.wait(socket_path, time=self._time, begin=begin))
        try:
            await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                running.result()
                raise errors.Terminal(STOPPED)
            if waiting.result():
                log.info("standby.ended", socket=socket_path)
            return waiting.result()
        finally:
            self.readiness.is_standing_by = False
            await _stop(waiting)

    async def _serve(self, ledger: Ledger, cleaner: Cleaner) -> Server:
        """Listen for calls. The store is ours, so the socket is, too."""
        server = Server({}, self._calls, uids(self._options.access))
        await server.bind(parse_bind(self._options.daemon.bind_address))
        try:
            # The messages' library is much to load, so it is loaded while callers come and the API server answers.
            await asyncio.to_thread(importlib.import_module, SERVICE)
            from bedplate.ipam.node.service import NodeService

            StateCollector(self.registry, lambda: self._snapshot(ledger))
            service = NodeService(ledger, self.view, self.readiness, cleaner, on_exhausted=self._pool_is_full)
            await server.serve(service.handlers())
        except BaseException:
            await server.stop(0)
            raise
        self.readiness.has_socket = True
        return server

    async def _run_until_stopped(self, server: Server, running: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait((running,))
        finally:
            self.readiness.has_socket = False
            await server.stop(STOP_S)
            await _stop(running)
        running.result()
        # Only a signal is a good reason to end.
        raise errors.Terminal(STOPPED)

    def _ledger_options(self) -> LedgerOptions:
        check = StaticIPCheck(self._options.checks.static_ip_check)
        return LedgerOptions(static_ip_check=check, on_foreign=self._foreign, on_commit=self._store.count)

    def _watch(self, client: Client) -> tuple[Manager, Cache[LeanPod]]:
        """Everything that is read from the API server."""
        assert self._events is not None
        namespace = self._options.daemon.ippools_namespace
        source = ApiSource(client, self.readiness)
        manager = Manager(source, recorder=self._events.recorder, time=self._time)
        ippools: Cache[LeanPool] = manager.cache(LEAN_IPPOOLS, namespace=namespace)
        cidrpools: Cache[LeanPool] = manager.cache(LEAN_CIDRPOOLS, namespace=namespace)
        pods: Cache[LeanPod] = manager.cache(LEAN_PODS, field_selector=f"spec.nodeName={self._node}")
        ippools.on_change(self.view.take_ippool)
        cidrpools.on_change(self.view.take_cidrpool)
        self.readiness.pool_caches = (ippools, cidrpools)
        self.readiness.pod_caches = (pods,)
        return manager, pods

    def _cleaner(self, ledger: Ledger, client: Client, pods: Cache[LeanPod]) -> Cleaner:
        async def get(namespace: str, name: str) -> LeanPod | None:
            try:
                return await client.get(LEAN_PODS, name, namespace)
            except kube_errors.NotFound:
                return None

        async def every() -> Sequence[LeanPod]:
            return (await client.list(LEAN_PODS, field_selector=f"spec.nodeName={self._node}")).items

        chosen = self._options.checks
        return Cleaner(
            ledger,
            self.view,
            self._node,
            pods,
            PodAsker(get, every),
            runtime=self._runtime,
            options=CleanerOptions(
                chosen.cleaner == "on", chosen.cleaner_interval, chosen.cleaner_misses, chosen.cleaner_grace
            ),
            metrics=CleanerMetrics(self.registry),
            time=self._time,
        )

    async def _settle(self, opened: asyncio.Future[tuple[Ledger, Cleaner]], pods: Cache[LeanPod]) -> None:
        """Wake waiting calls once the caches are filled, restore lost reservations, then clean until cancelled."""
        for cache in self.readiness.pool_caches:
            await cache.synced.wait()
        self.readiness.changed()
        await pods.synced.wait()
        ledger, cleaner = await opened
        if ledger.recovery is not None:
            await self._recover(ledger, pods)
        self.readiness.changed()
        log.info("daemon.ready", pools=sorted(self.view.configs))
        await cleaner.run()
        # A cleaner that is switched off has nothing more to do; a part that ends would end the program.
        await asyncio.Event().wait()

    async def _recover(self, ledger: Ledger, pods: Cache[LeanPod]) -> None:
        sandboxes: list[Sandbox] = []
        if self._runtime is not None:
            try:
                sandboxes = await self._runtime.sandboxes()
            except errors.BedplateError as err:
                log.warning("recovery.no_runtime", error=str(err))
        proven = proofs.proven_by_pods(pods, self.view.configs, sandboxes)
        adopted = await ledger.adopt(proven)
        self.readiness.must_recover = False
        log.warning("recovery.done", held_by_pods=len(proven), added=adopted)

    async def _serve_http(self) -> None:
        """Probes and metrics. The web server and the metrics' library are much to load: pods come before them."""
        chosen, state = self._options.daemon, self.readiness
        addresses = (chosen.health_probe_bind_address, chosen.metrics_bind_address)
        served = _Served()
        if any(listener(address) for address in addresses):
            until = asyncio.get_running_loop().time() + HTTP_WITHIN_S
            await state.wait(lambda: state.has_pools or state.is_away, until)
            await asyncio.to_thread(importlib.import_module, "bedplate.program.endpoints")
            from bedplate.program import endpoints

            ready = Checks(
                "readyz",
                {"store": state.check_store, "caches": state.check_caches, "socket": state.check_socket},
                note=state.note,
            )
            endpoints.serve_probes(served, Checks("healthz"), ready, addresses[0], self._time)
            registry = metrics.registry()
            self.registry.pass_on(registry)
            endpoints.serve_metrics(served, registry, addresses[1], self._time)
        await served.run()

    def _snapshot(self, ledger: Ledger) -> Snapshot:
        return Snapshot(ledger.usage(self.view.configs), self.view.problems, self.readiness.is_ready)

    def _foreign(self, pool: str, address: Address, node: str) -> None:
        """A static address was given that another node may give too."""
        self._calls.foreign.labels(pool).inc()
        self._tell(pool, FOREIGN, f"allocated the requested address {address}, which is in the block of node {node}")

    def _pool_is_full(self, pool: str) -> None:
        self._tell(pool, FULL, "has no free address for a pod, or the requested one is taken")

    def _pool_is_wrong(self, pool: str, problem: str) -> None:
        self._tell(pool, WRONG, problem)

    def _tell(self, pool: str, reason: str, text: str) -> None:
        """An event about a pool. Equal ones are counted, not repeated."""
        about = self.view.reference(pool)
        if about is not None and self._events is not None:
            self._events.tell(about, reason, f"node {self._node}: {text}")


async def _stop(running: asyncio.Future[Any]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@contextlib.contextmanager
def _taking_turns() -> Iterator[None]:
    """Threads that load let the event loop have its turn at once."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class _Served:
    """What is served over HTTP."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], Awaitable[None]]] = []

    def serve(self, task: Callable[[], Awaitable[None]]) -> None:
        """Let `run` run it."""
        self._tasks.append(task)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(asyncio.Event().wait(), *(task() for task in self._tasks))


class _Events:
    """Events about pools, as long as the API server lets us write any: the original's role does not."""

    def __init__(self, config: Any, *, time: clock.Clock) -> None:
        self._client = _EventClient(config, time=time)
        self.recorder = EventRecorder(self._client, PROGRAM, time=time)

    async def __aenter__(self) -> _Events:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.__aexit__(*exc)

    def tell(self, about: Any, reason: str, text: str) -> None:
        """Write it in the background."""
        if not self._client.is_denied:
            self.recorder.event(about, WARNING, reason, text)


class _EventClient(Client):
    """A client that remembers that it may not write."""

    is_denied = False

    async def create(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().create(*args, **kwargs)
        except kube_errors.Forbidden:
            self.is_denied = True
            raise
