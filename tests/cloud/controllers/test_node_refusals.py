"""What is said on a Node that cannot be initialised, and how often."""

from __future__ import annotations

import itertools

import pytest
from tests.cloud.scripted import node

from bedplate.cloud.controllers import node_refusals
from bedplate.cloud.controllers.node_refusals import Refusals
from bedplate.cloud.errors import AmbiguousInstance, CloudError, InstanceNotFound, NoAddresses
from bedplate.core import errors


def caused(cause: Exception) -> CloudError:
    err = CloudError("node n1: fake could not be queried")
    err.__cause__ = cause
    return err


@pytest.mark.parametrize(
    ("error", "provider_id", "reason", "remedy"),
    [
        (InstanceNotFound("none"), "", "InstanceNotFound", "--provider-id, or give the node the name"),
        (InstanceNotFound("none"), "fake://x", "InstanceNotFound", "kubectl delete node n1"),
        (caused(errors.Invalid("bad")), "fake:/x", "InvalidProviderID", "--provider-id"),
        (caused(errors.Invalid("bad")), "", "InitializationFailed", "doctor"),
        (caused(NoAddresses("none yet", after_s=30.0)), "fake://x", "NoAddressesYet", "--node-ip"),
        (caused(AmbiguousInstance("two")), "", "AmbiguousInstance", "--provider-id"),
        (TimeoutError(), "", "InitializationFailed", "doctor"),
    ],
)
def test_every_failure_has_its_reason_and_its_remedy(
    error: Exception, provider_id: str, reason: str, remedy: str
) -> None:
    found = node_refusals.refusal(node("n1", provider_id=provider_id), error)
    assert found.reason == reason
    assert remedy in found.message
    assert (str(error) or "TimeoutError") in found.message


def test_a_refusal_is_told_at_once_and_then_with_pauses_that_double() -> None:
    refusals = Refusals()
    told = [now for now in range(0, 20_000, 10) if refusals.is_due("u", node_refusals.REASON_NO_INSTANCE, float(now))]
    gaps = [later - sooner for sooner, later in itertools.pairwise(told)]
    assert told[0] == 0
    assert gaps[:6] == [60, 120, 240, 480, 960, 1920]
    assert max(gaps) == 3600


def test_another_refusal_is_told_at_once() -> None:
    refusals = Refusals()
    assert refusals.is_due("u", node_refusals.REASON_NO_INSTANCE, 0.0)
    assert not refusals.is_due("u", node_refusals.REASON_NO_INSTANCE, 1.0)
    assert refusals.is_due("u", node_refusals.REASON_NO_ADDRESSES, 2.0)
    refusals.forget("u")
    assert refusals.is_due("u", node_refusals.REASON_NO_ADDRESSES, 3.0)


def test_a_cloud_that_fails_for_a_moment_is_not_told() -> None:
    refusals = Refusals()
    assert not refusals.is_due("u", node_refusals.REASON_NOT_INITIALIZED, 0.0)
    assert not refusals.is_due("u", node_refusals.REASON_NOT_INITIALIZED, 29.0)
    assert refusals.is_due("u", node_refusals.REASON_NOT_INITIALIZED, 31.0)


def test_only_nodes_that_exist_are_remembered() -> None:
    refusals = Refusals()
    for uid in ("a", "b"):
        refusals.is_due(uid, node_refusals.REASON_NO_INSTANCE, 0.0)
    refusals.keep({"a"})
    assert not refusals.is_due("a", node_refusals.REASON_NO_INSTANCE, 1.0)
    assert refusals.is_due("b", node_refusals.REASON_NO_INSTANCE, 1.0)
