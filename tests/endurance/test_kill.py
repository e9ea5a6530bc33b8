"""kill -9 at any moment: no acknowledged write is lost, no old value is back, watches go on, addresses stay unique."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from tests import servers
from tests.endurance import ledger, running
from tests.waiting import until

WRITERS = 16
KILLS = 8
SOAK_KILLS = 300


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[running.Embedded]:
    with running.Embedded(tmp_path / "server").running() as server:
        yield server


async def found_values(session: aiohttp.ClientSession) -> dict[str, str]:
    async with session.get(ledger.CONFIGMAPS) as answer:
        items = (await answer.json())["items"]
    return {one["metadata"]["name"]: one["data"]["value"] for one in items if "value" in one.get("data", {})}


async def kill_over_and_over(server: running.Embedded, kills: int, seed: int) -> ledger.Ledger:
    rng = random.Random(seed)
    known = ledger.Ledger()
    writers = [ledger.Writer(number, known, random.Random(rng.random())) for number in range(WRITERS)]
    for _ in range(kills):
        async with running.session(server.server) as session:
            working = asyncio.gather(*(writer.run(session) for writer in writers))
            enough = known.acknowledged + rng.randrange(1, 4 * WRITERS)
            await until(lambda enough=enough: known.acknowledged >= enough, "enough is acknowledged", step_s=0.001)
            server.kill()
            await working
        await asyncio.to_thread(server.start)
        async with running.session(server.server) as session:
            found = await found_values(session)
        assert known.problems(found) == []
        known.accept(found)
    return known


async def test_no_acknowledged_write_is_lost_when_the_server_is_killed(server: running.Embedded) -> None:
    known = await kill_over_and_over(server, KILLS, seed=7)
    assert known.acknowledged > KILLS * WRITERS


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
async def test_no_acknowledged_write_is_lost_in_hundreds_of_kills(server: running.Embedded, seed: int) -> None:
    await kill_over_and_over(server, SOAK_KILLS // 4, seed=100 + seed)


async def test_versions_go_on_after_a_kill(server: running.Embedded) -> None:
    """A version that was answered is never given to another state."""
    known = await kill_over_and_over(server, 2, seed=3)
    async with (
        running.session(server.server) as session,
        session.post(ledger.CONFIGMAPS, json={"metadata": {"name": "after"}, "data": {"value": "x"}}) as answer,
    ):
        assert int((await answer.json())["metadata"]["resourceVersion"]) > known.highest


async def watch_from(
    session: aiohttp.ClientSession, path: str, version: str, count: int, prefix: str = ""
) -> list[dict[str, Any]]:
    """The first events after a version, of objects whose name begins so."""
    events: list[dict[str, Any]] = []
    parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "60"}
    async with asyncio.timeout(60), session.get(path, params=parameters) as answer:
        assert answer.status == 200
        async for line in answer.content:
            event = json.loads(line)
            if event["object"]["metadata"].get("name", "").startswith(prefix):
                events.append(event)
            if len(events) == count:
                return events
    return events


async def test_a_watch_goes_on_where_it_was_after_a_kill(server: running.Embedded) -> None:
    async with running.session(server.server) as session:
        async with session.get(ledger.CONFIGMAPS) as answer:
            start = (await answer.json())["metadata"]["resourceVersion"]
        for number in range(30):
            body = {"metadata": {"name": f"seen-{number}"}}
            async with session.post(ledger.CONFIGMAPS, json=body) as answer:
                assert answer.status == 201
        async with session.delete(f"{ledger.CONFIGMAPS}/seen-3") as answer:
            assert answer.status == 200
        before = await watch_from(session, ledger.CONFIGMAPS, start, 31, "seen-")
    server.kill()
    await asyncio.to_thread(server.start)
    async with running.session(server.server) as session:
        after = await watch_from(session, ledger.CONFIGMAPS, start, 31, "seen-")
    assert after == before
    assert after[-1]["type"] == "DELETED"


async def test_a_watch_of_a_kind_without_objects_goes_on_after_a_kill(server: running.Embedded) -> None:
    path = "/apis/batch/v1/namespaces/default/cronjobs"
    async with running.session(server.server) as session:
        async with session.get(path) as answer:
            start = (await answer.json())["metadata"]["resourceVersion"]
        async with session.post(ledger.CONFIGMAPS, json={"metadata": {"name": "moves-the-version"}}) as answer:
            assert answer.status == 201
    server.kill()
    await asyncio.to_thread(server.start)
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {}}}}}
    containers = [{"name": "c", "image": "i"}]
    spec["jobTemplate"]["spec"]["template"]["spec"] = {"restartPolicy": "Never", "containers": containers}  # type: ignore[index]
    async with running.session(server.server) as session:
        watching = asyncio.create_task(watch_from(session, path, start, 1))
        async with session.post(path, json={"metadata": {"name": "late"}, "spec": spec}) as answer:
            assert answer.status == 201, await answer.text()
        (event,) = await watching
    assert (event["type"], event["object"]["metadata"].get("name")) == ("ADDED", "late")


async def test_a_watch_from_forgotten_history_is_told_so_after_a_kill(tmp_path: pathlib.Path) -> None:
    with running.Embedded(tmp_path / "forgetful", "--history", "1s").running() as server:
        async with running.session(server.server) as session:
            async with session.get(ledger.CONFIGMAPS) as answer:
                start = (await answer.json())["metadata"]["resourceVersion"]
            for number in range(40):
                async with session.post(ledger.CONFIGMAPS, json={"metadata": {"name": f"n-{number}"}}) as answer:
                    assert answer.status == 201
                await asyncio.sleep(0.1)
        server.kill()
        await asyncio.to_thread(server.start)
        async with running.session(server.server) as session:
            (event,) = await watch_from(session, ledger.CONFIGMAPS, start, 1)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410


SERVICES_PER_LIFE = 300


def service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}


async def make_services(session: aiohttp.ClientSession, prefix: str, is_enough: asyncio.Event) -> None:
    """Make Services until the server goes away; tell when there are enough for its end to fall among them."""
    made = 0

    async def one(number: int) -> None:
        nonlocal made
        for step in itertools.count():
            async with session.post(ledger.SERVICES, json=service(f"{prefix}-{number}-{step}")) as answer:
                assert answer.status == 201, await answer.text()
            made += 1
            if made >= SERVICES_PER_LIFE:
                is_enough.set()

    try:
        await asyncio.gather(*(one(number) for number in range(8)))
    except (aiohttp.ClientError, ConnectionError, TimeoutError):
        return


def assert_unique(services: list[dict[str, Any]]) -> None:
    addresses = [one["spec"]["clusterIP"] for one in services]
    ports = [port["nodePort"] for one in services for port in one["spec"]["ports"] if "nodePort" in port]
    assert len(set(addresses)) == len(addresses)
    assert len(set(ports)) == len(ports)


async def test_no_address_or_node_port_is_given_twice_over_kills(server: running.Embedded) -> None:
    for life in range(3):
        async with running.session(server.server) as session:
            is_enough = asyncio.Event()
            working = asyncio.create_task(make_services(session, f"s{life}", is_enough))
            # By number, not by time: a fast machine would use up the range of node ports.
            await is_enough.wait()
            server.kill()
            await working
        await asyncio.to_thread(server.start)
    services = server.get("/api/v1/services")["items"]
    assert len(services) >= 3 * SERVICES_PER_LIFE
    assert_unique(services)


@pytest.mark.root
async def test_a_full_disk_loses_nothing_and_is_recovered_from(tmp_path: pathlib.Path) -> None:
    """A small file system: writes are refused with a Status once it is full, and go on once there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "bedplate-test", str(disk)], check=False).returncode:
        pytest.skip("needs root to mount a small file system")
    try:
        with running.Embedded(tmp_path / "server", data=disk / "data").running() as server:
            kept = await fill(server, disk)
            assert server.is_alive
            (disk / "ballast").unlink()
            await recover(server, kept)
            assert server.faults == []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def fill(server: running.Embedded, disk: pathlib.Path) -> list[str]:
    """Write until the disk is full and somewhat longer; the names that were acknowledged."""
    (disk / "ballast").write_bytes(bytes(3 << 20))
    kept: list[str] = []
    refusals = 0
    async with running.session(server.server) as session:
        for number in range(2000):
            body = {"metadata": {"name": f"f-{number}"}, "data": {"value": "x" * 20_000}}
            async with session.post(ledger.CONFIGMAPS, json=body) as answer:
                got = await answer.json()
                if answer.status == 201:
                    kept.append(f"f-{number}")
                else:
                    assert answer.status >= 500, got
                    assert got["kind"] == "Status", got
                    refusals += 1
            if refusals > 30:
                break
        assert refusals > 30
        assert set(kept) <= (await found_values(session)).keys()
        # Controllers meet the full disk as well: a namespace needs its account, and a deletion its finalization.
        async with session.post("/api/v1/namespaces", json={"metadata": {"name": "crowded"}}) as answer:
            await answer.read()
        await asyncio.sleep(1)
        async with session.get("/readyz") as answer:
            assert answer.status == 200
    return kept


