"""The `paths` part of OpenAPI documents: what can be done with a resource, derived from its verbs.

Comes in: a `Resource` and the names of its types. Goes out: OpenAPI v3 path items. kubectl reads from them whether a
kind takes server-side field validation; generators of clients read the rest. `to_v2` gives the same in Swagger 2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.apiserver.kinds import Resource

__all__ = ["REF", "operation_paths", "to_v2"]

REF = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."

_TYPES = {
    "allowWatchBookmarks": "boolean",
    "force": "boolean",
    "gracePeriodSeconds": "integer",
    "limit": "integer",
    "orphanDependents": "boolean",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}
_SELECT = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch")
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"

# verb: method, x-kubernetes-action, first word of the operation's name, query parameters
_VERBS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "get": ("get", "get", "read", ()),
    "list": ("get", "list", "list", ("allowWatchBookmarks", *_SELECT, "sendInitialEvents", "timeoutSeconds", "watch")),
    "create": ("post", "post", "create", _WRITE),
    "update": ("put", "put", "replace", _WRITE),
    "patch": ("patch", "patch", "patch", (*_WRITE, "force")),
    "delete": ("delete", "delete", "delete", _DELETE),
    "deletecollection": ("delete", "deletecollection", "deleteCollection", (*_SELECT, *_DELETE, "timeoutSeconds")),
}
_ON_COLLECTION = ("list", "create", "deletecollection")
_ON_ITEM = ("get", "update", "patch", "delete")


def operation_paths(resource: Resource, type_name: str, subresource_types: Mapping[str, str]) -> dict[str, Any]:
    """The path items of one resource. `subresource_types`: type of the body of each subresource that has one."""
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scoped = f"{prefix}/namespaces/{{namespace}}" if resource.namespaced else prefix
    collection, item = f"{scoped}/{resource.resource}", f"{scoped}/{resource.resource}/{{name}}"
    paths: dict[str, Any] = {}
    _add(paths, collection, resource, resource.kind, type_name, [v for v in _ON_COLLECTION if v in resource.verbs])
    _add(paths, item, resource, resource.kind, type_name, [v for v in _ON_ITEM if v in resource.verbs])
    if resource.namespaced and "list" in resource.verbs:
        _add(paths, f"{prefix}/{resource.resource}", resource, resource.kind, type_name, ["list"])
    for name, subresource in resource.subresources.items():
        if name in subresource_types:
            verbs = [verb for verb in _VERBS if verb in subresource.verbs]
            body = subresource_types[name]
            kind = {"group": subresource.group, "version": subresource.version, "kind": subresource.kind}
            _add(paths, f"{item}/{name}", resource, resource.kind + name.capitalize(), body, verbs, kind=kind)
    return paths


def _add(
    paths: dict[str, Any],
    path: str,
    resource: Resource,
    title: str,
    type_name: str,
    verbs: Iterable[str],
    *,
    kind: Mapping[str, str] | None = None,
) -> None:
    kind = kind or {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: dict[str, Any] = {}
    for verb in verbs:
        method, action, word, parameters = _VERBS[verb]
        entry[method] = {
            "tags": [_tag(resource)],
            "operationId": _operation_id(resource, path, word, title),
            "parameters": [_query(name) for name in parameters],
            **_request_body(resource, verb, type_name),
            "responses": _responses(verb, type_name),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": dict(kind),
        }
    if entry:
        names = [name for name in ("name", "namespace") if f"{{{name}}}" in path]
        entry["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
            for name in names
        ]
        paths[path] = entry


def _query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": _TYPES.get(name, "string"), "uniqueItems": True}}


def _request_body(resource: Resource, verb: str, type_name: str) -> dict[str, Any]:
    if verb == "patch":
        patches = _PATCHES if resource.is_custom else (*_PATCHES, _STRATEGIC)
        content = {media: {"schema": {"$ref": REF + _META + "Patch"}} for media in patches}
        return {"requestBody": {"content": content, "required": True}}
    if verb in ("create", "update"):
        return {"requestBody": {"content": {"*/*": {"schema": {"$ref": REF + type_name}}}, "required": True}}
    if verb in ("delete", "deletecollection"):
        return {"requestBody": {"content": {"*/*": {"schema": {"$ref": REF + _META + "DeleteOptions"}}}}}
    return {}


def _responses(verb: str, type_name: str) -> dict[str, Any]:
    answer = {
        "list": type_name + "List",
        "delete": _META + "Status",
        "deletecollection": _META + "Status",
    }.get(verb, type_name)
    body = {"description": "OK", "content": {"application/json": {"schema": {"$ref": REF + answer}}}}
    codes = {
        "create": ("200", "201", "202"),
        "update": ("200", "201"),
        "patch": ("200", "201"),
        "delete": ("200", "202"),
    }
    return dict.fromkeys(codes.get(verb, ("200",)), body) | {"401": {"description": "Unauthorized"}}


def _tag(resource: Resource) -> str:
    return f"{_camel(resource.group)[0].lower()}{_camel(resource.group)[1:]}_{resource.version}"


def _camel(group: str) -> str:
    """`Apps`, `RbacAuthorization`, `ExampleCom`; `Core` for the group without a name."""
    parts = (group or "core").removesuffix(".k8s.io").replace("-", ".").split(".")
    return "".join(part.capitalize() for part in parts)


def _operation_id(resource: Resource, path: str, word: str, title: str) -> str:
    where = "Namespaced" if "{namespace}" in path else ""
    tail = "ForAllNamespaces" if resource.namespaced and not where else ""
    group = _camel(resource.group) + resource.version.capitalize()
    if word == "deleteCollection":
        return f"delete{group}Collection{where}{title}"
    return f"{word}{group}{where}{title}{tail}"


def to_v2(paths: Mapping[str, Any]) -> dict[str, Any]:
    """Path items as Swagger 2.0 writes them: bodies are parameters, types stand beside names."""
    return {
        path: {
            method: [_parameter_v2(each) for each in entry] if method == "parameters" else _operation_v2(entry)
            for method, entry in item.items()
        }
        for path, item in paths.items()
    }


def _parameter_v2(parameter: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in parameter.items() if key != "schema"}
    return {**flat, **parameter["schema"]}


def _operation_v2(operation: Mapping[str, Any]) -> dict[str, Any]:
    parameters = [_parameter_v2(each) for each in operation["parameters"]]
    content = operation.get("requestBody", {}).get("content", {})
    for media in list(content)[:1]:
        parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": content[media]["schema"]})
    responses = {code: _response_v2(answer) for code, answer in operation["responses"].items()}
    kept = {key: value for key, value in operation.items() if key not in ("requestBody", "parameters", "responses")}
    return kept | {
        "consumes": list(content) or ["*/*"],
        "produces": ["application/json"],
        "schemes": ["https"],
        "parameters": parameters,
        "responses": responses,
    }


def _response_v2(answer: Mapping[str, Any]) -> dict[str, Any]:
    content = answer.get("content")
    plain = {"description": answer["description"]}
    return plain | {"schema": content["application/json"]["schema"]} if content else plain
