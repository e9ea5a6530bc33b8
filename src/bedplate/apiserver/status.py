"""Refusals as Kubernetes states them: `StatusError` with code, reason, message and details, and the constructors for
each.

In: what went wrong, named by resource and object. Out: an exception that the pipeline turns into a `Status` answer.
Texts are those of the real API server, because clients and people match on them. Nothing here decides whether to
refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from bedplate.apiserver import kinds
    from bedplate.apiserver.access import subjects

__all__ = [
    "FieldProblem",
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "invalid_kind",
    "method_not_supported",
    "not_allowed",
    "not_found",
    "success",
    "too_large_resource_version",
    "unauthorized",
]

EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class StatusError(Exception):
    """An answer other than success. `document()` is the body a client sees."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata
        self.headers = headers

    def document(self) -> dict[str, Any]:
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": dict(self.metadata or {})}
        body |= {"status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return body | {"code": self.code}


class FieldProblem(NamedTuple):
    """One fault of one field, as `field.Error` of apimachinery words it."""

    reason: str
    field: str
    message: str

    @classmethod
    def required(cls, field: str, detail: str = "") -> FieldProblem:
        return cls("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> FieldProblem:
        return cls("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")

    @classmethod
    def not_supported(cls, field: str, value: Any, allowed: Iterable[str]) -> FieldProblem:
        names = ", ".join(f'"{name}"' for name in sorted(allowed))
        return cls("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {names}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> FieldProblem:
        return cls("FieldValueForbidden", field, f"Forbidden: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> FieldProblem:
        return cls("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")

    @classmethod
    def too_long(cls, field: str, limit: int) -> FieldProblem:
        return cls("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _shown(value: Any) -> str:
    return "null" if value is None else msgspec.json.encode(value).decode()


def _details(resource: kinds.Resource | None, name: str = "", **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource is not None:
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.resource
    return details | more


def not_found(resource: kinds.Resource, name: str) -> StatusError:
    return StatusError(
        404, "NotFound", f'{resource.group_resource} "{name}" not found', details=_details(resource, name)
    )


def already_exists(resource: kinds.Resource, name: str) -> StatusError:
    text = f'{resource.group_resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, details=_details(resource, name))


def conflict(resource: kinds.Resource, name: str, why: str = "") -> StatusError:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    text = f'Operation cannot be fulfilled on {resource.group_resource} "{name}": {why}'
    return StatusError(409, "Conflict", text, details=_details(resource, name))


def invalid(resource: kinds.Resource, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """422 with every problem. `resource` gives group and kind."""
    return invalid_kind(resource.group, resource.kind, name, problems)


def invalid_kind(group: str, kind: str, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """422 for a kind that is not a resource (options), or that is known by its name only."""
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    causes = [{"reason": problem.reason, "message": problem.message, "field": problem.field} for problem in problems]
    text = f'{kind}.{group} "{name}" is invalid: {summary}' if group else f'{kind} "{name}" is invalid: {summary}'
    return StatusError(422, "Invalid", text, details=details | {"kind": kind, "causes": causes})


def forbidden(resource: kinds.Resource | None, name: str, why: str) -> StatusError:
    where = resource.group_resource if resource is not None else ""
    subject = f'{where} "{name}" is forbidden: ' if name else f"{where} is forbidden: "
    return StatusError(403, "Forbidden", (subject if where else "forbidden: ") + why, details=_details(resource, name))


def not_allowed(user: str, attributes: subjects.Attributes, reason: str = "") -> StatusError:
    """403 of the authorizer."""
    verb, group = attributes.verb, attributes.group
    if not attributes.resource:
        text = f'forbidden: User "{user}" cannot {verb} path "{attributes.path}"'
        return StatusError(403, "Forbidden", text, details={})
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    resource = "/".join(filter(None, (attributes.resource, attributes.subresource)))
    subject = ".".join(filter(None, (attributes.resource, group)))
    subject += f' "{attributes.name}"' if attributes.name else ""
    text = f'{subject} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    details = {"name": attributes.name, "group": group, "kind": attributes.resource}
    details = {key: value for key, value in details.items() if value}
    return StatusError(403, "Forbidden", text + (f": {reason}" if reason else ""), details=details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_supported(resource: kinds.Resource, verb: str) -> StatusError:
    text = f'{verb} is not supported on resources of kind "{resource.group_resource}"'
    return StatusError(405, "MethodNotAllowed", text, details=_details(resource))


def expired(message: str, *, continue_token: str = "") -> StatusError:
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def too_large_resource_version(requested: int, current: int) -> StatusError:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, "Timeout", text, details=details, headers=[("Retry-After", "1")])


def success(resource: kinds.Resource, name: str, uid: str) -> dict[str, Any]:
    """The answer to a deletion that removed the object."""
    details = _details(resource, name) | ({"uid": uid} if uid else {})
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
