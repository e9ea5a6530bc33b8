"""What a path and a method mean."""

from __future__ import annotations

import pytest

from bedplate.apiserver.pipeline import routes


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, ("watch", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods", {"watch": "0"}, ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", {}, ("get", "", "v1", "a", "pods", "p", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", {"watch": "1"}, ("get", "", "v1", "a", "pods", "p", "")),
        ("HEAD", "/api/v1/namespaces/a/pods/p", {}, ("get", "", "v1", "a", "pods", "p", "")),
        ("PUT", "/api/v1/namespaces/a/pods/p/status", {}, ("update", "", "v1", "a", "pods", "p", "status")),
        ("POST", "/apis/apps/v1/namespaces/a/deployments", {}, ("create", "apps", "v1", "a", "deployments", "", "")),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            {},
            ("deletecollection", "apps", "v1", "a", "deployments", "", ""),
        ),
        ("DELETE", "/api/v1/nodes/n", {}, ("delete", "", "v1", "", "nodes", "n", "")),
        ("PATCH", "/api/v1/nodes/n", {}, ("patch", "", "v1", "", "nodes", "n", "")),
        ("GET", "/api/v1/namespaces", {}, ("list", "", "v1", "", "namespaces", "", "")),
        ("GET", "/api/v1/namespaces/a", {}, ("get", "", "v1", "a", "namespaces", "a", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, ("update", "", "v1", "a", "namespaces", "a", "finalize")),
        ("GET", "/api/v1/watch/namespaces/a/pods", {}, ("watch", "", "v1", "a", "pods", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods/p", {}, ("watch", "", "v1", "a", "pods", "p", "")),
        ("GET", "/api/v1/nodes/", {}, ("list", "", "v1", "", "nodes", "", "")),
    ],
)
def test_resource_paths(method: str, path: str, query: dict[str, str], expected: tuple[str, ...]) -> None:
    info = routes.parse(method, path, query, bool(query))
    found = (info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource)
    assert found == expected


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/version"]
)
def test_paths_outside_of_the_resource_space(path: str) -> None:
    info = routes.parse("GET", path, {}, False)
    assert (info.verb, info.resource, info.path) == ("get", "", path)


def test_what_follows_a_subresource_belongs_to_it() -> None:
    info = routes.parse("GET", "/api/v1/namespaces/a/services/s/proxy/x/y", {}, False)
    assert (info.resource, info.name, info.subresource) == ("services", "s", "proxy")
