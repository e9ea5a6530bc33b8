"""The `scale` subresource: one shape for every kind that has replicas.

In: a `Target` whose subresource is scale. Out: `Scale` objects (autoscaling/v1); a write changes the number of
replicas and nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from bedplate.apiserver import kinds, status
from bedplate.apiserver.state import bodies
from bedplate.apiserver.tables import cell_values
from bedplate.apiserver.verbs import request, write

__all__ = ["get", "update"]

Object = bodies.Object


def _at(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _paths(resource: kinds.Resource) -> tuple[str, str, str]:
    sub = resource.subresources["scale"]
    if sub.spec_replicas:
        return sub.spec_replicas, sub.status_replicas, sub.selector
    return "spec.replicas", "status.replicas", "spec.selector"


def to_scale(resource: kinds.Resource, obj: Object) -> Object:
    """The `Scale` of an object."""
    spec_path, present, selector_path = _paths(resource)
    selector = _at(obj, selector_path) if selector_path else None
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    state: Object = {"replicas": _at(obj, present) or 0}
    if isinstance(selector, str):
        state["selector"] = selector
    elif isinstance(selector, dict):
        state["selector"] = cell_values.selector_text(selector)
    replicas = _at(obj, spec_path)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": state,
    }


def get(target: request.Target) -> Object:
    obj = target.read(target.existing())
    spec_path = _paths(target.resource)[0]
    if target.resource.is_custom and _at(obj, spec_path) is None:
        text = f'Internal error occurred: the spec replicas field "{spec_path}" does not exist'
        raise status.StatusError(500, "InternalError", text)
    return to_scale(target.resource, obj)


async def update(target: request.Target, change: Callable[[Object], Object]) -> Object:
    """Change the scale; `change` maps the present Scale to the wanted one."""

    def rescaled(old: Object) -> Object:
        obj = copy.deepcopy(old)
        before = to_scale(target.resource, obj)
        after = change(before)
        _check(target, before, after)
        replicas = _at(after, "spec.replicas") or 0
        _set(obj, _paths(target.resource)[0], replicas)
        version = after["metadata"].get("resourceVersion")
        obj["metadata"]["resourceVersion"] = version or obj["metadata"]["resourceVersion"]
        return obj

    outcome = await write.rewrite(target, rescaled)
    return to_scale(target.resource, bodies.decode(outcome.body))


def _set(obj: Object, path: str, value: int) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


def _check(target: request.Target, before: Object, after: Any) -> None:
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        raise status.bad_request("the object provided is unrecognized (must be of type Scale)")
    name = after["metadata"].get("name") or target.name
    if name != target.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    replicas = _at(after, "spec.replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        detail = "must be greater than or equal to 0"
        problem = status.FieldProblem.invalid("spec.replicas", replicas, detail)
        raise status.invalid_kind("autoscaling", "Scale", target.name, [problem])
    version = after["metadata"].get("resourceVersion")
    if version and version != before["metadata"]["resourceVersion"]:
        raise status.conflict(target.resource, target.name)
