"""`Target`: what a verb acts on, for whom and how; made by the pipeline from a request and by the in-process client.

Also reads the query parameters that many verbs share (dryRun, fieldManager, fieldValidation, resourceVersion), and
drops, warns of or refuses unknown and duplicate fields, as `fieldValidation` says.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bedplate.apiserver import hooks, kinds, services, status, views
from bedplate.apiserver.access import subjects
from bedplate.apiserver.protobuf import encoding
from bedplate.apiserver.state import bodies

__all__ = ["Target", "aside", "checked", "checked_patch", "integer", "list_options_invalid", "resource_version"]

T = TypeVar("T")

_MANAGER_LENGTH = 128
LARGE_BYTES = 128 * 1024
_ASIDE = futures.ThreadPoolExecutor(1, "large-bodies")


@dataclass(slots=True)
class Target:
    """One object, or a collection where `name` is empty. `namespace` is empty for cluster-scoped kinds."""

    services: services.Services
    resource: kinds.Resource
    namespace: str
    name: str
    user: subjects.User
    subresource: str = ""
    manager: str = ""
    dry_run: bool = False
    field_validation: str = "Warn"
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    protobuf: encoding.Encoder | None = None
    """Set when the client would rather have protobuf."""
    media: str = "application/json"
    """The form a list was made in."""
    size_bytes: int = 0
    """Of the request's body."""

    @property
    def kind(self) -> tuple[str, str]:
        """Under which (group, resource) the registry keeps the objects."""
        stored_at = self.resource.stored_at
        return stored_at[0], stored_at[2]

    @property
    def storage(self) -> kinds.Resource:
        return self.services.kinds.storage(self.resource)

    @property
    def behaviour(self) -> hooks.Behaviour:
        return self.services.behaviour(self.resource)

    def stored(self) -> bodies.Stored | None:
        return self.services.registry.get(self.kind, self.namespace, self.name)

    def existing(self) -> bodies.Stored:
        stored = self.stored()
        if stored is None:
            raise status.not_found(self.resource, self.name)
        return stored

    def read(self, stored: bodies.Stored) -> bodies.Object:
        """A fresh copy in the version of the request."""
        obj = kinds.from_storage(self.resource, stored.decode(), self.storage)
        if self.resource.is_custom and views.needs_shaping(self.resource):
            views.shape(self.services.rules, self.resource, obj)
        return obj

    def write(self, operation: hooks.Operation, old: bodies.Object | None, new: bodies.Object | None) -> hooks.Write:
        return hooks.Write(
            services=self.services,
            resource=self.resource,
            operation=operation,
            namespace=self.namespace,
            name=self.name,
            user=self.user,
            subresource=self.subresource,
            dry_run=self.dry_run,
            old=old,
            new=new,
            options=self.options,
            warnings=self.warnings,
        )


def read_options(target: Target, query: Mapping[str, str], user_agent: str, options_kind: str) -> None:
    """Take dryRun, fieldManager and fieldValidation over from the query; raises 400 and 422."""
    problems: list[status.FieldProblem] = []
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        problems.append(status.FieldProblem.not_supported("dryRun", dry_run, ["All"]))
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        problems.append(
            status.FieldProblem.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        )
    manager = query.get("fieldManager", "")
    if len(manager) > _MANAGER_LENGTH:
        problems.append(status.FieldProblem.too_long("fieldManager", _MANAGER_LENGTH))
    if problems:
        raise status.invalid_kind("meta.k8s.io", options_kind, "", problems)
    target.dry_run = bool(dry_run)
    target.field_validation = validation or "Warn"
    target.manager = manager or _manager_of(user_agent)
    target.options = {key: value for key, value in query.items() if key in _OPTION_NAMES}


_OPTION_NAMES = frozenset({"dryRun", "fieldManager", "fieldValidation", "force"})


def _manager_of(user_agent: str) -> str:
    """The program's name in a user agent, as the real server derives a field manager."""
    return user_agent.partition("/")[0][:_MANAGER_LENGTH] or "unknown"


def integer(query: Mapping[str, str], name: str) -> int:
    """An integer of the query, 0 when absent."""
    text = query.get(name, "")
    if not text:
        return 0
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def is_true(text: str | None) -> bool:
    """Go's conversion of query parameters: present and neither `false` nor `0`."""
    return text is not None and text.lower() not in ("false", "0")


def resource_version(text: str) -> int:
    """A resourceVersion parameter, 0 when empty."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        problem = status.FieldProblem.invalid(
            "resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
        raise status.bad_request(str(problem))
    return int(text)


def list_options_invalid(*problems: status.FieldProblem) -> status.StatusError:
    return status.invalid_kind("meta.k8s.io", "ListOptions", "", problems)


async def aside(size_bytes: int, work: Callable[[], T]) -> T:
    """Work on a body or object of this size: a large one takes seconds, in which the loop must answer others.

    One thread is enough: more of them would only compete with the loop for the interpreter.
    """
    if size_bytes <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_ASIDE, work)


def checked(target: Target, obj: bodies.Object, duplicates: list[str]) -> bodies.Object:
    """Remove unknown fields; they and the duplicates its text showed become warnings, or 400."""
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


def checked_patch(target: Target, obj: bodies.Object) -> bodies.Object:
    """The same for the result of a patch, whose faults are those of the patch."""
    try:
        return checked(target, obj, [])
    except status.StatusError as err:
        detail = err.message.partition(f"cannot be handled as a {target.resource.kind}: ")[2] or err.message
        problem = status.FieldProblem.invalid("patch", bodies.encode(obj).decode(), detail)
        raise status.invalid_kind("", "", "", [problem]) from None
