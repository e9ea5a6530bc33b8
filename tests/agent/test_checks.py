"""Health checks: what they measure, what they say, and the remedy."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.agent.machines import Machine, desired

from bedplate.agent import checks as module
from bedplate.agent import expiry
from bedplate.agent.checks import FILES, SERVICES, Checks
from bedplate.agent.commands import Ended
from bedplate.agent.observe import Difference
from bedplate.api.desired import Check, Desired, Service
from bedplate.api.headapi import Result
from bedplate.serving import issuing


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "n")


@pytest.fixture
async def checks(machine: Machine) -> AsyncIterator[Checks]:
    made = Checks(machine.root, machine.services, machine.commands)
    yield made
    await made.close()


async def measured(checks: Checks, name: str, state: Desired | None = None) -> Result:
    result = await checks.measure(name, state)
    assert result is not None
    return result


async def test_each_check_runs_at_its_interval(checks: Checks) -> None:
    state = desired(checks=(Check(name="load", interval_s=60.0), Check(name="disk-space", interval_s=120.0)))
    names = [[result.check for result in await checks.due(state, now_s)] for now_s in (0.0, 30.0, 60.0, 120.0)]
    assert names == [
        ["load", "disk-space", SERVICES, FILES],
        [],
        ["load"],
        ["load", "disk-space", SERVICES, FILES],
    ]
    assert checks.wait_s(state, 150.0) == 30.0


async def test_item_180_certificates_of_a_new_cluster_are_known_within_a_minute_and_then_read_every_hour(
    checks: Checks, machine: Machine
) -> None:
    async def is_told(now_s: float) -> bool:
        return expiry.CHECK in [result.check for result in await checks.due(None, now_s)]

    assert not await is_told(0.0), "there is none"
    pki = Path(machine.root.folder, "etc/kubernetes/pki/default")
    pki.mkdir(parents=True)
    pair = issuing.self_signed("x", ["x"], datetime.now(UTC), timedelta(days=365))
    (pki / "apiserver.crt").write_bytes(pair.certificate)
    told = [now_s for now_s in range(0, 7300, 20) if await is_told(now_s)]
    assert told == [60, 3660, 7260]


async def test_a_disk_that_fills_up_fails_with_the_place_and_a_remedy(
    checks: Checks, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def volume(free: int) -> Callable[[Any], os.statvfs_result]:
        # block size, fragment size, blocks, free, available, files, free files, available files, flags, longest name
        return lambda path: os.statvfs_result((4096, 4096, 1000, free, free, 100, 50, 50, 0, 255))

    monkeypatch.setattr(os, "statvfs", volume(400))
    assert (await measured(checks, "disk-space")).value == 60.0
    monkeypatch.setattr(os, "statvfs", volume(50))
    result = await measured(checks, "disk-space")
    assert (result.status, result.value) == ("FAIL", 95.0)
    assert "95 % of the space" in result.info
    assert result.remedy.startswith("free space below")


async def test_load_is_judged_by_the_number_of_processors(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (7.94, 0.0, 0.0))
    assert (await measured(checks, "load")) == Result(check="load", status="PASS", value=7.9)
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0, 0.0, 0.0))
    assert (await measured(checks, "load")).status == "FAIL"


@pytest.mark.parametrize(
    ("offset", "status", "value"), [(None, "FAIL", None), (3.456, "PASS", 3.46), (250.0, "FAIL", 250.0)]
)
async def test_a_clock_that_nobody_keeps_fails(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, offset: float | None, status: str, value: float | None
) -> None:
    monkeypatch.setattr(module, "_clock_offset_ms", lambda: offset)
    result = await measured(checks, "ntp")
    assert (result.status, result.value) == (status, value)
    assert ("start chronyd" in result.remedy) == (status == "FAIL")


def test_the_kernel_answers_about_its_clock() -> None:
    offset = module._clock_offset_ms()
    assert offset is None or offset >= 0


async def test_managed_services_are_watched(checks: Checks, machine: Machine) -> None:
    quiet = Service(name="quiet", monitored=False)
    state = Desired(node="n", services=(Service(name="app"), Service(name="b"), quiet))
    machine.services.running["b"] = 1
    result = await measured(checks, SERVICES, state)
    assert (result.status, result.value) == ("FAIL", 1.0)
    assert (result.info, result.remedy) == ("app is stopped", "see the log of the service on the node")
    machine.services.running["app"] = 2
    assert (await measured(checks, SERVICES, state)).status == "PASS"


async def test_files_that_differ_are_named_three_at_most(checks: Checks) -> None:
    assert (await measured(checks, FILES)).status == "PASS"
    checks.differences = [Difference("file", f"/etc/{number}", "was removed") for number in range(5)]
    result = await measured(checks, FILES)
    assert (result.status, result.value) == ("FAIL", 5.0)
    assert result.info.endswith("/etc/2 was removed and 2 more")


async def test_a_service_whose_script_fails_is_sick(checks: Checks, machine: Machine) -> None:
    service = Service(name="app", sickness_script="/opt/check", sickness_interval=60)
    state = Desired(node="n", services=(service,))
    place = str(machine.at("/opt/check"))
    machine.services.running["app"] = 1
    assert await checks.sick(state, 0.0) == []
    assert machine.commands.ran == [[place]]
    machine.commands.answers[place] = Ended(2, "", "no answer on port 80\n")
    assert await checks.sick(state, 30.0) == []
    (sick,) = await checks.sick(state, 61.0)
    assert sick == ("app", "exit code 2: no answer on port 80")
    assert "app is sick" in (await measured(checks, SERVICES, state)).info


async def test_a_site_adds_checks_of_its_own(checks: Checks, machine: Machine) -> None:
    unknown = await measured(checks, "raid")
    assert (unknown.status, "checks.d" in unknown.remedy) == ("UNKNOWN", True)
    place = str(machine.put("/etc/bedplate/checks.d/raid", "", 0o755))
    machine.commands.answers[place] = Ended(0, "3 disks\n")
    assert await measured(checks, "raid") == Result(check="raid", status="PASS", value=3.0, info="3 disks")
    machine.commands.answers[place] = Ended(1, "degraded\x1b[0m\n")
    assert (await measured(checks, "raid")).info == "degraded [0m"
    machine.commands.answers[place] = Ended(None, "", "it did not end within 30 s")
    assert (await measured(checks, "raid")).status == "UNKNOWN"


# Docker


@contextlib.asynccontextmanager
async def docker(machine: Machine, path: str, *, ping: int = 200, containers: Any = ()) -> AsyncIterator[None]:
    """A daemon at a socket below the node's root."""

    async def pinged(request: web.Request) -> web.Response:
        return web.Response(status=ping, text="OK")

    async def listed(request: web.Request) -> web.Response:
        assert request.query["all"] == "1"
        assert json.loads(request.query["filters"]) == {"status": ["dead"]}
        return web.json_response(list(containers))

    app = web.Application()
    app.router.add_get("/_ping", pinged)
    app.router.add_get("/containers/json", listed)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    place = machine.at(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        await web.UnixSite(runner, str(place)).start()
        yield
    finally:
        await runner.cleanup()


SOCKET = "/var/run/docker.sock"


async def test_item_65_docker_passes_when_it_answers_and_no_container_is_dead(checks: Checks, machine: Machine) -> None:
    async with docker(machine, SOCKET):
        assert await measured(checks, "Docker") == Result(check="Docker", status="PASS", value=0.0)


async def test_item_65_docker_fails_for_dead_containers_and_names_them(checks: Checks, machine: Machine) -> None:
    dead = [{"Id": "0123456789abcdef", "Names": ["/web"], "State": "dead"}, {"Id": "fedcba9876543210", "State": "dead"}]
    async with docker(machine, SOCKET, containers=dead):
        result = await measured(checks, "Docker")
        assert (result.status, result.value) == ("FAIL", 2.0)
        assert (result.info, result.remedy) == ("dead: web, fedcba987654", "docker rm -f them")


async def test_item_65_docker_fails_when_it_does_not_answer(checks: Checks, machine: Machine) -> None:
    assert "does not answer at /var/run/docker.sock" in (await measured(checks, "Docker")).info
    async with docker(machine, SOCKET, ping=500):
        assert "status 500" in (await measured(checks, "Docker")).info


async def test_docker_is_asked_where_its_settings_say(checks: Checks, machine: Machine) -> None:
    machine.put("/etc/docker/daemon.json", '{"hosts": ["tcp://0.0.0.0:2375", "unix:///run/own.sock"]}')
    async with docker(machine, "/run/own.sock"):
        assert (await measured(checks, "Docker")).status == "PASS"


# Kubernetes


async def test_item_161_a_node_whose_kubelet_or_runtime_is_down_fails(checks: Checks, machine: Machine) -> None:
    state = desired(services=["containerd", "kubelet"])
    machine.services.running.update(kubelet=1, containerd=1)
    assert (await measured(checks, "KubernetesChildNode", state)).status == "PASS"
    del machine.services.running["containerd"]
    result = await measured(checks, "KubernetesChildNode", state)
    assert (result.status, result.info) == ("FAIL", "containerd is stopped")


async def test_item_160_components_of_this_node_must_be_healthy(
    checks: Checks, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answers = {"http://127.0.0.1:10248/healthz": "", "https://127.0.0.1:10259/healthz": "connection refused"}

    async def health(url: str) -> str:
        asked.append(url)
        return answers[url]

    monkeypatch.setattr(checks, "_health", health)
    assert (await measured(checks, "KubernetesComponentsStatus")).status == "PASS"
    machine.put("/etc/kubernetes/manifests/kube-scheduler.yaml", "")
    result = await measured(checks, "KubernetesComponentsStatus")
    assert result.status == "FAIL"
    assert result.info == "kube-scheduler: connection refused"
    assert len(asked) == 3


async def test_a_component_that_wants_to_know_who_asks_is_there(checks: Checks) -> None:
    async def answer(status: int) -> str:
        async def said(request: web.Request) -> web.Response:
            return web.Response(status=status)

        app = web.Application()
        app.router.add_get("/healthz", said)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            return await checks._health(f"http://127.0.0.1:{runner.addresses[0][1]}/healthz")
        finally:
            await runner.cleanup()

    assert [await answer(status) for status in (200, 401, 500)] == ["", "", "status 500"]


async def test_item_158_nodes_that_are_not_ready_are_named_on_a_control_plane(checks: Checks, machine: Machine) -> None:
    assert await checks.measure("KubernetesNodesStatus", None) is None
    machine.put("/etc/kubernetes/admin.conf", "")
    lines = "a Ready control-plane 1d v1\nb NotReady <none> 1d v1\nc Ready,SchedulingDisabled <none> 1d v1\n"
    machine.commands.answers["kubectl"] = Ended(0, lines)
    result = await measured(checks, "KubernetesNodesStatus")
    assert (result.status, result.info) == ("FAIL", "not ready: b")
    machine.commands.answers["kubectl"] = Ended(0, lines.replace("NotReady", "Ready"))
    assert (await measured(checks, "KubernetesNodesStatus")).status == "PASS"
    machine.commands.answers["kubectl"] = Ended(1, "", "connection refused")
    assert (await measured(checks, "KubernetesNodesStatus")).status == "FAIL"


async def test_item_159_pods_that_failed_are_named(checks: Checks, machine: Machine) -> None:
    machine.put("/etc/kubernetes/admin.conf", "")
    assert (await measured(checks, "KubernetesPodsStatus")).status == "PASS"
    assert machine.commands.ran[-1][-1] == (
        "--field-selector=status.phase!=Running,status.phase!=Succeeded,status.phase!=Pending"
    )
    machine.commands.answers["kubectl"] = Ended(0, "default web-0 0/1 Error 0 1d\n")
    result = await measured(checks, "KubernetesPodsStatus")
    assert (result.status, result.info) == ("FAIL", "default/web-0")


async def test_everything_that_is_said_fits_a_report(checks: Checks, machine: Machine) -> None:
    checks.differences = [Difference("file", f"/etc/{'x' * 300}\n", "was removed")]
    result = await measured(checks, FILES)
    assert len(result.info) <= 250
