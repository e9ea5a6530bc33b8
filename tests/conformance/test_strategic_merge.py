"""Strategic merge patch: lists merged by key, directives, and where it does not exist."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import STRATEGIC_PATCH, Api, Json
from tests.conformance.objects import apps, config_map, core, deployment, service


async def patch_template(api: Api, ns: str, spec: Json) -> Json:
    """The pod spec of deployment d after a strategic patch of it."""
    body = {"spec": {"template": {"spec": spec}}}
    patched = (await api.patch(apps(ns, "deployments", "d"), body, STRATEGIC_PATCH)).expect(200)
    return patched["spec"]["template"]["spec"]


async def start(api: Api, ns: str, **container: Json) -> None:
    body = deployment("d")
    body["spec"]["template"]["spec"]["containers"][0].update(container)
    await api.create(apps(ns, "deployments"), body)


def env(**values: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


async def test_containers_merge_by_name_and_new_ones_come_first(api: Api, ns: str) -> None:
    await start(api, ns)
    spec = await patch_template(
        api,
        ns,
        {"containers": [{"name": "side", "image": "example/side:1"}, {"name": "main", "image": "example/main:2"}]},
    )
    assert {each["name"]: each["image"] for each in spec["containers"]} == {
        "main": "example/main:2",
        "side": "example/side:1",
    }


async def test_patch_delete_removes_one_element(api: Api, ns: str) -> None:
    await start(api, ns, env=env(A="1", B="2", C="3"))
    spec = await patch_template(api, ns, {"containers": [{"name": "main", "env": [{"name": "B", "$patch": "delete"}]}]})
    assert spec["containers"][0]["env"] == env(A="1", C="3")


async def test_patch_replace_replaces_a_list(api: Api, ns: str) -> None:
    await start(api, ns, env=env(A="1", B="2"))
    spec = await patch_template(
        api, ns, {"containers": [{"name": "main", "env": [{"name": "Z", "value": "9"}, {"$patch": "replace"}]}]}
    )
    assert spec["containers"][0]["env"] == env(Z="9")


async def test_patch_replace_replaces_a_map(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"x": "1", "y": "2"}))
    patched = await api.patch(core(ns, "configmaps", "a"), {"data": {"$patch": "replace", "z": "3"}}, STRATEGIC_PATCH)
    assert patched.expect(200)["data"] == {"z": "3"}


async def test_set_element_order_orders_a_list(api: Api, ns: str) -> None:
    await start(api, ns, env=env(A="1", B="2", C="3"))
    container = {
        "name": "main",
        "$setElementOrder/env": [{"name": "C"}, {"name": "NEW"}, {"name": "A"}, {"name": "B"}],
        "env": [{"name": "NEW", "value": "n"}],
    }
    spec = await patch_template(api, ns, {"$setElementOrder/containers": [{"name": "main"}], "containers": [container]})
    assert [each["name"] for each in spec["containers"][0]["env"]] == ["C", "NEW", "A", "B"]


async def test_set_element_order_must_name_what_the_patch_contains(api: Api, ns: str) -> None:
    await start(api, ns, env=env(A="1"))
    container = {"name": "main", "$setElementOrder/env": [{"name": "A"}], "env": [{"name": "B", "value": "2"}]}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    reply = await api.patch(apps(ns, "deployments", "d"), body, STRATEGIC_PATCH)
    assert reply.status >= 400, reply
    assert reply.json["status"] == "Failure"


async def test_retain_keys_drops_what_is_not_listed(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    body = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    patched = (await api.patch(apps(ns, "deployments", "d"), body, STRATEGIC_PATCH)).expect(200)
    assert patched["spec"]["strategy"] == {"type": "Recreate"}


async def test_lists_of_primitives_merge_as_sets(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", finalizers=["example.com/one", "example.com/two"]))
    target = core(ns, "configmaps", "a")
    added = (await api.patch(target, {"metadata": {"finalizers": ["example.com/three"]}}, STRATEGIC_PATCH)).expect(200)
    assert set(added["metadata"]["finalizers"]) == {"example.com/one", "example.com/two", "example.com/three"}
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/two"]}}
    removed = (await api.patch(target, body, STRATEGIC_PATCH)).expect(200)
    assert set(removed["metadata"]["finalizers"]) == {"example.com/one", "example.com/three"}


async def test_a_list_without_a_merge_strategy_is_replaced(api: Api, ns: str) -> None:
    await start(api, ns, args=["a", "b"])
    spec = await patch_template(api, ns, {"containers": [{"name": "main", "args": ["c"]}]})
    assert spec["containers"][0]["args"] == ["c"]


async def test_service_ports_merge_by_port(api: Api, ns: str) -> None:
    await api.create(core(ns, "services"), service("s"))
    body = {"spec": {"ports": [{"name": "https", "port": 443}, {"port": 80, "targetPort": 8080}]}}
    patched = (await api.patch(core(ns, "services", "s"), body, STRATEGIC_PATCH)).expect(200)
    ports = {each["port"]: (each["name"], each["targetPort"]) for each in patched["spec"]["ports"]}
    assert ports == {80: ("http", 8080), 443: ("https", 443)}


async def test_null_removes_a_field(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1", "l": "2"}, labels={"x": "1"}))
    patched = await api.patch(
        core(ns, "configmaps", "a"), {"data": {"k": None}, "metadata": {"labels": None}}, STRATEGIC_PATCH
    )
    assert patched.expect(200)["data"] == {"l": "2"}
    assert "labels" not in patched.json["metadata"]


async def test_node_taints_are_replaced_whole(api: Api) -> None:
    name = objects.unique("node")
    body = objects.node(name)
    body["spec"]["taints"] = [{"key": "one", "effect": "NoSchedule"}, {"key": "two", "effect": "NoSchedule"}]
    await api.create("/api/v1/nodes", body)
    patch = {"spec": {"taints": [{"key": "three", "effect": "NoExecute"}]}}
    patched = (await api.patch(f"/api/v1/nodes/{name}", patch, STRATEGIC_PATCH)).expect(200)
    assert [each["key"] for each in patched["spec"]["taints"]] == ["three"]


async def test_conditions_of_a_status_merge_by_type(api: Api) -> None:
    name = objects.unique("node")
    await api.create("/api/v1/nodes", objects.node(name))
    for kind in ("Ready", "DiskPressure", "Ready"):
        body = {"status": {"conditions": [{"type": kind, "status": "False", "reason": f"Set{kind}"}]}}
        patched = (await api.patch(f"/api/v1/nodes/{name}/status", body, STRATEGIC_PATCH)).expect(200)
    assert sorted(each["type"] for each in patched["status"]["conditions"]) == ["DiskPressure", "Ready"]


async def test_owner_references_merge_by_uid(api: Api, ns: str) -> None:
    first = await api.create(core(ns, "configmaps"), config_map("one"))
    second = await api.create(core(ns, "configmaps"), config_map("two"))
    await api.create(core(ns, "configmaps"), config_map("a", ownerReferences=[objects.owner(first)]))
    body = {"metadata": {"ownerReferences": [objects.owner(second)]}}
    patched = (await api.patch(core(ns, "configmaps", "a"), body, STRATEGIC_PATCH)).expect(200)
    assert {each["name"] for each in patched["metadata"]["ownerReferences"]} == {"one", "two"}
    body = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": first["metadata"]["uid"]}]}}
    patched = (await api.patch(core(ns, "configmaps", "a"), body, STRATEGIC_PATCH)).expect(200)
    assert [each["name"] for each in patched["metadata"]["ownerReferences"]] == ["two"]


async def test_custom_objects_have_no_strategic_merge(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    await api.create(kind.path(ns), kind.new("w"))
    status = (await api.patch(kind.path(ns, "w"), {"spec": {}}, STRATEGIC_PATCH)).fails(415, "UnsupportedMediaType")
    assert "application/strategic-merge-patch+json" not in status["message"].split("media types include:")[-1]
