"""The plans of the API server's own controllers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bedplate.apiserver.controllers import deployments, disruption, endpoints, garbage, replicasets
from bedplate.core.clock import rfc3339

NOW = "2026-01-01T00:00:00Z"


def pod(
    name: str, owner: str = "rs", *, ready: bool = True, node: str = "n", born: int = 0, **extra: Any
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": "u-" + name,
        "labels": {"app": "web"},
        "creationTimestamp": f"2026-01-01T00:00:{born:02d}Z",
        "ownerReferences": [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}],
    }
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    return {"metadata": metadata | extra, "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": status}


def replica_set(size: int, **status: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {}}
    return {
        "metadata": {"name": "rs", "namespace": "ns", "uid": "rs", "generation": 3},
        "spec": {"replicas": size, "template": template},
        "status": status,
    }


def test_a_replica_set_creates_what_is_missing() -> None:
    plan = replicasets.plan(replica_set(3), [pod("a"), pod("other", owner="x")])
    assert (plan.create, plan.delete) == (2, [])
    assert plan.status == {
        "replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "observedGeneration": 3,
        "terminatingReplicas": 0,
    }  # fmt: skip


def test_a_replica_set_deletes_first_what_does_least() -> None:
    pods = [pod("old", born=1), pod("young", born=9), pod("unready", ready=False), pod("unbound", node="")]
    assert replicasets.plan(replica_set(2), pods).delete == ["unbound", "unready"]
    assert replicasets.plan(replica_set(1), pods).delete == ["unbound", "unready", "young"]


def test_pods_that_are_going_or_over_do_not_count() -> None:
    pods = [pod("going", deletionTimestamp=NOW), pod("ended") | {"status": {"phase": "Succeeded"}}]
    assert replicasets.plan(replica_set(1), pods).create == 1


def deployment(size: int, image: str = "v1", strategy: str = "RollingUpdate") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"image": image}]}}
    spec = {"replicas": size, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "metadata": {"name": "web", "namespace": "ns", "uid": "d", "generation": 1},
        "spec": spec | {"strategy": {"type": strategy}},
    }


def roll(wanted: dict[str, Any], sets: list[dict[str, Any]], *, most_steps: int = 60) -> list[tuple[int, int]]:
    """Play controller and kubelets until nothing changes; (total, available) after each step."""
    trace = []
    for _ in range(most_steps):
        plan = deployments.plan(wanted, sets, NOW)
        if plan.create is not None:
            sets.append(plan.create | {"status": {}})
        for one in sets:
            one["spec"]["replicas"] = plan.scale.get(one["metadata"]["name"], one["spec"]["replicas"])
        trace.append(
            (
                sum(one["spec"]["replicas"] for one in sets),
                sum(one["status"].get("availableReplicas", 0) for one in sets),
            )
        )
        for one in sets:
            # Pods that go, go at once; of those that come, one becomes ready per step.
            has = min(one["status"].get("availableReplicas", 0), one["spec"]["replicas"])
            has = min(one["spec"]["replicas"], has + 1)
            one["status"] = {"replicas": one["spec"]["replicas"], "readyReplicas": has, "availableReplicas": has}
        if (
            plan.create is None
            and not plan.scale
            and plan.status.get("availableReplicas") == wanted["spec"]["replicas"]
        ):
            break
    return trace


def test_a_first_roll_out_creates_one_set_of_full_size() -> None:
    sets: list[dict[str, Any]] = []
    roll(deployment(4), sets)
    assert [one["spec"]["replicas"] for one in sets] == [4]


@pytest.mark.parametrize(("surge", "unavailable"), [("25%", "25%"), (1, 0), (0, 1), ("100%", 0)])
@pytest.mark.parametrize("size", [1, 4, 10])
def test_a_rolling_update_ends_and_never_leaves_its_margins(size: int, surge: Any, unavailable: Any) -> None:
    sets: list[dict[str, Any]] = []
    roll(deployment(size), sets)
    new = deployment(size, "v2")
    new["spec"]["strategy"]["rollingUpdate"] = {"maxSurge": surge, "maxUnavailable": unavailable}
    most, least = size + deployments._margins(new["spec"], size)[0], size - deployments._margins(new["spec"], size)[1]
    trace = roll(new, sets)
    assert all(total <= most and available >= least for total, available in trace), trace
    assert sorted(one["spec"]["replicas"] for one in sets) == [0, size]


def test_recreate_empties_the_old_set_before_it_fills_the_new_one() -> None:
    sets: list[dict[str, Any]] = []
    roll(deployment(3, strategy="Recreate"), sets)
    for step in range(20):
        plan = deployments.plan(deployment(3, "v2", "Recreate"), sets, NOW)
        if plan.create is not None:
            assert plan.create["spec"]["replicas"] == 0, step
            sets.append(plan.create | {"status": {}})
        for one in sets:
            one["spec"]["replicas"] = plan.scale.get(one["metadata"]["name"], one["spec"]["replicas"])
        assert sum(one["spec"]["replicas"] > 0 for one in sets) <= 1
        for one in sets:
            one["status"] = {"replicas": one["spec"]["replicas"], "availableReplicas": one["spec"]["replicas"]}
    assert [one["spec"]["replicas"] for one in sets] == [0, 3]


def test_going_back_to_an_old_template_uses_its_set_with_a_new_revision() -> None:
    sets: list[dict[str, Any]] = []
    roll(deployment(2), sets)
    roll(deployment(2, "v2"), sets)
    sets[0]["metadata"]["annotations"][deployments.REVISION] = "1"
    sets[1]["metadata"]["annotations"][deployments.REVISION] = "2"
    plan = deployments.plan(deployment(2), sets, NOW)
    assert plan.create is None
    assert plan.revision == 3


def test_a_finished_roll_out_says_so() -> None:
    sets: list[dict[str, Any]] = []
    roll(deployment(2), sets)
    status = deployments.plan(deployment(2), sets, NOW).status
    assert {one["type"]: one["reason"] for one in status["conditions"]} == {
        "Available": "MinimumReplicasAvailable",
        "Progressing": "NewReplicaSetAvailable",
    }


def service(**spec: Any) -> dict[str, Any]:
    base = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080, "name": "http"}]}
    return {"metadata": {"name": "web", "namespace": "ns", "uid": "s"}, "spec": base | spec}


def test_endpoints_are_the_selected_pods_with_an_address() -> None:
    other = pod("other")
    other["metadata"]["labels"] = {"app": "db"}
    slice_ = endpoints.plan(service(), [pod("a"), pod("b", ready=False), other])
    assert [(one["targetRef"]["name"], one["conditions"]["ready"]) for one in slice_["endpoints"]] == [
        ("a", True),
        ("b", False),
    ]
    assert slice_["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]


def test_a_named_target_port_is_looked_up_in_the_pods() -> None:
    one = pod("a")
    one["spec"]["containers"] = [{"name": "c", "ports": [{"name": "web", "containerPort": 9090}]}]
    slice_ = endpoints.plan(service(ports=[{"port": 80, "targetPort": "web"}]), [one])
    assert slice_["ports"][0]["port"] == 9090


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": "100%"}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "67%"}, 3),
    ],
)
def test_a_budget_allows_what_its_spec_leaves(spec: dict[str, Any], allowed: int) -> None:
    budget = {"metadata": {"generation": 1}, "spec": spec | {"selector": {"matchLabels": {"app": "web"}}}}
    status = disruption.plan(budget, [pod("a"), pod("b"), pod("c")], NOW)
    assert status["disruptionsAllowed"] == allowed
    assert status["expectedPods"] == 3


def test_a_pod_already_being_evicted_no_longer_counts_as_healthy() -> None:
    budget: dict[str, Any] = {"metadata": {"generation": 1}, "spec": {"minAvailable": 1, "selector": {}}}
    budget["status"] = {"disruptedPods": {"a": NOW}}
    assert disruption.plan(budget, [pod("a"), pod("b")], NOW)["disruptionsAllowed"] == 0


def test_events_go_an_hour_after_they_were_last_seen() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def event(name: str, minutes: int) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": "ns"},
            "lastTimestamp": rfc3339(now - timedelta(minutes=minutes)),
        }

    assert garbage.expired([event("old", 61), event("young", 59)], now) == [("ns", "old")]
