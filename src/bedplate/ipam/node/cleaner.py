"""Frees addresses whose owners are proven dead, and nothing else.

In: the ledger, the pods of this node, the API server, the container runtime where its socket is given. Out: freed
addresses, each with its reason in the log. Everything is decided without holding up a call; the ledger frees only
what is still as it was when it was judged.

Dead means dead on several looks: a sandbox that the runtime did not have twice, or a pod that was gone from the cache
and from the API server itself `misses` times in a row. A look that fails proves nothing, for that reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from bedplate.core import clock, errors, logging
from bedplate.ipam.node import proofs
from bedplate.ipam.node.cri import NoSocket, Runtime
from bedplate.ipam.node.ledger import Ledger
from bedplate.ipam.node.metrics import CleanerMetrics
from bedplate.ipam.node.poolview import PoolView
from bedplate.ipam.node.proofs import Evidence, LeanPod, Proof, Sandboxes, Verdict
from bedplate.ipam.node.reservations import Reservation
from bedplate.runtime.cache import Cache

__all__ = ["Cleaner", "CleanerOptions", "PodAsker"]

T = TypeVar("T")
log = logging.get_logger("ipam.node.cleaner")
SANDBOX_MISSES = 2
# More suspects than this are looked up with one list of this node's pods instead of one GET each.
_LIST_FROM = 16
_CHUNK = 128
_PAUSE_EVERY = 200


class CleanerOptions(msgspec.Struct, frozen=True):
    """How patient it is."""

    is_on: bool = True
    interval_s: float = 60.0
    misses: int = 4
    grace_s: float = 240.0
    """A sandbox is listed only after its network is made: nothing younger is judged by the runtime's list."""


class PodAsker(NamedTuple):
    """How the API server itself is asked, not a cache."""

    get: Callable[[str, str], Awaitable[LeanPod | None]]
    """Namespace, name; None when there is no such pod."""
    list: Callable[[], Awaitable[Sequence[LeanPod]]]
    """All pods of this node."""


_Key = tuple[str, str, str, str]
_Seen = tuple[Reservation, Evidence]


class _Misses(msgspec.Struct):
    first: float
    last: float
    proof: Proof
    count: int = 0


def _key(reservation: Reservation) -> _Key:
    return (reservation.pool, reservation.container_id, reservation.interface_name, reservation.create_time)


