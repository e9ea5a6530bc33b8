"""What a pod leaves open, set: UID, GIDs, privilege escalation.

In: a pod, who it has to run as. Out: a JSON patch, and the pod with it. Pure. Nothing that a pod says is changed: a
wrong value is for the checks to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bedplate.operators.permissions import pods

__all__ = ["Identity", "applied", "patch"]


class Identity(msgspec.Struct, frozen=True):
    """Who a pod has to run as."""

    uid: int | None = None
    gids: tuple[int, ...] = ()
    is_strict: bool = False
    """Ignore groups that the image gives its user."""
    no_escalation: bool = False


def patch(pod: Mapping[str, Any], identity: Identity, *, is_debug: bool = False) -> list[dict[str, Any]]:
    """The changes, as JSON patch. In a running pod (`is_debug`) only ephemeral containers can be changed."""
    changes: list[dict[str, Any]] = []
    if not is_debug:
        _add(changes, "/spec/securityContext", pods.security(pod), _of_pod(pods.security(pod), identity))
    for container in pods.containers(pod):
        if is_debug and container.list != pods.EPHEMERAL:
            continue
        context = dict(container.security)
        if identity.no_escalation and not _says(context):
            context["allowPrivilegeEscalation"] = False
        if is_debug:
            context = _of_ephemeral(pods.security(pod), context, identity)
        _add(changes, f"/spec/{container.list}/{container.index}/securityContext", container.security, context)
    return changes


def applied(pod: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The pod with the changes of `patch`."""
    spec = dict(pods.spec_of(pod))
    copied: dict[str, list[Any]] = {}
    for change in changes:
        parts = change["path"].split("/")[2:]
        if len(parts) == 1:
            spec[parts[0]] = change["value"]
            continue
        name, index = parts[0], int(parts[1])
        if name not in copied:
            spec[name] = copied[name] = list(pods.listed(spec[name]))
        copied[name][index] = {**pods.mapped(copied[name][index]), parts[2]: change["value"]}
    return {**pod, "spec": spec}


def _of_pod(context: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if identity.uid is not None:
        defaults["runAsUser"] = identity.uid
    if identity.gids:
        defaults["runAsGroup"] = defaults["fsGroup"] = identity.gids[0]
        defaults["supplementalGroups"] = list(identity.gids)
    if identity.is_strict:
        defaults["supplementalGroupsPolicy"] = "Strict"
    return {**context, **{name: value for name, value in defaults.items() if context.get(name) in (None, [])}}


def _says(context: Mapping[str, Any]) -> bool:
    """Whether a container says what it may gain; a privileged one does, and the API server allows nothing beside it."""
    return context.get("privileged") is True or context.get("allowPrivilegeEscalation") is not None


def _of_ephemeral(whole: Mapping[str, Any], context: dict[str, Any], identity: Identity) -> dict[str, Any]:
    """A pod from before the rules may say nothing; then its new container must."""
    numbers = {"runAsUser": identity.uid, "runAsGroup": identity.gids[0] if identity.gids else None}
    for name, number in numbers.items():
        if number is not None and whole.get(name) is None and context.get(name) is None:
            context[name] = number
    return context


def _add(changes: list[dict[str, Any]], path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    if dict(before) != dict(after):
        changes.append({"op": "add", "path": path, "value": dict(after)})
