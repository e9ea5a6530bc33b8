"""Random requests built from a server's own OpenAPI v3 documents.

In: the documents and a seed. Out: requests (method, path, query, content type, body), of which some are right, most are
nearly right and some are nonsense. Deterministic for a seed.
"""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any, NamedTuple

__all__ = ["Request", "Requests"]

METHODS = ("get", "post", "put", "patch", "delete")
WORDS = ["a", "x", "default",
         "kube-system", "", "é", "a/b", "..", "0", "-1", "true", "null", "2026-01-01T00:00:00Z", "1Gi", "10%",
         "%", "\x00",
         "*", "10.96.0.1", "None", "Always", "v1", "apps/v1", "Deployment", "ClusterIP", "x" * 300, "kubernetes",
         "{.a}", "self.x > 1", "^(a+)+$"]  # fmt: skip
NUMBERS = [0, 1, -1, 7, 80, 65536, 1 << 31, -(1 << 63), 1 << 63, 1 << 70, 0.5, -0.0, 1e300]
NONSENSE: list[Any] = [None, True, False, [], {}, [[]], [None], {"": None}, "", 0, -1, 0.5, "x", [{}], {"a": {"b": []}}]
PATCHES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
QUERIES = {
    "labelSelector": ["a=b", "a in (b,c)", "!a", "((", "a=b,", "a>1", ""],
    "fieldSelector": ["metadata.name=x", "metadata.namespace!=y", "spec.nodeName=", "status.phase=Running", "x", "=,="],
    "limit": ["1", "0", "-5", "x", "500"],
    "continue": ["x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", ""],
    "resourceVersion": ["0", "1", "5", "-1", "x", ""],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
    "timeoutSeconds": ["1", "-1", "x"],
    "watch": ["1", "true", "false", "x"],
    "allowWatchBookmarks": ["true", "x"],
    "sendInitialEvents": ["true", "false", "x"],
    "dryRun": ["All", "x", ""],
    "fieldManager": ["f", "x" * 200, "\x00"],
    "fieldValidation": ["Strict", "Warn", "Ignore", "x"],
    "force": ["true", "x"],
    "gracePeriodSeconds": ["0", "-1", "x"],
    "propagationPolicy": ["Foreground", "Background", "Orphan", "x"],
    "pretty": ["true", "x"],
}  # fmt: skip
ACCEPTS = ["application/json", "application/yaml", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io", "x/y", "",
           "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
           "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"]  # fmt: skip


class Request(NamedTuple):
    method: str
    path: str
    query: list[tuple[str, str]]
    accept: str
    content_type: str
    body: bytes


