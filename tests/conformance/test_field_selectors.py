"""Field selectors: metadata of every kind, extra fields of some, and refusals."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import Api
from tests.conformance.objects import config_map, core, pod, secret


async def test_by_name_and_not_by_name(api: Api, ns: str) -> None:
    for name in ("a", "b"):
        await api.create(core(ns, "configmaps"), config_map(name))
    assert await api.names(core(ns, "configmaps"), fieldSelector="metadata.name=a") == ["a"]
    assert await api.names(core(ns, "configmaps"), fieldSelector="metadata.name==b") == ["b"]
    others = await api.names(core(ns, "configmaps"), fieldSelector="metadata.name!=a")
    assert "a" not in others
    assert "b" in others


async def test_by_namespace_over_all_namespaces(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("only-here"))
    listed = await api.read("/api/v1/configmaps", fieldSelector=f"metadata.namespace={ns},metadata.name=only-here")
    assert [item["metadata"]["namespace"] for item in listed["items"]] == [ns]


async def test_pods_by_node_and_phase(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    placed = pod("placed")
    placed["spec"]["nodeName"] = "somewhere"
    await api.create(core(ns, "pods"), placed)
    await api.create(core(ns, "pods"), pod("waiting"))
    assert await api.names(core(ns, "pods"), fieldSelector="spec.nodeName=somewhere") == ["placed"]
    assert await api.names(core(ns, "pods"), fieldSelector="spec.nodeName=") == ["waiting"]
    assert await api.names(core(ns, "pods"), fieldSelector="status.phase=Pending") == ["placed", "waiting"]
    assert await api.names(core(ns, "pods"), fieldSelector="status.phase!=Pending") == []
    assert await api.names(core(ns, "pods"), fieldSelector="spec.restartPolicy=Always,metadata.name=placed") == [
        "placed"
    ]


async def test_secrets_by_type(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), secret("plain"))
    await api.create(core(ns, "secrets"), secret("typed", type="example.com/kind"))
    assert await api.names(core(ns, "secrets"), fieldSelector="type=example.com/kind") == ["typed"]
    assert "plain" in await api.names(core(ns, "secrets"), fieldSelector="type=Opaque")


async def test_events_by_involved_object(api: Api, ns: str) -> None:
    for name in ("x", "y"):
        await api.create(
            core(ns, "events"),
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"event-{name}"},
                "involvedObject": {"kind": "Pod", "name": name, "namespace": ns},
                "reason": "Tested",
                "type": "Normal",
            },
        )
    selector = "involvedObject.name=x,involvedObject.kind=Pod,reason=Tested"
    assert await api.names(core(ns, "events"), fieldSelector=selector) == ["event-x"]


async def test_nodes_by_unschedulable(api: Api) -> None:
    name = objects.unique("node")
    body = objects.node(name)
    body["spec"]["unschedulable"] = True
    await api.create("/api/v1/nodes", body)
    assert name in await api.names("/api/v1/nodes", fieldSelector="spec.unschedulable=true")
    assert name not in await api.names("/api/v1/nodes", fieldSelector="spec.unschedulable=false")


async def test_an_unknown_field_is_a_bad_request(api: Api, ns: str) -> None:
    status = (await api.get(core(ns, "configmaps"), fieldSelector="data.k=1")).fails(400, "BadRequest")
    assert '"data.k" is not a known field selector' in status["message"]
    status = (await api.get(core(ns, "configmaps"), fieldSelector="metadata.name")).fails(400, "BadRequest")
    assert "invalid selector" in status["message"]


async def test_selectable_fields_of_a_custom_kind(api: Api, ns: str) -> None:
    kind = await objects.install(
        api,
        objects.spec_schema({"color": {"type": "string"}, "size": {"type": "integer"}}),
        selectableFields=[{"jsonPath": ".spec.color"}],
    )
    for name, color in (("r", "red"), ("b", "blue")):
        await api.create(kind.path(ns), kind.new(name, spec={"color": color}))
    assert await api.names(kind.path(ns), fieldSelector="spec.color=red") == ["r"]
    assert await api.names(kind.path(ns), fieldSelector="metadata.name=b") == ["b"]
    (await api.get(kind.path(ns), fieldSelector="spec.size=1")).fails(400, "BadRequest")
