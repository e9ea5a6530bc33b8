"""The client against whole servers: the real kube-apiserver and the embedded one. Where they differ the real one is
right."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import pytest
from tests import programs

from bedplate.api import names
from bedplate.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    ResourceRef,
    custom,
)
from bedplate.core import errors as core
from bedplate.kube import Client, PatchType, config, errors, subresources
from bedplate.kube.config import ClientConfig
from bedplate.kube.recording import Mode, RecordingClient

POD_SPEC = {"containers": [{"name": "c", "image": "i"}]}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_an_object_lives_and_dies(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", k="1"), namespace)
    assert made.metadata.uid and made.metadata.creation_timestamp is not None
    raw = await client.get(CONFIG_MAPS.raw(), "a", namespace)
    assert (raw["kind"], raw["apiVersion"], raw["data"]) == ("ConfigMap", "v1", {"k": "1"})
    raw["data"]["k"] = "2"
    updated = await client.update(CONFIG_MAPS, raw, namespace)
    assert updated.data == {"k": "2"}
    with pytest.raises(errors.Conflict):
        await client.update(CONFIG_MAPS, raw, namespace)
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"), namespace)
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace, uid=str(uuid.uuid4()))
    await client.delete(CONFIG_MAPS, "a", namespace, uid=made.metadata.uid)
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", namespace)
    with pytest.raises(errors.NotFound):
        await client.delete(CONFIG_MAPS, "a", namespace)
    with pytest.raises(errors.NotFound):
        await client.patch(CONFIG_MAPS, "a", {"data": {"x": "y"}}, namespace)


async def test_absence_is_certain_and_everything_else_is_not(client: Client, namespace: str) -> None:
    with pytest.raises(errors.NotFound):
        await client.get(NODES, "no-such-node")
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", "no-such-namespace")
    with pytest.raises(errors.NotFound, match="no-such-namespace"):
        await client.create(CONFIG_MAPS, config_map("a"), "no-such-namespace")
    for unknown in (
        custom("no.such.group", "v1", "things", "Thing", False),
        custom("apps", "v9", "deployments", "D", False),
    ):
        with pytest.raises(errors.UnexpectedAnswer):
            await client.get(unknown, "a")
        with pytest.raises(errors.UnexpectedAnswer):
            await client.list(unknown)
    with pytest.raises(errors.UnexpectedAnswer):
        await client.request("GET", "/no/such/path")


async def test_all_four_patches_change_what_they_say(client: Client, namespace: str) -> None:
    await client.create(
        SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}]}}, namespace
    )
    added = {"spec": {"ports": [{"name": "b", "port": 81}]}}
    both = await client.patch(SERVICES, "s", added, namespace, type=PatchType.STRATEGIC)
    assert {port.name for port in both.spec.ports} == {"a", "b"}
    one = await client.patch(SERVICES, "s", added, namespace, type=PatchType.MERGE)
    assert {port.name for port in one.spec.ports} == {"b"}
    operations = [
        {"op": "test", "path": "/spec/ports/0/name", "value": "b"},
        {"op": "replace", "path": "/spec/ports/0/name", "value": "c"},
    ]
    assert (await client.patch(SERVICES, "s", operations, namespace, type=PatchType.JSON)).spec.ports[0].name == "c"
    with pytest.raises(errors.Invalid):
        await client.patch(SERVICES, "s", operations, namespace, type=PatchType.JSON)
    labels = {"metadata": {"labels": {"x": "mine"}}}
    applied = await client.patch(SERVICES, "s", labels, namespace, type=PatchType.APPLY, field_manager="me")
    assert applied.metadata.label("x") == "mine"
    theirs = {"metadata": {"labels": {"x": "theirs"}}}
    with pytest.raises(errors.Conflict, match="me"):
        await client.patch(SERVICES, "s", theirs, namespace, type=PatchType.APPLY, field_manager="them")
    forced = await client.patch(
        SERVICES, "s", theirs, namespace, type=PatchType.APPLY, field_manager="them", force=True
    )
    assert forced.metadata.label("x") == "theirs"


async def test_apply_creates_what_is_not_there(client: Client, namespace: str) -> None:
    made = await client.patch(
        CONFIG_MAPS, "new", {"data": {"k": "v"}}, namespace, type=PatchType.APPLY, field_manager="me"
    )
    assert made.data == {"k": "v"}


async def test_an_invalid_object_lists_its_faults(client: Client, namespace: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await client.create(CONFIG_MAPS, config_map("Not_A_Name"), namespace)
    assert any("metadata.name" in problem for problem in caught.value.problems)


async def test_unknown_fields_are_refused_when_validation_is_strict(client: Client, namespace: str) -> None:
    odd = {**config_map("a"), "novel": 1}
    with pytest.raises(core.Invalid, match="novel"):
        await client.create(CONFIG_MAPS, odd, namespace, field_validation="Strict")
    await client.create(CONFIG_MAPS, odd, namespace, field_validation="Ignore")


async def test_pages_make_the_whole_list(client: Client, namespace: str) -> None:
    for number in range(7):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"m{number}", "labels": {"t": "x"}}}, namespace)
    pages = client.list_pages(CONFIG_MAPS, namespace, label_selector="t=x", page_size=3)
    seen = [[item.name for item in page.items] async for page in pages]
    assert [len(part) for part in seen] == [3, 3, 1]
    whole = await client.list(CONFIG_MAPS, namespace, label_selector="t=x")
    assert [item.name for item in whole.items] == [name for part in seen for name in part]
    first = await client.list(CONFIG_MAPS, namespace, label_selector="t=x", limit=5)
    rest = await client.list(CONFIG_MAPS, namespace, label_selector="t=x", limit=5, continue_token=first.continue_token)
    assert (len(first.items), len(rest.items), rest.continue_token) == (5, 2, "")
    assert first.resource_version == rest.resource_version


@pytest.mark.parametrize(
    "ref", [CONFIG_MAPS, CONFIG_MAPS.raw(), CONFIG_MAPS.partial()], ids=["model", "raw", "partial"]
)
async def test_a_watch_continues_where_a_list_ended(client: Client, namespace: str, ref: ResourceRef[Any]) -> None:
    start = await client.list(ref, namespace, field_selector="metadata.name=a")
    await client.create(CONFIG_MAPS, config_map("a", k="1"), namespace)
    await client.create(CONFIG_MAPS, config_map("unseen"), namespace)
    await client.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}}, namespace)
    await client.delete(CONFIG_MAPS, "a", namespace)
    seen = []
    watch = client.watch(
        ref, namespace, resource_version=start.resource_version, field_selector="metadata.name=a", bookmarks=False
    )
    async with asyncio.timeout(60), aclosing(watch):
        async for event in watch:
            seen.append(event.type)
            if event.type == "DELETED":
                break
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


async def test_the_server_ends_a_watch_after_its_time(client: Client, namespace: str) -> None:
    start = await client.list(CONFIG_MAPS, namespace, field_selector="metadata.name=none")
    async with asyncio.timeout(60):
        async for event in client.watch(
            CONFIG_MAPS,
            namespace,
            resource_version=start.resource_version,
            field_selector="metadata.name=none",
            timeout_s=1,
        ):
            assert event.type == "BOOKMARK"


async def test_a_streamed_list_ends_with_its_bookmark(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"t": "x"}}}, namespace)
    found = []
    watch = client.watch(CONFIG_MAPS, namespace, label_selector="t=x", send_initial_events=True)
    async with asyncio.timeout(60), aclosing(watch):
        async for event in watch:
            if event.type == "BOOKMARK":
                assert event.object.metadata.annotation(names.ANNOTATION_INITIAL_EVENTS_END) == "true"
                assert event.object.metadata.resource_version
                break
            found.append(event.object.name)
    assert sorted(found) == ["a", "b"]


async def test_status_is_written_beside_the_spec(client: Client) -> None:
    name = f"node-{uuid.uuid4().hex[:8]}"
    await client.create(NODES, {"metadata": {"name": name}})
    try:
        address = [{"type": "InternalIP", "address": "10.0.0.1"}]
        both = {"status": {"addresses": address}, "spec": {"unschedulable": True}}
        changed = await client.patch(NODES, name, both, subresource="status")
        assert changed.status.addresses[0].address == "10.0.0.1"
        assert not (await client.get(NODES, name)).spec.unschedulable
    finally:
        await client.delete(NODES, name)


async def test_a_lease_keeps_its_microseconds(client: Client, namespace: str) -> None:
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"}
    lease = await client.create(LEASES, {"metadata": {"name": "l"}, "spec": spec}, namespace)
    assert lease.spec.renew_time is not None and lease.spec.renew_time.microsecond == 6
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("me", 15)


async def test_scale_is_read_and_set(client: Client, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, namespace)
    assert (await subresources.get_scale(client, DEPLOYMENTS, "d", namespace)).spec.replicas == 0
    assert (await subresources.set_scale(client, DEPLOYMENTS, "d", namespace, 2)).spec.replicas == 2
    assert (await client.get(DEPLOYMENTS, "d", namespace))["spec"]["replicas"] == 2


async def _make_pod(client: Client, namespace: str, name: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.create(PODS, {"metadata": {"name": name}, "spec": POD_SPEC}, namespace)
                return
            except errors.Forbidden:
                # The namespace's default service account is made by a controller.
                await asyncio.sleep(0.1)


async def test_a_pod_is_bound_and_evicted(client: Client, namespace: str) -> None:
    await _make_pod(client, namespace, "p")
    await subresources.bind_pod(client, "p", namespace, "some-node")
    assert (await client.get(PODS, "p", namespace)).spec.node_name == "some-node"
    await subresources.evict(client, "p", namespace, grace_period_s=0)
    with pytest.raises(errors.NotFound):
        await client.get(PODS, "p", namespace)


async def test_a_dry_run_is_judged_and_leaves_nothing(client: Client, settings: ClientConfig, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("kept", k="1"), namespace)
    async with RecordingClient(settings) as dry:
        made = await dry.create(CONFIG_MAPS, config_map("a"), namespace)
        assert made.metadata.uid
        assert (await dry.patch(CONFIG_MAPS, "kept", {"data": {"k": "2"}}, namespace)).data == {"k": "2"}
        await dry.delete(CONFIG_MAPS, "kept", namespace)
        await dry.delete_collection(CONFIG_MAPS, namespace, field_selector="metadata.name=kept")
        with pytest.raises(errors.Invalid):
            await dry.create(CONFIG_MAPS, config_map("Not_A_Name"), namespace)
        assert len(dry.writes) == 5
    async with RecordingClient(settings, mode=Mode.LOCAL) as local:
        assert (await local.patch(CONFIG_MAPS, "kept", {"data": {"k": "2"}}, namespace)).data == {"k": "1"}
    assert (await client.get(CONFIG_MAPS, "kept", namespace)).data == {"k": "1"}
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", namespace)


async def test_a_collection_is_deleted_by_its_selector(client: Client, namespace: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await client.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"t": label}}}, namespace)
    await client.delete_collection(CONFIG_MAPS, namespace, label_selector="t=x")
    left = await client.list(CONFIG_MAPS, namespace, label_selector="t")
    assert [item.name for item in left.items] == ["c"]


async def test_many_requests_at_once_share_the_connections(client: Client, namespace: str) -> None:
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"m{i}", k=str(i)), namespace) for i in range(50)))
    found = await asyncio.gather(*(client.get(CONFIG_MAPS, f"m{i}", namespace) for i in range(50)))
    assert [item.data["k"] for item in found] == [str(i) for i in range(50)]


async def test_every_namespace_can_be_read_as_any_model(client: Client) -> None:
    typed = await client.list(NAMESPACES)
    raw = await client.list(NAMESPACES.raw())
    partial = await client.list(NAMESPACES.partial())
    assert {item.name for item in typed.items} >= {"default", "kube-system"}
    # Other tests make and remove namespaces meanwhile; these two stay.
    for name in ("default", "kube-system"):
        model = next(item.metadata for item in typed.items if item.name == name)
        assert model == next(item.metadata for item in partial.items if item.name == name)
        assert model.uid == next(item["metadata"]["uid"] for item in raw.items if item["metadata"]["name"] == name)


NODE_STATUS = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": None}], "addresses": None}
ODD: list[tuple[ResourceRef[Any], dict[str, Any]]] = [
    (SECRETS, {"metadata": {"name": "odd", "labels": None, "annotations": None}, "data": {"a": "", "b": "AA=="}}),
    (CONFIG_MAPS, {"metadata": {"name": "odd", "finalizers": None, "ownerReferences": None}, "data": None}),
    (SERVICES, {"metadata": {"name": "odd"}, "spec": {"clusterIP": "None", "ports": None, "selector": None}}),
    (SERVICES, {"metadata": {"name": "odd-name"}, "spec": {"type": "ExternalName", "externalName": "x.y"}}),
    (ENDPOINT_SLICES, {"metadata": {"name": "odd"}, "addressType": "IPv4", "endpoints": None, "ports": None}),
    (EVENTS, {"metadata": {"name": "odd"}, "eventTime": None, "count": None, "series": None, "source": None}),
    (LEASES, {"metadata": {"name": "odd"}, "spec": None}),
    (NODES, {"metadata": {"name": "odd"}, "spec": {"taints": None, "podCIDRs": None}, "status": NODE_STATUS}),
]


@pytest.mark.parametrize(("ref", "body"), ODD, ids=lambda value: str(value) if isinstance(value, ResourceRef) else "")
async def test_objects_full_of_nothing_can_be_read(
    client: Client, namespace: str, ref: ResourceRef[Any], body: dict[str, Any]
) -> None:
    where = namespace if ref.namespaced else None
    name = body["metadata"]["name"]
    if ref is EVENTS:
        body = {**body, "involvedObject": {"namespace": namespace}}
    await client.create(ref, body, where)
    try:
        assert (await client.get(ref, name, where)).name == name
        assert name in [item.name for item in (await client.list(ref, where)).items]
    finally:
        await client.delete(ref, name, where)


@pytest.mark.real
async def test_forgotten_history_is_expired_for_pages_and_watches() -> None:
    real = programs.server("real")
    templates = custom("", "v1", "podtemplates", "PodTemplate", True)
    async with Client(config.load(real.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        for number in range(4):
            await client.create(
                templates, {"metadata": {"name": f"t{number}"}, "template": {"spec": POD_SPEC}}, "default"
            )
        try:
            pages = client.list_pages(templates, "default", page_size=1)
            first = await anext(pages)
            for value in ("b", "c"):
                await client.patch(templates, "t0", {"metadata": {"labels": {"a": value}}}, "default")
            await asyncio.to_thread(real.forget_history)
            # One page may have been under way already; the whole list can no longer be had.
            with pytest.raises(errors.Expired):
                assert [page async for page in pages]
            with pytest.raises(errors.Expired):
                async for _ in client.watch(templates, "default", resource_version=first.resource_version):
                    pass
        finally:
            await client.delete_collection(templates, "default")
