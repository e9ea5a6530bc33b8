"""What a server serves: resources by kind, plural, singular or short name.

In: the server's discovery documents (aggregated, or one per group where a server knows no aggregation). Out:
`ResourceRef`s in raw mode. The answer is kept until `forget()`; a name that is not found is looked up afresh once,
since a CRD may be new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from bedplate.api.resources import RawObject, ResourceRef
from bedplate.core import errors as core_errors
from bedplate.kube import errors
from bedplate.kube.client import Client

__all__ = ["ApiResource", "Discovery", "from_aggregated", "from_resource_list", "match"]

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource of a server. `subresources` are names such as `status`."""

    ref: ResourceRef[RawObject]
    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


class UnknownResource(core_errors.Terminal):
    """The server serves no resource of that name."""


class Discovery:
    """The resources of one server, fetched when first asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: list[ApiResource] | None = None

    def forget(self) -> None:
        """Ask the server again next time."""
        self._known = None

    async def resources(self) -> list[ApiResource]:
        """Every resource, the core group first and preferred versions before others."""
        if self._known is None:
            self._known = [*await self._fetch("/api"), *await self._fetch("/apis")]
        return self._known

    async def find(self, name: str) -> ApiResource:
        """The resource that a person means by `node`, `no`, `Node`, `deployments.apps` or `deployments.v1.apps`."""
        is_fresh = self._known is None
        found = match(name, await self.resources())
        if found is None and not is_fresh:
            self.forget()
            found = match(name, await self.resources())
        if found is None:
            raise UnknownResource(
                f"the server serves no resource {name!r}", hint="is the CustomResourceDefinition installed?"
            )
        return found

    async def _fetch(self, path: str) -> list[ApiResource]:
        answer = await self._client.request("GET", path, accept=_AGGREGATED)
        document = _document(path, answer.body)
        if document.get("kind") == "APIGroupDiscoveryList":
            return from_aggregated(document)
        result: list[ApiResource] = []
        for group_version in _group_versions(document):
            page = f"{path}/{group_version}"
            try:
                listing = await self._client.request("GET", page)
            except (errors.ServiceUnavailable, errors.UnexpectedAnswer):
                # The server behind one aggregated API is down: that must not hide all the others.
                continue
            result += from_resource_list(_document(page, listing.body))
        return result


def _document(path: str, body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as err:
        raise errors.Undecodable(f"GET {path}: not a discovery document: {err}") from err


def _group_versions(document: dict[str, Any]) -> list[str]:
    """`v1`, or `group/version` with each group's preferred version first."""
    if document.get("kind") == "APIVersions":
        return list(document.get("versions") or ())
    result: list[str] = []
    for group in document.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("groupVersion")
        versions = [version["groupVersion"] for version in group.get("versions") or ()]
        result += sorted(versions, key=lambda version, first=preferred: version != first)  # type: ignore[misc]
    return result


def from_aggregated(document: dict[str, Any]) -> list[ApiResource]:
    """The resources of an APIGroupDiscoveryList, which lists preferred versions first."""
    result: list[ApiResource] = []
    for group in document.get("items") or ():
        name = (group.get("metadata") or {}).get("name", "")
        for version in group.get("versions") or ():
            for item in version.get("resources") or ():
                kind = (item.get("responseKind") or {}).get("kind", "")
                namespaced = item.get("scope") == "Namespaced"
                result.append(
                    ApiResource(
                        ResourceRef(name, version["version"], item["resource"], kind, namespaced, dict),
                        singular=item.get("singularResource", ""),
                        short_names=tuple(item.get("shortNames") or ()),
                        verbs=tuple(item.get("verbs") or ()),
                        categories=tuple(item.get("categories") or ()),
                        subresources=tuple(sub["subresource"] for sub in item.get("subresources") or ()),
                    )
                )
    return result


def from_resource_list(document: dict[str, Any]) -> list[ApiResource]:
    """The resources of an APIResourceList (one group and version)."""
    group, _, version = document.get("groupVersion", "").rpartition("/")
    items = document.get("resources") or ()
    return [
        ApiResource(
            ResourceRef(
                item.get("group") or group,
                item.get("version") or version,
                item["name"],
                item["kind"],
                bool(item["namespaced"]),
                dict,
            ),
            singular=item.get("singularName", ""),
            short_names=tuple(item.get("shortNames") or ()),
            verbs=tuple(item.get("verbs") or ()),
            categories=tuple(item.get("categories") or ()),
            subresources=tuple(
                sub["name"].partition("/")[2] for sub in items if sub["name"].startswith(f"{item['name']}/")
            ),
        )
        for item in items
        if "/" not in item["name"]
    ]


def match(name: str, resources: Iterable[ApiResource]) -> ApiResource | None:
    """The first resource that `name` means; plural names win over singular ones, kinds and short names."""
    wanted, _, place = name.partition(".")
    candidates = [item for item in resources if not place or place in _places(item.ref)]
    lower = wanted.lower()
    tests = (
        lambda item: item.ref.plural == lower,
        lambda item: item.singular == lower or item.ref.kind.lower() == lower,
        lambda item: lower in item.short_names,
    )
    return next((item for test in tests for item in candidates if test(item)), None)


def _places(ref: ResourceRef[Any]) -> tuple[str, ...]:
    return (ref.group, f"{ref.version}.{ref.group}" if ref.group else ref.version)
