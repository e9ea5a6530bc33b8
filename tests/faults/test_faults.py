"""Controllers under faults, on the real and on the embedded API server: they converge, and they do not hammer.

Each test counts or logs what the controller did. Where pauses matter the controller has a clock that the test moves, so
that the number of requests of a span is exact.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests import servers
from tests.faults import mirror, places, proxy
from tests.waiting import until

from bedplate.core import clock, errors
from bedplate.kube import Client, PatchType, config
from bedplate.runtime.controller import Controller
from bedplate.runtime.manager import Manager
from bedplate.runtime.workqueue import RateLimit

REF = mirror.REF
KEYS = 20
FIRST_PAUSE_S = RateLimit().first_s
FIRST_WATCH_PAUSE_S = 0.8


class WatchedClock(clock.ManualClock):
    """A clock that also says how many tasks wait for it."""

    @property
    def sleepers(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    @property
    def next_pause_s(self) -> float:
        """How long the next one still has to wait."""
        return min(due for due, _, future in self._sleepers if not future.done()) - self.monotonic()


@contextlib.asynccontextmanager
async def mirroring(
    settings: config.ClientConfig, namespace: str, time: clock.Clock | None = None
) -> AsyncIterator[tuple[Manager, Controller]]:
    time = time if time is not None else clock.SystemClock()
    async with Client(settings, time=time) as client:
        manager = Manager(client, time=time)
        cache = manager.cache(REF, namespace=namespace, label_selector="mirror=yes")
        controller = mirror.mirror(client, cache, time=time)
        manager.add(controller)
        task = asyncio.create_task(manager.run())
        try:
            yield manager, controller
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def put(client: Client, namespace: str, name: str, value: str) -> None:
    body = {"metadata": {"name": name, "labels": {"mirror": "yes"}}, "data": {"value": value}}
    await client.patch(REF, name, body, namespace, type=PatchType.APPLY, field_manager="test", force=True)


async def put_until_accepted(client: Client, namespace: str, name: str, value: str) -> None:
    while True:
        try:
            await put(client, namespace, name, value)
            return
        except errors.Retryable:
            await asyncio.sleep(0.1)


async def converged(
    client: Client, namespace: str, expected: dict[str, str], time: clock.ManualClock | None = None
) -> None:
    """Return once every object has its annotation; the test's own look, past any fault. A manual clock is moved."""

    async def is_converged() -> bool:
        if time is not None:
            await time.advance(1.0)
        try:
            objects = await client.list(REF, namespace, label_selector="mirror=yes")
        except errors.Retryable:
            return False
        annotations = {
            obj["metadata"]["name"]: (obj["metadata"].get("annotations") or {}).get(mirror.ANNOTATION)
            for obj in objects.items
        }
        return annotations == expected

    await until(is_converged, "every object has its annotation", step_s=0.1)


async def test_a_killed_and_restarted_server_loses_nothing_and_the_controller_goes_on(
    place: places.Place, client: Client, settings: config.ClientConfig, namespace: str
) -> None:
    wanted: dict[str, str] = {}
    async with mirroring(settings, namespace):
        for round_ in range(3):
            for number in range(10):
                wanted[f"cm-{number}"] = f"{round_}-{number}"
                await put_until_accepted(client, namespace, f"cm-{number}", wanted[f"cm-{number}"])
            await place.kill()
            await place.restart()
        await converged(client, namespace, wanted)


