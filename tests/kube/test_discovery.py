"""Resources by any of their names, from both forms of discovery."""

from __future__ import annotations

import pytest
from tests.kube.scripted import Answer, Asked, FastClock, serving, status

from bedplate.core import errors as core
from bedplate.kube import Client, ClientConfig
from bedplate.kube.discovery import Discovery

CORE = [
    {
        "name": "pods",
        "singularName": "pod",
        "kind": "Pod",
        "namespaced": True,
        "shortNames": ["po"],
        "verbs": ["get", "list"],
    },
    {"name": "pods/status", "singularName": "", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
    {
        "name": "events",
        "singularName": "event",
        "kind": "Event",
        "namespaced": True,
        "shortNames": ["ev"],
        "verbs": ["list"],
    },
]
APPS = [
    {
        "name": "deployments",
        "singularName": "deployment",
        "kind": "Deployment",
        "namespaced": True,
        "shortNames": ["deploy"],
    },
    {"name": "events", "singularName": "event", "kind": "Event", "namespaced": True, "shortNames": ["ev"]},
]


def plain(asked: Asked) -> Answer:
    groups = {"name": "apps", "versions": [{"groupVersion": "apps/v1beta1"}, {"groupVersion": "apps/v1"}]}
    broken = {"name": "down", "versions": [{"groupVersion": "down/v1"}]}
    documents = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": CORE},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [{**groups, "preferredVersion": {"groupVersion": "apps/v1"}}, broken],
        },
        "/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": APPS},
        "/apis/apps/v1beta1": {"kind": "APIResourceList", "groupVersion": "apps/v1beta1", "resources": APPS},
    }
    found = documents.get(asked.path)
    return Answer(200, found) if found else status(503, "ServiceUnavailable")


def aggregated(asked: Asked) -> Answer:
    def group(name: str, versions: dict[str, list[dict[str, object]]]) -> dict[str, object]:
        return {
            "metadata": {"name": name},
            "versions": [
                {
                    "version": version,
                    "resources": [
                        {
                            "resource": item["name"],
                            "responseKind": {"kind": item["kind"]},
                            "scope": "Namespaced",
                            "singularResource": item["singularName"],
                            "shortNames": item.get("shortNames"),
                            "verbs": item.get("verbs"),
                            "subresources": [{"subresource": "status"}] if item["name"] == "pods" else None,
                        }
                        for item in items
                        if "/" not in str(item["name"])
                    ],
                }
                for version, items in versions.items()
            ],
        }

    items = [group("", {"v1": CORE})] if asked.path == "/api" else [group("apps", {"v1": APPS, "v1beta1": APPS})]
    return Answer(200, {"kind": "APIGroupDiscoveryList", "items": items})


@pytest.mark.parametrize("script", [plain, aggregated])
@pytest.mark.parametrize(
    ("name", "qualified", "version"),
    [
        ("po", "pods", "v1"),
        ("Pod", "pods", "v1"),
        ("pods", "pods", "v1"),
        ("deploy", "deployments.apps", "v1"),
        ("deployments.apps", "deployments.apps", "v1"),
        ("deployments.v1beta1.apps", "deployments.apps", "v1beta1"),
        ("events", "events", "v1"),
        ("events.apps", "events.apps", "v1"),
        ("pods.v1", "pods", "v1"),
    ],
)
async def test_a_resource_answers_to_each_of_its_names(script: object, name: str, qualified: str, version: str) -> None:
    async with serving(script) as server, Client(ClientConfig(server.url, qps=-1), time=FastClock()) as client:  # type: ignore[arg-type]
        found = await Discovery(client).find(name)
    assert (found.ref.qualified, found.ref.version, found.ref.namespaced) == (qualified, version, True)
    if qualified == "pods":
        assert found.subresources == ("status",)
        assert found.verbs == ("get", "list")


async def test_an_unknown_name_is_looked_up_afresh_once_and_then_refused() -> None:
    async with serving(aggregated) as server, Client(ClientConfig(server.url, qps=-1), time=FastClock()) as client:
        discovery = Discovery(client)
        await discovery.find("pods")
        asked = len(server.asked)
        with pytest.raises(core.Terminal, match="widgets"):
            await discovery.find("widgets")
        assert len(server.asked) == 2 * asked
