"""From what a real API server and its Go types say to the table of facts that is shipped.

Comes in: aggregated discovery, OpenAPI v3 documents, `Table` columns, selectable fields, the output of the Go program.
Goes out: one plain value, `reduce`; and `bootstrap`, the objects that a real API server makes by itself on its first
start, without what differs from cluster to cluster. `encode` gives their bytes, the same ones for the same input. No
I/O here.

The table
    kubernetes   the server's /version document
    groups       aggregated discovery, in the server's order
    columns      [name, type, format, priority] per `group/version/resource`
    selectable   field selectors beyond metadata.name and metadata.namespace, likewise
    kinds        `apiVersion/kind` to the name of its type
    types        per type: `schema` (OpenAPI v3, no texts), `go` ([name, number, type, flags] per field), `defaults`
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["BOOTSTRAP_PATHS", "Gathered", "bootstrap", "encode", "reduce"]

_REF = "#/components/schemas/"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
BOOTSTRAP_PATHS = (
    "/api/v1/namespaces",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    f"{_RBAC}/clusterroles",
    f"{_RBAC}/clusterrolebindings",
    f"{_RBAC}/roles",
    f"{_RBAC}/rolebindings",
)
_OWN_METADATA = ("name", "namespace", "labels", "annotations")

# Defaults that depend on other fields or on where the type is used: code decides these (apiserver/shape/defaults.py),
# so that the table holds only values that are always right.
RULED = frozenset(
    {
        ("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", "rollingUpdate"),
        ("io.k8s.api.apps.v1.DeploymentStrategy", "rollingUpdate"),
        ("io.k8s.api.apps.v1.StatefulSetUpdateStrategy", "rollingUpdate"),
        ("io.k8s.api.apps.v1.RollingUpdateDaemonSet", "maxSurge"),
        ("io.k8s.api.apps.v1.RollingUpdateDaemonSet", "maxUnavailable"),
        ("io.k8s.api.apps.v1.RollingUpdateDeployment", "maxSurge"),
        ("io.k8s.api.apps.v1.RollingUpdateDeployment", "maxUnavailable"),
        ("io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy", "partition"),
        ("io.k8s.api.autoscaling.v2.HPAScalingRules", "policies"),
        ("io.k8s.api.autoscaling.v2.HPAScalingRules", "stabilizationWindowSeconds"),
        ("io.k8s.api.batch.v1.JobSpec", "backoffLimit"),
        ("io.k8s.api.batch.v1.JobSpec", "completionMode"),
        ("io.k8s.api.batch.v1.JobSpec", "completions"),
        ("io.k8s.api.batch.v1.JobSpec", "manualSelector"),
        ("io.k8s.api.batch.v1.JobSpec", "parallelism"),
        ("io.k8s.api.batch.v1.JobSpec", "podReplacementPolicy"),
        ("io.k8s.api.batch.v1.JobSpec", "suspend"),
        ("io.k8s.api.core.v1.Container", "imagePullPolicy"),
        ("io.k8s.api.core.v1.EphemeralContainerCommon", "imagePullPolicy"),
        ("io.k8s.api.core.v1.ImageVolumeSource", "pullPolicy"),
        ("io.k8s.api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy"),
        ("io.k8s.api.core.v1.PersistentVolumeSpec", "volumeMode"),
        ("io.k8s.api.core.v1.PodSpec", "enableServiceLinks"),
        ("io.k8s.api.core.v1.ServiceSpec", "internalTrafficPolicy"),
        ("io.k8s.api.core.v1.VolumeSource", "emptyDir"),
        ("io.k8s.api.networking.v1.NetworkPolicySpec", "policyTypes"),
        ("io.k8s.api.resource.v1.DeviceSubRequest", "count"),
        ("io.k8s.api.resource.v1.DeviceTaint", "timeAdded"),
        ("io.k8s.api.resource.v1.ExactDeviceRequest", "count"),
    }
)


@dataclass(slots=True)
class Gathered:
    """Everything read from one version, undigested."""

    kubernetes: dict[str, Any] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    selectable: dict[str, list[str]] = field(default_factory=dict)
    openapi: dict[str, dict[str, Any]] = field(default_factory=dict)
    go: dict[str, Any] = field(default_factory=dict)


def reduce(gathered: Gathered) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for document in gathered.openapi.values():
        schemas |= document.get("components", {}).get("schemas", {})
    go_types: Mapping[str, Any] = gathered.go["types"]
    defaults = _defaults(gathered.go["defaults"], go_types)
    types: dict[str, Any] = {}
    for name in sorted(_reachable(schemas, go_types)):
        entry: dict[str, Any] = {}
        if name in schemas:
            entry["schema"] = _schema(schemas[name])
        if name in go_types:
            entry["go"] = [_go_field(facts) for facts in go_types[name]["fields"]]
        if name in defaults:
            entry["defaults"] = defaults[name]
        types[name] = entry
    return {
        "kubernetes": gathered.kubernetes,
        "groups": gathered.groups,
        "columns": {key: [_column(column) for column in value] for key, value in gathered.columns.items()},
        "selectable": {key: value for key, value in gathered.selectable.items() if value},
        "kinds": _kinds(schemas),
        "types": types,
    }


def encode(table: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Compressed bytes, free of times and of chance order."""
    return gzip.compress(msgspec.json.encode(table, order="sorted"), compresslevel=9, mtime=0)


