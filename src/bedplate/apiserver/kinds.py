"""The kinds a server serves: the built-in ones of the shipped facts and the custom ones that come and go at run time.

`Resource` is all that routing, discovery, tables, admission and storage know of a kind. `Kinds` is the live set;
whoever caches something made from it (discovery, OpenAPI) compares `generation`. Nothing here touches objects, except
`to_storage` and `from_storage`, which rename the few fields in which two served versions of one object differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.apiserver.shape import typegraph

__all__ = ["Column", "Kinds", "Resource", "Subresource", "from_crd", "from_storage", "to_storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a `Table` answer; `json_path` is set for custom kinds only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    json_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A subresource as discovery states it: the group, version and kind of the body it takes."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]
    spec_replicas: str = ""
    """scale of custom kinds: the JSON paths, as in the CRD (`.spec.replicas`)."""
    status_replicas: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    """One served version of one resource."""

    group: str
    version: str
    resource: str
    kind: str
    list_kind: str
    singular: str
    namespaced: bool
    type: typegraph.TypeNode
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    """field selectors beyond metadata.name and metadata.namespace, as dotted paths."""
    is_custom: bool = False
    storage_version: bool = True
    storage_key: tuple[str, str, str] = ("", "", "")
    """group, version and resource under which objects are kept; differs from `key` for a second served version."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """top-level field names here to those in the storage version."""
    schema: Mapping[str, Any] | None = None
    """custom kinds: the version's openAPIV3Schema."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.version, self.resource

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`deployments.apps`, `pods`: how error messages name a resource."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def stored_at(self) -> tuple[str, str, str]:
        return self.storage_key if self.storage_key[2] else self.key


class Kinds:
    """The live set of resources. One owner changes it; readers look up and compare `generation`."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self.generation = 0
        self._by_key: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self.replace(resources)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, group: str, version: str, resource: str) -> Resource | None:
        return self._by_key.get((group, version, resource))

    def by_api_version(self, api_version: str, kind: str) -> Resource | None:
        """Lookup by an object's own `apiVersion` and `kind`."""
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def versions(self, group: str, resource: str) -> list[Resource]:
        """The served versions of one resource, in order of preference."""
        return [entry for entry in self._by_key.values() if entry.group == group and entry.resource == resource]

    def storage(self, resource: Resource) -> Resource:
        """The resource whose version objects of `resource` are kept in."""
        return self._by_key.get(resource.stored_at, resource)

    def replace(self, resources: Iterable[Resource], *, without: tuple[str, str] | None = None) -> None:
        """Add resources (a new one wins), after dropping all versions of the (group, resource) `without`."""
        if without is not None:
            self._by_key = {key: resource for key, resource in self._by_key.items() if (key[0], key[2]) != without}
        for resource in resources:
            self._by_key[resource.key] = resource
        self._by_kind = {}
        for resource in self._by_key.values():
            self._by_kind.setdefault((resource.group, resource.version, resource.kind), resource)
        self.generation += 1

    def remove(self, group: str, resource: str) -> None:
        self.replace((), without=(group, resource))


def to_storage(resource: Resource, obj: dict[str, Any], storage: Resource) -> dict[str, Any]:
    """The object as the storage version writes it. The same object when nothing differs."""
    if resource is storage:
        return obj
    renamed = {resource.renames.get(key, key): value for key, value in obj.items()}
    renamed["apiVersion"] = storage.api_version
    return renamed


def from_storage(resource: Resource, obj: dict[str, Any], storage: Resource) -> dict[str, Any]:
    """The stored object as `resource`'s version shows it."""
    if resource is storage:
        return obj
    names = {kept: shown for shown, kept in resource.renames.items()}
    renamed = {names.get(key, key): value for key, value in obj.items()}
    renamed["apiVersion"] = resource.api_version
    return renamed


_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_AGE = Column(name="Age", type="date", json_path=".metadata.creationTimestamp")


def from_crd(crd: Mapping[str, Any], object_meta: typegraph.TypeNode) -> list[Resource]:
    """The served versions of a CustomResourceDefinition (apiextensions.k8s.io/v1), most preferred first."""
    spec = crd["spec"]
    # Names the server has accepted win over the wished ones; a definition not yet looked at has none.
    names = spec["names"] | {key: value for key, value in _accepted(crd).items() if value}
    stored = next((version["name"] for version in spec["versions"] if version.get("storage")), "")
    served = [version for version in spec["versions"] if version.get("served")]
    served.sort(key=lambda version: version_priority(version["name"]), reverse=True)
    return [_custom(spec, names, version, stored, object_meta) for version in served]


def _accepted(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    return (crd.get("status") or {}).get("acceptedNames") or {}


def _custom(
    spec: Mapping[str, Any],
    names: Mapping[str, Any],
    version: Mapping[str, Any],
    stored: str,
    object_meta: typegraph.TypeNode,
) -> Resource:
    group, name, plural = spec["group"], version["name"], names["plural"]
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    columns = [
        Column(
            name=column["name"],
            type=column["type"],
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
            json_path=column["jsonPath"],
        )
        for column in version.get("additionalPrinterColumns") or ()
    ]
    return Resource(
        group=group,
        version=name,
        resource=plural,
        kind=names["kind"],
        list_kind=names.get("listKind") or names["kind"] + "List",
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        type=typegraph.from_schema(schema, object_meta, is_resource=True),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=_VERBS,
        subresources=_custom_subresources(spec, names, version),
        columns=tuple(columns or [_AGE]),
        selectable=tuple(entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields") or ()),
        is_custom=True,
        storage_version=name == stored,
        storage_key=(group, stored, plural),
        schema=schema,
    )


def _custom_subresources(
    spec: Mapping[str, Any], names: Mapping[str, Any], version: Mapping[str, Any]
) -> dict[str, Subresource]:
    declared = version.get("subresources") or {}
    subresources: dict[str, Subresource] = {}
    if declared.get("status") is not None:
        subresources["status"] = Subresource(
            name="status", group=spec["group"], version=version["name"], kind=names["kind"], verbs=_SUBRESOURCE_VERBS
        )
    if scale := declared.get("scale"):
        subresources["scale"] = Subresource(
            name="scale",
            group="autoscaling",
            version="v1",
            kind="Scale",
            verbs=_SUBRESOURCE_VERBS,
            spec_replicas=scale["specReplicasPath"],
            status_replicas=scale["statusReplicasPath"],
            selector=scale.get("labelSelectorPath", ""),
        )
    return subresources


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Sort key by which Kubernetes prefers versions: v2 over v1 over v1beta2 over v1alpha1 over anything else."""
    head, stage, minor = version[1:], 3, ""
    for word, rank in (("beta", 2), ("alpha", 1)):
        if word in head:
            head, _, minor = head.partition(word)
            stage = rank
    if (
        not version.startswith("v")
        or not head.isdigit()
        or (minor and not minor.isdigit())
        or (stage < 3 and not minor)
    ):
        # Anything else comes last, in alphabetical order: invert the characters for a reversed sort.
        return 0, 0, 0, "".join(chr(0x10FFFF - ord(letter)) for letter in version) + "\U0010ffff"
    return stage, int(head), int(minor or 0), ""
