"""An upper bound of what a rule can cost, so that rules over unbounded data are refused as the real server does.

In: a checked expression whose variables' types carry sizes. Out: a number in the server's units: one per step, a tenth
per character walked, loops times their greatest length; what has no known size is boundless. Only the upper bound is
kept, which is what the limits are about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from bedplate.apiserver.cel import ast, types
from bedplate.apiserver.cel.checker import Checked
from bedplate.apiserver.cel.types import Type

__all__ = ["BOUNDLESS", "estimate"]

BOUNDLESS = 2**64 - 1
_WALK = 0.1
_REGEX = 0.25
_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_CHEAP_EQUALS = frozenset({"kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "net.IP", "net.CIDR"})
_SAME_SIZE = frozenset({"url", "lowerAscii", "upperAscii", "substring", "trim"})
_PARSES = frozenset({"cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"})
_OVER_LIST = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
_ORDERS = frozenset({"_<_", "_<=_", "_>_", "_>=_"})


class Part(NamedTuple):
    """Cost of a node; the greatest size of its value and of an entry of it; the schema's type where it has one."""

    cost: int
    size: int
    entry: int | None = None
    declared: Type | None = None


def estimate(checked: Checked, variables: Mapping[str, Type]) -> int:
    parts = {name: _declared(kind, 0) for name, kind in variables.items()}
    return min(_Estimator(checked, parts).visit(checked.root).cost, BOUNDLESS)


def _capped(number: float) -> int:
    return BOUNDLESS if number >= BOUNDLESS else int(number)


def _walk(size: int, factor: float = _WALK) -> int:
    return BOUNDLESS if size >= BOUNDLESS else math.ceil(size * factor)


def _times(left: int, right: int) -> int:
    return _capped(left * right)


def _declared(kind: Type, cost: int) -> Part:
    return Part(cost, max(kind.limit, 0), None, kind)


def _element(part: Part) -> Type | None:
    return part.declared.params[-1] if part.declared is not None and part.declared.params else None


