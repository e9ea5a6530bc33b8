"""Unknown and duplicate fields: dropped, warned of or refused, as `fieldValidation` says.

In: a decoded object and the duplicates its text showed. Out: the object without unknown fields; warnings on the
target, or 400.
"""

from __future__ import annotations

from bedplate.apiserver import status
from bedplate.apiserver.state import bodies
from bedplate.apiserver.verbs import request

__all__ = ["checked", "checked_patch"]


def checked(target: request.Target, obj: bodies.Object, duplicates: list[str]) -> bodies.Object:
    """Prune the object and report what was found."""
    problems = duplicates + [f'unknown field "{path}"' for path in target.services.rules.prune(target.resource, obj)]
    if problems and target.field_validation == "Strict":
        kind, version = target.resource.kind, target.resource.version
        text = (
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(problems)}'
        )
        raise status.bad_request(text)
    if target.field_validation == "Warn":
        target.warnings += problems
    return obj


def checked_patch(target: request.Target, obj: bodies.Object) -> bodies.Object:
    """The same for the result of a patch, whose faults are those of the patch."""
    try:
        return checked(target, obj, [])
    except status.StatusError as err:
        detail = err.message.partition(f"cannot be handled as a {target.resource.kind}: ")[2] or err.message
        problem = status.FieldProblem.invalid("patch", bodies.encode(obj).decode(), detail)
        raise status.invalid_kind("", "", "", [problem]) from None
