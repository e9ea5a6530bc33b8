"""What the cloud answers about machines, through the present and the old interface, also during an outage."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bedplate.cloud import registry
from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.interface import Address, Listing, Provider, Zone
from bedplate.core import errors, logging

from .builders import node, provider, write

MASTER = (
    Address("InternalIP", "192.168.20.10"),
    Address("ExternalIP", "192.168.20.10"),
    Address("Hostname", "master-c2-1"),
)


def test_it_is_a_provider_with_a_cluster_id_and_one_scheme() -> None:
    made = provider()
    assert isinstance(made, Provider)
    assert (made.name, made.schemes, made.has_cluster_id) == ("cloudlycke", ("cloudlycke",), True)
    assert made.instances is not None and made.legacy is None and made.routes is None
    assert "cloudlycke" in registry.names()


@pytest.mark.parametrize("asked", [node("node-c2-1"), node("other-name", "cloudlycke://n-c2-1")])
async def test_a_machine_is_found_by_name_and_by_provider_id(asked: object) -> None:
    instances = provider().instances
    assert instances is not None
    found = await instances.metadata(asked)  # type: ignore[arg-type]
    assert found is not None
    assert (found.provider_id, found.instance_type) == ("cloudlycke://n-c2-1", "vbox.vm.1g.2cpu")
    assert (found.zone, found.region, found.labels) == ("virtualbox", "virtualbox", {})
    assert found.addresses[0] == Address("InternalIP", "192.168.20.11")


@pytest.mark.parametrize("asked", [node("stranger"), node("node-c2-1", "cloudlycke://n-c9-9")])
async def test_what_the_cloud_does_not_know_is_positively_absent(asked: object) -> None:
    instances = provider().instances
    assert instances is not None
    for question in (instances.exists, instances.is_shutdown, instances.metadata):
        with pytest.raises(InstanceNotFound):
            await question(asked)  # type: ignore[operator]


@pytest.mark.parametrize("provider_id", ["cloudlycke://", "cloudlycke:n-c2-1", "cloudlycke://a/b", "oxide://n-c2-1"])
async def test_a_malformed_provider_id_is_an_error_and_no_absence(provider_id: str) -> None:
    instances = provider().instances
    assert instances is not None
    with pytest.raises(errors.Invalid):
        await instances.exists(node("node-c2-1", provider_id))


async def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "cloud.yaml", "instances: [{id: a, name: one}]")
    instances = provider(path).instances
    assert instances is not None
    one = node("one", "cloudlycke://a")
    assert await instances.exists(one) and not await instances.is_shutdown(one)
    write(path, "instances: [{id: a, name: one, state: stopped}]")
    assert await instances.exists(one) and await instances.is_shutdown(one)
    write(path, "instances: [{id: a, name: one, state: terminated}]")
    with pytest.raises(InstanceNotFound):
        await instances.exists(one)
    write(path, "instances: [{id: a, name: one}, {id: b, name: two}]")
    assert await instances.exists(one) and await instances.exists(node("two"))


async def test_no_kind_of_outage_is_absence(tmp_path: Path) -> None:
    path = write(tmp_path / "cloud.yaml", "instances: [{id: a, name: one}]")
    made = provider(path)
    instances = made.instances
    assert instances is not None
    outages = ["apiError: true", "instances: [{id: a, name: one, apiError: true}]", "instances: [{", "{}: {}", ""]
    for text in outages:
        write(path, text)
        for asked in (node("one"), node("one", "cloudlycke://a")):
            for question in (instances.exists, instances.is_shutdown, instances.metadata):
                with pytest.raises(CloudError):
                    await question(asked)
        assert not instances.was_absent("one", 600)
    path.unlink()
    with pytest.raises(CloudError):
        await instances.exists(node("one"))
    with pytest.raises(CloudError):
        await made.check_ready()
    write(path, "instances: [{id: a, name: one}]")
    assert await instances.exists(node("one"))
    await made.check_ready()
    write(path, "apiError: true")
    await made.check_ready()


async def test_a_file_that_comes_back_just_as_it_was_is_read(tmp_path: Path) -> None:
    path, aside = write(tmp_path / "cloud.yaml", "instances: [{id: a, name: one}]"), tmp_path / "aside"
    instances = provider(path).instances
    assert instances is not None and await instances.exists(node("one"))
    path.rename(aside)
    with pytest.raises(CloudError):
        await instances.exists(node("one"))
    aside.rename(path)
    assert await instances.exists(node("one"))


async def test_a_name_counts_as_absent_only_when_the_cloud_could_be_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "cloud.yaml", "instances: [{id: a, name: one}, {id: b, name: two, state: terminated}]")
    instances = provider(path).instances
    assert instances is not None
    assert [instances.was_absent(name, 600) for name in ("one", "two", "three")] == [False, True, True]


def test_a_broken_file_at_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="no such setting"):
        provider(write(tmp_path / "cloud.yaml", "colour: red"))


async def test_the_old_interface_answers_by_name_and_by_id(tmp_path: Path) -> None:
    made = provider(write(tmp_path / "cloud.yaml", "interface: v1"))
    old = made.legacy
    assert made.instances is None and old is not None
    assert tuple(await old.node_addresses("master-c2-1")) == MASTER
    assert tuple(await old.node_addresses_by_provider_id("cloudlycke://m-c2-1")) == MASTER
    # The caller puts the scheme before it.
    assert await old.instance_id("node-c2-1") == "n-c2-1"
    assert await old.instance_type("node-c2-1") == "vbox.vm.1g.2cpu"
    assert await old.instance_type_by_provider_id("cloudlycke://m-c2-1") == "vbox.vm.512mb.1cpu"
    here = Zone("virtualbox", "virtualbox")
    assert await old.zone_by_node_name("node-c2-1") == here
    assert await old.zone_by_provider_id("cloudlycke://n-c2-1") == here
    assert await old.exists_by_provider_id("cloudlycke://n-c2-1")
    assert not await old.exists_by_provider_id("cloudlycke://n-c9-9")
    assert not await old.is_shutdown_by_provider_id("cloudlycke://n-c2-1")
    with pytest.raises(InstanceNotFound):
        await old.node_addresses("stranger")


async def test_the_originals_table_with_its_stopped_worker_can_be_configured(tmp_path: Path) -> None:
    text = """
