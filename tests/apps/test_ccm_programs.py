"""The three programs start with nothing but the originals' flags, variables and files, and do their work."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import subprocess
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests import forkserver, servers
from tests.apps import managers
from tests.apps.managers import PROGRAMS, initialised, joined, program, running
from tests.waiting import until

from bedplate.api import names
from bedplate.api.resources import NODES
from bedplate.cloud.manager import leading
from bedplate.cloud.manager import process as manager_process
from bedplate.core import errors
from bedplate.kube import Client
from bedplate.program import process
from bedplate.sim.clouds import BmmCloud, OxideCloud

SIX = (
    names.LABEL_INSTANCE_TYPE,
    names.LABEL_INSTANCE_TYPE_BETA,
    names.LABEL_ZONE,
    names.LABEL_ZONE_BETA,
    names.LABEL_REGION,
    names.LABEL_REGION_BETA,
)


@pytest.fixture
async def port_10258() -> AsyncIterator[None]:
    """The originals' words name no port, so the default one is needed: one test at a time, on the whole machine."""
    # A name in the kernel's list of sockets: unlike a file it belongs to no user, and it goes with its process.
    with socket.socket(socket.AF_UNIX) as lock:

        async def is_locked() -> bool:
            with contextlib.suppress(OSError):
                lock.bind("\0bedplate-tests-port-10258")
                return True
            return False

        await until(is_locked, "no other test uses port 10258")

        async def is_free() -> bool:
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("0.0.0.0", 10258))
                return True
            return False

        await until(is_free, "port 10258 is free")
        yield


async def test_nvidia_bmm_starts_as_its_manifest_starts_it(
    own_server: servers.Server, own_client: Client, tmp_path: Path, port_10258: None
) -> None:
    async with BmmCloud() as cloud:
        machine = cloud.add("worker-1")
        words = (
            f"--cloud-provider=nvidia-bmm --cloud-config={managers.bmm_config(cloud, tmp_path)} "
            "--use-service-account-credentials=true --leader-elect=true "
            "--leader-elect-resource-name=nvidia-bmm-cloud-controller-manager --v=2 "
            f"--kubeconfig={own_server.kubeconfig}"
        )
        async with (
            joined(own_client, "worker-1"),
            running(program(PROGRAMS["nvidia-bmm"]), *words.split(), folder=tmp_path) as manager,
        ):
            node = await initialised(own_client, "worker-1", manager)
            assert node["spec"]["providerID"] == machine.provider_id
            labels = node["metadata"]["labels"]
            assert labels[names.LABEL_ZONE] == f"nvidia-bmm-zone-{cloud.site_id}"
            assert labels[names.LABEL_REGION] == f"nvidia-bmm-region-{cloud.site_id.split('-')[0]}"
            assert await managers.holder(own_client, "nvidia-bmm-cloud-controller-manager")
            assert (await manager.get("/healthz")) == (200, "ok")
            assert await manager.stop() == 0


async def test_nvidia_bmm_starts_with_environment_variables_alone(
    own_server: servers.Server, own_client: Client, tmp_path: Path, port_10258: None
) -> None:
    async with BmmCloud() as cloud:
        machine = cloud.add("worker-2")
        environment = {
            "NVIDIA_BMM_ENDPOINT": cloud.url,
            "NVIDIA_BMM_ORG_NAME": cloud.org,
            "NVIDIA_BMM_TOKEN": cloud.token,
            "NVIDIA_BMM_SITE_ID": cloud.site_id,
            "NVIDIA_BMM_TENANT_ID": cloud.tenant_id,
        }
        words = ["--cloud-provider=nvidia-bmm", f"--kubeconfig={own_server.kubeconfig}"]
        async with (
            joined(own_client, "worker-2", provider_id=machine.provider_id),
            running(program(PROGRAMS["nvidia-bmm"]), *words, folder=tmp_path, env=environment) as manager,
        ):
            node = await initialised(own_client, "worker-2", manager)
            assert set(SIX) <= set(node["metadata"]["labels"])


async def test_oxide_starts_as_its_document_starts_it(
    own_server: servers.Server, own_client: Client, tmp_path: Path, port_10258: None
) -> None:
    async with OxideCloud() as cloud:
        machine = cloud.add("oxide-worker")
        words = ["--cloud-provider", "oxide", "--kubeconfig", str(own_server.kubeconfig)]
        async with (
            joined(own_client, "oxide-worker"),
            running(
                program(PROGRAMS["oxide"]), *words, folder=tmp_path, env=managers.oxide_environment(cloud)
            ) as manager,
        ):
            node = await initialised(own_client, "oxide-worker", manager)
            assert node["spec"]["providerID"] == machine.provider_id
            wanted = {("InternalIP", address) for address in machine.addresses}

            async def has_addresses() -> bool:
                # They are written after the taint is gone, in a write of their own.
                status = (await own_client.get(NODES.raw(), "oxide-worker")).get("status") or {}
                return wanted <= {(one["type"], one["address"]) for one in status.get("addresses") or ()}

            await until(has_addresses, "the node has its machine's addresses", describe=lambda: manager.log()[-4000:])


