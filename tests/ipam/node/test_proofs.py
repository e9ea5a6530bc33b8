"""When a reservation is dead: what one look proves, and what it does not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bedplate.api import meta
from bedplate.ipam.node.cri import Sandbox
from bedplate.ipam.node.proofs import (
    LeanPod,
    LeanPodSpec,
    LeanPodStatus,
    Verdict,
    age_s,
    by_pod,
    by_sandbox,
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
