"""The live set of kinds: lookup, custom kinds that come and go, second versions of one object."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.apiserver import facts, kinds


@pytest.fixture(scope="module")
def table() -> facts.Facts:
    return facts.load()


@pytest.fixture
def live(table: facts.Facts) -> kinds.Kinds:
    return kinds.Kinds(table.resources())


def widget_definition(**names: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]} | names,
            "versions": [
                {"name": "v1beta1", "served": True, "storage": False, "schema": schema},
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": schema,
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                    "selectableFields": [{"jsonPath": ".spec.colour"}],
                },
                {"name": "v0", "served": False, "storage": False, "schema": schema},
            ],
        },
    }


def test_built_in_kinds_are_found_by_every_name(live: kinds.Kinds) -> None:
    deployments = live.get("apps", "v1", "deployments")
    assert deployments is not None
    assert live.by_api_version("apps/v1", "Deployment") is deployments
    assert live.versions("apps", "deployments") == [deployments]
    assert deployments.group_resource == "deployments.apps"
    assert (deployments.subresources["scale"].group, deployments.subresources["scale"].kind) == ("autoscaling", "Scale")
    assert (deployments.subresources["status"].group, deployments.subresources["status"].version) == ("apps", "v1")
    pods = live.by_api_version("v1", "Pod")
    assert pods is not None
    assert pods.api_version == "v1"
    assert pods.subresources["log"].version == "v1"
    assert "spec.nodeName" in pods.selectable
    assert [column.name for column in pods.columns][:3] == ["Name", "Ready", "Status"]


def test_custom_kind_lives_in_all_served_versions_most_preferred_first(live: kinds.Kinds, table: facts.Facts) -> None:
    before = live.generation
    live.replace(kinds.from_crd(widget_definition(), table.object_meta))
    assert live.generation > before
    found = live.versions("example.com", "widgets")
    assert [version.version for version in found] == ["v1", "v1beta1"]
    newest, oldest = found
    assert newest.storage_version
    assert not oldest.storage_version
    assert live.storage(oldest) is newest
    assert newest.subresources["scale"].spec_replicas == ".spec.replicas"
    assert newest.columns[0].json_path == ".spec.size"
    assert oldest.columns[0].name == "Age"
    assert newest.selectable == ("spec.colour",)
    assert newest.singular == "widget"
    assert newest.list_kind == "WidgetList"
    assert newest.type.fields["metadata"].fields["finalizers"].list_type == "set"


def test_names_the_server_accepted_win(table: facts.Facts) -> None:
    definition = widget_definition() | {"status": {"acceptedNames": {"plural": "widgets", "kind": "Gadget"}}}
    assert kinds.from_crd(definition, table.object_meta)[0].kind == "Gadget"


def test_removed_custom_kind_is_gone_in_every_version(live: kinds.Kinds, table: facts.Facts) -> None:
    count = len(live)
    live.replace(kinds.from_crd(widget_definition(), table.object_meta))
    live.remove("example.com", "widgets")
    assert len(live) == count
    assert live.by_api_version("example.com/v1", "Widget") is None


def test_event_is_one_object_in_two_groups(live: kinds.Kinds) -> None:
    new = live.get("events.k8s.io", "v1", "events")
    assert new is not None
    storage = live.storage(new)
    assert storage.key == ("", "v1", "events")
    shown = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "regarding": {"name": "x"}, "reason": "r"}
    kept = kinds.to_storage(new, dict(shown), storage)
    assert kept == {
        "apiVersion": "v1",
        "kind": "Event",
        "message": "n",
        "involvedObject": {"name": "x"},
        "reason": "r",
    }
    assert kinds.from_storage(new, kept, storage) == shown
    assert kinds.to_storage(storage, kept, storage) is kept


def test_versions_are_preferred_as_kubernetes_does() -> None:
    names = [
        "v1alpha1",
        "foo10",
        "v11alpha2",
        "v10",
        "v2",
        "v10beta3",
        "v1",
        "v3beta1",
        "v12alpha1",
        "foo1",
        "v11beta2",
    ]
    ordered = sorted(names, key=kinds.version_priority, reverse=True)
    assert ordered == [
        *("v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"),
    ]
