"""Which resources an API server serves: for manifests, which name a kind, and for records, which name no version.

In: a client. Out: resource descriptors. An answer is remembered until `forget`. That a kind is not served is said only
of a group or version that the server's own list does not have; any error is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bedplate.api.resources import ResourceRef, custom
from bedplate.kube import errors as kube_errors

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["Kinds", "Served"]


class Served(NamedTuple):
    """A kind as a server has it."""

    ref: ResourceRef[dict[str, Any]]
    verbs: tuple[str, ...]


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    versions: list[_Version]
    preferred: _Version | None = msgspec.field(default=None, name="preferredVersion")


class _Groups(msgspec.Struct):
    kind: str
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    kind: str
    resources: list[_Resource]


class Kinds:
    """What one server serves."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._groups: dict[str, list[str]] | None = None
        self._resources: dict[tuple[str, str], dict[str, Served]] = {}

    def forget(self) -> None:
        """Ask again next time: something was not found, or a definition was applied."""
        self._groups = None
        self._resources.clear()

    async def find(self, group: str, kind: str, version: str = "") -> Served | None:
        """A kind in a version, or in any that serves it, the preferred one first; None when it is not served."""
        versions = (await self._versions()).get(group, [])
        for name in versions if not version else [version] if version in versions else []:
            served = (await self._served(group, name)).get(kind)
            if served is not None:
                return served
        return None

    async def listable(self) -> list[Served]:
        """Every namespaced kind that can be listed, once."""
        kinds: dict[tuple[str, str], Served] = {}
        for group, versions in (await self._versions()).items():
            for version in versions:
                for served in (await self._served(group, version)).values():
                    if served.ref.namespaced and "list" in served.verbs:
                        kinds.setdefault((group, served.ref.plural), served)
        return list(kinds.values())

    async def _versions(self) -> dict[str, list[str]]:
        """The groups with their versions, the preferred one first."""
        if self._groups is None:
            answer = await self._get("/apis", _Groups, "APIGroupList")
            groups = {"": ["v1"]}
            for group in answer.groups:
                versions = [version.version for version in group.versions]
                if group.preferred is not None:
                    versions.sort(key=lambda name, first=group.preferred.version: name != first)  # type: ignore[misc]
                groups[group.name] = versions
            self._groups = groups
        return self._groups

    async def _served(self, group: str, version: str) -> dict[str, Served]:
        if (group, version) not in self._resources:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            answer = await self._get(path, _Resources, "APIResourceList")
            self._resources[group, version] = {
                resource.kind: Served(
                    custom(group, version, resource.name, resource.kind, resource.namespaced), tuple(resource.verbs)
                )
                for resource in reversed(answer.resources)
                if "/" not in resource.name
            }
        return self._resources[group, version]

    async def _get(self, path: str, model: type[Any], kind: str) -> Any:
        answer = await self._client.request("GET", path)
        try:
            value = msgspec.json.decode(answer.body, type=model)
        except msgspec.DecodeError as err:
            raise kube_errors.Undecodable(f"GET {path}: the response is not an {kind}: {err}") from None
        if value.kind != kind:
            raise kube_errors.Undecodable(f"GET {path}: the response is {value.kind!r}, not an {kind}")
        return value
