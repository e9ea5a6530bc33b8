"""After a reboot: stale reservations are freed, by the runtime's word or the pods', and calls do not wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import Caller, NodeDaemon, daemon
from tests.waiting import wait_until

from bedplate.api.resources import NODES, PODS
from bedplate.core.clock import SystemClock
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.pb import bedplate_cri_pb2 as cri
from bedplate.ipam.node.reservations import Owner, Wanted

SPEC = {"subnet": "10.70.0.0/16", "perNodeBlockSize": 2000}
BLOCK = {"nodeName": "a", "startIP": "10.70.0.1", "endIP": "10.70.7.208"}
HOUR_NS = 3600 * 10**9


class Runtime:
    """A container runtime that has these sandboxes: id to pod uid."""

    def __init__(self, sandboxes: dict[str, str]) -> None:
        self.sandboxes = sandboxes

    def answer(self, request: bytes, context: object) -> bytes:
        items = [
            cri.PodSandbox(id=one, metadata=cri.PodSandboxMetadata(uid=uid, name="pod", namespace="ns"))
            for one, uid in self.sandboxes.items()
        ]
        return cri.ListPodSandboxResponse(items=items).SerializeToString()

    @contextlib.contextmanager
    def serving(self, path: Path) -> Iterator[str]:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        handlers = {"ListPodSandbox": grpc.unary_unary_rpc_method_handler(self.answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers),))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield f"unix://{path}"
        finally:
            server.stop(0).wait()


async def fill(store: Path, owners: list[Owner]) -> None:
    """A store of an hour ago."""
    config = poolconfig.make("p", subnet="10.70.0.0/16", start=BLOCK["startIP"], end=BLOCK["endIP"])
    options = LedgerOptions(wall_ns=lambda: time.time_ns() - HOUR_NS)
    ledger = await Ledger.open(store, clock=SystemClock(), options=options)
    await asyncio.gather(*(ledger.allocate(one, [Wanted(config)]) for one in owners))
    await ledger.close()


async def make_pod(world: World, name: str) -> str:
    body = {
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"nodeName": world.node("a"), "containers": [{"name": "c", "image": "none"}]},
    }
    return str((await world.client.create(PODS.raw(), body))["metadata"]["uid"])


def held(one: NodeDaemon) -> int:
    """What the daemon says it holds."""
    line = next((line for line in one.metrics().splitlines() if line.startswith("bedplate_ipam_node_pool_used{")), "")
    return int(float(line.split()[-1])) if line else -1


async def test_a_thousand_stale_reservations_go_while_calls_are_served(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", [BLOCK])
    stale = [Owner(f"{number:064x}", "eth0", f"old-{number}", f"pod-{number}", "gone") for number in range(1000)]
    await fill(tmp_path / "store", stale)

    def traffic(one: NodeDaemon, lane: int, until_done: Any) -> int:
        done = 0
        with one.caller() as caller:
            while not until_done():
                container = f"new-{lane}-{done}"
                caller.allocate("p", container=container)
                assert caller.is_allocated("p", container=container)
                caller.deallocate("p", container=container)
                done += 1
        return done

    def play() -> None:
        flags = ("--cleaner-interval=2s", "--cleaner-misses=3")
        with daemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace, *flags) as one:
            freed = lambda: "looks" in one.log.read_text() and 0 <= held(one) < 16  # noqa: E731
            with futures.ThreadPoolExecutor(8) as lanes:
                running = [lanes.submit(traffic, one, lane, freed) for lane in range(8)]
                wait_until(freed, "the stale ones are freed", describe=one.tail)
                assert all(lane.result() > 0 for lane in running)
            wait_until(
                lambda: 'cleaner_releases_total{proof="pod"} 1000.0' in one.metrics(),
                "all are counted",
                describe=one.tail,
            )
            counted = [
                line for line in one.metrics().splitlines() if line.startswith("bedplate_ipam_node_calls_total{")
            ]
            assert all('code="OK"' in line or 'method="unknown"' in line for line in counted), counted

    await asyncio.to_thread(play)


async def test_the_runtime_proves_what_pods_cannot(world: World, tmp_path: Path) -> None:
    """The pods stay through a reboot, with their uids; their old sandboxes do not."""
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", [BLOCK])
    await world.add("a")
    uids = [await make_pod(world, f"pod-{number}") for number in range(3)]
    before = [f"{number:064x}" for number in range(3)]
    after = [f"{number + 100:064x}" for number in range(3)]
    await fill(
        tmp_path / "store",
        [
            Owner(container, "eth0", uid, f"pod-{number}", world.namespace)
            for number, (container, uid) in enumerate(zip(before, uids, strict=True))
        ],
    )
    runtime = Runtime(dict(zip(after, uids, strict=True)))

    def play(socket: str) -> None:
        flags = ("--cleaner-interval=300ms", f"--cri-socket={socket}")
        with daemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace, *flags) as one:
            with one.caller() as caller:
                for container, uid in zip(after, uids, strict=True):
                    caller.allocate("p", container=container, interface="eth0", uid=uid, pod="x")
                wait_until(
                    lambda: not any(_has(caller, old) for old in before), "the old ones are freed", describe=one.tail
                )
                assert all(_has(caller, new) for new in after)
            wait_until(
                lambda: 'cleaner_releases_total{proof="sandbox"} 3.0' in one.metrics(),
                "all are counted",
                describe=one.tail,
            )
            assert "no such sandbox" in one.log.read_text()

    try:
        with runtime.serving(tmp_path / "cri.sock") as socket:
            await asyncio.to_thread(play, socket)
    finally:
        for number in range(3):
            await world.client.delete(PODS, f"pod-{number}", world.namespace, grace_period_s=0)
        await world.client.delete(NODES, world.node("a"))


def _has(caller: Caller, container: str) -> bool:
    return caller.is_allocated("p", container=container, interface="eth0")


async def test_gc_frees_what_the_runtime_does_not_have_and_nothing_else(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", [BLOCK])
    await world.add("a")
    uid = await make_pod(world, "pod-0")
    names = {"listed": "1" * 64, "unlisted": "2" * 64, "dead": "3" * 64}
    owners = [Owner(container, "eth0", uid, "pod-0", world.namespace) for container in names.values()]
    await fill(tmp_path / "store", owners)
    # A GC of another network may leave out attachments that live: the runtime has the second one.
    runtime = Runtime({names["listed"]: uid, names["unlisted"]: uid})

    def play(socket: str) -> None:
        flags = ("--cleaner=off", f"--cri-socket={socket}")
        with daemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace, *flags) as one:
            one.ready()
            with one.caller() as caller:
                fresh = "4" * 64
                caller.allocate("p", container=fresh, interface="eth0", uid=uid)
                answer = caller.collect("p", valid=((names["listed"], "eth0"),))
                assert (answer.released, answer.kept) == (1, 2)
                assert {name for name, one in names.items() if _has(caller, one)} == {"listed", "unlisted"}
                assert _has(caller, fresh)

    try:
        with runtime.serving(tmp_path / "cri.sock") as socket:
            await asyncio.to_thread(play, socket)
    finally:
        await world.client.delete(PODS, "pod-0", world.namespace, grace_period_s=0)
        await world.client.delete(NODES, world.node("a"))
