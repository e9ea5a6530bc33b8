"""OpenAPI documents: `/openapi/v3` (index, and one document per group and version) and `/openapi/v2`.

Comes in: the live `Kinds`, the facts, and, where a real server's documents are in the cache folder, those (`texts`), so
that `kubectl explain` has something to say. Goes out: bytes, made when first asked for and kept until the hash changes.
kubectl 1.34 and 1.35 use v3 for validation, apply and explain, and v2 as protobuf for a `List` (`openapi_protobuf.py`).
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import bedplate
from bedplate.apiserver import kinds
from bedplate.apiserver.documents import openapi_paths, openapi_protobuf
from bedplate.apiserver.documents.openapi_paths import REF
from bedplate.apiserver.facts import META, Facts

__all__ = ["NO_TEXTS", "OpenAPI", "Texts", "custom_type_name"]

_SECURITY = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
_ALWAYS = (META + "DeleteOptions", META + "Patch", META + "Status")


class Texts:
    """A folder with the documents of a real server, as `bedplate lab facts` leaves it; without one there are none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def _file(self, path: str) -> Path | None:
        return self._folder / (path.replace("/", "_") + ".json.gz") if self._folder is not None else None

    def __contains__(self, path: str) -> bool:
        file = self._file(path)
        return file is not None and file.is_file()

    def schemas(self, path: str) -> Mapping[str, Any]:
        """The schemas, with their texts, of a path such as apis/apps/v1; empty when there are none."""
        file = self._file(path)
        if file is None or not file.is_file():
            return {}
        document = msgspec.json.decode(gzip.decompress(file.read_bytes()))
        schemas: Mapping[str, Any] = document["components"]["schemas"]
        return schemas


NO_TEXTS = Texts()


def custom_type_name(group: str, version: str, kind: str) -> str:
    """com.example.v1.Widget"""
    return ".".join((*reversed(group.split(".")), version, kind))


