"""Controllers under faults, on the real and on the embedded API server: they converge, and they do not hammer.

Each test counts or logs what the controller did; none judges by time.
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

from bedplate.core import errors
from bedplate.kube import Client, PatchType, config
from bedplate.runtime.manager import Manager

REF = mirror.REF
DEADLINE_S = 120


@contextlib.asynccontextmanager
async def mirroring(settings: config.ClientConfig, namespace: str) -> AsyncIterator[Manager]:
    async with Client(settings) as client:
        manager = Manager(client)
        manager.add(mirror.mirror(client, manager.cache(REF, namespace=namespace, label_selector="mirror=yes")))
        task = asyncio.create_task(manager.run())
        try:
            yield manager
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


async def converged(client: Client, namespace: str, wanted: dict[str, str]) -> None:
    """Return once every object has its annotation; the test's own look, past any fault."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                found = await client.list(REF, namespace, label_selector="mirror=yes")
            except errors.Retryable:
                await asyncio.sleep(0.2)
                continue
            state = {
                one["metadata"]["name"]: (one["metadata"].get("annotations") or {}).get(mirror.ANNOTATION)
                for one in found.items
            }
            if state == wanted:
                return
            await asyncio.sleep(0.1)


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
        async with mirroring(through, namespace) as manager:
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
    async with proxy.proxied(place.kubeconfig, tmp_path) as (between, through), mirroring(through, namespace):
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"})
        between.refuse, between.retry_after = (429, 1.0), "1"
        between.seen.clear()
        for number in range(20):
            await put(client, namespace, f"cm-{number}", "x")
        await asyncio.sleep(4)
        asked = between.seen.total()
        between.refuse = (0, 0.0)
        await converged(client, namespace, {"first": "1"} | {f"cm-{number}": "x" for number in range(20)})
    # 4 workers, told to wait 1 s each time, for 4 s: some twenty requests. A busy loop makes thousands.
    assert 0 < asked < 200


async def test_a_storm_of_500_is_met_with_growing_pauses(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    async with proxy.proxied(place.kubeconfig, tmp_path) as (between, through), mirroring(through, namespace):
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"})
        between.refuse = (500, 0.8)
        between.seen.clear()
        for number in range(20):
            await put(client, namespace, f"cm-{number}", "x")
        await asyncio.sleep(4)
        asked = between.seen.total()
        between.refuse = (0, 0.0)
        await converged(client, namespace, {"first": "1"} | {f"cm-{number}": "x" for number in range(20)})
    assert 0 < asked < 600


async def test_a_server_that_is_gone_is_not_hammered(
    place: places.Place, client: Client, namespace: str, tmp_path: Path
) -> None:
    async with proxy.proxied(place.kubeconfig, tmp_path) as (between, through), mirroring(through, namespace):
        await put(client, namespace, "first", "1")
        await converged(client, namespace, {"first": "1"})
        await place.kill()
        between.seen.clear()
        await asyncio.sleep(5)
        asked = between.seen.total()
        await place.restart()
        await put_until_accepted(client, namespace, "second", "2")
        await converged(client, namespace, {"first": "1", "second": "2"})
    assert asked < 30


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
        async with asyncio.timeout(DEADLINE_S):
            while crew.processes["a"].poll() is None:
                await asyncio.sleep(0.1)
