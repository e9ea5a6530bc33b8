"""Who holds which address, as pods tell it."""

from __future__ import annotations

import msgspec
import pytest
from tests.cli.ipam.makers import attached, pod

from bedplate.cli.ipam import holders


def held(one: object) -> list[tuple[str, str, str]]:
    return [(str(each.address), each.interface, each.source) for each in holders.of_pods([one])]  # type: ignore[list-item]


def test_the_annotation_comes_before_the_pods_own_addresses_and_each_address_counts_once() -> None:
    status = [
        {"name": "cbr0", "interface": "eth0", "ips": ["10.0.0.5"], "default": True},
        {"name": "kube-system/net", "interface": "net1", "ips": ["192.168.0.7/16", "fd00::7"], "mac": "aa:bb"},
    ]
    assert held(pod("web", "host-a", "10.0.0.5", "fd01::5", status=status)) == [
        ("10.0.0.5", "eth0", "network-status"),
        ("192.168.0.7", "net1", "network-status"),
        ("fd00::7", "net1", "network-status"),
        ("fd01::5", "", "podIPs"),
    ]


@pytest.mark.parametrize("status", ["no json", "{}", "[1]", '[{"ips": "10.0.0.1"}]', '[{"ips": ["here"]}]', "null"])
def test_an_annotation_that_means_nothing_tells_nothing(status: str) -> None:
    assert held(pod("web", "host-a", "10.0.0.5", status=status)) == [("10.0.0.5", "", "podIPs")]


def test_pods_that_have_ended_or_have_their_nodes_address_hold_none() -> None:
    assert held(pod("job", "host-a", "10.0.0.5", phase="Succeeded", status=attached("192.168.0.7"))) == []
    assert held(pod("proxy", "host-a", "10.9.0.1", hostNetwork=True)) == []


def test_a_holder_is_named_as_kubectl_names_it() -> None:
    (one,) = holders.of_pod(pod("web", "host-a", "10.0.0.5"))
    assert (one.who, one.node, f"{one.since:%H:%M}") == ("default/web", "host-a", "03:00")


@pytest.mark.parametrize(
    "changes",
    [
        {"status": attached("192.168.0.7", "fd00::7")},
        {"phase": "Failed"},
        {"hostNetwork": True},
        {"status": "no json"},
    ],
)
def test_of_a_pod_no_more_is_decoded_than_is_read_and_nothing_less(changes: dict[str, object]) -> None:
    whole = pod("web", "host-a", "10.0.0.5", **changes)  # type: ignore[arg-type]
    lean = msgspec.json.decode(msgspec.json.encode(whole), type=holders.LeanPod)
    assert list(holders.of_pod(lean)) == list(holders.of_pod(whole))
