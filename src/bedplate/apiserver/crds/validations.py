"""`x-kubernetes-validations`: compiled once per schema, judged when written, run on every object.

In: a schema with rules; objects, old and new. Out: causes. A rule that mentions `oldSelf` runs only where an old value
can be matched with the new one; a failing rule over an unchanged value is tolerated on update (ratcheting).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.apiserver import cel
from bedplate.apiserver.cel import declarations, types
from bedplate.apiserver.cel.types import Type
from bedplate.apiserver.cel.values import NONE, CelError, Optional
from bedplate.apiserver.schema import causes, gotext, values
from bedplate.apiserver.status import FieldProblem

__all__ = ["Place", "Tree", "check_default", "check_rules", "compile_tree", "cost_text", "resolve_path"]

Schema = Mapping[str, Any]
Pair = tuple[Any, Any]

_LIMIT = 10_000_000
_MAX_MESSAGE = 5120


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the tree of a definition's schema a part of it stands."""

    schema: Schema
    path: str
    is_root: bool = False
    in_metadata: bool = False
    no_defaults: str = ""
    """why defaults are refused here; empty when they are allowed."""
    uncorrelatable: str = ""
    """the path above which old and new values cannot be matched; empty when they can."""
    cardinality: int | None = 1
    """how often a value of this schema can occur in an object; None when unbounded."""
    judges_rules: bool = True


@dataclass(slots=True)
class Rule:
    """One compiled rule. `error` and `message_error` are set instead of what did not compile."""

    text: Schema
    program: cel.Expression | None = None
    message: cel.Expression | None = None
    error: str = ""
    message_error: str = ""
    uses_old: bool = False
    cost: int = 0
    message_cost: int = 0

    @property
    def is_optional(self) -> bool:
        return bool(self.text.get("optionalOldSelf"))

    @property
    def name(self) -> str:
        return str(self.text.get("message") or self.text["rule"]).strip()


def compile_rule(text: Schema, kind: Type) -> Rule:
    old = types.optional_of(kind) if text.get("optionalOldSelf") else kind
    variables = {"self": kind, "oldSelf": old}
    rule = Rule(text)
    try:
        rule.program = cel.compile_expression(text["rule"], variables)
    except cel.CompileError as error:
        rule.error = f"compilation failed: {error}"
        return rule
    except CelError as error:
        rule.error = f"program instantiation failed: {error}"
        return rule
    if rule.program.result.kind != "bool":
        rule.error = "cel expression must evaluate to a bool"
        return rule
    rule.uses_old = "oldSelf" in rule.program.used
    rule.cost = rule.program.cost
    if source := text.get("messageExpression"):
        try:
            rule.message = cel.compile_expression(source, variables)
        except cel.CompileError as error:
            rule.message_error = f"messageExpression compilation failed: {error}"
            return rule
        if rule.message.result.kind != "string":
            rule.message_error = "messageExpression must evaluate to a string"
        rule.message_cost = rule.message.cost
    return rule


def _is_resource(schema: Schema, is_root: bool) -> bool:
    return is_root or bool(schema.get("x-kubernetes-embedded-resource"))


def check_rules(place: Place) -> tuple[list[FieldProblem], list[tuple[str, int]]]:
    """The faults of the rules of one schema, as found when they are written, and what each expression may cost."""
    kind = declarations.declare(place.schema, is_resource=_is_resource(place.schema, place.is_root))
    if kind is None:
        return [], []
    faults: list[FieldProblem] = []
    costs: list[tuple[str, int]] = []
    times = place.cardinality
    if times is None:
        times = declarations.MAX_REQUEST // (kind.min_size + 1)
    for index, text in enumerate(place.schema["x-kubernetes-validations"]):
        where = f"{place.path}.x-kubernetes-validations[{index}]"
        rule = compile_rule(text, kind)
        costs += [(f"{where}.rule", rule.cost * times), (f"{where}.messageExpression", rule.message_cost)]
        if rule.cost * times > _LIMIT:
            faults.append(causes.forbidden(f"{where}.rule", cost_text("estimated rule cost", rule.cost * times)))
        if rule.error:
            faults.append(causes.invalid(f"{where}.rule", _shown_rule(text), rule.error))
        if rule.message_error:
            faults.append(causes.invalid(f"{where}.messageExpression", _shown_rule(text), rule.message_error))
        elif rule.message_cost > _LIMIT:
            detail = cost_text("estimated messageExpression cost", rule.message_cost)
            faults.append(causes.forbidden(f"{where}.messageExpression", detail))
        if rule.uses_old and place.uncorrelatable:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelatable}"
            faults.append(causes.invalid(f"{where}.rule", text["rule"], detail))
        elif not rule.uses_old and text.get("optionalOldSelf") is not None:
            detail = "may not be set if oldSelf is not used in rule"
            faults.append(causes.invalid(f"{where}.optionalOldSelf", text["optionalOldSelf"], detail))
    return faults, costs


