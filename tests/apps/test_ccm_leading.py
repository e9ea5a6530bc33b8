"""One manager leads, others wait; one that is deposed, killed or asked to stop leaves nothing half done."""

from __future__ import annotations

import json
import re
import signal
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests import servers
from tests.apps import managers
from tests.apps.managers import PROGRAMS, holder, initialised, joined, program, running
from tests.faults import places, proxy
from tests.waiting import until

from bedplate.api.resources import EVENTS, LEASES
from bedplate.kube import Client

CLOUDLYCKE = program(PROGRAMS["cloudlycke"])


def inventory(folder: Path, *nodes: str) -> Path:
    """A file of the demonstration cloud with these machines."""
    file = folder / "inventory.yaml"
    machines = [
        {"id": f"i-{name}", "name": name, "internalIPs": ["10.1.2.3"], "type": "t", "zone": "z", "region": "r"}
        for name in nodes
    ]
    file.write_text(json.dumps({"instances": machines}))
    return file


def own(prefix: str) -> tuple[str, str]:
    """A name of this test's own, and the label that marks its nodes."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    return name, f"ccm-test={name}"


async def test_a_replica_takes_over_from_one_that_was_killed(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("a22-kill")
    words = ["--cloud-config", str(inventory(tmp_path, name)), "-v=2"]
    first_words = managers.arguments(server, name, label)
    second_words = managers.arguments(server, name, label)
    async with running(CLOUDLYCKE, *first_words, *words, folder=tmp_path) as first:
        await first.logged("controller.started")
        leader = await holder(client, name)
        async with running(CLOUDLYCKE, *second_words, *words, folder=tmp_path) as second:
            await second.logged("leaderelection.trying")
            assert (await second.get("/healthz"))[0] == 200
            assert "controller.started" not in second.log()
            await first.stop(signal.SIGKILL)
            # Nobody renews or releases it any more: it runs out, here after one second and not after five.
            await client.patch(LEASES.raw(), name, {"spec": {"leaseDurationSeconds": 1}}, "kube-system")
            await second.logged("controller.started")
            assert await holder(client, name) not in ("", leader)
            async with joined(client, name, labels={"ccm-test": name}):
                await initialised(client, name, second)
            lease = await client.get(LEASES.raw(), name, "kube-system")
            assert lease["spec"]["leaseTransitions"] == 1
            assert lease["spec"]["leaseDurationSeconds"] == 5
            assert await second.stop() == 0


def asked_at(line: str) -> datetime:
    """When the request of a line of the log was sent."""
    spent = re.search(r"milliseconds=(\d+)", line)
    assert spent is not None, line
    return datetime.fromisoformat(line.split()[0]) - timedelta(milliseconds=int(spent[1]))


async def test_a_leader_that_was_frozen_wakes_up_deposed_and_writes_nothing(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("a22-frozen")
    words = ["--cloud-config", str(inventory(tmp_path, name)), "-v=6"]
    async with running(CLOUDLYCKE, *managers.arguments(server, name, label), *words, folder=tmp_path) as first:
        await first.logged("controller.started")
        async with running(CLOUDLYCKE, *managers.arguments(server, name, label), *words, folder=tmp_path) as second:
            await second.logged("leaderelection.trying")
            first.process.send_signal(signal.SIGSTOP)
            await second.logged("controller.started")
            before = first.log()
            async with joined(client, name, labels={"ccm-test": name}):
                await initialised(client, name, second)
                waking = datetime.now(UTC)
                first.process.send_signal(signal.SIGCONT)
                assert await first.ended() == 1
            woken = first.log().removeprefix(before)
            assert "leaderelection lost" in woken
            lines = [line for line in woken.splitlines() if "kube.request" in line and "method=GET" not in line]
            # What it asked for before it was frozen may be answered, or told, only now.
            written = [line for line in lines if asked_at(line) >= waking]
            # The event that says so is the only thing that a deposed leader may still write.
            assert all("/events" in line for line in written), written


async def test_sigterm_gives_the_lease_back_and_exits_0(server: servers.Server, client: Client, tmp_path: Path) -> None:
    name, label = own("a22-term")
    async with running(CLOUDLYCKE, *managers.arguments(server, name, label), folder=tmp_path) as manager:
        await manager.logged("controller.started")
        assert await holder(client, name)
        assert await manager.stop(signal.SIGTERM) == 0
    assert await holder(client, name) == ""
    assert "leaderelection.released" in manager.log()
    found = await client.list(EVENTS.raw(), "kube-system", field_selector=f"involvedObject.name={name}")
    told = [(event["reason"], event["message"].split(" ", 1)[1], event["source"]["component"]) for event in found.items]
    assert ("LeaderElection", "became leader", "cloud-controller-manager") in told
    assert ("LeaderElection", "stopped leading", "cloud-controller-manager") in told


async def test_a_leader_whose_lease_was_taken_exits_1_and_writes_nothing_more(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("a22-lost")
    words = [*managers.arguments(server, name, label), "--cloud-config", str(inventory(tmp_path, name))]
    async with running(CLOUDLYCKE, *words, folder=tmp_path) as manager:
        await manager.logged("controller.started")
        # As another replica would write it, had this process been thought dead.
        taken = {"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}}

        async def take() -> bool:
            await client.patch(LEASES.raw(), name, taken, "kube-system")
            return manager.exit_code is not None

        await until(take, "the deposed leader ends", describe=manager.log)
        assert await manager.ended() == 1
    assert "leaderelection lost" in manager.log()
    assert await holder(client, name) == "somebody-else"


async def test_a_leader_that_cannot_renew_exits_1_before_another_may_lead(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("a22-cut")
    async with proxy.proxied(server.kubeconfig, tmp_path) as (between, _):
        words = [
            *managers.arguments(server, name, label, master=f"http://127.0.0.1:{between.port}"),
            "--cloud-config",
            str(inventory(tmp_path, name)),
        ]
        async with running(CLOUDLYCKE, *words, folder=tmp_path) as manager:
            await manager.logged("controller.started")
            between.refuse = (500, 1.0)
            async with joined(client, name, labels={"ccm-test": name}):
                assert await manager.ended() == 1
                # Reachable again, but no leader any more: nothing was written in between.
                between.refuse = (0, 0.0)
                node = await client.get(managers.NODES.raw(), name)
                assert node["spec"]["taints"] == [managers.TAINT]
    assert "leaderelection lost" in manager.log()


async def test_two_replicas_never_work_at_once(server: servers.Server, client: Client, tmp_path: Path) -> None:
    name, label = own("a22-two")
    logs = []
    async with (
        running(CLOUDLYCKE, *managers.arguments(server, name, label), folder=tmp_path) as first,
        running(CLOUDLYCKE, *managers.arguments(server, name, label), folder=tmp_path) as second,
    ):

        async def one_leads() -> bool:
            logs[:] = ["controller.started" in each.log() for each in (first, second)]
            return any(logs)

        await until(one_leads, "one leads")

        async def both_tried() -> bool:
            # Both try twice a second.
            spec = (await client.get(LEASES, name, "kube-system")).spec
            assert spec.renew_time is not None and spec.acquire_time is not None
            return (spec.renew_time - spec.acquire_time).total_seconds() > 1.5

        await until(both_tried, "both have tried again")
        await one_leads()
        assert logs.count(True) == 1


async def test_an_api_server_that_hangs_does_not_keep_the_program_from_stopping(tmp_path: Path) -> None:
    async with places.embedded(tmp_path / "server") as place:
        frozen = place._process  # type: ignore[attr-defined]
        server = servers.read_kubeconfig("embedded", place.kubeconfig, tmp_path)
        async with running(CLOUDLYCKE, *managers.arguments(server), folder=tmp_path) as manager:
            await manager.logged("controller.started")
            frozen.send_signal(signal.SIGSTOP)
            try:
                assert await manager.stop(signal.SIGTERM) == 0
            finally:
                frozen.send_signal(signal.SIGCONT)


async def test_without_leader_election_work_begins_at_once_and_no_lease_is_made(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("a22-alone")
    words = [*managers.arguments(server, name, label), "--leader-elect=false", "--cloud-config"]
    async with (
        joined(client, name, labels={"ccm-test": name}),
        running(CLOUDLYCKE, *words, str(inventory(tmp_path, name)), folder=tmp_path) as manager,
    ):
        await initialised(client, name, manager)
        assert await holder(client, name) == ""


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("dry")
    words = [*managers.arguments(server, name, label), "--dry-run", "-v=4", "--use-service-account-credentials"]
    async with (
        joined(client, name, labels={"ccm-test": name}),
        running(CLOUDLYCKE, *words, "--cloud-config", str(inventory(tmp_path, name)), folder=tmp_path) as manager,
    ):
        await manager.logged("dryrun.write")
        await manager.logged(f"cloudlycke://i-{name}")
        node = await client.get(managers.NODES.raw(), name)
        assert node["spec"]["taints"] == [managers.TAINT]
        assert "providerID" not in node["spec"]
        assert await holder(client, name) == ""
        assert (await manager.get("/readyz")) == (200, "ok")
        found = await client.list(EVENTS.raw(), "default", field_selector=f"involvedObject.name={name}")
        assert found.items == []
        assert await manager.stop() == 0


async def test_nodes_below_the_selector_are_the_only_ones(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name, label = own("selected")
    other = f"{name}-other"
    words = [*managers.arguments(server, name, label), "--cloud-config", str(inventory(tmp_path, name, other))]
    async with (
        joined(client, other),
        joined(client, name, labels={"ccm-test": name}),
        running(CLOUDLYCKE, *words, folder=tmp_path) as manager,
    ):
        await initialised(client, name, manager)
        node = await client.get(managers.NODES.raw(), other)
        assert node["spec"]["taints"] == [managers.TAINT]


async def test_controllers_can_be_left_out(server: servers.Server, client: Client, tmp_path: Path) -> None:
    name, label = own("some")
    words = [*managers.arguments(server, name, label), "--controllers=*,-cloud-node,-service"]
    async with running(CLOUDLYCKE, *words, folder=tmp_path) as manager:
        await manager.logged("controller=cloud-node-lifecycle-controller")
        assert "controller=cloud-node-controller" not in manager.log()
        assert "controller=service-lb-controller" not in manager.log()