async def recover(server: running.Embedded, kept: list[str]) -> None:
    async with running.session(server.server) as session:
        async with asyncio.timeout(60):
            while True:
                async with session.post(ledger.CONFIGMAPS, json={"metadata": {"name": "room"}}) as answer:
                    if answer.status in (201, 409):
                        break
                await asyncio.sleep(0.1)
    server.kill()
    await asyncio.to_thread(server.start)
    async with running.session(server.server) as session:
        assert set(kept) <= (await found_values(session)).keys()
        async with session.get(f"{ledger.CONFIGMAPS}/room") as answer:
            assert answer.status == 200


async def test_a_stop_with_open_watches_takes_seconds_and_tells_them(server: running.Embedded) -> None:
    async with running.session(server.server) as session:
        watches = [
            await session.get("/api/v1/configmaps", params={"watch": "1", "resourceVersion": "0"}) for _ in range(200)
        ]
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        for watch in watches:
            async with asyncio.timeout(30):
                await watch.read()
        assert await stopping == 0
    assert server.faults == []


def test_a_second_server_on_the_same_folder_is_refused(server: running.Embedded) -> None:
    command = [str(servers.bedplate_program()), "apiserver", "--data", str(server.folder / "data"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert server.request("GET", "/readyz")[0] == 200
