"""`bedplate ccm explain`: what people see, and the exit codes that scripts see."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from pathlib import Path

from tests import forkserver, servers
from tests.apps import managers
from tests.apps.managers import joined, program, set_ready

from bedplate.api.resources import NODES, SERVICES
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.sim.clouds import BmmCloud, OxideCloud


async def explain(server: servers.Server, folder: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    """Run it; exit code, output and log."""
    command = [program("bedplate"), "ccm", "explain", *words, f"--kubeconfig={server.kubeconfig}"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **environ}
    ended = await asyncio.to_thread(
        forkserver.run, command, capture_output=True, text=True, check=False, env=environment
    )
    is_json = "json" in words
    return ended.returncode, ended.stdout if is_json else " ".join(ended.stdout.split()), ended.stderr


async def test_a_node_is_explained_through_its_life(server: servers.Server, client: Client, tmp_path: Path) -> None:
    name = f"explained-{uuid.uuid4().hex[:6]}"
    label = {"ccm-test": name}
    async with BmmCloud() as cloud:
        machine = cloud.add(name)
        words = ["node", name, "--cloud-provider=nvidia-bmm", f"--node-selector=ccm-test={name}"]
        words.append(f"--cloud-config={managers.bmm_config(cloud, tmp_path)}")
        async with joined(client, name, labels=label):
            code, out, log = await explain(server, tmp_path, *words)
            assert code == 1, log
            assert f"nvidia-bmm knows it as {machine.provider_id}" in out
            code, out, _ = await explain(server, tmp_path, *words, "-o", "json")
            found = json.loads(out)
            assert (code, found["kind"], found["name"], found["state"]) == (1, "Node", name, "attention")
            before = await client.get(NODES.raw(), name)
            assert before["spec"]["taints"] == [managers.TAINT]
            await client.patch(NODES.raw(), name, {"spec": {"taints": None, "providerID": machine.provider_id}})
            code, out, log = await explain(server, tmp_path, *words)
            assert (code, "yes" in out) == (0, True), out + log
            await set_ready(client, name, False)
            cloud.remove(machine.id)
            code, out, _ = await explain(server, tmp_path, *words, "--node-startup-grace-period=0s")
            assert (code, "would be deleted" in out) == (1, True), out
            cloud.faults.add("503")
            code, out, _ = await explain(server, tmp_path, *words, "--cloud-api-timeout=2s")
            assert (code, "could not be" in out) == (3, True), out
        assert not [entry for entry in cloud.journal.entries if entry.method != "GET"]


async def test_a_service_is_explained(server: servers.Server, client: Client, tmp_path: Path) -> None:
    name = f"explained-{uuid.uuid4().hex[:6]}"
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": name}}
    await client.create(SERVICES.raw(), {"metadata": {"name": name}, "spec": spec}, "default")
    try:
        async with OxideCloud() as cloud:
            words = ["service", f"default/{name}", "--cloud-provider=oxide", f"--node-selector=ccm-test={name}"]
            environment = managers.oxide_environment(cloud)
            code, out, log = await explain(server, tmp_path, *words, **environment)
            assert code == 1, out + log
            for part in ("load balancer of oxide", "absent", "no node is eligible to carry its traffic"):
                assert part in out, out
            code, out, _ = await explain(server, tmp_path, *words, "--load-balancer-default-class=false", **environment)
            assert (code, "nobody here" in out) == (0, True), out
            assert not [entry for entry in cloud.journal.entries if entry.method != "GET"]
    finally:
        with contextlib.suppress(kube_errors.NotFound):
            await client.delete(SERVICES, name, "default")


async def test_what_cannot_be_explained_has_an_exit_code_of_its_own(server: servers.Server, tmp_path: Path) -> None:
    code, _, log = await explain(server, tmp_path, "node", "no-such-node", "--cloud-provider=cloudlycke")
    assert (code, "no-such-node" in log) == (4, True)
    code, _, log = await explain(server, tmp_path, "node")
    assert (code, "name one node" in log) == (2, True)
    code, _, log = await explain(server, tmp_path, "service", "web", "--cloud-provider=cloudlycke", "-o", "xml")
    assert (code, "NAMESPACE/NAME" in log, "neither table nor json" in log) == (2, True, True)
    words = ("node", "x", "--cloud-provider=cloudlycke", "--kubeconfig=/no/such/file")
    assert (await explain(server, tmp_path, *words))[0] in (2, 4)
