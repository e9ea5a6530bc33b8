"""What stands in the way of an upgrade: each finding names its object and a remedy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bedplate.api import core, meta
from bedplate.head.clusters.draining import Consent
from bedplate.setup.kubernetes.upgrade import findings
from bedplate.setup.kubernetes.upgrade.planning import Version

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_METRICS = """\
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.35",resource="flowschemas",\
subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",\
version="v1"} 1
apiserver_requested_deprecated_apis{group="policy",removed_release="1.37",resource="evictions",subresource="",\
version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="batch",removed_release="1.25",resource="cronjobs",subresource="",\
version="v1beta1"} 0
"""


def test_apis_in_use_that_the_target_removes_block_and_later_ones_warn() -> None:
    found = findings.deprecated(_METRICS, Version(35, 4))
    assert [(each.what, each.blocks) for each in found] == [
        ("clients use flowschemas of flowcontrol.apiserver.k8s.io/v1beta3, which 1.35 removes", True),
        ("clients use evictions of policy/v1beta1, which 1.37 will remove", False),
    ]
    assert [each.blocks for each in findings.deprecated(_METRICS, Version(34, 1))] == [False, False]


def _budget(name: str, allowed: int, expected: int = 2) -> dict[str, Any]:
    status = {"disruptionsAllowed": allowed, "expectedPods": expected, "currentHealthy": 2, "desiredHealthy": 2}
    return {"metadata": {"name": name, "namespace": "ns"}, "status": status}


def test_item_170_budgets_that_allow_nothing_block_until_the_flag_is_given() -> None:
    budgets = [_budget("web", 0), _budget("db", 1), _budget("empty", 0, expected=0)]
    (found,) = findings.budgets(budgets, Consent())
    assert "ns/web allows no disruption (2 of 2 pods are healthy, 2 are required)" in found.what
    assert "--disable-eviction" in found.remedy
    assert found.blocks
    assert [each.blocks for each in findings.budgets(budgets, Consent(budgets=True))] == [False]


def test_item_170_pods_with_emptydir_are_found_on_nodes_that_are_drained_alone() -> None:
    def pod(name: str, node: str) -> dict[str, Any]:
        owners = [{"kind": "ReplicaSet", "controller": True}]
        return {
            "metadata": {"name": name, "namespace": "ns", "ownerReferences": owners},
            "spec": {"nodeName": node, "volumes": [{"name": "tmp", "emptyDir": {}}]},
        }

    pods = [pod("a", "node001"), pod("b", "node009")]
    (found,) = findings.pods(pods, ["node001"], Consent())
    assert "ns/a" in found.what and "--delete-emptydir-data" in found.remedy
    assert findings.pods(pods, ["node001"], Consent(emptydir=True)) == []


def _node(name: str, ready: str, *, is_cordoned: bool = False) -> core.Node:
    condition = meta.Condition(type="Ready", status=ready, message="kubelet stopped posting")
    return core.Node(
        metadata=meta.ObjectMeta(name=name),
        spec=core.NodeSpec(unschedulable=is_cordoned),
        status=core.NodeStatus(conditions=(condition,), node_info=core.NodeSystemInfo(kubelet_version="v1.34.4")),
    )


def test_nodes_that_are_not_ready_missing_or_foreign_are_named() -> None:
    present = [
        _node("node001", "True"),
        _node("node002", "Unknown"),
        _node("other", "True"),
        _node("c", "True", is_cordoned=True),
    ]
    found = findings.nodes(present, ["node001", "node002", "node003", "c"])
    assert [(each.what.split(":")[0], each.blocks) for each in found] == [
        ("node003 has the role but is not part of the cluster", True),
        ("node c is cordoned", False),
        ("node node002 is not Ready", True),
        ("node other is none of the head's nodes, and stays at v1.34.4", False),
    ]


def test_what_the_api_server_fails_is_told_in_its_words() -> None:
    (found,) = findings.health(["etcd: context deadline exceeded"])
    assert str(found).startswith("the API server is not healthy: etcd: context deadline exceeded; see kubectl")


def test_certificates_that_end_soon_warn_and_expired_ones_block() -> None:
    ends = {
        "the authority": _NOW + timedelta(days=400),
        "the server a": _NOW + timedelta(days=3),
        "the server b": _NOW - timedelta(days=1),
    }
    found = findings.certificates(ends, _NOW)
    assert [(each.what, each.blocks) for each in found] == [
        ("the server a expires on 2026-01-04", False),
        ("the server b has expired on 2025-12-31", True),
    ]