async def test_cloudlycke_starts_as_its_manifest_starts_it(
    own_server: servers.Server, own_client: Client, tmp_path: Path, port_10258: None
) -> None:
    words = (
        "--v=5 --cloud-provider=cloudlycke --cluster-name=kubernetes-2 --use-service-account-credentials "
        f"--address=127.0.0.1 --kubeconfig={own_server.kubeconfig}"
    )
    async with (
        joined(own_client, "node-c2-1", provider_id="cloudlycke://n-c2-1"),
        running(program(PROGRAMS["cloudlycke"]), *words.split(), folder=tmp_path) as manager,
    ):
        node = await initialised(own_client, "node-c2-1", manager)
        labels = node["metadata"]["labels"]
        assert {key: labels.get(key) for key in SIX} == {
            key: "vbox.vm.1g.2cpu" if "instance-type" in key else "virtualbox" for key in SIX
        }
        assert "argument=cloudlycke://n-c2-1" in manager.log() or "argument=node-c2-1" in manager.log()


@pytest.mark.parametrize("provider", PROGRAMS)
def test_a_program_knows_its_version_and_its_flags(provider: str) -> None:
    shown = subprocess.run([program(PROGRAMS[provider]), "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(f"{PROGRAMS[provider]} v")
    shown = subprocess.run([program(PROGRAMS[provider]), "--help"], capture_output=True, text=True, check=True)
    assert "Secure serving flags:" in shown.stdout
    assert f"works for {provider}" in shown.stdout


def test_a_wrong_command_line_shows_every_problem_and_the_usage_and_fails() -> None:
    words = ["--nope", "--controllers=x", "word", "--concurrent-node-syncs=0"]
    ended = forkserver.run([program(PROGRAMS["oxide"]), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    for part in (
        "Error: unknown flag: --nope",
        "Error: unexpected argument 'word'",
        "Error: --controllers: 'x' is not a controller",
        "Error: --concurrent-node-syncs: must be at least 1",
        "Usage:\n  oxide-cloud-controller-manager [flags]",
    ):
        assert part in ended.stderr


def test_the_manager_for_any_cloud_must_be_told_which() -> None:
    ended = forkserver.run([program("bedplate"), "ccm", "run"], capture_output=True, text=True, check=False)
    assert (ended.returncode, "--cloud-provider is required" in ended.stderr) == (1, True)
    ended = forkserver.run([program("bedplate"), "ccm", "run", "--help"], capture_output=True, text=True, check=True)
    assert "Generic flags:" in ended.stdout


async def test_a_missing_setting_ends_the_program_before_it_is_elected(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    lease = "ccm-never-held"
    words = managers.arguments(server, lease)
    async with running(program(PROGRAMS["nvidia-bmm"]), *words, folder=tmp_path) as manager:
        assert await manager.ended() == 1
    for part in ("endpoint", "NVIDIA_BMM_ENDPOINT", "siteId", "NVIDIA_BMM_SITE_ID", "token", "NVIDIA_BMM_TOKEN"):
        assert part in manager.log()
    assert "Traceback" not in manager.log()
    assert await managers.holder(client, lease) == ""


async def test_a_port_that_is_taken_ends_the_program_with_one_line(server: servers.Server, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = managers.arguments(server, secure_port=str(taken.getsockname()[1]))
        async with running(program(PROGRAMS["cloudlycke"]), *words, folder=tmp_path) as manager:
            assert await manager.ended() == 1
    assert "cannot listen on 127.0.0.1" in manager.log()
    assert "Traceback" not in manager.log()


async def test_without_a_cluster_the_program_says_what_to_pass(tmp_path: Path) -> None:
    async with running(program(PROGRAMS["cloudlycke"]), "--secure-port=0", folder=tmp_path) as manager:
        assert await manager.ended() == 1
    assert "pass --kubeconfig=FILE" in manager.log()


@pytest.mark.parametrize("elects", ["true", "false"])
def test_an_api_server_that_does_not_answer_ends_the_program_with_and_without_leader_election(
    monkeypatch: pytest.MonkeyPatch, elects: str
) -> None:
    monkeypatch.setattr(leading, "ANSWER_PATIENCE_S", 0.1)
    monkeypatch.setattr(leading, "API_PERIOD_S", 0.02)
    words = [f"--master=http://127.0.0.1:{servers.free_port()}", f"--leader-elect={elects}", "--secure-port=0"]
    out, err = io.StringIO(), io.StringIO()
    program = manager_process.program(PROGRAMS["cloudlycke"], "cloudlycke")
    assert process.run(program, words, {}, _run, out, err) == 1
    assert "the API server does not answer" in err.getvalue()


def _run(main: Coroutine[Any, Any, None]) -> None:
    """As the entry points do it, without their signals."""
    try:
        asyncio.run(main)
    except BaseExceptionGroup as group:
        raise (errors.only(group) or group) from None
