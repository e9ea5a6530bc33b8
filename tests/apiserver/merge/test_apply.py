"""Field ownership and server-side apply, without a server: recorded answers of kube-apiserver 1.35.4, and laws.

`data/apply.json` holds the calls of `applyscenarios` that the real server agreed to; `test_apply_real` records them.
"""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest
from hypothesis import assume, given, settings
from tests.apiserver import applyworld
from tests.apiserver.applycompare import NOW, causes, manager_for, manager_of

from bedplate.apiserver import facts, kinds
from bedplate.apiserver.merge import apply, fieldset, managed
from bedplate.apiserver.shape import typegraph
from bedplate.apiserver.status import StatusError

DATA = pathlib.Path(__file__).parents[1] / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "apply.json").read_text())
NEW_OBJECTS: dict[str, Any] = json.loads((DATA / "kinds.json").read_text())
FIELDS = {world.kind: manager_for(world) for world in applyworld.WORLDS}
CASES = [
    pytest.param(found["kind"], call, id=f"{name} {number}")
    for name, found in RECORDED.items()
    for number, call in enumerate(found["calls"])
    if call["function"] in ("on_create", "on_update", "apply")
]
CONFIG_MAP = FIELDS["ConfigMap"]
T1, T2 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"


def config_map(*, owners: list[Any] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"name": "x", "namespace": "default", "uid": "u", **({"managedFields": owners} if owners else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def run(fields: managed.FieldManager, call: dict[str, Any]) -> Any:
    if call["function"] == "on_create":
        return fields.on_create(call["new"], call["manager"], NOW)
    if call["function"] == "on_update":
        return fields.on_update(call["live"], call["new"], call["manager"], NOW, call["subresource"])
    return apply.apply(
        fields,
        call["live"],
        call["config"],
        call["manager"],
        force=call["force"],
        time=NOW,
        subresource=call["subresource"],
    )


@pytest.mark.parametrize(("kind", "call"), CASES)
def test_recorded_answers_of_the_real_server(kind: str, call: dict[str, Any]) -> None:
    before = copy.deepcopy(call)
    if "code" not in call:
        assert run(FIELDS[kind], call) == call["result"]
    else:
        with pytest.raises(StatusError) as refused:
            run(FIELDS[kind], call)
        assert (refused.value.code, refused.value.message) == (call["code"], call["message"])
        assert [list(cause) for cause in causes(refused.value.document())] == call["causes"]
    assert call == before


@pytest.mark.parametrize(
    "resource", [found for found in facts.load().resources() if "/".join(found.key) in NEW_OBJECTS]
)
def test_a_new_object_of_every_kind_belongs_to_its_creator(resource: kinds.Resource) -> None:
    case = NEW_OBJECTS["/".join(resource.key)]
    found = manager_of(resource).on_create(case["new"], "me", case["owners"][0]["time"])
    assert found == case["owners"]
    # The order inside the set is part of the answer.
    assert json.dumps(found[0]["fieldsV1"]) == json.dumps(case["owners"][0]["fieldsV1"])


def test_a_conflict_reads_as_on_the_real_server() -> None:
    live = config_map(a="1")
    live["metadata"]["managedFields"] = CONFIG_MAP.on_create(live, "kubectl-client-side-apply", T1)
    with pytest.raises(StatusError) as refused:
        apply.apply(CONFIG_MAP, live, config_map(a="2"), "me", force=False, time=T2)
    assert refused.value.code == 409
    assert refused.value.reason == "Conflict"
    text = 'conflict with "kubectl-client-side-apply" using v1'
    assert refused.value.message == f"Apply failed with 1 conflict: {text}: .data.a"
    assert refused.value.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": text, "field": ".data.a"}],
    }


def test_an_apply_without_effect_keeps_the_time_and_the_object() -> None:
    config = config_map(a="1")
    once = apply.apply(CONFIG_MAP, None, config, "me", force=False, time=T1)
    twice = apply.apply(CONFIG_MAP, once, config, "me", force=False, time=T2)
    assert twice == once


def test_an_applier_that_only_joins_in_has_no_time() -> None:
    once = apply.apply(CONFIG_MAP, None, config_map(a="1"), "me", force=False, time=T1)
    twice = apply.apply(CONFIG_MAP, once, config_map(a="1"), "you", force=False, time=T2)
    assert {entry["manager"]: entry.get("time") for entry in twice["metadata"]["managedFields"]} == {
        "me": T1,
        "you": None,
    }


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"kind": "Pod"}, "invalid object type: /v1, Kind=Pod"),
        ({"apiVersion": "apps/v1"}, "invalid object type: apps/v1, Kind=ConfigMap"),
        ({"metadata": {"name": "x", "managedFields": []}}, "metadata.managedFields must be nil"),
    ],
)
def test_a_configuration_of_another_kind_or_with_owners_is_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(StatusError) as refused:
        apply.apply(CONFIG_MAP, None, config_map() | config, "me", force=False, time=T1)
    assert (refused.value.code, refused.value.message) == (400, text)