class Requests:
    """Makes one random request after the other."""

    def __init__(self, documents: list[dict[str, Any]], rng: random.Random) -> None:
        self._rng = rng
        self._schemas: dict[str, Any] = {}
        self._operations: list[tuple[str, str, dict[str, Any]]] = []
        for document in documents:
            self._schemas |= document.get("components", {}).get("schemas", {})
            for path, item in document.get("paths", {}).items():
                self._operations += [(path, method, item[method]) for method in METHODS if method in item]
        self._names = ["a", "b", "c", "default"]

    def next(self) -> Request:
        rng = self._rng
        path, method, operation = rng.choice(self._operations)
        schema = _body_schema(operation)
        if schema is None and method in ("post", "put", "patch"):
            schema = {"$ref": rng.choice([f"#/components/schemas/{name}" for name in self._schemas])}
        body, content_type = b"", ""
        if method in ("post", "put", "delete") and schema is not None:
            obj = self._value(schema, 0)
            if isinstance(obj, dict) and method != "delete":
                self._complete(obj, operation)
            content_type, body = "application/json", self._encoded(obj)
        if method == "patch":
            content_type = rng.choice(PATCHES)
            body = self._patch(content_type, self._value(self._put_schema(path) or {}, 0), operation)
        if body and rng.random() < 0.03:
            content_type = rng.choice(["application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "x"])
        query = [(name, rng.choice(QUERIES[name])) for name in rng.sample(list(QUERIES), rng.choice([0, 0, 1, 2, 4]))]
        if dict(query).get("watch") in ("1", "true", "x") or "/watch/" in path:
            query = [pair for pair in query if pair[0] != "timeoutSeconds"] + [("timeoutSeconds", "1")]
        return Request(method.upper(), self._filled(path), query, rng.choice(ACCEPTS), content_type, body)

    def _put_schema(self, path: str) -> dict[str, Any] | None:
        for other, method, operation in self._operations:
            if other == path and method == "put":
                return _body_schema(operation)
        return None

    def _filled(self, path: str) -> str:
        path = path.replace("{namespace}", self._rng.choice(["default", "default", "fuzz", "gone"]))
        return re.sub(r"\{\w+\}", lambda _: self._rng.choice(self._names), path)

    def _complete(self, obj: dict[str, Any], operation: dict[str, Any]) -> None:
        """Most objects get a kind and a name, or nothing would ever be stored."""
        kind = operation.get("x-kubernetes-group-version-kind") or {}
        if self._rng.random() < 0.95 and kind:
            group = kind.get("group")
            obj["apiVersion"] = f"{group}/{kind['version']}" if group else kind["version"]
            obj["kind"] = kind["kind"]
        if self._rng.random() < 0.9:
            kept = obj.get("metadata") if isinstance(obj.get("metadata"), dict) and self._rng.random() < 0.3 else {}
            obj["metadata"] = {**(kept or {}), "name": self._rng.choice(self._names)}
            obj["metadata"].pop("namespace", None)
            obj["metadata"].pop("resourceVersion", None)

    def _patch(self, content_type: str, value: Any, operation: dict[str, Any]) -> bytes:
        rng = self._rng
        if content_type.endswith("json-patch+json"):
            paths = [
                "/metadata/labels",
                "/spec",
                "/spec/replicas",
                "/metadata/finalizers/-",
                "/data",
                "",
                "/a/b",
                "/metadata",
                "x",
            ]
            steps = [
                {
                    "op": rng.choice(["add", "remove", "replace", "test", "move", "copy", "x"]),
                    "path": rng.choice(paths),
                    "from": rng.choice(paths),
                    "value": rng.choice([value, *NONSENSE]),
                }
                for _ in range(rng.randrange(4))
            ]
            return self._encoded(rng.choice([steps, steps, steps, value]))
        if isinstance(value, dict):
            if content_type.endswith("yaml") or rng.random() < 0.5:
                self._complete(value, operation)
            else:
                value.pop("metadata", None)
            if rng.random() < 0.1:
                value[rng.choice(["$patch", "$retainKeys", "$setElementOrder/spec", "$deleteFromPrimitiveList/x"])] = (
                    rng.choice(NONSENSE)
                )
        return self._encoded(value)

    def _encoded(self, value: Any) -> bytes:
        raw = json.dumps(value).encode()
        if self._rng.random() < 0.02:
            at = self._rng.randrange(len(raw) + 1)
            raw = raw[:at] + bytes([self._rng.randrange(256)]) + raw[at + 1 :]
        return raw

    def _value(self, schema: dict[str, Any], depth: int) -> Any:
        rng = self._rng
        if rng.random() < 0.02:
            return copy.deepcopy(rng.choice(NONSENSE))
        while "$ref" in schema or "allOf" in schema:
            if "$ref" in schema:
                schema = self._schemas.get(schema["$ref"].rsplit("/", 1)[1], {})
            else:
                schema = schema["allOf"][0]
        if "oneOf" in schema:
            schema = rng.choice(schema["oneOf"])
        match schema.get("type"):
            case "string":
                return rng.choice(schema.get("enum") or WORDS)
            case "integer" | "number":
                return rng.choice(NUMBERS)
            case "boolean":
                return rng.random() < 0.5
            case "array":
                count = rng.choice([0, 1, 1, 2]) if depth < 7 else 0
                return [self._value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "object" | None if depth < 8:
                return self._object(schema, depth)
        return {}

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        rng, found = self._rng, {}
        required = schema.get("required", [])
        for name, member in schema.get("properties", {}).items():
            if (name in required and rng.random() < 0.95) or rng.random() < (0.5 if depth < 2 else 0.15):
                found[name] = self._value(member, depth + 1)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            found |= {rng.choice(WORDS): self._value(extra, depth + 1) for _ in range(rng.randrange(3))}
        return found


def _body_schema(operation: dict[str, Any]) -> dict[str, Any] | None:
    for content in (operation.get("requestBody") or {}).get("content", {}).values():
        schema: dict[str, Any] = content.get("schema", {})
        return schema
    return None
