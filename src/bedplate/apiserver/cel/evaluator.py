"""A checked expression compiled into Python closures.

In: what the checker found. Out: a function of the variables' slots. Each node becomes one closure; the static types
choose the cheapest one, so that a simple rule costs a few function calls. Errors are `CelError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from bedplate.apiserver.cel import ast, types, values
from bedplate.apiserver.cel.checker import Checked
from bedplate.apiserver.cel.macros import FAILURES, MACROS, Closure, Slots, as_bool, optional_macro, shown_key, steps
from bedplate.apiserver.cel.signatures import Overload
from bedplate.apiserver.cel.types import Type, equality_of, list_sum
from bedplate.apiserver.cel.values import NO_OVERLOAD, NONE, TOO_DEEP, CelError, Optional, TypeValue, UInt
from bedplate.apiserver.schema import gotext

__all__ = ["Program", "compile_program"]

Program = Callable[..., Any]

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})


def compile_program(checked: Checked, variables: Sequence[str]) -> Program:
    """A function that takes the variables' values in the order of `variables`."""
    compiler = _Compiler(checked, variables)
    closure = compiler.compile(checked.root)
    spare = [None] * (compiler.size - len(variables))

    def run(*given: Any) -> Any:
        try:
            return closure([*given, *spare])
        except (TypeError, AttributeError) as error:
            raise CelError(NO_OVERLOAD) from error
        except RecursionError:
            raise CelError(TOO_DEEP) from None

    return run


class _Compiler:
    def __init__(self, checked: Checked, variables: Sequence[str]) -> None:
        self._checked = checked
        self._slots: list[dict[str, int]] = [{name: at for at, name in enumerate(variables)}]
        self.size = len(variables)

    def _type(self, node: ast.Node) -> Type:
        return self._checked.types.get(id(node), types.DYN)

    def compile(self, node: ast.Node) -> Closure:
        match node:
            case ast.Literal():
                value = UInt(node.value) if node.kind == "uint" else node.value
                return lambda slots: value
            case ast.Ident():
                return self._ident(node.name)
            case ast.Select():
                return self._select(node)
            case ast.Has():
                return self._has(node)
            case ast.Index():
                return self._index(node)
            case ast.ListNode():
                return self._list(node)
            case ast.MapNode():
                return self._map(node)
            case ast.Comprehension():
                return self._comprehension(node)
            case ast.Call():
                return self._call(node)
        raise AssertionError(node)

    def _ident(self, name: str) -> Closure:
        for scope in reversed(self._slots):
            if name in scope:
                return operator.itemgetter(scope[name])
        if name in ("timestamp", "duration"):
            # The server knows these types by name when it checks, and not when it runs.
            raise CelError(f"reference to undefined type: {name}")
        value = TypeValue(name)
        return lambda slots: value

    def _member(self, kind: Type, name: str) -> tuple[str, Callable[[Any], Any] | None]:
        """The JSON name behind a CEL name, and what turns its JSON value into a CEL value."""
        if kind.is_optional:
            kind = kind.params[0]
        if kind.kind == "object" and name in kind.fields:
            field = kind.fields[name]
            return field.json_name, field.type.adapt
        return name, None

    def _select(self, node: ast.Select) -> Closure:
        if id(node) in self._checked.names:
            value = TypeValue(self._checked.names[id(node)])
            return lambda slots: value
        kind = self._type(node.operand)
        operand = self.compile(node.operand)
        key, adapt = self._member(kind, node.name)
        if node.optional or kind.is_optional:
            return _optional_member(operand, lambda slots: key, adapt)
        fault = f"no such key: {node.name}"

        def select(slots: Slots) -> Any:
            value = operand(slots).get(key)
            if value is None:
                raise CelError(fault)
            return value

        def select_adapted(slots: Slots) -> Any:
            value = operand(slots).get(key)
            if value is None:
                raise CelError(fault)
            return adapt(value)  # type: ignore[misc]

        return select if adapt is None else select_adapted

    def _has(self, node: ast.Has) -> Closure:
        operand = self.compile(node.operand)
        key, _ = self._member(self._type(node.operand), node.name)

        def has(slots: Slots) -> bool:
            holder = operand(slots)
            if type(holder) is Optional:
                if not holder.present:
                    return False
                holder = holder.value
            if type(holder) is not dict:
                raise CelError(NO_OVERLOAD)
            return holder.get(key) is not None

        return has

    def _index(self, node: ast.Index) -> Closure:
        operand, key = self.compile(node.operand), self.compile(node.key)
        if node.optional or self._type(node.operand).is_optional:
            return _optional_member(operand, key, None)

        def index(slots: Slots) -> Any:
            return _at(operand(slots), key(slots))

        return index

    def _list(self, node: ast.ListNode) -> Closure:
        items = [self.compile(item) for item in node.items]
        if not any(node.optional):
            return lambda slots: [item(slots) for item in items]
        marked = list(zip(items, node.optional, strict=True))

        def build(slots: Slots) -> list[Any]:
            elements = []
            for item, optional in marked:
                value = item(slots)
                if not optional:
                    elements.append(value)
                elif value.present:
                    elements.append(value.value)
            return elements

        return build

    def _map(self, node: ast.MapNode) -> Closure:
        entries = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]

        def build(slots: Slots) -> dict[Any, Any]:
            mapping: dict[Any, Any] = {}
            for key, value, optional in entries:
                name, member = key(slots), value(slots)
                if optional and not member.present:
                    continue
                mapping[name] = member.value if optional else member
            return mapping

        return build

    def _call(self, node: ast.Call) -> Closure:
        name = self._checked.names.get(id(node), node.name)
        args = [] if node.target is None or id(node) in self._checked.names else [node.target]
        args += node.args
        closures = [self.compile(arg) for arg in args]
        if name in ("_&&_", "_||_"):
            return _and(*closures) if name == "_&&_" else _or(*closures)
        if name == "!_":
            return _not(closures[0])
        if name == "_?_:_":
            return _choose(*closures)
        if name in ("_==_", "_!=_"):
            return self._equality(name, args, closures)
        overloads = self._checked.overloads[id(node)]
        if name in _CONVERSIONS and isinstance(args[0], ast.Literal):
            # A constant is converted once; that it cannot be shows when the rule is written.
            constant = _dispatcher(overloads)(closures[0]([]))
            return lambda slots: constant
        kinds = [self._type(arg) for arg in args]
        if len(overloads) == 1 and not any(kind.is_dyn for kind in kinds):
            return _apply(self._specialised(name, overloads[0], kinds, args), closures)
        return _apply(_dispatcher(overloads), closures)

    def _specialised(
        self, name: str, overload: Overload, kinds: Sequence[Type], args: Sequence[ast.Node]
    ) -> Callable[..., Any]:
        if name == "_+_" and kinds[0].kind == "list" and kinds[0].list_type in ("set", "map"):
            return list_sum(kinds[0])
        last = args[-1] if args else None
        if name == "matches" and isinstance(last, ast.Literal):
            search = gotext.compile_pattern(last.value).search
            return lambda text, pattern: search(text) is not None
        if name == "@in" and kinds[0].kind == "string" and kinds[1].kind == "list":
            return lambda item, items: item in items
        return overload.run

    def _equality(self, name: str, args: Sequence[ast.Node], closures: Sequence[Closure]) -> Closure:
        same = equality_of(self._type(args[0]), self._type(args[1]))
        left, right = closures
        if name == "_==_":
            return lambda slots: same(left(slots), right(slots))
        return lambda slots: not same(left(slots), right(slots))

    def _comprehension(self, node: ast.Comprehension) -> Closure:
        source = self.compile(node.range)
        first = self.size
        self.size += len(node.variables)
        self._slots.append({name: first + at for at, name in enumerate(node.variables)})
        condition = self.compile(node.condition) if node.condition is not None else None
        result = self.compile(node.result) if node.result is not None else None
        self._slots.pop()
        if node.macro in ("optMap", "optFlatMap"):
            assert result is not None
            return optional_macro(node.macro, source, first, result)
        walk = steps(source, first, len(node.variables) == 2)
        return MACROS[node.macro](walk, condition, result)