def cost_text(what: str, amount: int, limit: int = _LIMIT) -> str:
    factor = amount / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )


def _shown_rule(text: Schema) -> gotext.Literal:
    """The rule as the server's own struct prints."""
    keys = {"Rule": "rule", "Message": "message", "MessageExpression": "messageExpression"}
    parts = [f'"{name}":{gotext.marshal(text.get(key) or "")}' for name, key in keys.items()]
    parts.append(f'"Reason":{gotext.marshal(text.get("reason"))}')
    parts.append(f'"FieldPath":{gotext.marshal(text.get("fieldPath") or "")}')
    parts.append(f'"OptionalOldSelf":{gotext.marshal(text.get("optionalOldSelf"))}')
    return gotext.Literal("{" + ",".join(parts) + "}")


@dataclass(slots=True)
class Tree:
    """The rules of a schema and of what is below it. Parts without rules are left out."""

    schema: Schema
    kind: Type | None
    rules: list[Rule] = field(default_factory=list)
    fields: dict[str, Tree] = field(default_factory=dict)
    extra: Tree | None = None
    items: Tree | None = None
    is_root: bool = False

    def validate(self, obj: Any, old: Any) -> list[FieldProblem]:
        """The rules a whole object breaks; `old` is None on create."""
        faults: list[FieldProblem] = []
        self._walk("", obj, old, values.MISSING if old is None else old, None, faults)
        return faults

    def _walk(
        self, path: str, obj: Any, old: Any, matched: Any, above: tuple[Any, Any] | None, faults: list[FieldProblem]
    ) -> None:
        """`matched` is the old value for ratcheting, `above` the nearest pair that could be matched."""
        if obj is None:
            return
        if self.rules:
            self._run(path, obj, old, matched, above, faults)
        below = above if matched is values.MISSING else (obj, matched)
        if type(obj) is dict and (self.fields or self.extra is not None):
            earlier = old if type(old) is dict else {}
            for name, member in obj.items():
                tree = self.fields.get(name)
                if tree is None and self.extra is None:
                    continue
                where = f"{path}.{name}" if path else name
                if tree is None:
                    tree, where = self.extra, causes.key_path(path, name)
                assert tree is not None
                counterpart = matched.get(name, values.MISSING) if type(matched) is dict else values.MISSING
                if self.is_root and name in ("apiVersion", "kind"):
                    tree._walk(where, member, earlier.get(name), values.MISSING, None, faults)
                else:
                    tree._walk(where, member, earlier.get(name), counterpart, below, faults)
        elif type(obj) is list and self.items is not None:
            self._walk_items(path, obj, old, matched, below, faults)

    def _walk_items(
        self, path: str, obj: list[Any], old: Any, matched: Any, below: Any, faults: list[FieldProblem]
    ) -> None:
        assert self.items is not None
        keys: Sequence[str] = ()
        if self.schema.get("x-kubernetes-list-type") == "map":
            keys = self.schema.get("x-kubernetes-list-map-keys") or ()
        earlier = values.by_keys(old, keys) if keys and type(old) is list else {}
        counterparts = values.by_keys(matched, keys) if keys and type(matched) is list else {}
        for index, item in enumerate(obj):
            key = values.keys_of(item, keys) if keys else ()
            counterpart = counterparts.get(key, values.MISSING)
            self.items._walk(f"{path}[{index}]", item, earlier.get(key), counterpart, below, faults)

    def _run(self, path: str, obj: Any, old: Any, matched: Any, above: Any, faults: list[FieldProblem]) -> None:
        kind = self.kind
        assert kind is not None
        adapt = kind.adapt
        where = path or causes.NO_PATH
        type_name = self.schema.get("type", "")
        for rule in self.rules:
            if rule.program is None or rule.error:
                faults.append(causes.invalid(where, type_name, f"rule compile error: {rule.error}"))
                continue
            if rule.uses_old and old is None and not rule.is_optional:
                continue
            try:
                value = obj if adapt is None else adapt(obj)
                earlier = old if adapt is None or old is None else adapt(old)
                if rule.is_optional:
                    earlier = NONE if old is None else Optional(earlier)
                if rule.program.run(value, earlier) is True:
                    continue
            except CelError as error:
                faults.append(causes.invalid(where, type_name, _failure_text(str(error), rule)))
                continue
            if not rule.uses_old and _is_tolerated(obj, matched, above):
                continue
            faults.append(self._refusal(rule, path, obj, value, old, type_name))

    def _refusal(self, rule: Rule, path: str, obj: Any, value: Any, old: Any, type_name: str) -> FieldProblem:
        detail = _message(rule, value, old)
        if field_path := rule.text.get("fieldPath"):
            path = _child_path(self.schema, path, field_path)
        where = path or causes.NO_PATH
        shown = causes.OMITTED if type_name in ("object", "array") else obj
        reason = rule.text.get("reason")
        if reason == "FieldValueForbidden":
            return causes.forbidden(where, detail)
        if reason == "FieldValueRequired":
            return causes.required(where, detail)
        return (
            causes.duplicate(where, shown) if reason == "FieldValueDuplicate" else causes.invalid(where, shown, detail)
        )


