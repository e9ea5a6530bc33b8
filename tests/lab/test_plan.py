"""Names and addresses of a lab, decided without touching the machine."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.core import errors
from bedplate.lab import network
from bedplate.lab.plan import Network, NodePlan, Options, interface_name, make_plan


def test_the_default_is_one_node_in_the_first_free_network() -> None:
    plan = make_plan(Options(), [])
    assert plan.nodes == (NodePlan("node-1", "10.77.0.11"),)
    assert (plan.subnet, plan.gateway, plan.registry) == ("10.77.0.0/24", "10.77.0.1", "10.77.0.2")
    assert plan.kubernetes == "v1.35.4"


def test_networks_in_use_are_avoided() -> None:
    taken = [Network("10.77.0.0/24"), Network("10.77.1.128/25"), Network("10.150.0.0/15")]
    plan = make_plan(Options(), taken)
    assert (plan.subnet, plan.pod_cidr) == ("10.77.2.0/24", "10.152.0.0/16")


def test_named_nodes_come_first_and_the_rest_fill_up() -> None:
    plan = make_plan(Options(nodes=3, named=("edge=10.77.0.11", "node-1=10.77.0.30")), [])
    assert plan.nodes == (
        NodePlan("edge", "10.77.0.11"),
        NodePlan("node-1", "10.77.0.30"),
        NodePlan("node-2", "10.77.0.12"),
    )


def test_named_nodes_alone_are_all_nodes() -> None:
    assert len(make_plan(Options(named=("a=10.77.0.20", "b=10.77.0.21")), []).nodes) == 2


def test_every_problem_is_reported_at_once() -> None:
    options = Options(
        named=("a=10.9.9.9", "b=10.77.0.2", "c"),
        links=("eth0",),
        control_plane="magic",
        cloud_provider="aws",
        network="weave",
    )
    with pytest.raises(errors.Invalid) as caught:
        make_plan(options, [])
    text = str(caught.value)
    for part in ("--node a=10.9.9.9", "--node b=10.77.0.2", "--node c:", "--link eth0", "magic", "aws", "weave"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (Options(subnet="10.77.0.1/24"), "has host bits set"),
        (Options(subnet="10.77.0.0/29"), "too small"),
        (Options(subnet="192.0.2.0/24"), "overlaps 192.0.2.0/24"),
        (Options(subnet="10.96.4.0/24"), "overlaps 10.96.0.0/16"),
        (Options(subnet="10.9.0.0/28", nodes=9), "must be 1 to"),
        (Options(nodes=1, named=("a=10.77.0.20", "b=10.77.0.21")), "must be 2 to"),
        (Options(named=("a=10.77.0.20", "a=10.77.0.21")), "given twice"),
        (Options(links=("x", "x")), "--link x"),
    ],
)
def test_what_cannot_work_is_refused(options: Options, fault: str) -> None:
    with pytest.raises(errors.Invalid, match="cannot be created") as caught:
        make_plan(options, [Network("192.0.2.0/24")])
    assert fault in str(caught.value)


@pytest.mark.parametrize("name", ["", "Lab", "a_b", "-a", "a-", "x" * 31, "../up"])
def test_a_name_that_cannot_be_a_folder_or_group_is_refused(name: str) -> None:
    with pytest.raises(errors.Invalid, match="cannot name a lab"):
        make_plan(Options(name=name), [])


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True))
def test_an_interface_name_is_never_too_long(name: str) -> None:
    assert len(interface_name(name)) <= 15


@given(count=st.integers(1, 100), used=st.sets(st.integers(0, 40), max_size=30))
def test_addresses_differ_and_are_free(count: int, used: set[int]) -> None:
    taken = [Network(f"10.77.{number}.0/24") for number in used] + [
        Network(f"10.{150 + number}.0.0/16") for number in used
    ]
    plan = make_plan(Options(nodes=count), taken)
    subnet = Network(plan.subnet)
    addresses = [ipaddress.IPv4Address(node.address) for node in plan.nodes]
    assert len({*addresses, ipaddress.IPv4Address(plan.gateway), ipaddress.IPv4Address(plan.registry)}) == count + 2
    assert all(address in subnet for address in addresses)
    assert len({node.name for node in plan.nodes}) == count
    assert not any(other.overlaps(subnet) or other.overlaps(Network(plan.pod_cidr)) for other in taken)


def test_every_node_gets_a_cable_for_every_network() -> None:
    plan = make_plan(Options(nodes=2, links=("fabric0",)), [])
    batch = network.switch_batch(plan, {"node-1": 100, "node-2": 200})
    assert "link add n0-0 type veth peer name eth0 netns 100\n" in batch
    assert "link add n1-1 type veth peer name fabric0 netns 200\nlink set n1-1 master br1 up\n" in batch


def test_a_node_has_no_route_to_its_own_pods_over_the_wire() -> None:
    plan = make_plan(Options(nodes=2), [])
    ranges = {"node-1": "10.150.0.0/24", "node-2": "10.150.1.0/24"}
    assert network.route_batch(ranges, plan, seen_from="node-1") == (
        "route replace 10.150.1.0/24 via 10.77.0.12 dev eth0\n"
    )
    assert network.route_batch(ranges, plan, device="bp-lab").count("dev bp-lab") == 2


def test_a_kubelet_argument_is_for_all_or_for_one() -> None:
    given = ("--v=4", "b=--provider-id=acme://7", "--max-pods=20")
    plan = make_plan(Options(named=("a=10.77.0.20", "b=10.77.0.21"), kubelet_args=given), [])
    assert plan.kubelet_args_of("a") == ["--v=4", "--max-pods=20"]
    assert plan.kubelet_args_of("b") == ["--v=4", "--provider-id=acme://7", "--max-pods=20"]


@pytest.mark.parametrize("argument", ["v=4", "c=--v=4", "a=v", "", "a"])
def test_a_kubelet_argument_of_nobody_is_refused(argument: str) -> None:
    with pytest.raises(errors.Invalid, match="--kubelet-arg"):
        make_plan(Options(named=("a=10.77.0.20",), kubelet_args=(argument,)), [])


def test_the_pod_network_is_the_labs_unless_somebody_else_makes_it() -> None:
    assert make_plan(Options(), []).has_network
    assert not make_plan(Options(network="none"), []).has_network


def test_a_managed_lab_has_nodes_as_a_head_names_them_and_no_pods() -> None:
    plan = make_plan(Options(managed=True, nodes=3), [])
    assert [node.name for node in plan.nodes] == ["node001", "node002", "node003"]
    assert (plan.kubernetes, plan.pod_cidr, plan.is_managed, plan.has_network) == ("", "", True, False)
    assert plan.ranges == (Network("10.77.0.0/24"),)
    with pytest.raises(errors.Invalid, match="lab 'lab' is managed: it has no Kubernetes"):
        plan.check_has_kubernetes()
    make_plan(Options(), []).check_has_kubernetes()


def test_a_managed_lab_refuses_what_is_for_kubernetes() -> None:
    options = Options(managed=True, control_plane="kubeadm", kubelet_args=("--v=4",), network="none",
                      cloud_provider="external", containerd="built")  # fmt: skip
    with pytest.raises(errors.Invalid) as caught:
        make_plan(options, [])
    for name in ("--control-plane", "--kubelet-arg", "--network", "--cloud-provider", "--containerd"):
        assert f"{name}: a managed lab has no Kubernetes" in str(caught.value)


def test_a_second_version_is_for_managed_labs() -> None:
    make_plan(Options(managed=True, kubernetes="1.34", next_kubernetes="1.35"), [])
    with pytest.raises(errors.Invalid, match="--next-kubernetes: a lab that is not managed has one version"):
        make_plan(Options(next_kubernetes="1.35"), [])


def test_a_managed_lab_refuses_a_subnet_in_use() -> None:
    with pytest.raises(errors.Invalid, match=r"overlaps 10\.9\.0\.0/16, which is in use"):
        make_plan(Options(managed=True, subnet="10.9.1.0/24"), [Network("10.9.0.0/16")])
