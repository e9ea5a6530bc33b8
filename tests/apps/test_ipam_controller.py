"""`ipam-controller` as a program: its command line, its ports, its end."""

from __future__ import annotations

import io
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests import forkserver, servers
from tests.apps.managers import Running, program, running
from tests.ipam.controller.worlds import World, world_on
from tests.waiting import until

from bedplate.api.resources import LEASES
from bedplate.core import logging
from bedplate.ipam.controller.assembly import LEASE
from bedplate.kube import errors as kube_errors
from bedplate.program import endpoints

PROGRAM = program("ipam-controller")
POOL1 = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 24, "gateway": "192.168.0.1"}
ORIGINAL_FLAGS = [
    *("feature-gates", "health-probe-bind-address", "help", "ippools-namespace", "kubeconfig", "leader-elect"),
    *("leader-elect-namespace", "log-flush-frequency", "log-json-info-buffer-size", "log-json-split-stream"),
    *("log-text-info-buffer-size", "log-text-split-stream", "logging-format", "metrics-bind-address", "v", "version"),
    *("vmodule", "webhook"),
]


@pytest.fixture
async def world(server: servers.Server) -> AsyncIterator[World]:
    async with world_on(server) as made:
        yield made


def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env}
    return forkserver.run([PROGRAM, *words], capture_output=True, text=True, timeout=60, env=environment)


