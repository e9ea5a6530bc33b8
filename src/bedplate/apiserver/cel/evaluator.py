"""A checked expression compiled into Python closures.

In: what the checker found. Out: a function of the variables' slots. Each node becomes one closure; the static types
choose the cheapest one, so that a simple rule costs a few function calls. Errors are `CelError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bedplate.apiserver.cel import ast, strings, types, values
from bedplate.apiserver.cel.checker import Checked
from bedplate.apiserver.cel.signatures import Overload
from bedplate.apiserver.cel.types import Type
from bedplate.apiserver.cel.values import NONE, CelError, Optional, TypeValue, UInt, equals
from bedplate.apiserver.schema import gotext, patterns

__all__ = ["Program", "compile_program"]

Slots = list[Any]
Closure = Callable[[Slots], Any]
Program = Callable[..., Any]

# A null where the schema promises a value, or data that a schema does not describe, ends in these.
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})
FAILURES = (CelError, TypeError, AttributeError)
NO_OVERLOAD = "no such overload"


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
        value = TypeValue(name)
        return lambda slots: value

    def _member(self, kind: Type, name: str) -> tuple[str, Callable[[Any], Any] | None]:
        """The JSON name behind a CEL name, and what turns its JSON value into a CEL value."""
        if kind.is_optional:
            kind = kind.params[0]
        if kind.kind == "object" and name in kind.fields:
            found = kind.fields[name]
            return found.json_name, found.type.adapt
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
            found = []
            for item, optional in marked:
                value = item(slots)
                if not optional:
                    found.append(value)
                elif value.present:
                    found.append(value.value)
            return found

        return build

    def _map(self, node: ast.MapNode) -> Closure:
        entries = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]

        def build(slots: Slots) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for key, value, optional in entries:
                name, member = key(slots), value(slots)
                if optional and not member.present:
                    continue
                found[name] = member.value if optional else member
            return found

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
            return _list_sum(kinds[0])
        last = args[-1] if args else None
        if name == "matches" and isinstance(last, ast.Literal):
            search = patterns.compile_pattern(last.value).search
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
            return _optional_macro(node.macro, source, first, result)
        steps = _steps(source, first, len(node.variables) == 2)
        return _MACROS[node.macro](steps, condition, result)


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
        raise CelError(f"no such key: {_shown_key(key)}")
    raise CelError(NO_OVERLOAD)


def _shown_key(key: Any) -> str:
    return key if type(key) is str else gotext.show(key)


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


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise CelError(NO_OVERLOAD)


def _and(left: Closure, right: Closure) -> Closure:
    """False wins over an error on the other side."""

    def run(slots: Slots) -> bool:
        try:
            if not _bool(left(slots)):
                return False
        except FAILURES:
            if right(slots) is False:
                return False
            raise
        return _bool(right(slots))

    return run


def _or(left: Closure, right: Closure) -> Closure:
    def run(slots: Slots) -> bool:
        try:
            if _bool(left(slots)):
                return True
        except FAILURES:
            try:
                if right(slots) is True:
                    return True
            except FAILURES:
                pass
            raise
        return _bool(right(slots))

    return run


def _not(inner: Closure) -> Closure:
    return lambda slots: not _bool(inner(slots))


def _choose(condition: Closure, left: Closure, right: Closure) -> Closure:
    return lambda slots: left(slots) if _bool(condition(slots)) else right(slots)


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


_PLAIN = frozenset({"int", "string", "bool", "double", "bytes", "timestamp", "duration"})


def equality_of(left: Type, right: Type) -> Callable[[Any, Any], bool]:
    """The comparison for two static types; lists that are sets or maps are equal in any order."""
    if left.kind == right.kind and left.kind in _PLAIN:
        return operator.eq
    special = left if left.list_type in ("set", "map") else right
    if special.list_type in ("set", "map"):
        return _list_equality(special)
    if left.kind == "object" and right.kind == "object" and _has_special(left):
        return _object_equality(left)
    if left.kind == "list" and right.kind == "list" and _has_special(left):
        same = equality_of(left.params[0], left.params[0])
        return lambda a, b: len(a) == len(b) and all(map(same, a, b))
    return equals


def _has_special(kind: Type) -> bool:
    if kind.list_type in ("set", "map"):
        return True
    return any(map(_has_special, kind.params)) or any(_has_special(each.type) for each in kind.fields.values())


def _object_equality(kind: Type) -> Callable[[Any, Any], bool]:
    members = {each.json_name: equality_of(each.type, each.type) for each in kind.fields.values()}

    def same(left: Any, right: Any) -> bool:
        if type(left) is not dict or type(right) is not dict or left.keys() != right.keys():
            return equals(left, right)
        return all(members.get(name, equals)(left[name], right[name]) for name in left)

    return same


def _key_of(item: Any, keys: Iterable[str]) -> tuple[Any, ...]:
    return tuple(gotext.marshal(item.get(key)) for key in keys)


def _list_equality(kind: Type) -> Callable[[Any, Any], bool]:
    same = equality_of(kind.params[0], kind.params[0])

    def same_set(left: list[Any], right: list[Any]) -> bool:
        return len(left) == len(right) and all(any(same(item, other) for other in right) for item in left)

    def same_map(left: list[Any], right: list[Any]) -> bool:
        others = {_key_of(item, kind.list_keys): item for item in right}
        if len(left) != len(right):
            return False
        found = [(item, others.get(_key_of(item, kind.list_keys))) for item in left]
        return all(other is not None and same(item, other) for item, other in found)

    return same_map if kind.list_type == "map" else same_set


def _list_sum(kind: Type) -> Callable[[Any, Any], Any]:
    def union(left: list[Any], right: list[Any]) -> list[Any]:
        return left + [item for item in right if not any(equals(item, other) for other in left)]

    def merge(left: list[Any], right: list[Any]) -> list[Any]:
        merged = {_key_of(item, kind.list_keys): item for item in left}
        merged |= {_key_of(item, kind.list_keys): item for item in right}
        return list(merged.values())

    return union if kind.list_type == "set" else merge


Steps = Callable[[Slots], Iterable[Any]]


def _steps(source: Closure, first: int, is_pair: bool) -> Steps:
    """Walks a list or map, with the macro's variables set at each step; yields the first one, or both as a pair."""

    def walk(slots: Slots) -> Iterable[Any]:
        holder = source(slots)
        if type(holder) is not list and type(holder) is not dict:
            raise CelError(NO_OVERLOAD)
        if not is_pair:
            for item in holder:
                slots[first] = item
                yield item
            return
        for pair in enumerate(holder) if isinstance(holder, list) else holder.items():
            slots[first], slots[first + 1] = pair
            yield pair

    return walk


