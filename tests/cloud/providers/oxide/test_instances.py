"""Instances against the simulated Oxide API, through the validating proxy:
addresses, instance type, absence, and the budget of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.cloud.providers.oxide.world import CLUSTER, World, world

from bedplate.api import core, meta
from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.interface import InstanceMetadata, Listing
from bedplate.cloud.providers.oxide import provider
from bedplate.core import errors
from bedplate.sim.clouds.oxide.cloud import VIEWER


def node(name: str, provider_id: str = "") -> core.Node:
    return core.Node(metadata=meta.ObjectMeta(name=name), spec=core.NodeSpec(provider_id=provider_id))


async def metadata(one: provider.Oxide, given: core.Node) -> InstanceMetadata:
    found = await one.instances.metadata(given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("interfaces", "wanted"),
    [
        ([{"addresses": ["172.30.1.1"]}], ["172.30.1.1"]),
        ([{"addresses": ["fd00::1"]}], ["fd00::1"]),
        ([{"addresses": ["172.30.1.1", "fd00::1"]}], ["172.30.1.1", "fd00::1"]),
        (
            [
                {"addresses": ["172.30.1.1"], "primary": False},
                {"addresses": ["172.30.2.1", "fd00::2"], "primary": True},
                {"addresses": ["fd00::3"], "primary": False},
            ],
            ["172.30.2.1", "fd00::2", "172.30.1.1", "fd00::3"],
        ),
    ],
    ids=["v4", "v6", "dual", "several, the primary one first"],
)
async def test_addresses_are_host_name_private_then_external(interfaces: Any, wanted: list[str]) -> None:
    async with world() as w:
        w.cloud.add("n1", hostname="worker-1", interfaces=interfaces, ephemeral=["198.18.0.9"], snat=True)
        found = await metadata(w.provider(), node("n1"))
        assert [(one.type, one.address) for one in found.addresses] == [
            ("Hostname", "worker-1"),
            *(("InternalIP", address) for address in wanted),
            ("ExternalIP", "198.18.0.9"),
        ]
        assert found.provider_id == w.cloud.get("n1").provider_id


async def test_floating_ips_are_shown_unless_they_serve_a_service() -> None:
    async with world() as w:
        target = w.node("n1", ephemeral=False)
        w.cloud.create_floating_ip("admin-door", ip="198.18.5.5", attach_to="n1")
        one = w.provider()
        before = await metadata(one, target.node)
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, [target])
        assert w.holder(service) == "n1"
        after = await metadata(w.provider(), target.node)
        assert after == before
        assert [found.address for found in after.addresses if found.type == "ExternalIP"] == ["198.18.5.5"]


@pytest.mark.parametrize(("ncpus", "gib", "wanted"), [(4, 16, "4-16"), (2, 1, "2-1"), (64, 1024, "64-1024")])
async def test_the_type_is_cpus_and_whole_gibibytes(ncpus: int, gib: int, wanted: str) -> None:
    async with world() as w:
        w.cloud.add("n1", ncpus=ncpus, memory_gib=gib)
        assert (await metadata(w.provider(), node("n1"))).instance_type == wanted


async def test_memory_is_rounded_down() -> None:
    async with world() as w:
        w.cloud.add("n1")
        w.cloud.update("n1", memory=(4 << 30) - (1 << 20))
        assert (await metadata(w.provider(), node("n1"))).instance_type == "4-3"


async def test_zone_region_and_labels_come_from_the_configuration(tmp_path: Any) -> None:
    async with world() as w:
        machine = w.cloud.add("n1", cpu_platform="amd_milan")
        assert (await metadata(w.provider(), node("n1"))).zone == ""
        file = tmp_path / "oxide.yaml"
        file.write_text("zone: rack-2\nregion: emeryville\nlabels: [project-id, cpu-platform]\n")
        found = await metadata(w.provider(config=file), node("n1"))
        assert (found.zone, found.region) == ("rack-2", "emeryville")
        assert found.labels == {
            "oxide.computer/project-id": machine.project_id,
            "oxide.computer/cpu-platform": "amd_milan",
        }


@pytest.mark.parametrize("by", ["id", "name"])
async def test_an_instance_that_is_gone_is_absent(by: str) -> None:
    async with world(instances=1) as w:
        machine = w.cloud.all()[0]
        given = node(machine.name, machine.provider_id if by == "id" else "")
        one = w.provider()
        assert await one.instances.exists(given)
        w.cloud.remove(machine.id)
        assert not await one.instances.exists(given, fresh=True)
        assert await one.instances.is_shutdown(given, fresh=True)
        with pytest.raises(InstanceNotFound):
            await w.provider().instances.metadata(given)


@pytest.mark.parametrize("by", ["id", "name"])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "generic-404", "style": "route"},
        {"kind": "generic-404", "style": "unnamed"},
        {"kind": "generic-404", "style": "html"},
        {"kind": "generic-404", "style": "plain"},
        {"kind": "401"},
        {"kind": "403"},
        {"kind": "408"},
        {"kind": "409"},
        {"kind": "429"},
        {"kind": "500"},
        {"kind": "502"},
        {"kind": "503"},
        {"kind": "504"},
        {"kind": "reset"},
        {"kind": "truncated-json"},
        {"kind": "wrong-json"},
        {"kind": "wrong-content-type"},
    ],
    ids=lambda fault: "-".join(fault.values()),
)
async def test_whatever_is_not_object_not_found_is_an_error(by: str, fault: Mapping[str, str]) -> None:
    async with world(instances=1) as w:
        machine = w.cloud.all()[0]
        given = node(machine.name, machine.provider_id if by == "id" else "")
        options = {key: value for key, value in fault.items() if key != "kind"}
        w.cloud.faults.add(fault["kind"], fault=options, operation="instance_view")
        one = w.provider()
        for ask in (one.instances.exists, one.instances.is_shutdown):
            with pytest.raises(CloudError):
                await ask(given, fresh=True)
        with pytest.raises(CloudError):
            await one.instances.metadata(given)


async def test_what_a_token_may_not_see_is_no_absence() -> None:
    async with world(instances=1) as w:
        machine = w.cloud.all()[0]
        blind = w.provider({"OXIDE_TOKEN": w.cloud.new_token(roles=[])})
        for given in (node(machine.name), node(machine.name, machine.provider_id)):
            with pytest.raises(CloudError):
                await blind.instances.exists(given, fresh=True)
        sees = w.provider({"OXIDE_TOKEN": w.cloud.new_token(roles=[VIEWER])})
        assert await sees.instances.exists(node(machine.name), fresh=True)


async def test_absence_needs_credentials_that_the_cloud_has_accepted() -> None:
    async with world(instances=1) as w:
        gone = node("gone", "oxide://00000000-0000-4000-8000-000000000000")
        w.cloud.faults.add("500", operation="current_user_view")
        one = w.provider()
        with pytest.raises(CloudError):
            await one.instances.exists(gone, fresh=True)
        w.cloud.faults.clear()
        w.time.pass_by(60)
        assert not await one.instances.exists(gone, fresh=True)


@pytest.mark.parametrize(
    ("state", "restarts", "is_shutdown", "exists"),
    [
        ("stopped", True, True, True),
        ("failed", False, True, True),
        ("failed", True, False, True),
        ("destroyed", True, False, False),
        *((state, False, False, True) for state in ("creating", "starting", "running", "stopping")),
        *((state, False, False, True) for state in ("rebooting", "migrating", "repairing")),
    ],
)
async def test_states_mean_what_they_should(state: str, restarts: bool, is_shutdown: bool, exists: bool) -> None:
    async with world() as w:
        w.cloud.add("n1")
        w.cloud.update("n1", auto_restart_enabled=restarts)
        w.cloud.set_state("n1", state)
        one = w.provider()
        assert await one.instances.is_shutdown(node("n1")) is is_shutdown
        assert await one.instances.exists(node("n1")) is exists


@pytest.mark.parametrize("provider_id", ["oxide://", "oxide://x", "aws://i-1", "oxide:///0a0b0c0d"])
async def test_a_provider_id_that_is_none_is_an_error(provider_id: str) -> None:
    async with world(instances=1) as w:
        one = w.provider()
        for ask in (one.instances.exists, one.instances.is_shutdown, one.instances.metadata):
            with pytest.raises(errors.Invalid, match="provider id"):
                await ask(node("n1", provider_id))  # type: ignore[operator]


async def test_a_name_no_instance_can_have_is_known_to_be_nobodys() -> None:
    async with world() as w:
        one = w.provider()
        with pytest.raises(InstanceNotFound):
            await one.instances.metadata(node("node1.example.com"))
        with pytest.raises(CloudError):
            await one.instances.exists(node("node1.example.com"))
        assert one.instances.was_absent("node1.example.com", 1.0)


async def test_an_upper_case_provider_id_is_kept_and_found() -> None:
    async with world(instances=1) as w:
        given = node("x", "oxide://" + w.cloud.all()[0].id.upper())
        assert (await metadata(w.provider(), given)).provider_id == given.spec.provider_id


async def refresh(w: World, one: provider.Oxide, nodes: list[core.Node], width: int = 16) -> int:
    """All metadata once, as the node controller asks; the calls it cost."""
    before = w.calls()
    gate = asyncio.Semaphore(width)

    async def ask(given: core.Node) -> None:
        async with gate:
            await one.instances.metadata(given)

    await asyncio.gather(*(ask(given) for given in nodes))
    return w.calls() - before


@pytest.mark.parametrize("by", ["id", "name"])
async def test_the_calls_of_a_refresh_stay_within_the_budget(by: str) -> None:
    count = 300
    async with world(instances=count) as w:
        machines = w.cloud.all()
        nodes = [node(one.name, one.provider_id if by == "id" else "") for one in machines]
        one = w.provider()
        await one.check_ready()
        assert await refresh(w, one, nodes) <= 1.1 * count + 20
        read: set[str] = set()
        for _ in range(12):
            w.time.pass_by(300)
            w.cloud.journal.reset()
            assert await refresh(w, one, nodes) <= count / 50 + count / 10 + 20
            read |= {entry.path for entry in w.cloud.journal.of("instance_external_ip_list")}
        assert len(read) == count, "in the course of ten refreshes every instance is looked at again"
        # Within the cache's life nobody is asked.
        assert await refresh(w, one, nodes) == 0


async def test_a_changed_instance_is_looked_at_again_at_once() -> None:
    async with world(instances=30) as w:
        nodes = [node(one.name, one.provider_id) for one in w.cloud.all()]
        one = w.provider()
        await refresh(w, one, nodes)
        w.time.pass_by(300)
        await refresh(w, one, nodes)
        w.cloud.create_floating_ip("door", ip="198.18.6.6", attach_to=w.cloud.all()[20].id)
        w.cloud.update(w.cloud.all()[20].id, description="changed")
        w.time.pass_by(300)
        await refresh(w, one, nodes)
        found = await metadata(one, nodes[20])
        assert "198.18.6.6" in [address.address for address in found.addresses]


async def test_an_instance_that_a_list_lacks_is_asked_for_itself() -> None:
    async with world(instances=20) as w:
        for operation in ("instance_list", "vpc_*"):
            w.cloud.faults.add("drop-from-list", fault={"share": 1.0}, operation=operation)
        one = w.provider()
        for machine in w.cloud.all():
            given = node(machine.name, machine.provider_id)
            assert await one.instances.exists(given)
            assert [a.address for a in (await metadata(one, given)).addresses if a.type == "InternalIP"] == [
                *machine.addresses
            ]


async def test_subnets_that_cannot_be_read_cost_calls_but_nothing_else() -> None:
    async with world(instances=20) as w:
        w.cloud.faults.add("403", operation="vpc_*")
        one = w.provider()
        for machine in w.cloud.all():
            found = await metadata(one, node(machine.name, machine.provider_id))
            assert machine.addresses[0] in [address.address for address in found.addresses]


async def test_readiness_waits_for_the_credentials() -> None:
    async with world(instances=1) as w:
        wrong = w.provider({"OXIDE_PROJECT": "elsewhere"})
        await wrong.start()
        with pytest.raises(CloudError, match="elsewhere"):
            await wrong.check_ready()
        await w.provider().check_ready()


GONE = "00000000-0000-4000-8000-000000000000"


async def test_a_listing_counts_what_is_there_and_names_the_nodes_among_it() -> None:
    async with world(instances=3) as w:
        one = w.provider()
        machines = w.cloud.all()
        asked = [node("a", f"oxide://{machines[0].id}"), node(machines[1].name), node("gone", f"oxide://{GONE}")]
        asked.append(node("bad", "oxide://x"))
        assert await one.instances.listing(asked) == Listing(3, frozenset({"a", machines[1].name}))
        for machine in machines:
            w.cloud.set_state(machine.name, "destroyed")
        assert await w.provider().instances.listing(asked) == Listing(0, frozenset()), "an empty project"
