"""Path and method to `RequestInfo`, as Kubernetes reads them.

In: method, path, query. Out: the verb and the resource asked for, or a path that is none. A pure function; whether the
resource exists and what the caller may do is decided later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bedplate.apiserver.verbs import request

__all__ = ["RequestInfo", "parse"]

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class RequestInfo(NamedTuple):
    """What is asked for. `resource` is empty for paths outside of the resource space (discovery, health)."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""


def parse(method: str, path: str, query: Mapping[str, str], has_query: bool) -> RequestInfo:
    """The request's meaning. `has_query` spares looking at the query where there is none."""
    parts = path.split("/")[1:]
    if parts and not parts[-1]:
        parts.pop()
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(method.lower(), path)
    verb = _VERBS.get(method, method.lower())
    if rest[0] == "watch" and len(rest) > 1 and verb == "get":
        verb, rest = "watch", rest[1:]
    namespace = ""
    if rest[0] == "namespaces":
        if len(rest) > 1:
            namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if not name:
        verb = _collection_verb(verb, query if has_query else {})
    return RequestInfo(verb, path, group, version, namespace, rest[0], name, subresource)


def _collection_verb(verb: str, query: Mapping[str, str]) -> str:
    if verb == "get":
        return "watch" if request.is_true(query.get("watch")) else "list"
    return "deletecollection" if verb == "delete" else verb
