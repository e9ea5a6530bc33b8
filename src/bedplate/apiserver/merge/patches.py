"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386) as kube-apiserver does them. Strategic merge is in `strategic`.

In: a document and a decoded patch. Out: a new document that shares every unchanged part with the old one; neither
argument is changed. Faults are `StatusError`s with the real server's code and text. The result is not checked here.

The real server's library differs from the RFC in ways that clients rely on, so they are kept: `replace` creates a map
key that is missing, indices may be negative, `copy` of a missing key adds null, a missing `value` is null, a patch that
is null does nothing.
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver.schema.values import same
from bedplate.apiserver.status import StatusError, bad_request

__all__ = ["MAX_OPERATIONS", "json_patch", "merge_patch", "unprocessable"]

MAX_OPERATIONS = 10_000

_ABSENT: Any = object()
_GO_KINDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class _Inapplicable(Exception):
    """An operation that cannot be carried out; clients are not told why, as with the real server."""


def unprocessable() -> StatusError:
    """The real server's one answer to every patch that is well-formed and does not fit the object."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def _undecodable(value: Any, go_type: str) -> StatusError:
    kind = _GO_KINDS[type(value)]
    return bad_request(f"error decoding patch: json: cannot unmarshal {kind} into Go value of type {go_type}")


# --- JSON patch ------------------------------------------------------------------------------------------------------


def json_patch(document: Any, operations: Any) -> Any:
    """The document after all operations, or a `StatusError` and no effect."""
    if operations is None:
        return document
    if not isinstance(operations, list):
        raise _undecodable(operations, "[]handlers.jsonPatchOp")
    for operation in operations:
        _check_operation(operation)
    if len(operations) > MAX_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {limit}")
    draft = _Draft(document)
    try:
        for operation in operations:
            draft.perform(operation)
    except _Inapplicable:
        raise unprocessable() from None
    return draft.document


def _check_operation(operation: Any) -> None:
    if operation is None:
        return
    if not isinstance(operation, dict):
        raise _undecodable(operation, "handlers.jsonPatchOp")
    for name in ("op", "path", "from"):
        value = operation.get(name)
        if value is not None and not isinstance(value, str):
            where = f"Go struct field jsonPatchOp.{name} of type string"
            raise bad_request(f"error decoding patch: json: cannot unmarshal {_GO_KINDS[type(value)]} into {where}")


class _Draft:
    """A document being patched: a container is copied the first time it is written to, and only then."""

    def __init__(self, document: Any) -> None:
        self.document = document
        # The containers themselves are kept, not only their ids, so that no id is used again while we work.
        self._own: dict[int, Any] = {}

    def perform(self, operation: dict[str, Any] | None) -> None:
        operation = operation or {}
        kind, path = operation.get("op"), operation.get("path")
        if kind in ("move", "copy"):
            self._transfer(operation.get("from"), path, is_move=kind == "move")
        elif path is None:
            raise _Inapplicable
        elif kind == "test":
            self._test(path, operation.get("value"))
        elif kind == "add":
            self._add(path, operation.get("value"))
        elif kind == "remove":
            self._remove(path)
        elif kind == "replace":
            self._replace(path, operation.get("value"))
        else:
            raise _Inapplicable

    def _transfer(self, source: str | None, path: str | None, *, is_move: bool) -> None:
        if source is None:
            raise _Inapplicable
        container, key = self._find(source)
        value = _get(container, key)
        if is_move:
            self._remove(source)
        if path is None:
            raise _Inapplicable
        self._add(path, None if value is _ABSENT else value)

    def _test(self, path: str, expected: Any) -> None:
        if path == "":
            actual = self.document
        else:
            container, key = self._find(path)
            actual = _get(container, key)
        if not same(None if actual is _ABSENT else actual, expected):
            raise _Inapplicable

    def _add(self, path: str, value: Any) -> None:
        container, key = self._find(path, for_writing=True)
        if isinstance(container, dict):
            container[key] = value
        elif key == "-":
            container.append(value)
        else:
            container.insert(_index(key, len(container) + 1), value)

    def _remove(self, path: str) -> None:
        container, key = self._find(path, for_writing=True)
        if isinstance(container, list):
            del container[_index(key, len(container))]
        elif key in container:
            del container[key]
        else:
            raise _Inapplicable

    def _replace(self, path: str, value: Any) -> None:
        if path == "":
            if not isinstance(value, dict | list):
                raise _Inapplicable
            self.document = value
            return
        container, key = self._find(path, for_writing=True)
        container[key if isinstance(container, dict) else _index(key, len(container))] = value

    def _find(self, path: str, *, for_writing: bool = False) -> tuple[Any, str]:
        """The container that a path ends in and the key there; on request a container of our own to write to."""
        parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        if not parts:
            raise _Inapplicable
        container = self.document
        if for_writing:
            container = self.document = self._owned(container)
        for part in parts[:-1]:
            below = _get(container, part)
            if not isinstance(below, dict | list):
                raise _Inapplicable
            if for_writing:
                below = self._owned(below)
                container[part if isinstance(container, dict) else _index(part, len(container))] = below
            container = below
        return container, parts[-1]

    def _owned(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        copy = container.copy()
        self._own[id(copy)] = copy
        return copy


def _get(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key, _ABSENT)
    return container[_index(key, len(container))]


def _index(key: str, length: int) -> int:
    try:
        index = int(key)
    except ValueError:
        raise _Inapplicable from None
    if not -length <= index < length or key != key.strip():
        raise _Inapplicable
    return index + length if index < 0 else index


# --- merge patch -----------------------------------------------------------------------------------------------------


def merge_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document with the patch's members merged in; a null removes."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _undecodable(patch, "map[string]interface {}")
    return _merge(document, patch)


def _merge(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    out = dict(document)
    for key, value in patch.items():
        current = document.get(key)
        if value is None:
            out.pop(key, None)
        elif isinstance(current, dict):
            out[key] = _merge(current, value) if isinstance(value, dict) else value
        else:
            out[key] = _without_nulls(value)
    return out


def _without_nulls(value: Any) -> Any:
    """A new value carries no nulls in its maps, not even inside lists; null items of lists stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