async def test_watches_cut_all_the_time_miss_no_change_and_cause_no_relist(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    async with proxy.proxied(place.kubeconfig, tmp_path) as (between, through):
        between.cut_streams_after_s = 0.3
        async with mirroring(through, namespace) as (manager, _):
            wanted: dict[str, str] = {}
            while between.seen["watch"] < 5:
                wanted[f"cm-{len(wanted)}"] = "x"
                await put(client, namespace, f"cm-{len(wanted) - 1}", "x")
                await asyncio.sleep(0.05)
            await converged(client, namespace, wanted)
            ((reflector, _),) = manager._reflectors.values()
            assert reflector.relists == 1


async def test_a_storm_of_429_is_waited_out_as_asked(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    time = WatchedClock()
    async with (
        proxy.proxied(place.kubeconfig, tmp_path) as (between, through),
        mirroring(through, namespace, time) as (_, controller),
    ):
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"}, time)
        between.refuse, between.retry_after = (429, 1.0), "1"
        between.seen.clear()
        for number in range(KEYS):
            await put(client, namespace, f"cm-{number}", "x")
        # Every worker asks once, and again each time the second that it was told to wait is over.
        for turn in range(1, 5):
            await until(lambda: time.sleepers == controller.workers, "every worker waits")
            assert between.seen["PATCH"] == turn * controller.workers
            await time.advance(0.9)
            assert time.sleepers == controller.workers
            await time.advance(0.2)
        between.refuse = (0, 0.0)
        await converged(client, namespace, {"first": "1"} | {f"cm-{number}": "x" for number in range(KEYS)}, time)


async def test_a_storm_of_500_is_met_with_growing_pauses(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    time = WatchedClock()
    async with (
        proxy.proxied(place.kubeconfig, tmp_path) as (between, through),
        mirroring(through, namespace, time) as (_, controller),
    ):
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"}, time)
        between.refuse = (500, 1.0)
        between.seen.clear()
        for number in range(KEYS):
            await put(client, namespace, f"cm-{number}", "x")
        # Every key is tried once, then after a pause that is twice as long each time.
        pause_s = FIRST_PAUSE_S
        for turn in range(1, 5):
            await until(lambda: len(controller.queue._delayed) == KEYS, "every key waits")
            assert between.seen["PATCH"] == turn * KEYS
            await time.advance(0.9 * pause_s)
            assert len(controller.queue._delayed) == KEYS
            await time.advance(0.2 * pause_s)
            pause_s *= 2
        between.refuse = (0, 0.0)
        await converged(client, namespace, {"first": "1"} | {f"cm-{number}": "x" for number in range(KEYS)}, time)


async def test_a_server_that_is_gone_is_not_hammered(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    time = WatchedClock()
    async with proxy.proxied(place.kubeconfig, tmp_path) as (between, through), mirroring(through, namespace, time):
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"}, time)
        between.seen.clear()
        await place.kill()
        # The watch breaks; from then on there is one request after each pause, and none without.
        pauses = []
        for turn in range(5):
            await until(lambda: time.sleepers == 1, "the reflector waits")
            assert between.seen.total() == turn
            pauses.append(time.next_pause_s)
            await time.advance(pauses[-1] + 0.001)
        assert pauses[0] >= FIRST_WATCH_PAUSE_S
        assert pauses == sorted(pauses)
        await place.restart()
        await put_until_accepted(client, namespace, "second", "2")
        await converged(client, namespace, {"first": "1", "second": "2"}, time)


class Workers:
    """Processes that run the mirror under leader election."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._arguments = [str(kubeconfig), namespace]
        self._folder = folder
        self.log = folder / "writes.log"
        self.log.touch()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, own: str) -> None:
        command = [sys.executable, str(Path(mirror.__file__)), *self._arguments, own, str(self.log)]
        with (self._folder / f"{own}.log").open("wb") as out:
            self.processes[own] = subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=servers._die_with_parent)

    def writers(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()]

    def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextlib.contextmanager
def workers(kubeconfig: Path, namespace: str, folder: Path) -> Iterator[Workers]:
    found = Workers(kubeconfig, namespace, folder)
    try:
        yield found
    finally:
        found.stop()


async def test_when_the_leader_is_killed_the_next_takes_over_and_writes_never_interleave(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    with workers(place.kubeconfig, namespace, tmp_path) as crew:
        for own in ("a", "b", "c"):
            crew.start(own)
        wanted: dict[str, str] = {}
        for round_ in range(3):
            for number in range(10):
                wanted[f"cm-{number}"] = f"{round_}-{number}"
                await put(client, namespace, f"cm-{number}", wanted[f"cm-{number}"])
            await converged(client, namespace, wanted)
            leader = crew.writers()[-1]
            crew.processes[leader].kill()
            crew.processes[leader].wait()
        turns = [own for index, own in enumerate(crew.writers()) if index == 0 or crew.writers()[index - 1] != own]
        assert len(turns) == 3 and len(set(turns)) == 3, f"two leaders wrote in turn: {turns}"


async def test_a_frozen_leader_that_wakes_up_late_writes_nothing(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    with workers(place.kubeconfig, namespace, tmp_path) as crew:
        crew.start("a")
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"})
        crew.start("b")
        crew.processes["a"].send_signal(signal.SIGSTOP)
        await put(client, namespace, "second", "2")
        await converged(client, namespace, {"first": "1", "second": "2"})
        before = len(crew.writers())
        for number in range(10):
            await put(client, namespace, f"cm-{number}", "x")
        crew.processes["a"].send_signal(signal.SIGCONT)
        await converged(
            client, namespace, {"first": "1", "second": "2"} | {f"cm-{number}": "x" for number in range(10)}
        )
        assert set(crew.writers()[before:]) == {"b"}
        await until(lambda: crew.processes["a"].poll() is not None, "the frozen leader ends")