def _is_tolerated(obj: Any, matched: Any, above: Pair | None) -> bool:
    if matched is not values.MISSING:
        return values.same(obj, matched)
    return above is not None and values.same(*above)


def _failure_text(error: str, rule: Rule) -> str:
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {rule.name}"
        )
    return f"{error} evaluating rule: {rule.name}"


def _message(rule: Rule, value: Any, old: Any) -> str:
    if rule.message is not None and not rule.message_error:
        try:
            text = str(rule.message.run(value, old)).strip()
        except CelError:
            text = ""
        if text and "\n" not in text and len(text.encode()) <= _MAX_MESSAGE:
            return text
    message = rule.text.get("message")
    return str(message).strip() if message else f"failed rule: {rule.name}"


def _child_path(schema: Schema, path: str, field_path: str) -> str:
    target = resolve_path(schema, field_path)
    if target is None:
        return path
    here: Any = schema
    for name in target[0]:
        properties = here.get("properties") or {}
        if name in properties:
            path, here = f"{path}.{name}" if path else name, properties[name]
        else:
            path, here = causes.key_path(path, name), here["additionalProperties"]
    return path


def compile_tree(schema: Schema, *, is_root: bool = False) -> Tree | None:
    """The rules at and below a schema; None when there are none."""
    texts = schema.get("x-kubernetes-validations") or ()
    kind = declarations.declare(schema, is_resource=_is_resource(schema, is_root)) if texts else None
    tree = Tree(schema, kind, is_root=is_root)
    if kind is not None:
        tree.rules = [compile_rule(text, kind) for text in texts]
    subs = (schema.get("properties") or {}).items()
    tree.fields = {name: subtree for name, sub in subs if (subtree := compile_tree(sub)) is not None}
    extra, items = schema.get("additionalProperties"), schema.get("items")
    tree.extra = compile_tree(extra) if isinstance(extra, Mapping) else None
    tree.items = compile_tree(items) if isinstance(items, Mapping) else None
    has_rules = tree.rules or tree.fields or tree.extra is not None or tree.items is not None
    return tree if has_rules else None


def check_default(schema: Schema, default: Any, path: str) -> list[FieldProblem]:
    """The rules a default breaks."""
    tree = compile_tree(schema)
    if tree is None:
        return []
    faults: list[FieldProblem] = []
    tree._walk(path, default, default, values.MISSING, None, faults)
    if not faults:
        tree._walk(path, default, None, values.MISSING, None, faults)
    return faults


def resolve_path(schema: Schema, text: str) -> tuple[list[str], Schema] | None:
    """The names a path such as `.spec['a.b']` goes through and the schema it ends at; None when it leads nowhere."""
    names, rest, here = [], text, schema
    while rest:
        if rest.startswith("["):
            end = rest.find("']", 2)
            if not rest.startswith("['") or end < 0:
                return None
            name, rest = rest[2:end], rest[end + 2 :]
        elif rest.startswith("."):
            stop = min((at for at in (rest.find(".", 1), rest.find("[", 1)) if at > 0), default=len(rest))
            name, rest = rest[1:stop], rest[stop:]
        else:
            return None
        extra = here.get("additionalProperties")
        member = (here.get("properties") or {}).get(name) or (extra if isinstance(extra, Mapping) else None)
        if not name or member is None:
            return None
        names.append(name)
        here = member
    return (names, here) if names else None
