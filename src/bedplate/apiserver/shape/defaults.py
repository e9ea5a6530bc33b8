"""Built-in objects as Go would hold and write them: defaults filled in, empty fields dropped, spellings made canonical.

`apply_defaults(node, obj)` changes an object in place, whichever way it came (JSON or protobuf). For each struct it
  1. drops nulls, and empty values of fields that Go's JSON leaves out when empty,
  2. fills in the constant defaults of the facts and the fields that Go always writes,
  3. runs the type's rule from `default_rules`, where a default hangs on other fields,
  4. goes into the members, and puts times and quantities into their canonical form.
Applying it twice changes nothing more. Unknown fields are left alone; values of a wrong type too, since telling the
user is the task of validation. Custom kinds have their own defaulting, by schema.

Types are compiled once into plans, which all uses of a type share.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable
from typing import Any

import msgspec

from bedplate.api import quantity
from bedplate.apiserver.shape import default_rules
from bedplate.apiserver.shape.typegraph import TypeNode

__all__ = ["apply_defaults", "canonical_micro_time", "canonical_time"]

Object = dict[str, Any]
Visit = Callable[[Any], Any]
"""Returns the value to keep: the same one changed in place, or another spelling."""

# Go structs that are one JSON value: `omitempty` does not drop them, absent ones are written as this.
_ZERO_LEAVES = {"quantity": "0", "int-or-string": 0, "time": None, "microtime": None}
_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


class _Plan:
    """What to do with one struct type; the tables are filled on first use, so that types may contain themselves."""

    __slots__ = ("always", "constants", "drops", "is_compiled", "members", "node", "rule")

    def __init__(self, node: TypeNode) -> None:
        self.node = node
        self.is_compiled = False
        self.rule: Callable[[Object], None] | None = None
        self.drops: frozenset[str] = frozenset()
        """fields that vanish when empty, or then get their default."""
        self.constants: tuple[tuple[str, Any, bool], ...] = ()
        """name, default, whether the default must be copied."""
        self.always: tuple[tuple[str, Any], ...] = ()
        """name and zero value of the fields that are always written."""
        self.members: dict[str, Visit] = {}

    def compile(self) -> None:
        self.is_compiled = True
        node = self.node
        self.rule = default_rules.RULES.get(node.name)
        drops, constants, always = [], [], []
        for name, field in node.fields.items():
            if field.default is not msgspec.UNSET:
                constants.append((name, field.default, isinstance(field.default, dict | list)))
            if _drops_when_empty(field) or (field.default is not msgspec.UNSET and not field.pointer):
                drops.append(name)
            elif not field.omit_zero and not (field.pointer and field.omit_empty):
                always.append((name, _zero(field)))
            visit = _visitor(field)
            if visit is not None:
                self.members[name] = visit
        self.drops, self.constants, self.always = frozenset(drops), tuple(constants), tuple(always)

    def visit(self, obj: Any) -> Any:
        if not isinstance(obj, dict):
            return obj
        if not self.is_compiled:
            self.compile()
        drops = self.drops
        empty = [name for name, value in obj.items() if value is None or (not value and name in drops)]
        for name in empty:
            del obj[name]
        for name, value, is_copied in self.constants:
            if name not in obj:
                obj[name] = copy.deepcopy(value) if is_copied else value
        for name, zero in self.always:
            if name not in obj:
                obj[name] = {} if zero == {} else zero
        if self.rule is not None:
            self.rule(obj)
        members = self.members
        for name, value in obj.items():
            if name in members and value is not None:
                obj[name] = members[name](value)
        return obj


_plans: dict[int, _Plan] = {}


def apply_defaults(node: TypeNode, obj: Object) -> None:
    """Bring an object of a built-in type into the form Go would write it in."""
    _plan(node).visit(obj)


def _plan(node: TypeNode) -> _Plan:
    # All uses of a type share its table of fields, which the plan keeps alive.
    plan = _plans.get(id(node.fields))
    if plan is None:
        plan = _plans[id(node.fields)] = _Plan(node)
    return plan


def _drops_when_empty(field: TypeNode) -> bool:
    if field.pointer or not field.omit_empty:
        return False
    return field.shape in ("list", "map") or (field.shape == "scalar" and field.scalar not in _ZERO_LEAVES)


def _zero(field: TypeNode) -> Any:
    if field.pointer or field.shape in ("list", "map", "any"):
        return None
    if field.shape == "struct":
        return {}
    return _ZERO_LEAVES[field.scalar] if field.scalar in _ZERO_LEAVES else _ZEROS.get(field.scalar)


def _visitor(node: TypeNode) -> Visit | None:
    """How to go into a value of this type; None where there is nothing to do."""
    if node.shape == "struct":
        return _plan(node).visit
    if node.shape == "list" and node.element is not None:
        return _list_visitor(_visitor(node.element))
    if node.shape == "map" and node.element is not None:
        if node.element.scalar == "quantity":
            return _map_visitor(lambda value: quantity.canonical(value, in_list=True))
        return _map_visitor(_visitor(node.element))
    return _LEAVES.get(node.scalar) if node.shape == "scalar" else None


def canonical_time(given: Any) -> Any:
    """`2026-01-02T04:04:05.9+01:00` is `2026-01-02T03:04:05Z`."""
    if not isinstance(given, str) or (len(given) == 20 and given[-1] == "Z"):
        return given
    moment = _parse(given)
    return given if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro_time(given: Any) -> Any:
    """`2026-01-02T03:04:05Z` is `2026-01-02T03:04:05.000000Z`."""
    if not isinstance(given, str) or (len(given) == 27 and given[-1] == "Z"):
        return given
    moment = _parse(given)
    return given if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment.astimezone(datetime.UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


_LEAVES: dict[str, Visit] = {
    "quantity": quantity.canonical,
    "time": canonical_time,
    "microtime": canonical_micro_time,
}


def _list_visitor(visit: Visit | None) -> Visit | None:
    if visit is None:
        return None

    def each(values: Any) -> Any:
        if isinstance(values, list):
            values[:] = [visit(value) for value in values]
        return values

    return each


def _map_visitor(visit: Visit | None) -> Visit | None:
    if visit is None:
        return None

    def each(values: Any) -> Any:
        if isinstance(values, dict):
            for key, value in values.items():
                values[key] = visit(value)
        return values

    return each
