"""Server-side apply: ownership per field, conflicts, lists as maps and sets, and what update managers own."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance import objects
from tests.conformance.http import JSON, MERGE_PATCH, Api, Json
from tests.conformance.objects import apps, config_map, core, deployment, meta


def applied(name: str, data: Json = None, **metadata: Any) -> Json:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, **metadata)}
    return body if data is None else {**body, "data": data}


def managers(held: Json) -> dict[tuple[str, str, str], Json]:
    """(manager, operation, subresource) → fields of an object."""
    return {
        (each["manager"], each["operation"], each.get("subresource", "")): each["fieldsV1"]
        for each in held["metadata"].get("managedFields", [])
    }


async def test_apply_creates_with_201_then_updates_with_200(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    made = (await api.apply(target, applied("a", {"k": "1"}))).expect(201)
    assert made["data"] == {"k": "1"}
    (entry,) = made["metadata"]["managedFields"]
    assert entry["manager"] == "tester"
    assert entry["operation"] == "Apply"
    assert entry["apiVersion"] == "v1"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}}
    assert entry["time"]
    updated = (await api.apply(target, applied("a", {"k": "2"}))).expect(200)
    assert updated["data"] == {"k": "2"}


async def test_applies_of_one_new_object_at_the_same_time_all_succeed(api: Api, ns: str) -> None:
    target, names = core(ns, "configmaps", "a"), [f"m{number}" for number in range(12)]
    answers = await asyncio.gather(*(api.apply(target, applied("a", {name: "1"}), name) for name in names))
    assert sorted(answer.status for answer in answers) == [200] * 11 + [201]
    held = (await api.get(target)).expect(200)
    assert held["data"] == dict.fromkeys(names, "1")
    assert {manager for manager, _, _ in managers(held)} == set(names)


async def test_the_same_apply_again_changes_nothing(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    first = (await api.apply(target, applied("a", {"k": "1"}))).expect(201)
    again = (await api.apply(target, applied("a", {"k": "1"}))).expect(200)
    assert again == first


async def test_a_field_no_longer_applied_is_removed(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    (await api.apply(target, applied("a", {"k": "1", "gone": "1"}, labels={"x": "1"}))).expect(201)
    updated = (await api.apply(target, applied("a", {"k": "1"}))).expect(200)
    assert updated["data"] == {"k": "1"}
    assert "labels" not in updated["metadata"]


async def test_another_managers_value_conflicts_and_is_named(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    (await api.apply(target, applied("a", {"k": "1", "l": "1"}), "first")).expect(201)
    status = (await api.apply(target, applied("a", {"k": "2"}), "second")).fails(409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.k'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.k"}
    ]
    status = (await api.apply(target, applied("a", {"k": "2", "l": "2"}), "second")).fails(409, "Conflict")
    assert status["message"] == 'Apply failed with 2 conflicts: conflicts with "first":\n- .data.k\n- .data.l'
    assert (await api.read(target))["data"] == {"k": "1", "l": "1"}


async def test_force_takes_the_field_over(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    (await api.apply(target, applied("a", {"k": "1", "l": "1"}), "first")).expect(201)
    taken = (await api.apply(target, applied("a", {"k": "2"}), "second", force=True)).expect(200)
    assert taken["data"] == {"k": "2", "l": "1"}
    assert managers(taken)[("first", "Apply", "")] == {"f:data": {"f:l": {}}}
    assert managers(taken)[("second", "Apply", "")] == {"f:data": {"f:k": {}}}


async def test_the_same_value_is_shared_and_survives_one_owner(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    (await api.apply(target, applied("a", {"k": "1"}), "first")).expect(201)
    shared = (await api.apply(target, applied("a", {"k": "1"}), "second")).expect(200)
    assert set(managers(shared)) == {("first", "Apply", ""), ("second", "Apply", "")}
    left = (await api.apply(target, applied("a"), "first")).expect(200)
    assert left["data"] == {"k": "1"}
    assert [each[0] for each in managers(left)] == ["second"]
    gone = (await api.apply(target, applied("a"), "second")).expect(200)
    assert "data" not in gone


async def test_an_update_owns_what_it_writes_and_conflicts_by_name_and_operation(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}), fieldManager="writer")
    assert managers(made)[("writer", "Update", "")] == {"f:data": {".": {}, "f:k": {}}}
    status = (await api.apply(target, applied("a", {"k": "2"}))).fails(409, "Conflict")
    assert 'conflict with "writer" using v1' in status["message"]
    (await api.apply(target, applied("a", {"k": "1", "mine": "1"}))).expect(200)
    patched = (await api.patch(target, {"data": {"mine": "stolen"}}, fieldManager="thief")).expect(200)
    assert managers(patched)[("thief", "Update", "")] == {"f:data": {"f:mine": {}}}
    assert "f:mine" not in managers(patched)[("tester", "Apply", "")]["f:data"]
    status = (await api.apply(target, applied("a", {"k": "1", "mine": "1"}))).fails(409, "Conflict")
    assert status["details"]["causes"][0]["field"] == ".data.mine"


async def test_the_manager_of_an_update_is_the_user_agent_by_default(api: Api, ns: str) -> None:
    client = api.with_headers(**{"User-Agent": "my-tool/v1.2 (linux)"})
    made = await client.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    assert [each[0] for each in managers(made)] == ["my-tool"]


async def test_a_manager_whose_fields_were_all_removed_disappears(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}), fieldManager="writer")
    (await api.patch(target, {"data": {"extra": "1"}}, fieldManager="other")).expect(200)
    back = (await api.patch(target, {"data": {"extra": None}}, fieldManager="writer")).expect(200)
    assert [each[0] for each in managers(back)] == ["writer"]


async def test_list_elements_are_owned_by_key(api: Api, ns: str) -> None:
    target = apps(ns, "deployments", "d")
    await api.create(apps(ns, "deployments"), deployment("d"), fieldManager="base")

    def sidecar(image: str) -> Json:
        template = {"spec": {"containers": [{"name": "side", "image": image}]}}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("d"), "spec": {"template": template}}

    both = (await api.apply(target, sidecar("example/side:1"), "mesh")).expect(200)
    assert [each["name"] for each in both["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    owned = managers(both)[("mesh", "Apply", "")]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert owned == {'k:{"name":"side"}': {".": {}, "f:image": {}, "f:name": {}}}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("d")}
    without = (await api.apply(target, body, "mesh")).expect(200)
    assert [each["name"] for each in without["spec"]["template"]["spec"]["containers"]] == ["main"]


async def test_list_map_keys_of_several_fields(api: Api, ns: str) -> None:
    def ports(*pairs: tuple[int, str]) -> Json:
        spec = {"ports": [{"name": f"p{p}{proto.lower()}", "port": p, "protocol": proto} for p, proto in pairs]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": meta("s"), "spec": spec}

    target = core(ns, "services", "s")
    (await api.apply(target, ports((53, "UDP")), "first")).expect(201)
    both = (await api.apply(target, ports((53, "TCP")), "second")).expect(200)
    assert {(each["port"], each["protocol"]) for each in both["spec"]["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert set(managers(both)[("second", "Apply", "")]["f:spec"]["f:ports"]) == {'k:{"port":53,"protocol":"TCP"}'}


async def test_a_set_is_owned_by_value(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    (await api.apply(target, applied("a", finalizers=["example.com/one"]), "first")).expect(201)
    both = (await api.apply(target, applied("a", finalizers=["example.com/two"]), "second")).expect(200)
    assert both["metadata"]["finalizers"] == ["example.com/one", "example.com/two"]
    assert managers(both)[("second", "Apply", "")] == {"f:metadata": {"f:finalizers": {'v:"example.com/two"': {}}}}
    left = (await api.apply(target, applied("a"), "first")).expect(200)
    assert left["metadata"]["finalizers"] == ["example.com/two"]


async def test_an_atomic_list_is_owned_whole(api: Api, ns: str) -> None:
    def args(*values: str) -> Json:
        body = deployment("d")
        body["spec"]["template"]["spec"]["containers"][0]["args"] = list(values)
        return body

    target = apps(ns, "deployments", "d")
    (await api.apply(target, args("a"), "first")).expect(201)
    status = (await api.apply(target, args("b"), "second")).fails(409, "Conflict")
    assert status["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="main"].args'
    taken = (await api.apply(target, args("b"), "second", force=True)).expect(200)
    assert taken["spec"]["template"]["spec"]["containers"][0]["args"] == ["b"]


async def test_duplicate_keys_in_an_applied_list_are_refused(api: Api, ns: str) -> None:
    body = deployment("d")
    body["spec"]["template"]["spec"]["containers"] *= 2
    reply = await api.apply(apps(ns, "deployments", "d"), body)
    assert reply.status == 500, reply
    assert 'duplicate entries for key [name="main"]' in reply.json["message"]


async def test_status_is_applied_through_its_subresource(api: Api) -> None:
    name = objects.unique("node")
    await api.create("/api/v1/nodes", objects.node(name))
    ready = {"type": "Ready", "status": "True"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": meta(name), "status": {"conditions": [ready]}}
    done = (await api.apply(f"/api/v1/nodes/{name}/status", body, "kubelet")).expect(200)
    (condition,) = done["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")
    owned = managers(done)[("kubelet", "Apply", "status")]
    assert owned == {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}}}
    through_main = (await api.apply(f"/api/v1/nodes/{name}", body, "other")).expect(200)
    assert ("other", "Apply", "") not in managers(through_main)


async def test_apply_with_an_old_resource_version_conflicts(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    made = (await api.apply(target, applied("a", {"k": "1"}))).expect(201)
    (await api.apply(target, applied("a", {"k": "2"}))).expect(200)
    stale = applied("a", {"k": "3"}, resourceVersion=made["metadata"]["resourceVersion"])
    (await api.apply(target, stale)).fails(409, "Conflict")


async def test_an_empty_applied_map_is_owned_itself(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    made = (await api.apply(target, applied("a", {}), "first")).expect(201)
    assert managers(made)[("first", "Apply", "")] == {"f:data": {}}
    assert "data" not in made
    status = (await api.apply(target, applied("a", {"k": "1"}), "second")).fails(409, "Conflict")
    assert status["details"]["causes"][0]["field"] == ".data"


async def test_apply_needs_a_field_manager(api: Api, ns: str) -> None:
    reply = await api.request(
        "PATCH", core(ns, "configmaps", "a"), applied("a", {}), content_type="application/apply-patch+yaml"
    )
    status = reply.fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "fieldManager"


async def test_force_belongs_to_apply_alone(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    status = (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "1"}}, MERGE_PATCH, force=True)).fails(
        422, "Invalid"
    )
    assert status["details"]["causes"][0]["field"] == "force"


async def test_apply_of_an_unknown_field_is_refused(api: Api, ns: str) -> None:
    body = {**applied("a", {"k": "1"}), "nonsense": 1}
    reply = await api.apply(core(ns, "configmaps", "a"), body)
    assert reply.status == 500, reply
    assert "field not declared in schema" in reply.json["message"]


async def test_managed_fields_in_an_applied_object_are_refused(api: Api, ns: str) -> None:
    body = applied("a", managedFields=[{"manager": "x", "operation": "Apply", "apiVersion": "v1"}])
    status = (await api.apply(core(ns, "configmaps", "a"), body)).fails(400, "BadRequest")
    assert "metadata.managedFields must be nil" in status["message"]


async def test_managed_fields_can_be_cleared_by_an_update(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    cleared = (await api.patch(core(ns, "configmaps", "a"), {"metadata": {"managedFields": [{}]}})).expect(200)
    assert "managedFields" in made["metadata"]
    assert "managedFields" not in cleared["metadata"]


async def test_dry_run_apply_reports_conflicts_and_stores_nothing(api: Api, ns: str) -> None:
    target = core(ns, "configmaps", "a")
    would = (await api.apply(target, applied("a", {"k": "1"}), dryRun="All")).expect(201)
    assert would["data"] == {"k": "1"}
    (await api.get(target)).fails(404, "NotFound")
    (await api.apply(target, applied("a", {"k": "1"}), "first")).expect(201)
    (await api.apply(target, applied("a", {"k": "2"}), "second", dryRun="All")).fails(409, "Conflict")
    forced = (await api.apply(target, applied("a", {"k": "2"}), "second", dryRun="All", force=True)).expect(200)
    assert forced["data"] == {"k": "2"}
    assert (await api.read(target))["data"] == {"k": "1"}


async def test_apply_accepts_yaml(api: Api, ns: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: |\n    two\n    lines\n"
    made = (await api.apply(core(ns, "configmaps", "a"), text)).expect(201)
    assert made["data"] == {"k": "two\nlines\n"}


async def test_a_custom_kind_declares_its_list_types(api: Api, ns: str) -> None:
    port = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "number": {"type": "integer"}},
        "required": ["name"],
    }
    kind = await objects.install(
        api,
        objects.spec_schema(
            {
                "ports": {
                    "type": "array",
                    "items": port,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "steps": {"type": "array", "items": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
            }
        ),
    )
    target = kind.path(ns, "w")
    first = {"ports": [{"name": "a", "number": 1}], "tags": ["x"], "steps": ["1"], "whole": {"a": "1"}}
    second = {"ports": [{"name": "b", "number": 2}], "tags": ["y"]}
    (await api.apply(target, kind.new("w", spec=first), "first")).expect(201)
    both = (await api.apply(target, kind.new("w", spec=second), "second")).expect(200)
    assert both["spec"]["ports"] == [{"name": "a", "number": 1}, {"name": "b", "number": 2}]
    assert both["spec"]["tags"] == ["x", "y"]
    clash = {"steps": ["2"], "whole": {"b": "2"}}
    status = (await api.apply(target, kind.new("w", spec=clash), "third")).fails(409, "Conflict")
    assert {each["field"] for each in status["details"]["causes"]} == {".spec.steps", ".spec.whole"}


async def test_scale_writes_are_recorded_as_a_subresource(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"), fieldManager="base")
    target = apps(ns, "deployments", "d")
    (await api.patch(f"{target}/scale", {"spec": {"replicas": 2}}, MERGE_PATCH, fieldManager="scaler")).expect(200)
    held = await api.read(target, accept=JSON)
    assert managers(held)[("scaler", "Update", "scale")] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in managers(held)[("base", "Update", "")]["f:spec"]