def _at(holder: Any, key: Any) -> Any:
    if type(holder) is list:
        at = int(key) if type(key) is float and key.is_integer() else key
        if not isinstance(at, int) or type(at) is bool:
            raise CelError(f"unsupported index type '{values.kind_of(key)}' in list")
        if 0 <= at < len(holder):
            return holder[at]
        raise CelError(f"index out of bounds: {at}")
    if type(holder) is dict:
        if key in holder and type(key) is not bool:
            return holder[key]
        raise CelError(f"no such key: {shown_key(key)}")
    raise CelError(NO_OVERLOAD)


def _optional_member(operand: Closure, key: Closure, adapt: Callable[[Any], Any] | None) -> Closure:
    def find(slots: Slots) -> Optional:
        holder = operand(slots)
        if type(holder) is Optional:
            if not holder.present:
                return NONE
            holder = holder.value
        name = key(slots)
        if type(holder) is list:
            return Optional(holder[name]) if 0 <= name < len(holder) else NONE
        if type(holder) is not dict:
            raise CelError(NO_OVERLOAD)
        value = holder.get(name)
        if value is None:
            return NONE
        return Optional(value if adapt is None else adapt(value))

    return find


def _and(left: Closure, right: Closure) -> Closure:
    """False wins over an error on the other side."""

    def run(slots: Slots) -> bool:
        try:
            if not as_bool(left(slots)):
                return False
        except FAILURES:
            try:
                if right(slots) is False:
                    return False
            except FAILURES:
                pass
            raise
        return as_bool(right(slots))

    return run


def _or(left: Closure, right: Closure) -> Closure:
    def run(slots: Slots) -> bool:
        try:
            if as_bool(left(slots)):
                return True
        except FAILURES:
            try:
                if right(slots) is True:
                    return True
            except FAILURES:
                pass
            raise
        return as_bool(right(slots))

    return run


def _not(inner: Closure) -> Closure:
    return lambda slots: not as_bool(inner(slots))


def _choose(condition: Closure, left: Closure, right: Closure) -> Closure:
    return lambda slots: left(slots) if as_bool(condition(slots)) else right(slots)


def _apply(run: Callable[..., Any], args: Sequence[Closure]) -> Closure:
    if len(args) == 1:
        (only,) = args
        return lambda slots: run(only(slots))
    if len(args) == 2:
        left, right = args
        return lambda slots: run(left(slots), right(slots))
    return lambda slots: run(*[arg(slots) for arg in args])


_MATCHING = {
    "bool": "bool",
    "int": "int",
    "uint": "uint",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "type": "type",
}


def _fits(value: Any, kind: Type) -> bool:
    if kind.kind in ("dyn", "param"):
        return True
    actual = values.kind_of(value)
    if kind.kind == "list":
        return actual == "list" and all(_fits(item, kind.params[0]) for item in value)
    if kind.kind == "map":
        return actual == "map"
    return actual == (kind.name if kind.kind == "opaque" else _MATCHING[kind.kind])


def _dispatcher(overloads: Sequence[Overload]) -> Callable[..., Any]:
    """Chooses by the values, where the types were not known."""

    def run(*args: Any) -> Any:
        for overload in overloads:
            if all(map(_fits, args, overload.params)):
                return overload.run(*args)
        raise CelError(NO_OVERLOAD)

    return run
