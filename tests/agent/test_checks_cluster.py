"""Checks of a control plane node against API servers, the real one and ours, with the real kubectl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import servers
from tests.agent.machines import Machine

from bedplate.agent import commands
from bedplate.agent.checks import Checks
from bedplate.agent.commands import Ended
from bedplate.api.headapi import Result
from bedplate.api.resources import NODES, PODS
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType


@pytest.fixture
async def checks(own_server: servers.Server, kubectl_program: Path, tmp_path: Path) -> AsyncIterator[Checks]:
    """A node with the administrator's kubeconfig of a cluster."""
    machine = Machine(tmp_path / "n")
    machine.put("/etc/kubernetes/admin.conf", Path(own_server.kubeconfig).read_text())

    async def run(command: list[str], **options: object) -> Ended:
        return await commands.run([str(kubectl_program), *command[1:]], **options)  # type: ignore[arg-type]

    made = Checks(machine.root, machine.services, run)  # type: ignore[arg-type]
    yield made
    await made.close()


@pytest.fixture
async def admin(own_server: servers.Server) -> AsyncIterator[Client]:
    async with Client(config.load(own_server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        yield client


async def measured(checks: Checks, name: str) -> Result:
    result = await checks.measure(name, None)
    assert result is not None
    return result


async def test_item_158_a_node_that_is_not_ready_fails_the_check_until_it_is(checks: Checks, admin: Client) -> None:
    assert (await measured(checks, "KubernetesNodesStatus")).status == "PASS"
    for name in ("one", "two"):
        await admin.create(NODES, {"metadata": {"name": name}})
        await say_ready(admin, name, "True")
    assert (await measured(checks, "KubernetesNodesStatus")).status == "PASS"
    await say_ready(admin, "two", "Unknown")
    result = await measured(checks, "KubernetesNodesStatus")
    assert (result.status, result.info, result.value) == ("FAIL", "not ready: two", 1.0)
    await admin.patch(NODES, "one", {"spec": {"unschedulable": True}})
    assert (await measured(checks, "KubernetesNodesStatus")).info == "not ready: two", "a cordoned one is ready"
    await say_ready(admin, "two", "True")
    assert (await measured(checks, "KubernetesNodesStatus")).status == "PASS"
    for name in ("one", "two"):
        await admin.delete(NODES, name)


async def say_ready(admin: Client, name: str, status: str) -> None:
    condition = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
    body = {"status": {"conditions": [condition]}}
    await admin.patch(NODES, name, body, type=PatchType.STRATEGIC, subresource="status")


async def test_item_159_pods_that_failed_or_are_unknown_fail_the_check_and_others_do_not(
    checks: Checks, admin: Client
) -> None:
    containers = [{"name": "c", "image": "none"}]
    for phase in ("Pending", "Running", "Succeeded"):
        name = phase.lower()
        await admin.create(PODS, {"metadata": {"name": name}, "spec": {"containers": containers}}, "default")
        await admin.patch(PODS, name, {"status": {"phase": phase}}, "default", subresource="status")
    assert (await measured(checks, "KubernetesPodsStatus")).status == "PASS"
    for phase in ("Failed", "Unknown"):
        await admin.patch(PODS, "running", {"status": {"phase": phase}}, "default", subresource="status")
        result = await measured(checks, "KubernetesPodsStatus")
        assert (result.status, result.info) == ("FAIL", "default/running")
    for name in ("pending", "running", "succeeded"):
        await admin.delete(PODS, name, "default")
    assert (await measured(checks, "KubernetesPodsStatus")).status == "PASS"


async def test_item_158_a_server_that_does_not_answer_fails_the_check(kubectl_program: Path, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "n")
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    machine.put(
        "/etc/kubernetes/admin.conf",
        str({"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}).replace("'", '"')[:-1]
        + ', "current-context": "c"}',
    )

    async def run(command: list[str], **options: object) -> Ended:
        return await commands.run([str(kubectl_program), *command[1:]], **options)  # type: ignore[arg-type]

    made = Checks(machine.root, machine.services, run)  # type: ignore[arg-type]
    assert (await measured(made, "KubernetesNodesStatus")).status == "FAIL"
    await made.close()
