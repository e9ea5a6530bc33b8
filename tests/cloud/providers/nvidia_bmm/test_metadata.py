"""From an instance to a Node: status, addresses, zones, regions, types, labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import names
from bedplate.cloud.interface import Address
from bedplate.cloud.providers.nvidia_bmm import metadata
from bedplate.cloud.providers.nvidia_bmm.config import LABELS, load
from bedplate.cloud.providers.nvidia_bmm.models import Instance, Location, Machine, read

SITE = "550e8400-e29b-41d4-a716-446655440000"
CONFIG = load(
    None,
    {
        "NVIDIA_BMM_ENDPOINT": "https://x",
        "NVIDIA_BMM_ORG_NAME": "org",
        "NVIDIA_BMM_TOKEN": "token",
        "NVIDIA_BMM_SITE_ID": SITE,
        "NVIDIA_BMM_TENANT_ID": "tenant",
        "NVIDIA_BMM_ADDRESS_CIDRS_EXTERNAL": "198.51.100.0/24,2001:db8:e::/48",
    },
)


def instance(**fields: Any) -> Instance:
    found = read(Instance, {"id": "497f6eca-6276-4993-bfeb-53cbbbba6f08", **fields})
    assert isinstance(found, Instance), found
    return found


def interface(*ips: str, physical: bool | None = True, status: str = "Ready") -> dict[str, Any]:
    return {"isPhysical": physical, "ipAddresses": list(ips), "status": status}


def ips_of(*interfaces: dict[str, Any]) -> list[str]:
    return [str(ip) for ip in metadata.instance_ips(instance(interfaces=list(interfaces)))]


@pytest.mark.parametrize(
    ("status", "is_off"),
    [
        ("Pending", False),
        ("Provisioning", False),
        ("Configuring", False),
        ("Ready", False),
        ("Updating", False),
        ("Rebooting", False),
        ("Terminating", True),
        ("Error", True),
        ("Terminated", True),
        ("Unknown", False),
        ("BootCompleted", False),
        ("SomethingNew", False),
        ("", False),
        (None, False),
    ],
)
def test_which_status_counts_as_switched_off(status: str | None, is_off: bool) -> None:
    assert metadata.is_shutdown(instance(status=status)) is is_off


def test_a_missing_status_is_not_switched_off() -> None:
    assert not metadata.is_shutdown(instance())


def test_addresses_come_physical_first_ready_first_then_as_given() -> None:
    assert ips_of(
        interface("10.0.0.1", physical=False),
        interface("10.0.0.2", status="Pending"),
        interface("10.0.0.3", physical=False, status="Provisioning"),
        interface("10.0.0.4", "10.0.0.5"),
        interface("10.0.0.6"),
        interface("10.0.0.7", physical=None),
    ) == ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.1", "10.0.0.7", "10.0.0.3"]


def test_addresses_of_an_interface_being_deleted_are_left_out() -> None:
    assert ips_of(interface("10.0.0.1", status="Deleting"), interface("10.0.0.2", physical=False)) == ["10.0.0.2"]


def test_addresses_are_checked_cut_and_given_once() -> None:
    assert ips_of(
        interface("10.0.0.1/24", "10.0.0.1", "fd00::0001/64", "nonsense", "", "0.0.0.0", "127.0.0.1", "fe80::1"),
        interface("FD00::1"),
    ) == ["10.0.0.1", "fd00::1"]


def test_addresses_get_their_types_and_the_node_its_name() -> None:
    ips = metadata.instance_ips(
        instance(interfaces=[interface("10.0.0.1", "198.51.100.7", "2001:db8:e::1", "fd00::1")])
    )
    assert metadata.addresses(ips, "node-1", CONFIG) == (
        Address("InternalIP", "10.0.0.1"),
        Address("ExternalIP", "198.51.100.7"),
        Address("ExternalIP", "2001:db8:e::1"),
        Address("InternalIP", "fd00::1"),
        Address("Hostname", "node-1"),
    )
    narrow = replace(CONFIG, internal_cidrs=CONFIG.external_cidrs, external_cidrs=())
    assert metadata.addresses(ips, "node-1", narrow) == (
        Address("InternalIP", "198.51.100.7"),
        Address("InternalIP", "2001:db8:e::1"),
        Address("Hostname", "node-1"),
    )


def test_without_an_ip_there_are_no_addresses_at_all() -> None:
    for fields in ({}, {"interfaces": None}, {"interfaces": []}, {"interfaces": [{"ipAddresses": None}]}):
        assert metadata.addresses(metadata.instance_ips(instance(**fields)), "node-1", CONFIG) == ()


def test_zone_and_region_are_the_documents_strings_by_default() -> None:
    assert metadata.zone(SITE, CONFIG) == f"nvidia-bmm-zone-{SITE}"
    assert metadata.zone("site-123", CONFIG) == "nvidia-bmm-zone-site-123"
    assert metadata.region(SITE, CONFIG) == "nvidia-bmm-region-550e8400"
    assert metadata.region("site-123", CONFIG) == "nvidia-bmm-region-site"


def test_a_mapping_goes_before_the_override_and_that_before_everything_else() -> None:
    config = replace(CONFIG, zone="z", region="r", zone_mapping={SITE: "mz"}, region_mapping={SITE: "mr"})
    assert (metadata.zone(SITE.upper(), config), metadata.region(SITE, config, "usa")) == ("mz", "mr")
    assert (metadata.zone("other", config), metadata.region("other", config, "usa")) == ("z", "r")
    assert metadata.region("other", replace(config, region=""), "usa") == "usa"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (Location("San Jose", "CA", "USA"), "usa-ca-san-jose"),
        (Location("Zürich", None, "CH"), "ch-z-rich"),
        (Location("", "", ""), ""),
        (Location(None, None, "A" * 80), "a" * 63),
        (None, ""),
    ],
)
def test_a_location_as_a_region(location: Location | None, expected: str) -> None:
    assert metadata.location_region(location) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DGX H100 (8x)", "DGX-H100-8x"),
        ("site-1.h100x8", "site-1.h100x8"),
        ("_.-x-._", "x"),
        ("ÄÖ", ""),
        ("a" * 62 + "--b", "a" * 62),
    ],
)
def test_a_text_as_a_label_value(text: str, expected: str) -> None:
    assert metadata.label_value(text) == expected


@given(st.text(max_size=200))
def test_every_text_becomes_a_valid_label_value(text: str) -> None:
    assert names.label_value_problems(metadata.label_value(text)) == []


def test_additional_labels_are_off_unless_asked_for() -> None:
    rich = instance(vpcId="v", machineId="m", labels={"env": "staging"})
    assert metadata.labels(rich, Machine("m", "Lenovo", "SR 670"), CONFIG) == {}


def test_additional_labels_say_what_was_asked_for_and_known() -> None:
    config = replace(CONFIG, labels=LABELS)
    rich = instance(
        vpcId="v-1",
        machineId="fm100",
        labels={"env": "staging ü", "vpc": "faked", "not a key": "x", "empty": ""},
        nvLinkInterfaces=[
            {"nvLinkDomainId": "d-1"},
            {"nvLinkDomainId": "d-1"},
            {"nvLinkDomainId": "d-2", "status": "Deleting"},
        ],
        infinibandInterfaces=[{"partitionId": "p-1"}, {"partitionId": "p-2"}],
    )
    assert metadata.labels(rich, Machine("fm100", "Lenovo", "ThinkSystem SR670 V2"), config) == {
        "nvidia-bmm.nvidia.com/env": "staging",
        "nvidia-bmm.nvidia.com/vpc": "v-1",
        "nvidia-bmm.nvidia.com/machine-id": "fm100",
        "nvidia-bmm.nvidia.com/nvlink-domain": "d-1",
        "nvidia-bmm.nvidia.com/vendor": "Lenovo",
        "nvidia-bmm.nvidia.com/product-name": "ThinkSystem-SR670-V2",
    }
    assert metadata.labels(instance(), None, config) == {}