class _Estimator:
    def __init__(self, checked: Checked, variables: dict[str, Part]) -> None:
        self._checked = checked
        self._variables = variables

    def _unknown(self, node: ast.Node, cost: int) -> Part:
        kind = self._checked.types.get(id(node), types.DYN)
        while kind.is_optional:
            kind = kind.params[0]
        return Part(cost, 1 if kind.kind in _SCALARS else BOUNDLESS)

    def visit(self, node: ast.Node) -> Part:
        match node:
            case ast.Literal():
                return Part(0, len(node.value) if isinstance(node.value, str | bytes) else 1)
            case ast.Ident():
                if self._checked.types.get(id(node), types.DYN).kind == "type":
                    return Part(1, 0)  # the name of a type
                part = self._variables.get(node.name)
                return self._unknown(node, 1) if part is None else part._replace(cost=1)
            case ast.Has():
                return Part(self.visit(node.operand).cost, 1)
            case ast.Select():
                return self._select(node)
            case ast.Index():
                return self._index(node)
            case ast.ListNode():
                parts = [self.visit(item) for item in node.items]
                entry = max((part.size for part in parts), default=0)
                return Part(10 + sum(part.cost for part in parts), len(parts), entry)
            case ast.MapNode():
                pairs = [(self.visit(key), self.visit(value)) for key, value, _ in node.entries]
                entry = max((key.size for key, _ in pairs), default=0)
                return Part(30 + sum(key.cost + value.cost for key, value in pairs), len(pairs), entry)
            case ast.Comprehension():
                return self._loop(node)
            case ast.Call():
                return self._call(node)
        raise AssertionError(node)

    def _select(self, node: ast.Select) -> Part:
        if id(node) in self._checked.names:
            return Part(1, 0)
        operand = self.visit(node.operand)
        kind = self._checked.types.get(id(node.operand), types.DYN)
        cost = operand.cost + (kind.kind in ("map", "object", "param") or node.optional)
        if operand.declared is not None:
            field = operand.declared.fields.get(node.name)
            if field is not None:
                return _declared(field.type, cost)
            if operand.declared.kind == "map":
                return _declared(operand.declared.params[1], cost)
        return self._unknown(node, cost)

    def _index(self, node: ast.Index) -> Part:
        operand, key = self.visit(node.operand), self.visit(node.key)
        cost = operand.cost + key.cost + 1
        element = _element(operand)
        if element is not None:
            return _declared(element, cost)
        return Part(cost, operand.entry) if operand.entry is not None else self._unknown(node, cost)

    def _loop(self, node: ast.Comprehension) -> Part:
        source = self.visit(node.range)
        before = dict(self._variables)
        self._bind(node, source)
        condition = self.visit(node.condition) if node.condition is not None else Part(0, 1)
        result = self.visit(node.result) if node.result is not None else Part(0, 1)
        self._variables = before
        start, step, end = _loop_costs(node.macro, condition.cost, result.cost, node.condition is not None)
        times = 1 if node.macro in ("optMap", "optFlatMap") else source.size
        total = _capped(source.cost + start + end + _times(times, step))
        if node.macro in ("all", "exists", "exists_one"):
            return Part(total, 1)
        entry = result.size if node.result is not None else source.entry
        if node.macro == "filter" and (element := _element(source)) is not None:
            entry = max(element.limit, 0)
        if node.macro == "sortBy":
            return Part(_capped(total + 2 * _times(times, times)), times, source.entry)
        return Part(total, source.size, entry)

    def _bind(self, node: ast.Comprehension, source: Part) -> None:
        """Sizes of the loop's variables: from the schema where the range has one, else from the range's entries."""
        kind = self._checked.types.get(id(node.range), types.DYN)
        keys = [types.STRING if kind.kind == "map" else types.INT]
        element = _element(source)
        values: list[Type | None]
        if len(node.variables) == 2:
            values = [*keys, element]
        else:
            values = [types.STRING if kind.kind == "map" else element]
        for name, declared in zip(node.variables, values, strict=True):
            if declared is not None:
                self._variables[name] = _declared(declared, 1)
            elif source.entry is not None:
                self._variables[name] = Part(1, source.entry)
            else:
                self._variables.pop(name, None)

    def _call(self, node: ast.Call) -> Part:
        name = self._checked.names.get(id(node), node.name)
        is_method = node.target is not None and id(node) not in self._checked.names
        nodes = ([node.target] if is_method and node.target is not None else []) + node.args
        parts = [self.visit(arg) for arg in nodes]
        spent = _capped(sum(part.cost for part in parts))
        if name == "dyn":
            return parts[0]._replace(cost=_capped(spent + 1))
        if name == "_?_:_":
            cost = parts[0].cost + max(parts[1].cost, parts[2].cost)
            return Part(_capped(cost), max(parts[1].size, parts[2].size))
        kinds = [self._checked.types.get(id(arg), types.DYN) for arg in nodes]
        cost, size = self._function(name, parts, kinds, is_method)
        if size is None:
            return self._unknown(node, _capped(spent + cost))
        return Part(_capped(spent + cost), size, parts[0].entry if name == "_+_" else None)

    def _function(self, name: str, parts: list[Part], kinds: list[Type], is_method: bool) -> tuple[int, int | None]:
        """The cost of the call itself, and the size of its result where that is known."""
        first = parts[0].size if parts else 0
        if name in ("_&&_", "_||_"):
            return 0, 1
        if name in ("_==_", "_!=_"):
            return _equality_cost(name, parts, kinds), 1
        if name in _ORDERS and kinds[0].kind in ("string", "bytes"):
            return _walk(min(part.size for part in parts)), 1
        if name == "_+_":
            total = _capped(sum(part.size for part in parts))
            return (_walk(total), total) if kinds[0].kind in ("string", "bytes") else (1, total)
        if name == "@in":
            return (parts[1].size if kinds[1].kind != "map" else 1), 1
        if name == "matches":
            return _times(_walk(_capped(first + 1)), _walk(parts[1].size, _REGEX)), 1
        if name == "contains":
            return _times(_walk(first), _walk(parts[1].size)), 1
        if name in ("startsWith", "endsWith"):
            return _walk(parts[1].size), 1
        if name in ("find", "findAll"):
            return _times(_walk(_capped(first + 1)), _walk(parts[1].size, _REGEX)), first
        if name in _SAME_SIZE:
            return _walk(first), first
        if name in _PARSES and not (name == "ip" and is_method):
            return _walk(first), None
        return _library_cost(name, parts, kinds)