def test_entries_are_ordered_by_operation_time_and_manager() -> None:
    live = config_map(a="1")
    live["metadata"]["managedFields"] = CONFIG_MAP.on_create(live, "zoe", T1)
    for manager, data in (("bob", {"a": "1", "b": "1"}), ("abe", {"a": "1", "b": "1", "c": "1"})):
        new = {**live, "data": data}
        live = {**new, "metadata": {**live["metadata"], "managedFields": CONFIG_MAP.on_update(live, new, manager, T2)}}
    live = apply.apply(CONFIG_MAP, live, config_map(d="1"), "late", force=False, time="2026-01-01T00:00:09Z")
    assert [entry["manager"] for entry in live["metadata"]["managedFields"]] == ["late", "zoe", "abe", "bob"]


def test_an_update_of_an_object_without_owners_starts_no_bookkeeping() -> None:
    assert CONFIG_MAP.on_update(config_map(a="1"), config_map(a="2"), "me", T1) is None


def test_a_write_that_changes_only_times_is_none() -> None:
    entry = {
        "manager": "m",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {}},
    }
    old = config_map(owners=[{**entry, "time": T1}], a="1")
    assert managed.keep_times(old, config_map(owners=[{**entry, "time": T2}], a="1")) == old
    changed = config_map(owners=[{**entry, "time": T2}], a="2")
    assert managed.keep_times(old, changed) == changed
    other = config_map(owners=[{**entry, "manager": "n", "time": T2}], a="1")
    assert managed.keep_times(old, other) == other


def test_owners_of_another_version_keep_its_field_names() -> None:
    table = facts.load()
    name = table.type_name("v1", "Event")
    assert name is not None
    fields = managed.FieldManager(
        table.node(name),
        api_version="v1",
        kind="Event",
        versions={"events.k8s.io/v1": {"note": "message", "regarding": "involvedObject"}},
    )
    theirs = {
        "manager": "other",
        "operation": "Update",
        "apiVersion": "events.k8s.io/v1",
        "time": T1,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:note": {}, "f:regarding": {}},
    }
    gone = {**theirs, "manager": "gone", "apiVersion": "events.k8s.io/v1beta1"}
    metadata = {"name": "e", "uid": "u", "managedFields": [theirs, gone]}
    old = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "message": "old", "involvedObject": {"name": "x"}}
    found = fields.on_update(old, {**old, "message": "new"}, "me", T2)
    assert found is not None
    assert [(entry["manager"], entry["apiVersion"], entry["fieldsV1"]) for entry in found] == [
        ("other", "events.k8s.io/v1", {"f:regarding": {}}),
        ("me", "v1", {"f:message": {}}),
    ]


def test_a_new_object_shares_nothing_with_the_next_one() -> None:
    fields = FIELDS["Deployment"]
    before = copy.deepcopy(fields.nothing)
    made = apply.apply(fields, None, configuration(applyworld.DEPLOYMENT, {}), "me", force=False, time=T1)
    made["spec"]["template"]["spec"]["hostNetwork"] = True
    assert fields.nothing == before