def _all(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    return lambda slots: _quantify(steps, condition, slots, ends_with=False)


def _exists(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    return lambda slots: _quantify(steps, condition, slots, ends_with=True)


def _quantify(steps: Steps, condition: Closure | None, slots: Slots, *, ends_with: bool) -> bool:
    """An element that decides wins over errors on others; otherwise the last error is the result."""
    assert condition is not None
    failed: Exception | None = None
    for _ in steps(slots):
        try:
            if _bool(condition(slots)) is ends_with:
                return ends_with
        except FAILURES as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not ends_with


def _exists_one(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert condition is not None
    return lambda slots: sum(_bool(condition(slots)) for _ in steps(slots)) == 1


def _filter(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert condition is not None
    return lambda slots: [item for item in steps(slots) if _bool(condition(slots))]


def _map(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None
    if condition is None:
        return lambda slots: [result(slots) for _ in steps(slots)]
    return lambda slots: [result(slots) for _ in steps(slots) if _bool(condition(slots))]


def _transform_map(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None
    if condition is None:
        return lambda slots: {pair[0]: result(slots) for pair in steps(slots)}
    return lambda slots: {pair[0]: result(slots) for pair in steps(slots) if _bool(condition(slots))}


def _transform_entries(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None

    def run(slots: Slots) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in steps(slots):
            if condition is not None and not _bool(condition(slots)):
                continue
            entries: Mapping[Any, Any] = result(slots)
            for key, value in entries.items():
                if key in found:
                    raise CelError(f"insert failed: key {_shown_key(key)} already exists")
                found[key] = value
        return found

    return run


def _sort_by(steps: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None

    def run(slots: Slots) -> list[Any]:
        items: list[Any] = []
        keys: list[Any] = []
        for item in steps(slots):
            items.append(item)
            keys.append(result(slots))
        return strings.sort_by(items, keys)

    return run


_MACROS: dict[str, Callable[[Steps, Closure | None, Closure | None], Closure]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entries,
    "sortBy": _sort_by,
}


def _optional_macro(macro: str, source: Closure, slot: int, result: Closure) -> Closure:
    def run(slots: Slots) -> Optional:
        holder = source(slots)
        if not holder.present:
            return NONE
        slots[slot] = holder.value
        found = result(slots)
        return Optional(found) if macro == "optMap" else found

    return run