def _column(column: Mapping[str, Any]) -> list[Any]:
    return [column["name"], column["type"], column.get("format", ""), column.get("priority", 0)]


def _kinds(schemas: Mapping[str, Any]) -> dict[str, str]:
    kinds_by_type: dict[str, str] = {}
    for name, schema in schemas.items():
        kinds: Sequence[Mapping[str, str]] = schema.get("x-kubernetes-group-version-kind") or ()
        # DeleteOptions and WatchEvent belong to every group and version; the reader knows them by kind alone.
        if len(kinds) == 1:
            kind = kinds[0]
            api_version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
            kinds_by_type[f"{api_version}/{kind['kind']}"] = name
    return kinds_by_type


def _schema(schema: Any) -> Any:
    """A schema without texts, references cut to the type's name, a lone `allOf` unfolded."""
    if isinstance(schema, list):
        return [_schema(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    reduced: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            reduced[key] = {name: _schema(member) for name, member in value.items()}
        elif key == "$ref":
            reduced[key] = value.removeprefix(_REF)
        elif key == "allOf" and len(value) == 1 and set(value[0]) == {"$ref"}:
            reduced["$ref"] = value[0]["$ref"].removeprefix(_REF)
        elif key == "default" or key.startswith("x-"):
            if key != "x-kubernetes-group-version-kind":
                reduced[key] = value
        elif key != "description":
            reduced[key] = _schema(value)
    return reduced


def _go_field(facts: Mapping[str, Any]) -> list[Any]:
    flags = "".join(
        letter
        for letter, key in (("i", "inline"), ("e", "omitempty"), ("z", "omitzero"))
        if facts.get(key) and not (letter == "i" and facts["name"])
    )
    return [facts["name"], facts.get("number", 0), facts["type"], flags]


def _reachable(schemas: Mapping[str, Any], go_types: Mapping[str, Any]) -> set[str]:
    reachable: set[str] = set()
    waiting = list(schemas)
    while waiting:
        name = waiting.pop()
        if name in reachable:
            continue
        reachable.add(name)
        for facts in go_types.get(name, {"fields": ()})["fields"]:
            inner = facts["type"].lstrip("*[]{}M")
            if inner in go_types:
                waiting.append(inner)
    return reachable


def _defaults(facts: Iterable[Mapping[str, Any]], go_types: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    defaults: dict[str, dict[str, Any]] = {}
    for fact in facts:
        key = (fact["type"], fact["field"])
        if key in RULED or (fact["value"] == {} and not _is_pointer(go_types, *key)):
            continue
        known = defaults.setdefault(fact["type"], {}).setdefault(fact["field"], fact["value"])
        if known != fact["value"] and not _is_unserved(fact["type"]):
            raise ValueError(f"{key[0]}.{key[1]} has the defaults {known!r} and {fact['value']!r}: it needs a rule")
    return defaults


def _is_pointer(go_types: Mapping[str, Any], type_name: str, field_name: str) -> bool:
    fields = go_types[type_name]["fields"]
    return any(facts["name"] == field_name and facts["type"].startswith("*") for facts in fields)


def _is_unserved(name: str) -> bool:
    """Alpha and beta types are off by default; what their defaults hang on does not matter."""
    return "alpha" in name or "beta" in name


def bootstrap(pages: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a fresh cluster contains, from the lists at `BOOTSTRAP_PATHS`, in a fixed order."""
    objects: list[dict[str, Any]] = []
    for path in BOOTSTRAP_PATHS:
        page = pages[path]
        kind = page["kind"].removesuffix("List")
        items = sorted(
            page["items"], key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        )
        objects += [_lasting(item | {"apiVersion": page["apiVersion"], "kind": kind}) for item in items]
    return objects


def _lasting(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what the server owns; aggregated roles keep no rules, since a controller fills them in."""
    left = {key: value for key, value in obj.items() if key not in ("metadata", "status", "spec")}
    left["metadata"] = {key: value for key, value in obj["metadata"].items() if key in _OWN_METADATA}
    if left.get("aggregationRule"):
        left["rules"] = []
    return left
