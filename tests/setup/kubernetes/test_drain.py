"""Draining a node that stays in its cluster: it returns when the pods are gone, and a refusal changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.waiting import until

from bedplate.api.resources import CONFIG_MAPS, NODES, PODS, SERVICE_ACCOUNTS, custom
from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.head.clusters import draining
from bedplate.head.clusters.draining import Consent
from bedplate.kube import Client
from bedplate.setup.kubernetes import drain

_BUDGETS = custom("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)


@pytest.fixture
async def node(client: Client, namespace: str) -> AsyncIterator[str]:
    """A Node with nothing on it, and an account for the pods of the namespace."""
    await client.create(NODES, {"metadata": {"name": namespace}})
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)
    yield namespace
    await client.delete(NODES, namespace)


async def _run(client: Client, namespace: str, name: str, node: str) -> None:
    """A pod that is Running on a node without a kubelet, and that some controller is said to have made."""
    container = {"name": "main", "image": "x"}
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}}, namespace)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid, "controller": True}
    pod = {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}, "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
    }
    await client.create(PODS, pod, namespace)
    ready = [{"type": "Ready", "status": "True"}]
    await client.subresource(
        "PATCH",
        PODS,
        name,
        "status",
        namespace,
        model=dict,
        body={"status": {"phase": "Running", "conditions": ready}},
        content_type="application/merge-patch+json",
    )


@pytest.mark.parametrize("server", ["embedded"], indirect=True)
async def test_a_drained_node_is_cordoned_and_empty_and_takes_pods_again(
    client: Client, namespace: str, node: str
) -> None:
    await _run(client, namespace, "web", node)
    said: list[str] = []
    await drain.drain(client, node, SystemClock(), say=said.append)
    assert said == [f"{node}: {namespace}/web is evicted"]
    assert (await client.get(NODES, node)).spec.unschedulable
    assert await draining.pods_of(client, node) == []
    await drain.uncordon(client, node)
    assert not (await client.get(NODES, node)).spec.unschedulable


@pytest.mark.parametrize("server", ["embedded"], indirect=True)
async def test_item_170_a_budget_that_allows_nothing_is_waited_for_and_reported_with_its_pod(
    client: Client, namespace: str, node: str
) -> None:
    await _run(client, namespace, "web", node)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await client.create(_BUDGETS, {"metadata": {"name": "web", "namespace": namespace}, "spec": budget}, namespace)

    async def is_counted() -> bool:
        return bool((await client.get(_BUDGETS, "web", namespace)).get("status", {}).get("currentHealthy"))

    await until(is_counted, "the budget counts its pod")
    with pytest.raises(errors.Unavailable) as refused:
        await drain.drain(client, node, SystemClock(), timeout_s=0)
    assert f"pod {namespace}/web" in str(refused.value)
    assert "web needs 1 healthy pods" in str(refused.value)
    assert "--disable-eviction" in refused.value.hint
    assert (await client.get(NODES, node)).spec.unschedulable
    await drain.drain(client, node, SystemClock(), consent=Consent(budgets=True))
    assert await draining.pods_of(client, node) == []


@pytest.mark.parametrize("server", ["embedded"], indirect=True)
async def test_item_170_a_refused_drain_changes_nothing(client: Client, namespace: str, node: str) -> None:
    await client.create(
        PODS,
        {
            "metadata": {"name": "bare", "namespace": namespace},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x"}]},
        },
        namespace,
    )
    with pytest.raises(errors.Invalid) as refused:
        await drain.drain(client, node, ManualClock())
    assert f"{namespace}/bare" in str(refused.value)
    assert not (await client.get(NODES, node)).spec.unschedulable
    assert len(await draining.pods_of(client, node)) == 1
    await client.delete(PODS, "bare", namespace, grace_period_s=0)
