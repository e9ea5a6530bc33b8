"""When a reservation is dead: what one look proves, and what it does not; what pods hold after a store was damaged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bedplate.api import meta
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.cri import Sandbox
from bedplate.ipam.node.proofs import (
    LeanPod,
    LeanPodSpec,
    LeanPodStatus,
    Verdict,
    age_s,
    by_pod,
    by_sandbox,
    proven_by_pods,
    sandboxes_of,
)
from bedplate.ipam.node.reservations import Reservation

ID = "a" * 64


def reservation(container: str = ID, *, uid: str = "u1", pod: str = "web", created: str = "") -> Reservation:
    return Reservation("p", container, "eth0", "10.0.0.2", created, uid, pod, "default" if pod else "", "", "{}")


def pod(name: str = "web", uid: str = "u1", *, node: str = "n1", phase: str = "Running", static: str = "") -> LeanPod:
    annotations = {"kubernetes.io/config.hash": static} if static else {}
    about = meta.ObjectMeta(name=name, namespace="default", uid=uid, annotations=annotations)
    return LeanPod(metadata=about, spec=LeanPodSpec(node_name=node), status=LeanPodStatus(phase=phase))


def sandbox(number: str, uid: str = "u1", name: str = "web") -> Sandbox:
    return Sandbox(number, uid, "default", name)


def verdict(one: Reservation, *listed: Sandbox, pods: tuple[LeanPod, ...] = (pod(),)) -> Verdict | None:
    found = by_sandbox(one, sandboxes_of(listed, pods))
    return found.verdict if found else None


def test_a_sandbox_that_is_listed_lives_whatever_the_pods_are() -> None:
    assert verdict(reservation(), sandbox(ID), pods=()) is Verdict.ALIVE


def test_a_sandbox_that_is_not_listed_is_dead_although_its_pod_is_there() -> None:
    assert verdict(reservation(), sandbox("b" * 64)) is Verdict.DEAD


@pytest.mark.parametrize(
    ("listed", "pods"),
    [((), (pod(),)), ((sandbox("b" * 64, "elsewhere"),), (pod(),)), ((sandbox("b" * 64),), ())],
)
def test_a_list_that_may_be_another_runtimes_proves_nothing(
    listed: tuple[Sandbox, ...], pods: tuple[LeanPod, ...]
) -> None:
    assert verdict(reservation(), *listed, pods=pods) is None


@pytest.mark.parametrize("container", ["claim-1", "A" * 64, "a" * 63, "a" * 65, ""])
def test_an_id_that_no_runtime_makes_is_judged_by_its_pod(container: str) -> None:
    assert verdict(reservation(container), sandbox("b" * 64, "u2"), pods=(pod(uid="u2"),)) is None
    assert verdict(reservation(container), sandbox("b" * 64)) is Verdict.ALIVE
    assert verdict(reservation(container, uid=""), sandbox("b" * 64)) is Verdict.ALIVE
    assert verdict(reservation(container, uid="", pod="other"), sandbox("b" * 64)) is None


@pytest.mark.parametrize(
    ("one", "found", "wanted"),
    [
        (reservation(), None, Verdict.DEAD),
        (reservation(), pod(), Verdict.ALIVE),
        (reservation(), pod(uid="u2"), Verdict.DEAD),
        (reservation(uid=""), pod(uid="u2"), Verdict.ALIVE),
        (reservation(), pod(phase="Pending"), Verdict.ALIVE),
        (reservation(), pod(phase="Succeeded"), Verdict.DEAD),
        (reservation(), pod(phase="Failed"), Verdict.DEAD),
        (reservation(uid=""), pod(node="n2"), Verdict.DEAD),
        (reservation(), pod(node=""), Verdict.ALIVE),
        (reservation(uid="hash"), pod(uid="mirror", static="hash"), Verdict.ALIVE),
    ],
)
def test_what_a_pod_proves(one: Reservation, found: LeanPod | None, wanted: Verdict) -> None:
    assert by_pod(one, found, "n1").verdict is wanted


NOW = datetime(2026, 1, 1, 0, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("created", "age"),
    [
        ("2026-01-01T00:00:00Z", 60),
        ("2026-01-01T00:00:00.123456789Z", 59.876544),
        ("2026-01-01T01:00:30.5+01:00", 29.5),
        ("2026-01-01T00:02:00Z", 0),
        ("yesterday", 0),
        ("", 0),
    ],
)
def test_how_old_a_reservation_is(created: str, age: float) -> None:
    assert age_s(reservation(created=created), NOW) == pytest.approx(age)


# What pods hold

CONFIGS = {
    config.key: config
    for config in (
        poolconfig.make("p", subnet="10.0.0.0/16", start="10.0.0.1", end="10.0.0.9"),
        poolconfig.make("cidrpool/c", subnet="10.0.1.0/24", start="10.0.1.1", end="10.0.1.254"),
        poolconfig.make("six", subnet="fd00::/64", start="fd00::1", end="fd00::9"),
    )
}


def holder(name: str, status: Any = None, *, ips: tuple[str, ...] = (), phase: str = "Running", **spec: Any) -> LeanPod:
    text = status if isinstance(status, str) else json.dumps(status)
    annotations = {"k8s.v1.cni.cncf.io/network-status": text} if status is not None else {}
    document = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"nodeName": "n1", **spec},
        "status": {"phase": phase, "podIPs": [{"ip": ip} for ip in ips]},
    }
    return msgspec.json.decode(json.dumps(document), type=LeanPod)


def proven(*pods: LeanPod, sandboxes: tuple[Sandbox, ...] = ()) -> list[tuple[str, str, str, str, str]]:
    return [
        (claim.config.key, str(claim.address), claim.interface_name, claim.pod_name, claim.container_id)
        for claim in proven_by_pods(pods, CONFIGS, sandboxes)
    ]


def test_every_address_of_a_pool_counts_with_its_interface() -> None:
    status = [
        {"name": "cbr0", "interface": "eth0", "ips": ["10.99.0.4"], "default": True},
        {"name": "ns/net", "interface": "net1", "ips": ["10.0.0.5", "fd00::3"], "mac": "x", "dns": {}},
        {"name": "ns/routed", "interface": "net2", "ips": ["10.0.1.7/24"]},
    ]
    assert proven(holder("a", status, ips=("10.99.0.4",))) == [
        ("p", "10.0.0.5", "net1", "a", ""),
        ("six", "fd00::3", "net1", "a", ""),
        ("cidrpool/c", "10.0.1.7", "net2", "a", ""),
    ]


def test_without_multus_the_pods_own_addresses_count_once() -> None:
    assert proven(holder("a", ips=("10.0.0.2", "fd00::2"))) == [
        ("p", "10.0.0.2", "eth0", "a", ""),
        ("six", "fd00::2", "eth0", "a", ""),
    ]
    both = [{"interface": "eth0", "ips": ["10.0.0.2"]}]
    assert proven(holder("a", both, ips=("10.0.0.2",))) == [("p", "10.0.0.2", "eth0", "a", "")]


def test_a_static_address_outside_the_block_belongs_to_the_subnets_pool() -> None:
    assert proven(holder("a", ips=("10.0.7.7",))) == [("p", "10.0.7.7", "eth0", "a", "")]


def test_pods_that_have_ended_or_share_the_nodes_network_hold_nothing() -> None:
    assert not proven(
        holder("a", ips=("10.0.0.2",), phase="Succeeded"),
        holder("b", ips=("10.0.0.3",), phase="Failed"),
        holder("c", ips=("10.0.0.4",), hostNetwork=True),
    )


def test_what_cannot_be_read_says_nothing() -> None:
    assert not proven(
        holder("a", "no json"), holder("b", {"not": "a list"}), holder("c", [{"ips": ["x"]}]), holder("d")
    )


def test_the_runtime_knows_the_container() -> None:
    sandbox = Sandbox("a" * 64, "uid-a", "ns", "a")
    assert proven(holder("a", ips=("10.0.0.2",)), sandboxes=(sandbox,)) == [("p", "10.0.0.2", "eth0", "a", "a" * 64)]