interface: v1
instances:
- {id: m-c2-1, name: master-c2-1, internalIPs: [192.168.20.10], type: vbox.vm.512mb.1cpu}
- {id: n-c2-1, name: node-c2-1, internalIPs: [192.168.20.11], type: vbox.vm.1g.2cpu, state: stopped}
"""
    old = provider(write(tmp_path / "cloud.yaml", text)).legacy
    assert old is not None
    assert await old.exists_by_provider_id("cloudlycke://n-c2-1")
    assert await old.is_shutdown_by_provider_id("cloudlycke://n-c2-1")
    assert not await old.is_shutdown_by_provider_id("cloudlycke://m-c2-1")


async def test_every_call_is_a_line_at_verbosity_five() -> None:
    instances = provider().instances
    assert instances is not None
    try:
        for verbosity, expected in ((4, 0), (5, 3)):
            lines = io.StringIO()
            logging.configure(logging.LogOptions(verbosity=verbosity, format="json"), lines)
            await instances.exists(node("node-c2-1"))
            await instances.is_shutdown(node("node-c2-1"))
            await instances.metadata(node("node-c2-1"))
            assert lines.getvalue().count("cloudlycke.call") == expected
        for method in ("instance_exists", "instance_shutdown", "instance_metadata"):
            assert f'"method": "{method}", "argument": "node-c2-1"' in lines.getvalue()
    finally:
        logging.configure(logging.LogOptions())


async def test_a_listing_counts_what_is_there_and_fails_during_an_outage(tmp_path: Path) -> None:
    path = write(tmp_path / "cloud.yaml", "instances: [{id: a, name: one}, {id: b, name: two, state: terminated}]")
    instances = provider(path).instances
    assert instances is not None
    asked = [node("one", "cloudlycke://a"), node("two", "cloudlycke://b"), node("three"), node("bad", "cloudlycke://")]
    assert await instances.listing(asked) == Listing(1, frozenset({"one"}))
    write(path, "apiError: true")
    with pytest.raises(CloudError):
        await instances.listing(asked)
