"""The type check that Kubernetes runs on an expression before it accepts it.

In: a tree, the types of the variables, the functions. Out: the type of every node and the overloads of every call (kept
for the evaluator), or faults with their places, in the server's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bedplate.apiserver.cel import ast, literals, types
from bedplate.apiserver.cel.lexer import Fault
from bedplate.apiserver.cel.signatures import Overload
from bedplate.apiserver.cel.types import Type, Unifier

__all__ = ["Checked", "check", "render"]


class Checked(NamedTuple):
    """What the check found. Keys are `id(node)` of nodes that `root` keeps alive."""

    root: ast.Node
    result: Type
    types: dict[int, Type]
    overloads: dict[int, list[Overload]]
    names: dict[int, str]
    """nodes that turned out to be a qualified name or a namespaced function."""
    used: set[str]
    """variables the expression refers to."""
    faults: list[Fault]


_TYPE_NAMES = {
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "null_type": types.NULL,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "type": Type("type"),
    "timestamp": types.TIMESTAMP,
    "duration": types.DURATION,
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION,
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
    "kubernetes.Quantity": types.QUANTITY,
    "kubernetes.URL": types.URL,
    "kubernetes.Semver": types.SEMVER,
    "kubernetes.NamedFormat": types.FORMAT,
    "optional_type": types.optional_of(types.DYN),
}
_LITERALS = {
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "bool": types.BOOL,
    "null": types.NULL,
}


def check(root: ast.Node, variables: Mapping[str, Type], functions: Mapping[str, list[Overload]]) -> Checked:
    checker = _Checker(variables, functions)
    result = checker.visit(root)
    resolve = checker.unifier.resolve
    resolved = {key: resolve(kind, dyn_for_free=True) for key, kind in checker.types.items()}
    unsorted = checker.faults or literals.check_literals(root, resolved)
    faults = sorted(dict.fromkeys(unsorted), key=lambda fault: (fault.line, fault.column))
    result = resolve(result, dyn_for_free=True)
    return Checked(root, result, resolved, checker.overloads, checker.names, checker.used, faults)


def render(faults: list[Fault], source: str) -> str:
    """Faults as cel-go prints them: message, source line, arrow."""
    lines = source.split("\n")
    texts = []
    for line, column, message in faults:
        text = f"ERROR: <input>:{line}:{column + 1}: {message}"
        if 0 < line <= len(lines):
            shown = lines[line - 1].replace("\t", " ")
            text += f"\n | {shown}\n | {_arrow(shown, column)}"
        texts.append(text)
    return "\n".join(texts)


def _arrow(line: str, column: int) -> str:
    """Dots up to the place and an arrow; wide ones below letters beyond ASCII."""
    dots = "".join("．" if ord(letter) > 127 else "." for letter in line[:column])
    return dots + ("＾" if ord(line[column : column + 1] or " ") > 127 else "^")


class _Checker:
    def __init__(self, variables: Mapping[str, Type], functions: Mapping[str, list[Overload]]) -> None:
        self._scopes: list[Mapping[str, Type]] = [variables]
        self._functions = functions
        self.unifier = Unifier()
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, list[Overload]] = {}
        self.names: dict[int, str] = {}
        self.used: set[str] = set()
        self.faults: list[Fault] = []

    def _fault(self, node: ast.Node, message: str) -> Type:
        self.faults.append(Fault(node.line, node.column, message))
        return types.ERROR

    def _resolve(self, kind: Type) -> Type:
        return self.unifier.resolve(kind)

    def visit(self, node: ast.Node) -> Type:
        kind = self._visit(node)
        self.types[id(node)] = kind
        return kind

    def _visit(self, node: ast.Node) -> Type:
        match node:
            case ast.Literal():
                return _LITERALS[node.kind]
            case ast.Ident():
                return self._ident(node)
            case ast.Select():
                return self._select(node)
            case ast.Has():
                self._field(node, self._resolve(self.visit(node.operand)), node.name)
                return types.BOOL
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

    def _lookup(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                self.used.add(name)
                return scope[name]
        return types.type_of(_TYPE_NAMES[name]) if name in _TYPE_NAMES else None

    def _ident(self, node: ast.Ident) -> Type:
        kind = self._lookup(node.name)
        if kind is None:
            return self._fault(node, f"undeclared reference to '{node.name}' (in container '')")
        return kind

    def _qualified(self, node: ast.Node) -> str:
        """`a.b.c` when the node is only names and `a` is not a variable; else empty."""
        if isinstance(node, ast.Ident):
            return "" if any(node.name in scope for scope in self._scopes) else node.name
        if isinstance(node, ast.Select) and not node.optional:
            prefix = self._qualified(node.operand)
            return f"{prefix}.{node.name}" if prefix else ""
        return ""

    def _select(self, node: ast.Select) -> Type:
        name = self._qualified(node)
        if name in _TYPE_NAMES:
            self.names[id(node)] = name
            return types.type_of(_TYPE_NAMES[name])
        kind = self._resolve(self.visit(node.operand))
        if not node.optional and not kind.is_optional:
            return self._field(node, kind, node.name)
        inner = kind.params[0] if kind.is_optional else kind
        member = self._resolve(self._field(node, self._resolve(inner), node.name))
        return member if member.is_optional or member.kind == "error" else types.optional_of(member)

    def _field(self, node: ast.Node, kind: Type, name: str) -> Type:
        if kind.is_optional:
            kind = self._resolve(kind.params[0])
        if kind.kind == "object":
            field = kind.fields.get(name)
            return field.type if field is not None else self._fault(node, f"undefined field '{name}'")
        if kind.kind == "map":
            return kind.params[1]
        if kind.is_dyn or kind.kind == "param":
            return types.DYN
        return self._fault(node, f"type '{kind}' does not support field selection")

    def _index(self, node: ast.Index) -> Type:
        kind, key = self._resolve(self.visit(node.operand)), self.visit(node.key)
        inner = self._resolve(kind.params[0]) if kind.is_optional else kind
        wraps = node.optional or kind.is_optional
        element: Type | None = None
        if inner.kind == "list" and self.unifier.assign_all([key], [types.INT]):
            element = inner.params[0]
        elif inner.kind == "map" and self.unifier.assign_all([key], [inner.params[0]]):
            element = inner.params[1]
        elif inner.is_dyn or inner.kind == "param":
            element = types.DYN
        if element is None:
            operator = "_[?_]" if node.optional else "_[_]"
            shown = f"({kind}, {self._resolve(key)})"
            return self._fault(node, f"found no matching overload for '{operator}' applied to '{shown}'")
        return types.optional_of(element) if wraps else element

    def _join(self, node: ast.Node, joined: Type | None, kind: Type, *, optional: bool) -> Type:
        """The common type of the elements of a literal: dynamic when they differ."""
        kind = self._resolve(kind)
        if optional:
            if kind.is_optional:
                kind = self._resolve(kind.params[0])
            elif not kind.is_dyn:
                self._fault(node, f"expected type 'optional_type({kind})' but found '{kind}'")
        if joined is None or self._resolve(joined).kind in ("param", "error"):
            return kind
        if self.unifier.assign_all([kind], [joined]):
            return kind if kind.is_dyn else joined
        return types.DYN

    def _list(self, node: ast.ListNode) -> Type:
        joined: Type | None = None
        for item, optional in zip(node.items, node.optional, strict=True):
            joined = self._join(item, joined, self.visit(item), optional=optional)
        return types.list_of(joined or self.unifier.fresh())

    def _map(self, node: ast.MapNode) -> Type:
        key_kind: Type | None = None
        value_kind: Type | None = None
        for key, value, optional in node.entries:
            key_kind = self._join(key, key_kind, self.visit(key), optional=False)
            value_kind = self._join(value, value_kind, self.visit(value), optional=optional)
        return types.map_of(key_kind or self.unifier.fresh(), value_kind or self.unifier.fresh())

    def _call(self, node: ast.Call) -> Type:
        if node.target is not None:
            qualified = self._qualified(node.target)
            if qualified and f"{qualified}.{node.name}" in self._functions:
                self.names[id(node)] = f"{qualified}.{node.name}"
                return self._resolve_call(node, f"{qualified}.{node.name}", [], is_method=False)
            target = [self.visit(node.target)]
            return self._resolve_call(node, node.name, target, is_method=True)
        return self._resolve_call(node, node.name, [], is_method=False)

    def _resolve_call(self, node: ast.Call, name: str, target: list[Type], *, is_method: bool) -> Type:
        args = target + [self.visit(arg) for arg in node.args]
        if name in ("_==_", "_!=_", "_&&_", "_||_", "!_", "_?_:_"):
            return self._logic(node, name, args)
        overloads = self._functions.get(name)
        if overloads is None:
            return self._fault(node, f"undeclared reference to '{name}' (in container '')")
        results: list[Type] = []
        chosen: list[Overload] = []
        for overload in overloads:
            if overload.is_method != is_method or len(overload.params) != len(args):
                continue
            *params, result = self.unifier.instance([*overload.params, overload.result])
            if self.unifier.assign_all(args, params):
                chosen.append(overload)
                results.append(self._resolve(result))
        if not chosen:
            return self._no_overload(node, name, args, is_method)
        self.overloads[id(node)] = chosen
        if all(str(result) == str(results[0]) for result in results):
            return self._kept_list(name, args, results[0])
        return types.DYN

    def _kept_list(self, name: str, args: list[Type], result: Type) -> Type:
        """The sum of two lists keeps what is special about the first (set, map)."""
        left = self._resolve(args[0]) if args else result
        return left if name == "_+_" and left.kind == "list" and left.list_type else result

    def _no_overload(self, node: ast.Node, name: str, args: list[Type], is_method: bool) -> Type:
        shown = [str(self.unifier.resolve(arg, dyn_for_free=True)) for arg in args]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if is_method else f"({', '.join(shown)})"
        return self._fault(node, f"found no matching overload for '{name}' applied to '{signature}'")

    def _logic(self, node: ast.Call, name: str, args: list[Type]) -> Type:
        if name in ("_==_", "_!=_"):
            *params, result = self.unifier.instance([types.param("A"), types.param("A"), types.BOOL])
        elif name == "_?_:_":
            *params, result = self.unifier.instance([types.BOOL, types.param("A"), types.param("A"), types.param("A")])
        else:
            params, result = [types.BOOL] * len(args), types.BOOL
        if name in ("_&&_", "_||_"):
            for arg, kind in zip(node.args, args, strict=True):
                self._want_bool(arg, kind)
            return types.BOOL
        if not self.unifier.assign_all(args, params):
            return self._no_overload(node, name, args, is_method=False)
        return self._resolve(result)

    def _want_bool(self, node: ast.Node, kind: Type) -> None:
        if not self.unifier.assign_all([kind], [types.BOOL]):
            self._fault(node, f"expected type 'bool' but found '{self._resolve(kind)}'")

    def _comprehension(self, node: ast.Comprehension) -> Type:
        kind = self._resolve(self.visit(node.range))
        if node.macro in ("optMap", "optFlatMap"):
            return self._optional_macro(node, kind)
        variables = self._variables(node, kind)
        self._scopes.append(variables)
        condition = self.visit(node.condition) if node.condition is not None else types.BOOL
        result = self.visit(node.result) if node.result is not None else types.BOOL
        self._condition(node, condition, variables[node.variables[0]] if node.macro == "filter" else result)
        self._scopes.pop()
        if node.macro == "filter":
            first = variables[node.variables[0]]
            return types.list_of(first)
        if node.macro in ("map", "transformList"):
            return types.list_of(result)
        if node.macro == "transformMap":
            return types.map_of(variables[node.variables[0]], result)
        if node.macro == "transformMapEntry":
            return result
        return types.list_of(variables[node.variables[0]]) if node.macro == "sortBy" else types.BOOL

    def _variables(self, node: ast.Comprehension, kind: Type) -> dict[str, Type]:
        if kind.kind == "list":
            kinds = [kind.params[0]] if len(node.variables) == 1 else [types.INT, kind.params[0]]
        elif kind.kind == "map":
            kinds = list(kind.params[: len(node.variables)])
        else:
            if not kind.is_dyn and kind.kind != "param":
                text = "cannot be range of a comprehension (must be list, map, or dynamic)"
                self._fault(node.range, f"expression of type '{kind}' {text}")
            kinds = [types.DYN] * len(node.variables)
        return dict(zip(node.variables, kinds, strict=True))

    def _condition(self, node: ast.Comprehension, kind: Type, element: Type) -> None:
        if self.unifier.assign_all([kind], [types.BOOL]):
            return
        shown = self._resolve(kind)
        if node.macro in ("all", "exists") and node.condition is not None:
            self._want_bool(node.condition, kind)
        else:
            whole = "int" if node.macro == "exists_one" else f"list({self._resolve(element)})"
            rest = f"{whole}, {whole}"
            self._fault(node, f"found no matching overload for '_?_:_' applied to '({shown}, {rest})'")

    def _optional_macro(self, node: ast.Comprehension, kind: Type) -> Type:
        inner = self._resolve(kind.params[0]) if kind.is_optional else types.DYN
        if not kind.is_optional and not kind.is_dyn:
            self._fault(node, f"found no matching overload for 'hasValue' applied to '{kind}.()'")
        assert node.result is not None
        self._scopes.append({node.variables[0]: inner})
        result = self.visit(node.result)
        self._scopes.pop()
        return types.optional_of(result) if node.macro == "optMap" else result
