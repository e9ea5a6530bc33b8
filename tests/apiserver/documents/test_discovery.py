"""Discovery documents equal those of the server the facts were read from, and follow custom kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.apiserver.test_kinds import widget_definition

from bedplate.apiserver import facts, kinds
from bedplate.apiserver.documents import discovery


@pytest.fixture(scope="module", params=facts.available())
def table(request: pytest.FixtureRequest) -> facts.Facts:
    return facts.load(request.param)


@pytest.fixture
def live(table: facts.Facts) -> kinds.Kinds:
    return kinds.Kinds(table.resources())


def recorded(table: facts.Facts) -> list[dict[str, Any]]:
    """What the real server said, without the kinds that are left out on purpose."""
    groups = []
    for group in table.groups:
        name = group["metadata"].get("name", "")
        versions = []
        for version in group["versions"]:
            kept = [
                entry
                for entry in version["resources"]
                if (name, version["version"], entry["resource"]) not in facts.LEFT_OUT
            ]
            if kept:
                versions.append(version | {"resources": kept})
        groups.append(group | {"versions": versions})
    return groups


def test_aggregated_discovery_is_what_the_real_server_says(table: facts.Facts, live: kinds.Kinds) -> None:
    expected = recorded(table)
    assert discovery.aggregated(live, is_core=True)["items"] == expected[:1]
    assert discovery.aggregated(live, is_core=False)["items"] == expected[1:]


def test_group_list_names_each_group_with_its_preferred_version(live: kinds.Kinds) -> None:
    document = discovery.api_group_list(live)
    names = [group["name"] for group in document["groups"]]
    assert "" not in names
    assert len(names) == len(set(names))
    apps = next(group for group in document["groups"] if group["name"] == "apps")
    assert apps["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}


def test_core_list_has_subresources_and_storage_hashes(live: kinds.Kinds) -> None:
    document = discovery.resource_list(live, "", "v1")
    assert document is not None
    entries = {entry["name"]: entry for entry in document["resources"]}
    # Recorded from kube-apiserver 1.35.4.
    assert entries["pods"]["storageVersionHash"] == "xPOwRZ+Yhw8="
    assert entries["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert list(entries) == sorted(entries)


def test_custom_kind_as_recorded_from_the_real_server(live: kinds.Kinds, table: facts.Facts) -> None:
    live.replace(kinds.from_crd(widget_definition(), table.object_meta))
    verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    assert discovery.resource_list(live, "example.com", "v1") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "example.com/v1",
        "resources": [
            {
                "name": "widgets",
                "singularName": "widget",
                "namespaced": True,
                "kind": "Widget",
                "verbs": verbs,
                "shortNames": ["wd"],
                "storageVersionHash": "gIwvi5rymmg=",
            },
            {
                "name": "widgets/status",
                "singularName": "",
                "namespaced": True,
                "kind": "Widget",
                "verbs": ["get", "patch", "update"],
            },
            {
                "name": "widgets/scale",
                "singularName": "",
                "namespaced": True,
                "group": "autoscaling",
                "version": "v1",
                "kind": "Scale",
                "verbs": ["get", "patch", "update"],
            },
        ],
    }
    custom = discovery.aggregated(live, is_core=False)["items"][-1]
    assert [version["version"] for version in custom["versions"]] == ["v1", "v1beta1"]
    assert custom["versions"][0]["resources"][0]["responseKind"] == {
        "group": "example.com",
        "version": "v1",
        "kind": "Widget",
    }


KUBECTL_ACCEPT = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


def test_answers_follow_the_accept_header_and_the_kinds(live: kinds.Kinds, table: facts.Facts) -> None:
    answers = discovery.Discovery(live, discovery.version_document(table.kubernetes), "127.0.0.1:6443")
    plain = answers.answer("/apis", "application/json")
    assert plain is not None
    assert json.loads(plain[0])["kind"] == "APIGroupList"
    asked = answers.answer("/apis", KUBECTL_ACCEPT)
    assert asked is not None
    assert asked[1] == discovery.AGGREGATED
    assert "example.com" not in asked[0].decode()
    assert answers.answer("/apis/example.com/v1", KUBECTL_ACCEPT) is None
    live.replace(kinds.from_crd(widget_definition(), table.object_meta))
    renewed = answers.answer("/apis", KUBECTL_ACCEPT)
    assert renewed is not None
    assert "example.com" in renewed[0].decode()
    listed = answers.answer("/apis/example.com/v1", KUBECTL_ACCEPT)
    assert listed is not None
    assert listed[1] == "application/json"
    assert answers.answer("/apis/nothing") is None
    assert answers.answer("/api/v9") is None


def test_only_beta_aggregation_is_answered_plainly() -> None:
    assert not discovery.wants_aggregated("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
    assert discovery.wants_aggregated(KUBECTL_ACCEPT)


def test_version_is_semver_with_our_mark(table: facts.Facts) -> None:
    document = discovery.version_document(table.kubernetes)
    assert document["gitVersion"].startswith(f"v1.{document['minor']}.")
    assert document["gitVersion"].endswith("+bedplate")
