"""Discovery documents: which groups, versions and resources there are, in each form clients ask for.

Comes in: the live `Kinds`. Goes out: plain documents for `/api`, `/apis`, `/apis/G`, `/api/v1`, `/apis/G/V`, the
aggregated `APIGroupDiscoveryList` (v2) and `/version`. Pure functions; `Discovery` only keeps their encoded answers
until the kinds change. Negotiation (`wants_aggregated`) looks at the Accept header alone.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from bedplate.apiserver import kinds

__all__ = [
    "AGGREGATED",
    "Discovery",
    "aggregated",
    "api_group",
    "api_group_list",
    "api_versions",
    "resource_list",
    "storage_version_hash",
    "version_document",
    "wants_aggregated",
]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(accept: str) -> bool:
    """Whether a client asks for aggregated discovery v2 as JSON (v2beta1 alone is answered plainly)."""
    for wish in accept.split(","):
        parts = {part.strip() for part in wish.split(";")}
        if {"application/json", "g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= parts:
            return True
    return False


def _by_group(resources: Iterable[kinds.Resource]) -> dict[str, dict[str, list[kinds.Resource]]]:
    """group to version to resources. Groups keep their order, versions stand by preference."""
    groups: dict[str, dict[str, list[kinds.Resource]]] = {}
    for resource in resources:
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return {
        group: dict(sorted(versions.items(), key=lambda item: kinds.version_priority(item[0]), reverse=True))
        for group, versions in groups.items()
    }


def api_versions(server_address: str) -> dict[str, Any]:
    """`/api`"""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def _group_entry(group: str, versions: Iterable[str]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def api_group_list(resources: Iterable[kinds.Resource]) -> dict[str, Any]:
    """`/apis`"""
    groups = [_group_entry(group, versions) for group, versions in _by_group(resources).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(resources: Iterable[kinds.Resource], group: str) -> dict[str, Any] | None:
    """`/apis/G`, None when there is no such group."""
    versions = _by_group(resources).get(group) if group else None
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group_entry(group, versions) if versions else None


def resource_list(resources: Iterable[kinds.Resource], group: str, version: str) -> dict[str, Any] | None:
    """`/api/v1`, `/apis/G/V`; None when nothing is served there."""
    entries: list[dict[str, Any]] = []
    for resource in sorted(resources, key=lambda each: each.resource):
        if (resource.group, resource.version) == (group, version):
            entries.append(_plain_entry(resource))
            entries += [_plain_subresource(resource, sub) for sub in resource.subresources.values()]
    if not entries:
        return None
    api_version = f"{group}/{version}" if group else version
    # The core list alone says no apiVersion of its own.
    head = {"kind": "APIResourceList", "apiVersion": "v1"} if group else {"kind": "APIResourceList"}
    return head | {"groupVersion": api_version, "resources": entries}


def _plain_entry(resource: kinds.Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.resource,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "list" in resource.verbs:
        entry["storageVersionHash"] = storage_version_hash(resource)
    return entry


def _plain_subresource(resource: kinds.Resource, sub: kinds.Subresource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.resource}/{sub.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
    }
    if (sub.group, sub.version) != (resource.group, resource.version):
        entry |= {"group": sub.group, "version": sub.version}
    return entry | {"kind": sub.kind, "verbs": list(sub.verbs)}


def storage_version_hash(resource: kinds.Resource) -> str:
    """Which group, version and kind objects are kept in, as Kubernetes abbreviates it."""
    group, version, _ = resource.stored_at
    digest = hashlib.sha256("/".join((group, version, resource.kind)).encode()).digest()
    return b64encode(digest[:8]).decode()


def aggregated(resources: Iterable[kinds.Resource], *, is_core: bool) -> dict[str, Any]:
    """`/api` (core group) or `/apis` (all others) as one APIGroupDiscoveryList."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": [
                        _aggregated_entry(resource) for resource in sorted(members, key=lambda m: m.resource)
                    ],
                    "freshness": "Current",
                }
                for version, members in versions.items()
            ],
        }
        for group, versions in _by_group(resources).items()
        if (group == "") == is_core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_entry(resource: kinds.Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.resource,
        "responseKind": _response_kind(resource, resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": _response_kind(resource, sub.group, sub.version, sub.kind),
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources.values()
        ]
    return entry


def _response_kind(resource: kinds.Resource, group: str, version: str, kind: str) -> dict[str, str]:
    # Built-in kinds leave group and version empty where they are those of the list; custom ones say them.
    if (group, version) == (resource.group, resource.version) and not resource.is_custom:
        group = version = ""
    return {"group": group, "version": version, "kind": kind}


class Discovery:
    """Encoded discovery answers, made on demand and kept until the kinds change."""

    def __init__(self, live: kinds.Kinds, version: Mapping[str, Any], server_address: str) -> None:
        self._kinds = live
        self._version = msgspec.json.encode(version)
        self._server_address = server_address
        self._generation = -1
        self._answers: dict[tuple[str, bool], bytes] = {}

    def version(self) -> bytes:
        """`/version`"""
        return self._version

    def answer(self, path: str, accept: str = "") -> tuple[bytes, str] | None:
        """Body and content type for a discovery path (no trailing slash), None when there is nothing at it."""
        parts = path.strip("/").split("/")
        is_aggregated = len(parts) == 1 and wants_aggregated(accept)
        if self._generation != self._kinds.generation:
            self._generation = self._kinds.generation
            self._answers = {}
        key = (path, is_aggregated)
        body = self._answers.get(key)
        if body is None:
            document = self._document(parts, is_aggregated)
            if document is None:
                return None
            body = self._answers[key] = msgspec.json.encode(document)
        return body, AGGREGATED if is_aggregated else "application/json"

    def _document(self, parts: list[str], is_aggregated: bool) -> dict[str, Any] | None:
        routes: dict[tuple[str, int], Callable[[], dict[str, Any] | None]] = {
            ("api", 1): lambda: api_versions(self._server_address),
            ("apis", 1): lambda: api_group_list(self._kinds),
            ("apis", 2): lambda: api_group(self._kinds, parts[1]),
            ("api", 2): lambda: resource_list(self._kinds, "", parts[1]),
            ("apis", 3): lambda: resource_list(self._kinds, parts[1], parts[2]),
        }
        if is_aggregated and parts[0] in ("api", "apis"):
            return aggregated(self._kinds, is_core=parts[0] == "api")
        route = routes.get((parts[0], len(parts)))
        return route() if route is not None else None


def version_document(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`/version`: the compatible Kubernetes version, marked as ours in the build metadata that semver ignores."""
    return dict(facts) | {
        "gitVersion": f"{facts['gitVersion']}+bedplate",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "cpython",
        "platform": "linux/amd64",
    }