def _equality_cost(name: str, parts: list[Part], kinds: list[Type]) -> int:
    if name == "_==_" and kinds[0].kind == "opaque" and str(kinds[0]) == str(kinds[1]):
        if kinds[0].name in _CHEAP_EQUALS:
            return 1
        if kinds[0].name == "kubernetes.NamedFormat":
            return 7
    return _walk(min(part.size for part in parts))


def _library_cost(name: str, parts: list[Part], kinds: list[Type]) -> tuple[int, int | None]:
    first = parts[0].size if parts else 0
    if name in _OVER_LIST:
        if kinds[0].kind == "string":
            return _walk(first), None
        item = 1
        if kinds[0].kind == "list" and kinds[0].params[0].kind in ("string", "bytes"):
            element = _element(parts[0])
            item += _walk(max(element.limit, 0) if element is not None else BOUNDLESS)
        return _times(first, item), None
    if name == "join":
        element = _element(parts[0])
        size = _times(first, max(element.limit, 0) if element is not None else BOUNDLESS)
        if len(parts) > 1:
            size = _capped(size + _times(parts[1].size, max(first - 1, 0)))
        return _walk(size), size
    if name == "split":
        return _walk(first, 2 * _WALK), first
    if name == "replace":
        return _walk(first, 2 * _WALK), _replaced_size(first, parts[1].size, parts[2].size)
    if name in ("format", "bytes", "strings.quote"):
        factor = {"format": 0, "bytes": 4, "strings.quote": 2}[name]
        return _walk(first), _capped(first * factor + 2) if factor else None
    if name == "string" and kinds[0].kind == "bytes":
        return _walk(first), first
    if name == "validate":
        return _walk(_walk(parts[1].size), 128 * _REGEX), None
    if name == "ip.isCanonical":
        return _walk(first, 2 * _WALK), 1
    if name in ("containsIP", "containsCIDR"):
        base = 4 if name == "containsIP" else 4 + 2 + 1
        return base + (_walk(parts[1].size) if kinds[1].kind == "string" else 0), 1
    return _list_cost(name, parts)


def _list_cost(name: str, parts: list[Part]) -> tuple[int, int | None]:
    first = parts[0].size if parts else 0
    if name in ("slice", "reverse", "flatten", "lists.range"):
        return _capped(10 + first), first
    if name in ("distinct", "sort"):
        return _capped(10 + 2 * _times(first, first)), first
    if name in ("sets.contains", "sets.intersects", "sets.equivalent"):
        factor = 2 if name == "sets.equivalent" else 1
        return _capped(factor * _times(first, parts[1].size)), 1
    return 1, None


def _replaced_size(size: int, old: int, new: int) -> int:
    """The longest result: an empty pattern puts the new text around every letter."""
    if old == 0:
        return _capped(_times(size + 1, new) + size)
    return size if new <= old else _times(-(-size // old), new)


def _loop_costs(macro: str, condition: int, result: int, has_condition: bool) -> tuple[int, int, int]:
    """What the macro's expansion costs before, per step and after."""
    if macro == "all":
        return 0, 3 + condition, 1
    if macro == "exists":
        return 0, 4 + condition, 1
    if macro == "exists_one":
        return 0, 2 + condition, 2
    if macro == "filter":
        return 10, 13 + condition, 1
    if macro in ("map", "transformList", "sortBy"):
        return 10, 12 + result + condition, 1
    if macro in ("transformMap", "transformMapEntry"):
        return 30, 3 + result + condition, 1
    return 0, 3 + result, 0
