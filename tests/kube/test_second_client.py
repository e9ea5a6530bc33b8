"""The same questions to the same server by lightkube, an independent client: both must see the same."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Service
from lightkube.types import PatchType as OtherPatch
from tests import servers

from bedplate.api.resources import CONFIG_MAPS, NAMESPACES, NODES, SERVICES
from bedplate.kube import Client, PatchType, errors


@pytest.fixture
async def other(server: servers.Server) -> AsyncIterator[Any]:
    client = lightkube.AsyncClient(config=lightkube.KubeConfig.from_file(server.kubeconfig))
    yield client
    await client.close()


async def test_both_list_the_same_namespaces(client: Client, other: Any, namespace: str) -> None:
    ours = {item.name: item.metadata for item in (await client.list(NAMESPACES)).items}
    for theirs in [item async for item in other.list(Namespace)]:
        found = ours.get(theirs.metadata.name)
        if found is None:
            continue
        assert (found.uid, found.labels) == (theirs.metadata.uid, theirs.metadata.labels or {})
        assert found.creation_timestamp == theirs.metadata.creationTimestamp
    assert namespace in ours


async def test_what_one_creates_the_other_reads(client: Client, other: Any, namespace: str) -> None:
    await other.create(
        Service(
            metadata=ObjectMeta(name="s", namespace=namespace, labels={"a": "b"}, annotations={"x/y": "z"}),
            spec=ServiceSpec(ports=[ServicePort(port=80, targetPort="http", name="web")], selector={"app": "x"}),
        )
    )
    ours = await client.get(SERVICES, "s", namespace)
    theirs = await other.get(Service, "s", namespace=namespace)
    assert ours.metadata.resource_version == theirs.metadata.resourceVersion
    assert (ours.spec.cluster_ip, ours.spec.cluster_ips) == (theirs.spec.clusterIP, tuple(theirs.spec.clusterIPs))
    assert (ours.spec.type, ours.spec.session_affinity) == (theirs.spec.type, theirs.spec.sessionAffinity)
    assert [(port.name, port.port, port.target_port, port.protocol) for port in ours.spec.ports] == [
        (port.name, port.port, port.targetPort, port.protocol) for port in theirs.spec.ports
    ]
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "v"}}, namespace)
    read = await other.get(ConfigMap, "c", namespace=namespace)
    assert (read.metadata.uid, read.data) == (made.metadata.uid, made.data)


@pytest.mark.parametrize(
    ("ours", "theirs", "body"),
    [
        (PatchType.MERGE, OtherPatch.MERGE, {"metadata": {"labels": {"a": None, "c": "d"}}}),
        (PatchType.STRATEGIC, OtherPatch.STRATEGIC, {"metadata": {"finalizers": ["example.com/x"]}}),
        (PatchType.JSON, OtherPatch.JSON, [{"op": "add", "path": "/metadata/labels/n", "value": "1"}]),
        (PatchType.APPLY, OtherPatch.APPLY, {"metadata": {"labels": {"z": "1"}}}),
    ],
)
async def test_both_patch_alike(client: Client, other: Any, ours: PatchType, theirs: OtherPatch, body: Any) -> None:
    first, second = (f"node-{uuid.uuid4().hex[:8]}" for _ in range(2))
    for name in (first, second):
        await client.create(NODES, {"metadata": {"name": name, "labels": {"a": "b"}}})
    try:
        manager = "tester" if ours is PatchType.APPLY else ""
        mine = await client.patch(NODES, first, body, type=ours, field_manager=manager)
        if ours is PatchType.APPLY:
            body = {"apiVersion": "v1", "kind": "Node", **body}
            body["metadata"] = {**body["metadata"], "name": second}
        yours = await other.patch(Node, second, body, patch_type=theirs, field_manager=manager or None)
        assert mine.metadata.labels == (yours.metadata.labels or {})
        assert mine.metadata.finalizers == tuple(yours.metadata.finalizers or ())
    finally:
        for name in (first, second):
            await client.patch(NODES, name, {"metadata": {"finalizers": None}})
            await client.delete(NODES, name)


async def test_both_are_refused_for_the_same_reason(client: Client, other: Any, namespace: str) -> None:
    with pytest.raises(errors.ApiError) as ours:
        await client.get(CONFIG_MAPS, "none", namespace)
    with pytest.raises(ApiError) as theirs:
        await other.get(ConfigMap, "none", namespace=namespace)
    assert (ours.value.code, ours.value.reason) == (theirs.value.status.code, theirs.value.status.reason)


async def test_both_watch_the_same_events(client: Client, other: Any, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace)).resource_version
    selector = "metadata.name=a"
    await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace)
    await client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, namespace)
    await client.delete(CONFIG_MAPS, "a", namespace)
    watch = client.watch(CONFIG_MAPS, namespace, resource_version=start, field_selector=selector, timeout_s=2)
    ours = [(event.type, event.object.metadata.resource_version) async for event in watch if event.type != "BOOKMARK"]
    theirs = []
    async for kind, item in other.watch(
        ConfigMap, namespace=namespace, resource_version=start, fields={"metadata.name": "a"}, server_timeout=2
    ):
        theirs.append((kind, item.metadata.resourceVersion))
        if kind == "DELETED":
            break
    assert ours == theirs
