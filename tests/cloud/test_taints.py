"""Lists of taints."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.cloud.scripted import node

from bedplate.api.core import Taint
from bedplate.cloud import taints

OTHER = Taint(key="mine", value="1", effect="NoExecute", time_added=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def test_uninitialized_is_told_by_the_key_alone() -> None:
    key = "node.cloudprovider.kubernetes.io/uninitialized"
    for taint in (Taint(key=key, value="true", effect="NoSchedule"), Taint(key=key, effect="NoExecute")):
        assert taints.is_uninitialized(node(taints=(OTHER, taint)))
        assert taints.without_key((OTHER, taint), key) == (OTHER,)
    assert not taints.is_uninitialized(node(taints=(OTHER,)))


def test_adding_twice_changes_nothing_and_keeps_others() -> None:
    once = taints.added((OTHER,), taints.SHUTDOWN)
    assert once == (OTHER, taints.SHUTDOWN)
    assert taints.added(once, taints.SHUTDOWN) is once


def test_key_and_effect_identify_a_taint() -> None:
    valued = Taint(key=taints.SHUTDOWN.key, value="old", effect="NoSchedule")
    evicting = Taint(key=taints.SHUTDOWN.key, effect="NoExecute")
    assert taints.added((valued, evicting), taints.SHUTDOWN) == (evicting, taints.SHUTDOWN)
    assert taints.removed((valued, evicting), taints.SHUTDOWN) == (evicting,)
    assert taints.has((valued,), taints.SHUTDOWN)
    assert not taints.has((evicting,), taints.SHUTDOWN)


def test_on_the_wire_nothing_of_a_taint_is_lost() -> None:
    assert taints.on_the_wire((OTHER, taints.SHUTDOWN)) == [
        {"key": "mine", "value": "1", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
        {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"},
    ]
    assert taints.on_the_wire(()) is None
