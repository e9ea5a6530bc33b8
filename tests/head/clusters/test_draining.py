"""Draining a node: who is evicted, who stays, and what stops it, on both API servers."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.waiting import until

from bedplate.api import core, meta
from bedplate.api.resources import NODES, PODS, SERVICE_ACCOUNTS, ResourceRef, custom
from bedplate.core import errors
from bedplate.head.clusters import draining
from bedplate.kube import Client

DAEMONS = ResourceRef("apps", "v1", "daemonsets", "DaemonSet", True, core.Node)
BUDGETS = custom("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)


def _pod(name: str, *, owner: str = "ReplicaSet", phase: str = "Running", **more: Any) -> dict[str, Any]:
    owners = [{"kind": owner, "name": "x", "controller": True}] if owner else []
    annotations = {draining.MIRROR: "x"} if more.pop("is_static", False) else {}
    return {
        "metadata": {"name": name, "namespace": "ns", "ownerReferences": owners, "annotations": annotations},
        "spec": more,
        "status": {"phase": phase},
    }


def test_pods_of_controllers_leave_and_those_of_daemon_sets_and_static_pods_stay() -> None:
    pods = [_pod("web"), _pod("agent", owner="DaemonSet"), _pod("kube-apiserver-a", owner="Node", is_static=True)]
    going = draining.plan(pods)
    assert [draining.name_of(pod) for pod in going.evicted] == ["ns/web"]
    assert going.ignored == ("ns/agent", "ns/kube-apiserver-a")
    assert going.refused == ()


def test_item_170_pods_whose_content_would_be_lost_are_refused_by_name_with_the_flag_that_continues() -> None:
    scratch: Any = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    pods = [_pod("cache", **scratch), _pod("bare", owner=""), _pod("done", owner="", phase="Succeeded", **scratch)]
    told = [str(each) for each in draining.plan(pods).refused]
    assert told == [
        "pod ns/bare has no controller and would be lost (--delete-unmanaged-pods continues)",
        "pod ns/cache loses the content of its emptyDir scratch (--delete-emptydir-data continues)",
    ]
    going = draining.plan(pods, draining.Consent(emptydir=True, unmanaged=True))
    assert going.refused == ()
    assert len(going.evicted) == 3


def test_item_110_a_finished_pod_is_evicted_one_that_ends_is_waited_for_and_a_bare_one_is_never_lost() -> None:
    ending = _pod("ending", owner="")
    ending["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    pods = [
        _pod("web"), _pod("bare", owner=""), _pod("done", owner="", phase="Succeeded"), ending,
        _pod("failed", owner="DaemonSet", phase="Failed"),
    ]  # fmt: skip
    steps = draining.plan(pods)
    assert [draining.name_of(pod) for pod in steps.evicted] == ["ns/done", "ns/failed", "ns/web"]
    assert [draining.name_of(pod) for pod in steps.ending] == ["ns/ending"]
    assert [each.pod for each in steps.refused] == ["ns/bare"]
    assert not steps.is_empty and not draining.plan([ending]).is_empty
    assert draining.plan([_pod("proxy", owner="DaemonSet")]).is_empty


def _body(name: str, node: str, owner: meta.Object | None, kind: str = "") -> dict[str, Any]:
    """A pod on a node, of an owner that exists, so that no garbage collector takes it."""
    owners = []
    if owner is not None:
        version = "apps/v1" if kind == "DaemonSet" else "v1"
        about = owner.metadata
        owners = [{"apiVersion": version, "kind": kind, "name": about.name, "uid": about.uid, "controller": True}]
    return {
        "metadata": {"name": name, "labels": {"app": name}, "ownerReferences": owners},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "busybox"}],
        },
    }


async def test_item_110_budgets_and_bare_pods_stop_a_drain_and_are_named(client: Client, namespace: str) -> None:
    node = f"drained-{namespace}"[:60]
    machine = await client.create(NODES, {"metadata": {"name": node}})
    try:
        with contextlib.suppress(errors.AlreadyExists):
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)
        labels = {"matchLabels": {"app": "nobody"}}
        template = {"metadata": {"labels": {"app": "nobody"}}, "spec": _body("x", "", None)["spec"]}
        daemons = await client.create(
            DAEMONS, {"metadata": {"name": "agents"}, "spec": {"selector": labels, "template": template}}, namespace
        )
        for name, owner, kind in (("web", machine, "Node"), ("agent", daemons, "DaemonSet"), ("bare", None, "")):
            await client.create(PODS, _body(name, node, owner, kind), namespace)
            # The budget of a pod that does not run yet does not count.
            await client.patch(PODS, name, {"status": {"phase": "Running"}}, namespace, subresource="status")
        budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
        await client.create(BUDGETS, budget, namespace)
        uid = await draining.cordon(client, node)
        assert uid
        assert (await client.get(NODES, node)).spec.unschedulable
        waits = await draining.drain(client, node)
        assert waits is not None and waits.is_stopped
        assert f"{namespace}/bare has no controller and would be lost: delete it" in waits.text
        assert f"{namespace}/web cannot be evicted" in waits.text
        await client.delete(PODS, "bare", namespace, grace_period_s=0)
        await client.delete(BUDGETS, "web", namespace)

        async def is_drained() -> bool:
            return await draining.drain(client, node) is None

        await until(is_drained, "the node is drained")
        left = [each.metadata.name for each in (await client.list(PODS, namespace)).items]
        assert left == ["agent"]
        await draining.uncordon(client, node)
        present = await client.get(NODES, node)
        assert not present.spec.unschedulable and draining.CORDONED not in present.metadata.annotations
    finally:
        await client.delete(NODES, node)
    assert await draining.cordon(client, node) == ""


async def test_a_node_that_somebody_else_cordoned_stays_so(client: Client, namespace: str) -> None:
    node = f"cordoned-{namespace}"[:60]
    await client.create(NODES, {"metadata": {"name": node}, "spec": {"unschedulable": True}})
    try:
        await draining.cordon(client, node)
        await draining.uncordon(client, node)
        assert (await client.get(NODES, node)).spec.unschedulable
    finally:
        await client.delete(NODES, node)
