"""What pods prove to hold after a store was damaged."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.cri import Sandbox
from bedplate.ipam.node.podclaims import proven_by_pods
from bedplate.ipam.node.proofs import LeanPod

CONFIGS = {
    config.key: config
    for config in (
        poolconfig.make("p", subnet="10.0.0.0/16", start="10.0.0.1", end="10.0.0.9"),
        poolconfig.make("cidrpool/c", subnet="10.0.1.0/24", start="10.0.1.1", end="10.0.1.254"),
        poolconfig.make("six", subnet="fd00::/64", start="fd00::1", end="fd00::9"),
    )
}


def pod(name: str, status: Any = None, *, ips: tuple[str, ...] = (), phase: str = "Running", **spec: Any) -> LeanPod:
    text = status if isinstance(status, str) else json.dumps(status)
    annotations = {"k8s.v1.cni.cncf.io/network-status": text} if status is not None else {}
    made = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"nodeName": "n1", **spec},
        "status": {"phase": phase, "podIPs": [{"ip": ip} for ip in ips]},
    }
    return msgspec.json.decode(json.dumps(made), type=LeanPod)


def found(*pods: LeanPod, sandboxes: tuple[Sandbox, ...] = ()) -> list[tuple[str, str, str, str, str]]:
    return [
        (one.config.key, str(one.address), one.interface_name, one.pod_name, one.container_id)
        for one in proven_by_pods(pods, CONFIGS, sandboxes)
    ]


def test_every_address_of_a_pool_counts_with_its_interface() -> None:
    status = [
        {"name": "cbr0", "interface": "eth0", "ips": ["10.99.0.4"], "default": True},
        {"name": "ns/net", "interface": "net1", "ips": ["10.0.0.5", "fd00::3"], "mac": "x", "dns": {}},
        {"name": "ns/routed", "interface": "net2", "ips": ["10.0.1.7/24"]},
    ]
    assert found(pod("a", status, ips=("10.99.0.4",))) == [
        ("p", "10.0.0.5", "net1", "a", ""),
        ("six", "fd00::3", "net1", "a", ""),
        ("cidrpool/c", "10.0.1.7", "net2", "a", ""),
    ]


def test_without_multus_the_pods_own_addresses_count_once() -> None:
    assert found(pod("a", ips=("10.0.0.2", "fd00::2"))) == [
        ("p", "10.0.0.2", "eth0", "a", ""),
        ("six", "fd00::2", "eth0", "a", ""),
    ]
    both = [{"interface": "eth0", "ips": ["10.0.0.2"]}]
    assert found(pod("a", both, ips=("10.0.0.2",))) == [("p", "10.0.0.2", "eth0", "a", "")]


def test_a_static_address_outside_the_block_belongs_to_the_subnets_pool() -> None:
    assert found(pod("a", ips=("10.0.7.7",))) == [("p", "10.0.7.7", "eth0", "a", "")]


def test_pods_that_have_ended_or_share_the_nodes_network_hold_nothing() -> None:
    assert not found(
        pod("a", ips=("10.0.0.2",), phase="Succeeded"),
        pod("b", ips=("10.0.0.3",), phase="Failed"),
        pod("c", ips=("10.0.0.4",), hostNetwork=True),
    )


def test_what_cannot_be_read_says_nothing() -> None:
    assert not found(pod("a", "no json"), pod("b", {"not": "a list"}), pod("c", [{"ips": ["x"]}]), pod("d"))


def test_the_runtime_knows_the_container() -> None:
    sandbox = Sandbox("a" * 64, "uid-a", "ns", "a")
    assert found(pod("a", ips=("10.0.0.2",)), sandboxes=(sandbox,)) == [("p", "10.0.0.2", "eth0", "a", "a" * 64)]