async def _gently(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with pauses in which calls are served."""
    for position, item in enumerate(items, 1):
        yield item
        if position % _PAUSE_EVERY == 0:
            await asyncio.sleep(0)


class Cleaner:
    """Looks at all reservations again and again."""

    def __init__(
        self,
        ledger: Ledger,
        view: PoolView,
        node_name: str,
        pods: Cache[LeanPod],
        ask: PodAsker,
        *,
        runtime: Runtime | None,
        options: CleanerOptions,
        metrics: CleanerMetrics,
        time: clock.Clock,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._node = node_name
        self._pods = pods
        self._ask = ask
        self._runtime = runtime
        self._options = options
        self._metrics = metrics
        self._time = time
        self._misses: dict[_Key, _Misses] = {}
        self._seen: dict[_Key, float] = {}
        self._empty: set[str] = set()
        self._is_runtime_silent = False
        self._has_runtime_answered = False

    async def run(self) -> None:
        """Pass after pass until cancelled; to be started when the caches are filled."""
        if not self._options.is_on:
            log.info("cleaner.off")
            return
        if self._runtime is not None:
            log.info("cleaner.proof", proof=Proof.SANDBOX.value, socket=self._runtime.socket, looks=SANDBOX_MISSES)
        else:
            log.info("cleaner.proof", proof=Proof.POD.value, looks=self._options.misses, why="no --cri-socket is given")
        while True:
            try:
                await self.sweep()
                self._metrics.passes.labels("done").inc()
            except errors.BedplateError as err:
                self._metrics.passes.labels("failed").inc()
                log.warning("cleaner.pass_failed", error=str(err))
            await self._time.sleep(self._options.interval_s)

    async def sweep(self) -> int:
        """One pass; how many addresses were freed."""
        known = list(self._ledger.reservations())
        keys = {_key(reservation) for reservation in known}
        self._misses = {key: value for key, value in self._misses.items() if key in keys}
        now = self._time.monotonic()
        self._seen = {key: self._seen.get(key, now) for key in keys}
        evidence = await self._look(known)
        needed = {Proof.SANDBOX: SANDBOX_MISSES, Proof.POD: self._options.misses}
        freed = await self._free(await self._judge(evidence, needed))
        await self._forget_empty_pools({reservation.pool for reservation in known})
        return freed

    async def collect(self, candidates: Sequence[Reservation]) -> int:
        """CNI GC: free those of the candidates that are dead; how many they were.

        That the runtime left them out of its list is one proof, for a sandbox; its list may be of another network's, so
        a pod has to have been missing before.
        """
        evidence = await self._look(candidates)
        return await self._free(await self._judge(evidence, {Proof.SANDBOX: 1, Proof.POD: 2}))

    async def _judge(self, evidence: Iterable[_Seen], needed: Mapping[Proof, int]) -> list[_Seen]:
        """Count this look; those that were dead on as many as are needed."""
        return [
            (reservation, proof)
            async for reservation, proof in _gently(evidence)
            if self._note(reservation, proof) >= needed[proof.proof]
        ]

    def _note(self, reservation: Reservation, evidence: Evidence) -> int:
        """Count a look; on how many looks the reservation was dead, this one included."""
        key = _key(reservation)
        if evidence.verdict is Verdict.ALIVE:
            self._misses.pop(key, None)
            return 0
        if evidence.verdict is Verdict.UNKNOWN:
            return 0
        now = self._time.monotonic()
        known = self._misses.get(key)
        if known is None or known.proof is not evidence.proof:
            known = self._misses[key] = _Misses(now, float("-inf"), evidence.proof)
        # Two looks in one moment are one.
        if now - known.last >= self._options.interval_s / 2:
            known.last = now
            known.count += 1
        return known.count

    # Looking

    async def _look(self, known: Sequence[Reservation]) -> list[_Seen]:
        if not known:
            return []
        sandboxes = await self._sandboxes()
        seen: list[_Seen] = []
        suspects: list[Reservation] = []
        async for reservation in _gently(known):
            evidence = self._first_look(reservation, sandboxes)
            if evidence is None:
                suspects.append(reservation)
            else:
                seen.append((reservation, evidence))
        return seen + await self._ask_for(suspects)

    async def _sandboxes(self) -> Sandboxes | Evidence | None:
        """What the runtime has; evidence of nothing when it does not answer; None without a socket, or before one was
        ever seen: the manifests name the usual runtime's, and a node may have another."""
        if self._runtime is None:
            return None
        try:
            listed = await self._runtime.sandboxes()
        except errors.BedplateError as err:
            is_absent = isinstance(err, NoSocket) and not self._has_runtime_answered
            effect = (
                "pods are looked up in the API server instead" if is_absent else "nothing is freed until it responds"
            )
            level = log.v(2) if self._is_runtime_silent else log
            level.warning("cleaner.no_runtime", error=str(err), effect=effect)
            self._is_runtime_silent = True
            if is_absent:
                return None
            return Evidence(Verdict.UNKNOWN, Proof.SANDBOX, "the container runtime does not respond")
        self._is_runtime_silent, self._has_runtime_answered = False, True
        return proofs.sandboxes_of(listed, self._pods)

    def _first_look(self, reservation: Reservation, sandboxes: Sandboxes | Evidence | None) -> Evidence | None:
        """What can be said without asking the API server; None when it has to be asked."""
        if isinstance(sandboxes, Evidence):
            return sandboxes
        if sandboxes is not None:
            evidence = proofs.by_sandbox(reservation, sandboxes)
            if evidence is not None and evidence.verdict is Verdict.DEAD and not self._is_settled(reservation):
                return Evidence(Verdict.UNKNOWN, Proof.SANDBOX, "it may still be under creation")
            if evidence is not None:
                return evidence
        if not proofs.has_pod(reservation):
            return Evidence(Verdict.UNKNOWN, Proof.POD, "its pod is unknown")
        cached = self._pods.get(proofs.pod_key(reservation))
        if cached is not None:
            evidence = proofs.by_pod(reservation, cached, self._node)
            if evidence.verdict is Verdict.ALIVE:
                return evidence
        return None

    def _is_settled(self, reservation: Reservation) -> bool:
        seen = self._time.monotonic() - self._seen.get(_key(reservation), self._time.monotonic())
        return max(seen, proofs.age_s(reservation, self._time.now())) >= self._options.grace_s

    async def _ask_for(self, suspects: Sequence[Reservation]) -> list[_Seen]:
        by_pod = {proofs.pod_key(reservation): reservation for reservation in suspects}
        if len(by_pod) > _LIST_FROM:
            answers = await self._list_pods(by_pod)
        else:
            answers = {key: await self._get_pod(reservation) for key, reservation in by_pod.items()}
        seen: list[_Seen] = []
        async for reservation in _gently(suspects):
            answer = answers[proofs.pod_key(reservation)]
            if isinstance(answer, Evidence):
                seen.append((reservation, answer))
            else:
                seen.append((reservation, proofs.by_pod(reservation, answer, self._node)))
        return seen

    async def _get_pod(self, reservation: Reservation) -> LeanPod | Evidence | None:
        try:
            return await self._ask.get(reservation.pod_namespace, reservation.pod_name)
        except (errors.BedplateError, ValueError) as err:
            log.v(2).info("cleaner.ask_failed", pod=proofs.pod_key(reservation), error=str(err))
            return Evidence(Verdict.UNKNOWN, Proof.POD, "the API server does not respond")

    async def _list_pods(self, by_pod: dict[str, Reservation]) -> dict[str, LeanPod | Evidence | None]:
        try:
            here = {f"{pod.namespace}/{pod.name}": pod for pod in await self._ask.list()}
        except errors.BedplateError as err:
            log.v(2).info("cleaner.ask_failed", pods=len(by_pod), error=str(err))
            return dict.fromkeys(by_pod, Evidence(Verdict.UNKNOWN, Proof.POD, "the API server does not respond"))
        return {key: here.get(key) for key in by_pod}

    # Freeing

    async def _free(self, dead: Sequence[_Seen]) -> int:
        freed = 0
        for start in range(0, len(dead), _CHUNK):
            chunk = [
                (reservation, evidence)
                for reservation, evidence in dead[start : start + _CHUNK]
                if self._is_unchanged(reservation)
            ]
            freed += await self._ledger.release_proven([reservation for reservation, _ in chunk])
            for reservation, evidence in chunk:
                misses = self._misses.pop(_key(reservation), None)
                self._metrics.released.labels(evidence.proof.value).inc()
                log.info(
                    "cleaner.freed",
                    pool=reservation.pool,
                    address=reservation.address,
                    container=reservation.container_id,
                    interface=reservation.interface_name,
                    pod=proofs.pod_key(reservation),
                    proof=evidence.proof.value,
                    why=evidence.reason,
                    looks=misses.count if misses is not None else 0,
                )
            # Whoever waits for an address comes first.
            await asyncio.sleep(0)
        return freed

    def _is_unchanged(self, reservation: Reservation) -> bool:
        return self._ledger.find(reservation.pool, reservation.container_id, reservation.interface_name) == reservation

    async def _forget_empty_pools(self, used: set[str]) -> None:
        """Drop records of pools that hold nothing and are not this node's any more, seen so on two passes."""
        empty = {key for key in self._ledger.pools() if key not in used and key not in self._view.configs}
        gone, self._empty = empty & self._empty, empty
        if gone:
            await self._ledger.forget_pools(gone)
            log.info("cleaner.forgot_pools", pools=sorted(gone))
