"""A rough upper bound of what a rule costs, so that rules over unbounded data are refused as the real server does.

In: a checked expression with the sizes its types carry. Out: a number in cel-go's units. The model is cel-go's in its
main lines (one unit per step, a tenth per character walked, loops times their length); it is not exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bedplate.apiserver.cel import ast, types
from bedplate.apiserver.cel.checker import Checked
from bedplate.apiserver.cel.types import Type

__all__ = ["estimate"]

_MAX = 2**64 - 1
_WALKS = frozenset(
    (
        *("startsWith", "endsWith", "lowerAscii", "upperAscii", "indexOf", "lastIndexOf", "replace", "split"),
        *("substring", "trim", "join", "format", "charAt", "strings.quote"),
        *("url", "isURL", "quantity", "isQuantity", "ip", "isIP", "cidr", "isCIDR"),
    )
)


class Estimate(NamedTuple):
    cost: int
    kind: Type


def estimate(checked: Checked, variables: Mapping[str, Type]) -> int:
    return min(_Estimator(checked, dict(variables)).visit(checked.root).cost, _MAX)


class _Estimator:
    def __init__(self, checked: Checked, variables: dict[str, Type]) -> None:
        self._checked = checked
        self._variables = variables

    def visit(self, node: ast.Node) -> Estimate:
        kind = self._checked.types.get(id(node), types.DYN)
        match node:
            case ast.Literal():
                size = len(node.value) if isinstance(node.value, str | bytes) else -1
                return Estimate(0, Type(kind.kind, limit=size))
            case ast.Ident():
                return Estimate(1, self._variables.get(node.name, kind))
            case ast.Select() | ast.Has():
                return self._select(node, kind)
            case ast.Index():
                operand, key = self.visit(node.operand), self.visit(node.key)
                element = operand.kind.params[-1] if operand.kind.params else kind
                return Estimate(operand.cost + key.cost + 1, element)
            case ast.ListNode():
                total = sum(self.visit(item).cost for item in node.items)
                return Estimate(10 + total, Type("list", params=kind.params, limit=len(node.items)))
            case ast.MapNode():
                total = sum(self.visit(key).cost + self.visit(value).cost for key, value, _ in node.entries)
                return Estimate(30 + total, Type("map", params=kind.params, limit=len(node.entries)))
            case ast.Comprehension():
                return self._loop(node, kind)
            case ast.Call():
                return self._call(node, kind)
        raise AssertionError(node)

    def _select(self, node: ast.Select | ast.Has, kind: Type) -> Estimate:
        operand = self.visit(node.operand)
        if isinstance(node, ast.Has):
            return Estimate(operand.cost, types.BOOL)
        found = operand.kind.fields.get(node.name)
        if found is not None:
            return Estimate(operand.cost + 1, found.type)
        return Estimate(operand.cost + 1, operand.kind.params[-1] if operand.kind.params else kind)

    def _loop(self, node: ast.Comprehension, kind: Type) -> Estimate:
        source = self.visit(node.range)
        params = source.kind.params or (types.DYN,)
        shown = params if len(node.variables) <= len(params) else (types.INT, *params)
        before = dict(self._variables)
        self._variables |= dict(zip(node.variables, shown, strict=False))
        body = sum(self.visit(part).cost for part in (node.condition, node.result) if part is not None)
        self._variables = before
        times = max(source.kind.limit, 0)
        overhead = {"all": 2, "exists": 3, "exists_one": 3}.get(node.macro, 13)
        return Estimate(source.cost + 1 + times * (body + overhead), Type(kind.kind, params=kind.params, limit=times))

    def _call(self, node: ast.Call, kind: Type) -> Estimate:
        args = ([node.target] if node.target is not None and id(node) not in self._checked.names else []) + node.args
        found = [self.visit(arg) for arg in args]
        name = self._checked.names.get(id(node), node.name)
        total = sum(each.cost for each in found)
        sizes = [max(each.kind.limit, 0) for each in found]
        result = Type(kind.kind, kind.name, kind.params, limit=sum(sizes) if name == "_+_" else max(sizes, default=-1))
        if name in ("_&&_", "_||_"):
            return Estimate(total, types.BOOL)
        if name == "_?_:_":
            return Estimate(found[0].cost + max(found[1].cost, found[2].cost), result)
        if name in ("_==_", "_!=_"):
            return Estimate(total + max(1, _tenth(min(sizes))), types.BOOL)
        if name == "@in":
            return Estimate(total + max(1, sizes[1] if found[1].kind.kind == "list" else 1), types.BOOL)
        if name == "matches":
            return Estimate(total + max(1, _tenth(sizes[0])) * max(1, sizes[-1] // 4), types.BOOL)
        if name in ("contains", "find", "findAll"):
            return Estimate(total + max(1, _tenth(sizes[0])) * max(1, _tenth(sizes[-1])), result)
        if name in _WALKS:
            return Estimate(total + max(1, _tenth(sizes[0] if sizes else 0)), result)
        return Estimate(total + 1, result)


def _tenth(size: int) -> int:
    return -(-size // 10)