def flags(world: World, **more: str) -> list[str]:
    chosen = {
        "kubeconfig": str(world.server.kubeconfig),
        "ippools-namespace": world.namespace,
        "leader-elect-namespace": world.namespace,
        "metrics-bind-address": "127.0.0.1:0",
        "health-probe-bind-address": "127.0.0.1:0",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return [f"--{key}={value}" for key, value in chosen.items()]


def test_help_has_every_flag_of_the_original_in_sections_with_examples() -> None:
    found = call("--help")
    assert found.returncode == 0 and not found.stderr
    for name in ORIGINAL_FLAGS:
        assert f"--{name}" in found.stdout, name
    for title in ("Controller flags:", "Allocation flags:", "Webhook flags:", "Examples:"):
        assert title in found.stdout
    assert call("-h").stdout == found.stdout


def test_version_is_shown() -> None:
    # Started as a user does; the others are forked.
    found = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0 and re.match(r"ipam-controller v\d+\.\d+", found.stdout)


def test_every_mistake_is_told_at_once() -> None:
    found = call(
        "--allocation-mode=mine",
        "--quarantine=maybe",
        "--metrics-bind-address=nowhere",
        "--no-such-flag",
        "--leader-elect=perhaps",
        "--feature-gates=Unknown=true",
        "--ippools-namespace=A_B",
        "--webhook-self-signed",
        "word",
    )
    assert found.returncode == 1 and not found.stdout
    for text in (
        *("--allocation-mode", "--quarantine", "--metrics-bind-address", "--no-such-flag", "--leader-elect", "Unknown"),
        *("--ippools-namespace", "--webhook-self-signed", "'word'", "Usage:"),
    ):
        assert text in found.stderr, (text, found.stderr)


def test_flags_that_cannot_be_followed_are_refused() -> None:
    found = call("--log-json-info-buffer-size=zzz", "--feature-gates=ContextualLogging=false")
    assert found.returncode == 1
    assert "--log-json-info-buffer-size" in found.stderr and "ContextualLogging=false" in found.stderr


def test_split_streams_put_what_is_not_an_error_on_standard_output() -> None:
    found = call("--logging-format=json", "--log-json-split-stream", "--log-json-info-buffer-size=64k")
    assert found.returncode == 1 and "no Kubernetes configuration" in found.stderr, found.stderr
    assert '"controller.starting"' in found.stdout and "controller.starting" not in found.stderr


def test_original_flags_are_accepted_and_empty_words_pass() -> None:
    found = call(
        "--log-flush-frequency=1s",
        "--log-json-info-buffer-size=1Ki",
        "--log-json-split-stream",
        "--log-text-split-stream=false",
        "--logging-format=json",
        "--feature-gates=ContextualLogging=true,AllAlpha=false",
        "--vmodule=pool=3",
        "",
    )
    assert found.returncode == 1 and "no Kubernetes configuration" in found.stderr, found.stderr


def test_without_a_cluster_it_ends_with_what_to_do() -> None:
    found = call()
    assert found.returncode == 1 and "--kubeconfig" in found.stderr
    found = call("--kubeconfig=/nonexistent/file")
    assert found.returncode == 1 and "/nonexistent/file" in found.stderr


def port_of(log: str, name: str) -> int:
    found = re.search(rf"{name}\.served.*?address=\S*?:(\d+)", log)
    assert found, log
    return int(found[1])


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def is_ready(port: int) -> bool:
    return await get(port, "/readyz") == (200, "ok")


async def test_it_serves_pools_probes_and_metrics_and_ends_cleanly(world: World, tmp_path: Path) -> None:
    await world.add("a", "b")
    await world.pool("IPPool", "pool1", POOL1)
    async with running(PROGRAM, *flags(world, leader_elect="true"), folder=tmp_path) as controller:
        await world.settles("IPPool", "pool1", {"a": "192.168.0.1-192.168.0.24", "b": "192.168.0.25-192.168.0.48"})
        await controller.logged("metrics.served")
        probes, metrics = port_of(controller.log(), "probes"), port_of(controller.log(), "metrics")
        assert await get(probes, "/healthz") == (200, "ok")
        await until(lambda: is_ready(probes), "it is ready")
        status, text = await get(metrics, "/metrics")
        assert status == 200
        for sample in (
            'bedplate_ipam_pool_blocks_capacity{kind="ippool",pool="pool1"} 2730.0',
            'bedplate_ipam_pool_blocks_used{kind="ippool",pool="pool1"} 2.0',
            'bedplate_ipam_pool_blocks_free{kind="ippool",pool="pool1"} 2728.0',
            'bedplate_ipam_pool_blocks_quarantined{kind="ippool",pool="pool1"} 0.0',
            'bedplate_ipam_pool_nodes_without_block{kind="ippool",pool="pool1"} 0.0',
            'bedplate_ipam_pool_addresses_usable{kind="ippool",pool="pool1"} 47.0',
            'bedplate_ipam_pool_spec_valid{kind="ippool",pool="pool1"} 1.0',
            'bedplate_ipam_status_writes_total{kind="ippool",result="success"} 1.0',
            f'leader_election_master_status{{name="{LEASE}"}} 1.0',
            'controller_runtime_reconcile_total{controller="ippool",result="success"}',
            'workqueue_adds_total{name="ippool"}',
            "rest_client_requests_total",
            "process_cpu_seconds_total",
        ):
            assert sample in text, (sample, text)
        assert await controller.stop() == 0
        lease = await world.client.get(LEASES.raw(), LEASE, world.namespace)
        assert not lease["spec"].get("holderIdentity"), "the Lease is given back"


async def test_it_is_not_ready_before_the_pools_can_be_listed(world: World, tmp_path: Path) -> None:
    words = [*flags(world), f"--kubeconfig={_nobody(world, tmp_path)}"]
    async with running(PROGRAM, *words, folder=tmp_path) as controller:
        await controller.logged("probes.served")
        probes = port_of(controller.log(), "probes")
        assert await get(probes, "/healthz") == (200, "ok")
        status, text = await get(probes, "/readyz")
        assert status == 500 and "[-]caches failed" in text
        assert await controller.stop() == 0


def _nobody(world: World, folder: Path) -> Path:
    """A kubeconfig of somebody who may do nothing."""
    file = folder / "nobody"
    return servers.write_kubeconfig(file, world.server.url, world.server.ca_file, {"token": "nonsense"})


async def test_a_taken_port_is_told_and_taken_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "RETRY_S", 0.02)
    log = io.StringIO()
    logging.configure(logging.LogOptions(), log)
    await world.add("a")
    await world.pool("IPPool", "pool1", POOL1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with world.controller(metrics_bind_address=address, health_probe_bind_address=address):

            async def are_told() -> bool:
                return all(f"{name}.not_served" in log.getvalue() for name in ("metrics", "probes"))

            await until(are_told, "both are told", describe=log.getvalue)
            assert "--metrics-bind-address" in log.getvalue()
            await world.settles("IPPool", "pool1", {"a": "192.168.0.1-192.168.0.24"})
            taken.close()

            async def is_served() -> bool:
                return ".served" in log.getvalue()

            await until(is_served, "one of them is served", describe=log.getvalue)


async def test_ports_can_be_switched_off(world: World, tmp_path: Path) -> None:
    await world.add("a")
    await world.pool("IPPool", "pool1", POOL1)
    words = flags(world, metrics_bind_address="0", health_probe_bind_address="0")
    async with running(PROGRAM, *words, folder=tmp_path) as controller:
        await world.settles("IPPool", "pool1", {"a": "192.168.0.1-192.168.0.24"})
        assert ".served" not in controller.log()


async def test_kubeconfig_may_come_from_the_environment(world: World, tmp_path: Path) -> None:
    await world.add("a")
    await world.pool("IPPool", "pool1", POOL1)
    words = [one for one in flags(world) if not one.startswith("--kubeconfig")]
    async with running(PROGRAM, *words, folder=tmp_path, env={"KUBECONFIG": str(world.server.kubeconfig)}):
        await world.settles("IPPool", "pool1", {"a": "192.168.0.1-192.168.0.24"})


async def test_a_dry_run_writes_nothing_and_says_what_it_would(world: World, tmp_path: Path) -> None:
    await world.add("a")
    await world.pool("IPPool", "pool1", POOL1)
    before = (await world.get("IPPool", "pool1"))["metadata"]["resourceVersion"]
    words = flags(world, dry_run="true", leader_elect="true")
    async with running(PROGRAM, *words, folder=tmp_path) as controller:
        await controller.logged("dryrun.write")
        assert "/ippools/pool1/status" in controller.log()
        assert await controller.stop() == 0
    assert (await world.get("IPPool", "pool1"))["metadata"]["resourceVersion"] == before
    with pytest.raises(kube_errors.NotFound):
        await world.client.get(LEASES.raw(), LEASE, world.namespace)


async def leader(world: World, *controllers: Running) -> Running | None:
    for one in controllers:
        if "leaderelection.acquired" in one.log() and one.process.returncode is None:
            return one
    return None


async def test_when_the_leader_is_killed_the_other_takes_over(world: World, tmp_path: Path) -> None:
    await world.add("a")
    await world.pool("IPPool", "pool1", POOL1)
    words = flags(world, leader_elect="true", v="2")
    async with running(PROGRAM, *words, folder=tmp_path) as one, running(PROGRAM, *words, folder=tmp_path) as two:
        await world.settles("IPPool", "pool1", {"a": "192.168.0.1-192.168.0.24"})
        first = await leader(world, one, two)
        assert first is not None
        other = two if first is one else one
        assert "leaderelection.acquired" not in other.log()
        await other.logged("probes.served")
        assert (await get(port_of(other.log(), "probes"), "/healthz"))[0] == 200
        first.process.send_signal(signal.SIGKILL)
        await first.ended()
        # Nobody renews or releases it any more: it runs out, here after one second and not after fifteen.
        await world.client.patch(LEASES.raw(), LEASE, {"spec": {"leaseDurationSeconds": 1}}, world.namespace)
        await world.add("b")
        await world.settles("IPPool", "pool1", {"a": "192.168.0.1-192.168.0.24", "b": "192.168.0.25-192.168.0.48"})
        assert await leader(world, other) is other


async def test_a_lost_lease_ends_the_program_with_a_failure(world: World, tmp_path: Path) -> None:
    async with running(PROGRAM, *flags(world, leader_elect="true"), folder=tmp_path) as controller:
        await controller.logged("leaderelection.acquired")

        async def is_stolen() -> bool:
            lease = await world.client.get(LEASES.raw(), LEASE, world.namespace)
            lease["spec"]["holderIdentity"] = "thief"
            lease["spec"]["leaseDurationSeconds"] = 60
            try:
                await world.client.update(LEASES.raw(), lease, world.namespace)
            except kube_errors.Conflict:
                return False
            return True

        await until(is_stolen, "the lease is stolen")
        assert await controller.ended() == 1
        assert "leader election lost" in controller.log()
