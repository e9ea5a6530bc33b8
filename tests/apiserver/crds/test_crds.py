"""CustomResourceDefinitions: the real server's verdicts of cases/definitions.yaml, names, status, kinds."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.apiserver import recorded

from bedplate.apiserver import facts, kinds, status
from bedplate.apiserver.crds import checks, definitions
from bedplate.apiserver.shape import rules
from bedplate.apiserver.state import bodies

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
QUESTIONS = {question["name"]: question for question in recorded.questions("definitions")}
ANSWERS = recorded.answers("definitions")


def make(name: str = "widget", **names: Any) -> dict[str, Any]:
    crd = recorded.definition(name, {"type": "object", "properties": {"a": {"type": "integer", "default": 3}}})
    crd["spec"]["names"] |= names
    checks.default(crd)
    return crd


def settled(crd: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    return crd | {"status": definitions.plan_status(crd, others, NOW)}


def conditions(crd: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in crd["status"]["conditions"]}


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_a_definition_is_judged_as_by_the_real_server(name: str) -> None:
    assert recorded.judge_definition(recorded.build(QUESTIONS[name])) == ANSWERS[name]


def test_names_and_conversion_are_filled_in() -> None:
    crd = make()
    assert crd["spec"]["names"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}


def test_a_new_definition_is_established_with_its_names() -> None:
    crd = settled(make(shortNames=["w"], categories=["all"]))
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]
    assert crd["status"]["storedVersions"] == ["v1"]
    assert conditions(crd) == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }


def test_taken_names_are_refused_until_they_are_free() -> None:
    first = settled(make(shortNames=["w"]))
    second = settled(make("wheel", kind="Widget", listKind="WheelList", singular="wheel", shortNames=["w"]), first)
    assert conditions(second) == {
        "NamesAccepted": ("False", "KindConflict", '"Widget" is already in use'),
        "Established": ("False", "NotAccepted", "not all names are accepted"),
    }
    assert "shortNames" not in second["status"]["acceptedNames"]
    assert conditions(settled(second))["Established"][0] == "True"


def test_the_same_names_in_another_group_do_not_clash() -> None:
    other = make()
    other["spec"]["group"] = "other.example.com"
    other["metadata"]["name"] = "widgets.other.example.com"
    assert conditions(settled(make(), settled(other)))["NamesAccepted"][0] == "True"


def test_a_condition_keeps_its_time_while_its_state_stays() -> None:
    crd = settled(make())
    again = definitions.plan_status(crd, [], NOW + timedelta(hours=1))
    assert again == crd["status"]


def test_storage_versions_add_up() -> None:
    crd = settled(make())
    newer = copy.deepcopy(crd["spec"]["versions"][0]) | {"name": "v2"}
    crd["spec"]["versions"][0]["storage"] = False
    crd["spec"]["versions"].append(newer)
    crd["status"] = definitions.plan_status(crd, [], NOW)
    assert crd["status"]["storedVersions"] == ["v1", "v2"]
    del crd["spec"]["versions"][0]
    assert [cause.field for cause in checks.validate(crd, crd)] == ["status.storedVersions[0]"]


def test_what_objects_are_stored_under_cannot_change_once_established() -> None:
    old = settled(make())
    new = copy.deepcopy(old)
    new["spec"]["scope"] = "Namespaced"
    new["spec"]["names"] |= {"kind": "Other", "listKind": "OtherList"}
    found = [str(cause) for cause in checks.validate(new, old)]
    assert found == [
        'spec.scope: Invalid value: "Namespaced": field is immutable',
        'spec.names.kind: Invalid value: "Other": field is immutable',
    ]


def test_an_accepted_schema_does_not_stand_in_the_way_of_other_changes() -> None:
    old = settled(make())
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"] = {"type": "odd"}
    new = copy.deepcopy(old)
    new["spec"]["names"]["shortNames"] = ["w"]
    assert checks.validate(new, old) == []
    new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["more"] = {"type": "string"}
    assert [cause.reason for cause in checks.validate(new, old)] == ["FieldValueNotSupported"]


def test_formats_that_check_nothing_are_named_once() -> None:
    crd = make()
    more = {"type": "string", "format": "made-up"}
    known = {"type": "string", "format": "date-time"}
    number = {"type": "integer", "format": "int32"}
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties |= {"a": more, "b": {"type": "array", "items": more}, "c": known, "d": number}
    assert checks.unrecognized_formats(crd) == ["made-up"]


def test_conversion_by_webhook_is_refused_where_it_would_be_called() -> None:
    crd = settled(make())
    client = {"url": "https://example.com", "caBundle": ""}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    assert checks.validate(crd) == []
    crd["spec"]["versions"].append(copy.deepcopy(crd["spec"]["versions"][0]) | {"name": "v2", "storage": False})
    assert [cause.field for cause in checks.validate(crd)] == ["spec.conversion.strategy"]


def change(kind: Any, crd: dict[str, Any], previous: dict[str, Any] | None = None) -> bodies.Change:
    body = json.dumps(crd).encode()
    before = json.dumps(previous).encode() if previous is not None else None
    return bodies.Change(kind, definitions.GROUP, definitions.RESOURCE, "", crd["metadata"]["name"], 1, body, before)


@pytest.fixture(scope="module")
def built_in() -> list[kinds.Resource]:
    return list(facts.load("1.35").resources())


def test_kinds_come_and_go_with_their_definition(built_in: list[kinds.Resource]) -> None:
    live, shapes = kinds.Kinds(built_in), rules.ShapeRules()
    behaviour = definitions.DefinitionBehaviour(live, shapes.custom)
    crd = settled(make(shortNames=["w"]))
    behaviour.after_commit(change("ADDED", crd))
    resource = live.get(recorded.GROUP, "v1", "widgets")
    assert resource is not None and resource.short_names == ("w",)
    obj: dict[str, Any] = {"metadata": {}, "spec": {"junk": 1}}
    assert shapes.prune(resource, obj) == ["spec.junk"]
    shapes.default(resource, obj)
    assert obj == {"metadata": {}, "spec": {"a": 3}}
    assert [each.field for each in shapes.validate(resource, {"spec": {"a": "x"}}, None, "")] == ["spec.a"]
    behaviour.after_commit(change("DELETED", crd, crd))
    assert live.get(recorded.GROUP, "v1", "widgets") is None
    assert not shapes.custom


def test_a_definition_without_its_names_serves_nothing(built_in: list[kinds.Resource]) -> None:
    live, shapes = kinds.Kinds(built_in), rules.ShapeRules()
    taken = settled(make())
    crd = settled(make("wheel", kind="Widget"), taken)
    definitions.DefinitionBehaviour(live, shapes.custom).after_commit(change("ADDED", crd))
    assert live.get(recorded.GROUP, "v1", "wheels") is None


def test_nothing_is_created_while_the_definition_goes(built_in: list[kinds.Resource]) -> None:
    live, shapes = kinds.Kinds(built_in), rules.ShapeRules()
    behaviour = definitions.DefinitionBehaviour(live, shapes.custom)
    crd = settled(make())
    crd["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    behaviour.mark_deleted(crd)
    assert crd["metadata"]["finalizers"] == [definitions.FINALIZER]
    assert conditions(crd)["Terminating"][:2] == ("True", "InstanceDeletionPending")
    behaviour.after_commit(change("MODIFIED", crd))
    resource = live.get(recorded.GROUP, "v1", "widgets")
    assert resource is not None
    with pytest.raises(status.StatusError) as caught:
        shapes.validate(resource, {"spec": {}}, None, "")
    assert caught.value.code == 403
    assert caught.value.message.endswith("create not allowed while custom resource definition is terminating")
    assert shapes.validate(resource, {"spec": {}}, {"spec": {}}, "") == []