class OpenAPI:
    """The documents of one server."""

    def __init__(self, live: kinds.Kinds, facts: Facts, texts: Texts = NO_TEXTS) -> None:
        self._kinds = live
        self._facts = facts
        self._texts = texts
        self._kept: dict[str, tuple[str, bytes]] = {}

    def index(self) -> bytes:
        """`/openapi/v3`"""
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash(path, members)}"}
            for path, members in sorted(self._groups().items())
        }
        return msgspec.json.encode({"paths": paths})

    def document(self, path: str) -> tuple[bytes, str] | None:
        """`/openapi/v3/<path>` and its hash; None when nothing is served there. The whole path may be given too."""
        path = path.removeprefix("/openapi/v3/")
        members = self._groups().get(path)
        if members is None:
            return None
        return self._keep(path, self._hash(path, members), lambda: self._version_3(path, members))

    def version_2(self) -> tuple[bytes, str]:
        """`/openapi/v2` and its hash."""
        groups = self._groups()
        digest = _digest(*(self._hash(path, members) for path, members in sorted(groups.items())))
        return self._keep("v2", digest, lambda: self._version_2(groups))

    def version_2_protobuf(self) -> tuple[bytes, str]:
        """`/openapi/v2` as protobuf and its hash."""
        groups = self._groups()
        digest = _digest(*(self._hash(path, members) for path, members in sorted(groups.items())))
        return self._keep("v2 protobuf", digest, lambda: self._version_2(groups), openapi_protobuf.encode)

    def _keep(
        self,
        path: str,
        digest: str,
        make: Callable[[], dict[str, Any]],
        encode: Callable[[dict[str, Any]], bytes] = msgspec.json.encode,
    ) -> tuple[bytes, str]:
        kept = self._kept.get(path)
        if kept is None or kept[0] != digest:
            kept = self._kept[path] = (digest, encode(make()))
        return kept[1], kept[0]

    def _groups(self) -> dict[str, list[kinds.Resource]]:
        groups: dict[str, list[kinds.Resource]] = {}
        for resource in self._kinds:
            path = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
            groups.setdefault(path, []).append(resource)
        return groups

    def _hash(self, path: str, members: Iterable[kinds.Resource]) -> str:
        """A hash of what a document is made from: cheap, so that the index needs no document."""
        custom = [
            msgspec.json.encode(
                [resource.resource, resource.kind, list(resource.subresources), resource.namespaced, resource.schema]
            )
            for resource in members
            if resource.is_custom
        ]
        version = self._facts.kubernetes.get("gitVersion", "")
        return _digest(bedplate.__version__, version, path, str(path in self._texts), *custom)

    def _info(self) -> dict[str, str]:
        kubernetes = self._facts.kubernetes
        return {"title": "Kubernetes", "version": f"{kubernetes.get('major')}.{kubernetes.get('minor')}"}

    def _version_3(self, path: str, members: Iterable[kinds.Resource]) -> dict[str, Any]:
        paths, schemas = self._collect(members, self._texts.schemas(path))
        return {
            "openapi": "3.0.0",
            "info": self._info(),
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": _SECURITY},
        }

    def _version_2(self, groups: Mapping[str, list[kinds.Resource]]) -> dict[str, Any]:
        everything = [resource for members in groups.values() for resource in members]
        paths, schemas = self._collect(everything, {})
        return {
            "swagger": "2.0",
            "info": self._info(),
            "paths": _refs_v2(openapi_paths.to_v2(paths)),
            "definitions": {name: _refs_v2(_schema_v2(schema)) for name, schema in schemas.items()},
            "securityDefinitions": _SECURITY,
            "security": [{"BearerToken": []}],
        }

    def _collect(
        self, members: Iterable[kinds.Resource], texts: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The paths of the resources and the schemas of all types they reach."""
        paths: dict[str, Any] = {}
        schemas: dict[str, Any] = {}
        roots: set[str] = set(_ALWAYS)
        for resource in members:
            name = resource.type.name
            if resource.is_custom:
                name = custom_type_name(resource.group, resource.version, resource.kind)
                schemas |= _custom_schemas(resource, name)
            if not name:
                continue
            bodies = {sub.name: self._body_type(resource, sub, name) for sub in resource.subresources.values()}
            known = {sub: body for sub, body in bodies.items() if body}
            paths |= openapi_paths.operation_paths(resource, name, known)
            roots |= {name, name + "List", *known.values()} if "list" in resource.verbs else {name, *known.values()}
        roots.update(reference for schema in schemas.values() for reference in _references(schema))
        self._add_types(roots, schemas, texts)
        return dict(sorted(paths.items())), dict(sorted(schemas.items()))

    def _body_type(self, resource: kinds.Resource, sub: kinds.Subresource, own: str) -> str | None:
        if (sub.group, sub.version, sub.kind) == (resource.group, resource.version, resource.kind):
            return own
        return self._facts.type_name(f"{sub.group}/{sub.version}" if sub.group else sub.version, sub.kind)

    def _add_types(self, roots: Iterable[str], schemas: dict[str, Any], texts: Mapping[str, Any]) -> None:
        kind_of = {name: kind for kind, name in self._facts.kind_types.items()}
        known = set(self._facts.type_names)
        waiting = [name for name in roots if name not in schemas]
        while waiting:
            name = waiting.pop()
            if name in schemas or name not in known:
                continue
            schema = texts.get(name) or _schema_v3(self._facts.schema(name) or {})
            if name in kind_of and "x-kubernetes-group-version-kind" not in schema:
                schema = {**schema, "x-kubernetes-group-version-kind": [_kind(kind_of[name])]}
            schemas[name] = schema
            waiting += _references(schema)


def _kind(text: str) -> dict[str, str]:
    api_version, _, kind = text.rpartition("/")
    group, _, version = api_version.rpartition("/")
    return {"group": group, "version": version, "kind": kind}


def _digest(*parts: str | bytes) -> str:
    total = hashlib.sha512()
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else part)
        total.update(b"\0")
    return total.hexdigest().upper()


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(REF)
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _schema_v3(schema: Any) -> Any:
    """A schema of the facts with full references; one with company stands in `allOf`, as v3.0 demands."""
    if isinstance(schema, list):
        return [_schema_v3(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    full: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            full[key] = {name: _schema_v3(member) for name, member in value.items()}
        elif key != "$ref":
            full[key] = value if key == "default" else _schema_v3(value)
    if "$ref" not in schema:
        return full
    reference = {"$ref": REF + schema["$ref"]}
    return full | {"allOf": [reference]} if full else reference


_STRING = {"type": "string"}
_METADATA = {"allOf": [{"$ref": REF + META + "ObjectMeta"}]}


def _custom_schemas(resource: kinds.Resource, name: str) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    own = _custom_schema(resource.schema or {"type": "object"})
    own["properties"] = {**own.get("properties", {}), "apiVersion": _STRING, "kind": _STRING, "metadata": _METADATA}
    listing = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _STRING,
            "kind": _STRING,
            "metadata": {"allOf": [{"$ref": REF + META + "ListMeta"}]},
            "items": {"type": "array", "items": {"$ref": REF + name}},
        },
        "x-kubernetes-group-version-kind": [kind | {"kind": resource.list_kind}],
    }
    return {name: own | {"x-kubernetes-group-version-kind": [kind]}, name + "List": listing}


def _custom_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A structural schema as published: what Kubernetes' own extensions imply is spelled out."""
    published: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            published[key] = {name: _custom_schema(member) for name, member in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            published[key] = _custom_schema(value)
        else:
            published[key] = value
    if schema.get("x-kubernetes-int-or-string"):
        published.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if schema.get("x-kubernetes-embedded-resource"):
        fields = {"apiVersion": _STRING, "kind": _STRING, "metadata": _METADATA}
        published["properties"] = {**published.get("properties", {}), **fields}
        published["required"] = list(dict.fromkeys([*published.get("required", ()), "kind", "apiVersion"]))
    return published


def _schema_v2(schema: Any) -> Any:
    """A v3 schema as Swagger 2.0 knows it: no choices, no nulls, no defaults."""
    if isinstance(schema, list):
        return [_schema_v2(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": "string", "format": "int-or-string"}
    if "oneOf" in schema and "properties" not in schema:
        return {"type": "string"}
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            plain[key] = {name: _schema_v2(member) for name, member in value.items()}
        elif key not in ("default", "allOf", "anyOf", "oneOf"):
            plain[key] = _schema_v2(value)
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        # Swagger 2.0 cannot say these: it says nothing rather than something wrong.
        plain = {key: value for key, value in plain.items() if key.startswith("x-")}
    for part in schema.get("allOf", ()):
        plain |= part if set(part) == {"$ref"} else {}
    return plain


def _refs_v2(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "#/definitions/" + inner.removeprefix(REF)
            if key == "$ref" and isinstance(inner, str)
            else _refs_v2(inner)
            for key, inner in value.items()
        }
    return [_refs_v2(inner) for inner in value] if isinstance(value, list) else value
