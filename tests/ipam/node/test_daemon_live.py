"""The daemon as a program, against API servers: what it gives, when it is ready, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import forkserver, servers
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import NodeDaemon, code_of, daemon
from tests.waiting import wait_until

from bedplate.api.resources import NODES, PODS

BLOCK = {"nodeName": "a", "startIP": "192.168.0.1", "endIP": "192.168.0.4"}
SPEC = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 4, "gateway": "192.168.0.1"}


def on(world: World, folder: Path, *more: str) -> Any:
    return daemon(folder, world.server.kubeconfig, world.node("a"), world.namespace, *more)


async def prepared(world: World) -> None:
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", [BLOCK])


async def test_gives_the_addresses_of_its_block_in_turn(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        with on(world, tmp_path) as one:
            one.ready()
            with one.caller() as caller:
                given = caller.allocate("p")[0]
                assert (given.ip, given.gateway, given.pool, given.pool_type) == (
                    "192.168.0.2/16",
                    "192.168.0.1",
                    "p",
                    1,
                )
                assert caller.address("p", container="c2") == "192.168.0.3/16"
                assert caller.address("p", container="c3") == "192.168.0.4/16"
                assert code_of(lambda: caller.allocate("p", container="c4")) == "RESOURCE_EXHAUSTED"
                assert code_of(lambda: caller.allocate("p")) == "ALREADY_EXISTS"
                assert caller.is_allocated("p")
                caller.deallocate("p")
                assert not caller.is_allocated("p")
                assert caller.address("p", container="c4") == "192.168.0.2/16"
            assert one.stop() == 0
            assert not one.socket.exists()

    await asyncio.to_thread(play)


async def test_hears_of_pools_as_they_come_change_and_go(world: World, tmp_path: Path) -> None:
    def call(one: NodeDaemon, play: Callable[[Any], Any]) -> Any:
        with one.caller() as caller:
            return play(caller)

    with on(world, tmp_path) as one:
        await asyncio.to_thread(one.ready)
        assert await asyncio.to_thread(call, one, lambda c: code_of(lambda: c.allocate("p"))) == "NOT_FOUND"
        await prepared(world)
        await asyncio.to_thread(
            wait_until, lambda: call(one, lambda c: code_of(lambda: c.status("p"))) == "OK", "the pool is known"
        )
        assert await asyncio.to_thread(call, one, lambda c: c.address("p")) == "192.168.0.2/16"
        await world.damage("IPPool", "p", [{**BLOCK, "startIP": "192.168.0.9", "endIP": "192.168.0.12"}])
        await asyncio.to_thread(wait_until, lambda: "192.168.0.9" in one.log.read_text(), "the block has moved")
        assert await asyncio.to_thread(call, one, lambda c: c.address("p", container="c2")) == "192.168.0.9/16"
        await world.client.delete(_pools(), "p", world.namespace)
        gone = lambda: call(one, lambda c: code_of(lambda: c.status("p"))) == "NOT_FOUND"  # noqa: E731
        await asyncio.to_thread(wait_until, gone, "the pool is gone")
        assert await asyncio.to_thread(call, one, lambda c: c.is_allocated("p"))
        await asyncio.to_thread(call, one, lambda c: c.deallocate("p"))


def _pools() -> Any:
    from bedplate.ipam.pools import IPPOOLS

    return IPPOOLS


async def test_readiness_and_metrics_say_how_it_is(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        with on(world, tmp_path) as one:
            one.ready()
            assert one.probe("/healthz") == (200, "ok")
            checks = one.probe("/readyz?verbose")[1]
            assert all(f"[+]{name} ok" in checks for name in ("store", "caches", "socket"))
            with one.caller() as caller:
                caller.allocate("p")
                caller.deallocate("p", container="other")
                code_of(lambda: caller.allocate("missing"))
                caller.allocate("p", container="c2")
            text = one.metrics()
            for line in (
                'bedplate_ipam_node_pool_capacity{pool="p"} 3.0',
                'bedplate_ipam_node_pool_used{pool="p"} 2.0',
                'bedplate_ipam_node_pool_free{pool="p"} 1.0',
                'bedplate_ipam_node_calls_total{code="OK",method="Allocate"} 2.0',
                'bedplate_ipam_node_calls_total{code="NOT_FOUND",method="Allocate"} 1.0',
                'bedplate_ipam_node_calls_total{code="OK",method="Deallocate"} 1.0',
                'bedplate_ipam_node_call_duration_seconds_count{method="Allocate"} 3.0',
                "bedplate_ipam_node_store_committed_calls_total 2.0",
                "bedplate_ipam_node_store_journal_mode 0.0",
                "bedplate_ipam_node_ready 1.0",
            ):
                assert line in text, line
            assert f"bedplate_ipam_node_store_bytes {float(one.store.stat().st_size)}" in text

    await asyncio.to_thread(play)


async def test_installs_the_plugin_and_its_configuration(world: World, tmp_path: Path) -> None:
    def play() -> None:
        with on(world, tmp_path) as one:
            assert (one.bin_dir / "nv-ipam").read_bytes() == one.plugin.read_bytes()
            assert json.loads((one.conf_dir / "nv-ipam.conf").read_text())["daemonSocket"] == f"unix://{one.socket}"
            one.stop()
            assert (one.bin_dir / "nv-ipam").exists()

    await asyncio.to_thread(play)


async def test_serves_tcp(world: World, tmp_path: Path) -> None:
    await prepared(world)
    port = servers.free_port()

    def play() -> None:
        from tests.ipam.node.daemons import Caller

        made = NodeDaemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace)
        made.socket = Path(f"127.0.0.1:{port}")
        words = [one for one in made.words() if not one.startswith("--bind-address")]
        with made.log.open("ab") as out:
            process = forkserver.Process([*words, f"--bind-address=tcp://127.0.0.1:{port}", "--allow-tcp"], stderr=out)
        try:
            wait_until(lambda: made.probe("/readyz")[0] == 200, "it is ready", describe=made.tail)
            with Caller(f"127.0.0.1:{port}") as caller:
                assert caller.address("p") == "192.168.0.2/16"
        finally:
            process.terminate()
            assert process.wait(60) == 0

    await asyncio.to_thread(play)


async def test_taken_ports_are_said_and_tried_again(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        made = NodeDaemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace)
        with (
            socket.create_server(("127.0.0.1", made.probe_port)),
            socket.create_server(("127.0.0.1", made.metrics_port)),
        ):
            try:
                made.start()
                wait_until(lambda: made.tail().count("not_served") == 2, "both are said", describe=made.tail)
                assert "--health-probe-bind-address" in made.tail()
                with made.caller() as caller:
                    assert caller.address("p") == "192.168.0.2/16"
            finally:
                assert made.process is not None
                made.process.kill()
                made.process.wait()

    await asyncio.to_thread(play)


async def test_a_bind_path_that_is_no_socket_ends_it_and_is_left_alone(world: World, tmp_path: Path) -> None:
    def play() -> None:
        made = NodeDaemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace)
        made.socket.write_text("precious")
        ended = forkserver.run(made.words(), capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 1
        assert "is not a socket" in ended.stderr
        assert made.socket.read_text() == "precious"

    await asyncio.to_thread(play)


async def test_a_second_daemon_on_one_store_ends_with_a_reason(world: World, tmp_path: Path) -> None:
    def play() -> None:
        with on(world, tmp_path) as one:
            words = [word for word in one.words() if "bind-address" not in word]
            # On a Unix socket it would wait for a while: a predecessor may be about to end.
            other = ["--bind-address=tcp://127.0.0.1:0", "--allow-tcp"]
            ended = forkserver.run([*words, *other], capture_output=True, text=True, timeout=120, check=False)
            assert ended.returncode == 1
            assert str(one.store) in ended.stderr
            assert one.process is not None
            assert str(one.process.pid) in ended.stderr

    await asyncio.to_thread(play)


async def test_a_second_signal_ends_it_at_once(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        with on(world, tmp_path) as one:
            one.ready()
            assert one.process is not None
            one.process.send_signal(signal.SIGTERM)
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(60) in (0, 128 + signal.SIGTERM)

    await asyncio.to_thread(play)


async def test_what_was_given_survives_a_kill_and_the_rotation_goes_on(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        with on(world, tmp_path) as one:
            one.ready()
            with one.caller() as caller:
                assert caller.address("p") == "192.168.0.2/16"
                assert caller.address("p", container="c2") == "192.168.0.3/16"
                caller.deallocate("p")
            one.stop(signal.SIGKILL)
            one.start().ready()
            with one.caller() as caller:
                assert caller.is_allocated("p", container="c2")
                assert not caller.is_allocated("p")
                assert caller.address("p", container="c3") == "192.168.0.4/16"
                assert caller.address("p", container="c4") == "192.168.0.2/16"

    await asyncio.to_thread(play)


# The API server is away, or slow


@contextlib.contextmanager
def kubeconfig_of_nobody(world: World, folder: Path) -> Iterator[Path]:
    """A kubeconfig whose server does not exist."""
    text = world.server.kubeconfig.read_text()
    path = folder / "nobody.kubeconfig"
    path.write_text(text.replace(world.server.url, f"https://127.0.0.1:{servers.free_port()}"))
    yield path


async def test_while_the_api_server_is_away_it_serves_what_the_store_remembers(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        with on(world, tmp_path) as one:
            one.ready()
            with one.caller() as caller:
                assert caller.address("p") == "192.168.0.2/16"
        with (
            kubeconfig_of_nobody(world, tmp_path) as nobody,
            daemon(tmp_path, nobody, world.node("a"), world.namespace) as one,
            one.caller() as caller,
        ):
            assert caller.is_allocated("p")
            assert caller.address("p", container="c2") == "192.168.0.3/16"
            caller.deallocate("p")
            assert not caller.is_allocated("p")
            assert code_of(lambda: caller.allocate("unknown", timeout=2)) == "UNAVAILABLE"
            assert one.probe("/readyz")[0] == 500
            assert one.probe("/healthz")[0] == 200
            assert one.stop() == 0

    await asyncio.to_thread(play)


async def test_an_add_before_the_first_list_waits_for_it(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        # The daemon listens before it has asked anybody; the call of the first moment must not be refused.
        for number in range(5):
            with on(world, tmp_path) as one, one.caller() as caller:
                assert caller.address("p", container=f"c{number}") != ""
                caller.deallocate("p", container=f"c{number}")

    await asyncio.to_thread(play)


# Addresses of other nodes


@pytest.mark.parametrize(("mode", "code"), [("warn", "OK"), ("refuse", "INVALID_ARGUMENT"), ("off", "OK")])
async def test_a_static_address_of_another_nodes_block(world: World, tmp_path: Path, mode: str, code: str) -> None:
    await world.pool("IPPool", "p", SPEC)
    other = {"nodeName": "b", "startIP": "192.168.0.5", "endIP": "192.168.0.8"}
    await world.damage("IPPool", "p", [BLOCK, other])

    def play() -> None:
        with on(world, tmp_path, f"--static-ip-check={mode}") as one:
            one.ready()
            with one.caller() as caller:
                assert code_of(lambda: caller.allocate("p", requested=("192.168.0.6",))) == code
                assert code_of(lambda: caller.allocate("p", container="c2", requested=("192.168.77.1",))) == "OK"
                network = code_of(lambda: caller.allocate("p", container="c3", requested=("192.168.0.0",)))
                assert network == ("OK" if mode == "off" else "INVALID_ARGUMENT")
            if mode == "warn":
                wait_until(lambda: world.node("b") in one.tail(), "it is logged", describe=one.tail)
                assert 'foreign_static_addresses_total{pool="p"} 1.0' in one.metrics()
            else:
                assert "foreign_static_addresses_total{" not in one.metrics()
            # Events in hand are written before a clean end.
            assert one.stop() == 0

    await asyncio.to_thread(play)
    if mode == "warn":
        event = await world.told("p", "StaticIPInForeignBlock")
        assert "192.168.0.6" in event["message"]
        assert world.node("b") in event["message"]
    else:
        assert not await world.events("p")


# Cleaning


async def make_pod(world: World, name: str) -> str:
    body = {
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"nodeName": world.node("a"), "containers": [{"name": "c", "image": "none"}], "tolerations": []},
    }
    return str((await world.client.create(PODS.raw(), body))["metadata"]["uid"])


async def test_addresses_of_pods_that_are_gone_are_freed_and_others_stay(world: World, tmp_path: Path) -> None:
    await prepared(world)
    await world.add("a")
    uid = await make_pod(world, "lives")

    def play() -> None:
        flags = ("--cleaner-interval=200ms", "--cleaner-misses=3")
        with on(world, tmp_path, *flags) as one:
            one.ready()
            with one.caller() as caller:
                caller.allocate("p", container="live", pod="lives", namespace=world.namespace, uid=uid)
                caller.allocate("p", container="dead", pod="gone", namespace=world.namespace, uid="u")
                caller.allocate("p", container="old", pod="lives", namespace=world.namespace, uid="another")
                for container in ("dead", "old"):
                    gone = lambda one=container: not caller.is_allocated("p", container=one)  # noqa: E731
                    wait_until(gone, f"{container} is freed", describe=one.tail)
                assert caller.is_allocated("p", container="live")
            counted = 'bedplate_ipam_node_cleaner_releases_total{proof="pod"} 2.0'
            wait_until(lambda: counted in one.metrics(), "both are counted", describe=one.tail)
            assert "proof=pod" in one.log.read_text()

    try:
        await asyncio.to_thread(play)
    finally:
        await world.client.delete(PODS, "lives", world.namespace, grace_period_s=0)
        await world.client.delete(NODES, world.node("a"))


async def test_a_cleaner_that_is_off_frees_nothing(world: World, tmp_path: Path) -> None:
    await prepared(world)

    def play() -> None:
        with on(world, tmp_path, "--cleaner=off", "--cleaner-interval=100ms", "--cleaner-misses=2") as one:
            one.ready()
            with one.caller() as caller:
                caller.allocate("p", pod="gone", namespace=world.namespace)
                wait_until(lambda: "cleaner.off" in one.tail(), "it says so", describe=one.tail)
                assert caller.is_allocated("p")
            assert "cleaner_passes_total{" not in one.metrics()
            assert one.process is not None
            assert one.process.poll() is None

    await asyncio.to_thread(play)


def test_the_program_ends_with_1_when_a_part_fails(tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("no: kubeconfig")
    made = NodeDaemon(tmp_path, broken, "n", "ns")
    ended = forkserver.run(made.words(), capture_output=True, text=True, timeout=120, check=False, env=_bare())
    assert ended.returncode == 1
    assert "kubeconfig" in ended.stderr
    assert "Traceback" not in ended.stderr


def _bare() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)}