@pytest.mark.parametrize("kind", list(FIELDS))
def test_the_empty_object_of_a_kind_has_what_go_always_writes(kind: str) -> None:
    expected = {
        "ConfigMap": {"metadata": {}},
        "Deployment": {
            "metadata": {},
            "spec": {
                "selector": None,
                "template": {"metadata": {}, "spec": {"containers": None}},
                "strategy": {},
            },
            "status": {},
        },
        "Service": {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
        "Widget": {},
    }[kind]
    fields = FIELDS[kind]
    assert fields.nothing == {"apiVersion": fields.api_version, "kind": kind, **expected}


@pytest.mark.parametrize(
    ("group", "resource", "subresource", "owned"),
    [
        ("", "configmaps", "", {"labels", "spec", "status"}),
        ("", "nodes", "", {"labels", "spec"}),
        ("", "nodes", "status", {"labels", "status"}),
        ("apps", "deployments", "status", {"status"}),
        ("apps", "deployments", "scale", {"labels", "spec", "status"}),
        ("storage.k8s.io", "volumeattachments", "status", {"status"}),
        ("certificates.k8s.io", "certificatesigningrequests", "", {"labels"}),
        ("", "namespaces", "finalize", {"labels", "spec"}),
        ("example.com", "widgets", "status", {"labels", "status"}),
    ],
)
def test_what_a_way_of_writing_cannot_change_it_does_not_own(
    group: str, resource: str, subresource: str, owned: set[str]
) -> None:
    reset = managed.reset_fields(group, resource, subresource, has_status=resource != "configmaps")
    everything = fieldset.make(["metadata", "labels"], ["spec", "x"], ["status", "x"])
    left = fieldset.difference(everything, reset, recursive=True)
    assert {path[0][2:].replace("metadata", "labels") for path in fieldset.paths(left)} == owned


def test_the_scale_subresource_leaves_no_time_and_shows_its_own_version() -> None:
    fields = FIELDS["Deployment"]
    live = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "uid": "u"},
        "spec": {"replicas": 1},
    }
    live["metadata"]["managedFields"] = fields.on_create(live, "me", T1)
    scaled = {**live, "spec": {"replicas": 2}}
    found = fields.on_update(live, scaled, "scaler", T2, "scale")
    assert found == [
        {
            "manager": "scaler",
            "operation": "Update",
            "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}},
            "subresource": "scale",
        }
    ]
    scaled["metadata"] = {**live["metadata"], "managedFields": found}
    config = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"replicas": 3}}
    with pytest.raises(StatusError) as refused:
        apply.apply(fields, scaled, config, "me", force=False, time=T2, subresource="scale")
    assert (
        'conflict with "scaler" with subresource "scale" using autoscaling/v1: .spec.replicas' in refused.value.message
    )


def test_owners_follow_a_definition_that_made_lists_and_maps_atomic() -> None:
    schema = copy.deepcopy(applyworld.WIDGET_SCHEMA)
    spec = schema["properties"]["spec"]["properties"]
    spec["names"]["x-kubernetes-list-type"] = "atomic"
    spec["nested"]["x-kubernetes-map-type"] = "atomic"
    node = typegraph.from_schema(schema, facts.load().object_meta, is_resource=True)
    after = managed.FieldManager(node, api_version=applyworld.WIDGET.api_version, kind="Widget", is_custom=True)
    config = configuration(
        applyworld.WIDGET,
        {"spec": {"names": ["a"], "nested": {"x": "1", "deep": {"y": 1}}, "labels": {"a": "1"}}},
    )
    live = apply.apply(FIELDS["Widget"], None, config, "me", force=False, time=T1)
    live["metadata"]["uid"] = "u"
    found = after.on_update(live, {**live, "spec": {**live["spec"], "number": 1}}, "you", T2)
    assert found is not None
    assert found[0]["fieldsV1"] == {"f:spec": {"f:labels": {"f:a": {}}, "f:names": {}, "f:nested": {}}}


# --- laws ------------------------------------------------------------------------------------------------------------


def configuration(world: applyworld.World, part: dict[str, Any]) -> dict[str, Any]:
    metadata = {**part.get("metadata", {}), "name": "x", "namespace": "default"}
    return {**part, "apiVersion": world.api_version, "kind": world.kind, "metadata": metadata}


def owned_by(obj: dict[str, Any], manager: str) -> fieldset.FieldSet:
    for entry in obj["metadata"].get("managedFields") or []:
        if entry["manager"] == manager:
            found: fieldset.FieldSet = entry["fieldsV1"]
            return found
    return {}


@settings(deadline=None)
@given(first=applyworld.WIDGET.part, second=applyworld.WIDGET.part)
def test_a_forced_apply_leaves_every_changed_field_with_the_last_applier(first: Any, second: Any) -> None:
    fields = FIELDS["Widget"]
    one = configuration(applyworld.WIDGET, first)
    two = configuration(applyworld.WIDGET, second)
    before = copy.deepcopy((one, two))
    live = apply.apply(fields, None, one, "one", force=False, time=T1)
    after = apply.apply(fields, live, two, "two", force=True, time=T2)
    assert (one, two) == before
    touched, _ = fields.changes(managed.without_managed(live), managed.without_managed(after), "")
    assert fieldset.intersection(owned_by(after, "one"), touched) == {}
    # An object without any owner counts as never applied to, so this does not converge.
    assume(owned_by(after, "two"))
    assert apply.apply(fields, after, two, "two", force=False, time=T2) == after
