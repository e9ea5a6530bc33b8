"""Values seen through their type: which paths differ, which paths a value has, how two values merge.

In: plain JSON values and the `TypeNode` of their kind. Out: field sets (see `fieldset`) and new values, which share
unchanged parts with the old ones. This is the arithmetic under `managed` and `apply`; it knows nothing of managers.

What a type means here: scalars, atomic lists and atomic maps are leaves. Items of set and map lists are addressed by
value and by key. An untyped value is taken as it comes: maps field by field, lists whole; only RawExtension is one
leaf. An empty or null list or map counts as a leaf, so that the difference between absent and empty is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bedplate.apiserver.merge import fieldset
from bedplate.apiserver.merge.fieldset import SELF, FieldSet
from bedplate.apiserver.shape.typegraph import ANY, TypeNode

__all__ = ["Difference", "Mistyped", "TypeWalk", "child_node", "fields_of", "identical", "is_atomic", "item_element"]

RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
FIELDS_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
MISSING: Any = object()
MAX_PLANS = 512
_ZERO_KEYS: dict[str, Any] = {"string": "", "integer": 0, "boolean": False}

Difference = tuple[FieldSet | None, FieldSet | None]
"""what was added or changed, and what was removed; None where there is nothing."""

Walk = Callable[[Any], FieldSet]


class Mistyped(ValueError):
    """The value does not fit its type; the text is the real server's."""


def is_atomic(node: TypeNode) -> bool:
    """Is a value of this type owned and replaced as a whole?"""
    shape = node.shape
    if shape == "list":
        return node.list_type == "atomic"
    if shape == "any":
        return node.name == RAW_EXTENSION
    return shape == "scalar" or node.map_type == "atomic"


def child_node(node: TypeNode, key: str) -> TypeNode:
    """The type of a map's or struct's member; an undeclared one is untyped."""
    if node.shape == "struct":
        return node.fields.get(key) or ANY
    return (node.element or ANY) if node.shape == "map" else ANY


def identical(left: Any, right: Any) -> bool:
    """JSON equality: unlike Python's, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            key in right and identical(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(identical, left, right))
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def item_element(node: TypeNode, item: Any) -> str:
    """The path element of an item of a set or map list; raises `Mistyped` when the item has none."""
    keys = node.list_keys
    if not keys:
        if isinstance(item, dict):
            raise Mistyped("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise Mistyped("not supported: associative list with lists as elements")
        if item is None:
            raise Mistyped("associative list without keys has an element that's an explicit null")
        return fieldset.value_element(item)
    if item is None:
        raise Mistyped("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise Mistyped("associative list with keys may not have non-map elements")
    if len(keys) == 1 and keys[0] in item:
        return fieldset.single_key_element(keys[0], item[keys[0]])
    pairs = [(key, item[key]) for key in keys if key in item]
    if len(pairs) < len(keys):
        defaults = [(key, _key_default(node, key)) for key in keys if key not in item]
        pairs += [pair for pair in defaults if pair[1] is not MISSING]
        if not pairs:
            names = " ".join(f'"{key}"' for key in keys)
            raise Mistyped(
                f"associative list with keys has an element that omits all key fields [{names}]"
                " (and doesn't have default values for any key fields)"
            )
    return fieldset.key_element(pairs)


def _key_default(node: TypeNode, key: str) -> Any:
    """What a left-out key field counts as: its default, or for a field that Go always writes its zero value."""
    if key in node.key_defaults:
        return node.key_defaults[key]
    field = node.element.fields.get(key) if node.element is not None else None
    if field is None or field.omit_empty or field.pointer:
        return MISSING
    return _ZERO_KEYS.get(field.scalar, MISSING)


def items_by_element(node: TypeNode, items: list[Any] | None) -> dict[str, list[Any]]:
    """The items under their path elements; duplicates stay together in order."""
    elements: dict[str, list[Any]] = {}
    for index, item in enumerate(items or ()):
        try:
            elements.setdefault(item_element(node, item), []).append(item)
        except Mistyped as err:
            raise Mistyped(f"element {index}: {err}") from None
    return elements


def fields_of(node: TypeNode, value: Any) -> FieldSet:
    """Every leaf and item that the value mentions: what an applied configuration claims to own."""
    if is_atomic(node) or not isinstance(value, dict | list):
        return {}
    out: FieldSet = {}
    if isinstance(value, list):
        if node.shape == "list":
            for element, items in items_by_element(node, value).items():
                below = fields_of(node.element or ANY, items[0]) if len(items) == 1 else {}
                out[element] = {SELF: {}, **below} if below else {}
        return fieldset.in_order(out)
    for key, item in value.items():
        child = child_node(node, key)
        below = fields_of(child, item)
        if item is None or item == {} or not (node.shape == "struct" and key in node.fields):
            out[fieldset.field_element(key)] = {SELF: {}, **below} if below else {}
        elif below or not isinstance(item, dict | list) or is_leaf_value(child, item):
            out[fieldset.field_element(key)] = below
    return fieldset.in_order(out)


def is_leaf_value(node: TypeNode, value: Any) -> bool:
    """Is this list or map one leaf: by its type, or because it is untyped and a list?"""
    return is_atomic(node) or (isinstance(value, list) and node.shape != "list")


class TypeWalk:
    """Differences of values of one kind. It remembers what it learnt of the type, so keep one per kind."""

    def __init__(self, root: TypeNode) -> None:
        self.root = root
        self._walks: dict[TypeNode, Walk | None] = {}
        self._untyped: dict[TypeNode, bool] = {}

    # --- one side only -------------------------------------------------------------------------------------------

    def whole(self, node: TypeNode, value: Any) -> FieldSet:
        """The paths of a value that was not there before (or is not there any more)."""
        walk = self._walk(node)
        return walk(value) if walk is not None and value else {}

    def _walk(self, node: TypeNode) -> Walk | None:
        """The function behind `whole` for this type; None where every value is a leaf."""
        try:
            return self._walks[node]
        except KeyError:
            walk = self._compile(node)
            self._walks[node] = walk
            return walk

    def _compile(self, node: TypeNode) -> Walk | None:
        if is_atomic(node):
            return None
        if node.shape == "struct":
            return self._struct_walk(node)
        if node.shape == "list":
            return self._list_walk(node)
        return self._map_walk(node)

    def _struct_walk(self, node: TypeNode) -> Walk:
        # Objects of a kind come in few shapes, so the work per set of keys (order, elements, types) is done once.
        plans: dict[tuple[str, ...], list[tuple[str, str, Walk | None]]] = {}

        def walk(value: Any) -> FieldSet:
            if not isinstance(value, dict):
                return {}
            keys = tuple(value)
            plan = plans.get(keys)
            if plan is None:
                if len(plans) >= MAX_PLANS:
                    plans.clear()
                plan = plans[keys] = [(key, "f:" + key, self._walk(child_node(node, key))) for key in sorted(keys)]
            out: FieldSet = {SELF: {}}
            for key, element, below in plan:
                item = value[key]
                out[element] = below(item) if below is not None and item else {}
            return out

        return walk

    def _map_walk(self, node: TypeNode) -> Walk:
        def walk(value: Any) -> FieldSet:
            if not isinstance(value, dict):
                return {}
            below = self._walk(node.element or ANY) if node.shape == "map" else walk
            out: FieldSet = {SELF: {}}
            if below is None:
                for key in sorted(value):
                    out["f:" + key] = {}
            else:
                for key in sorted(value):
                    item = value[key]
                    out["f:" + key] = below(item) if item else {}
            return out

        return walk

    def _list_walk(self, node: TypeNode) -> Walk:
        def walk(value: Any) -> FieldSet:
            if not isinstance(value, list):
                return {}
            below = self._walk(node.element or ANY)
            out: FieldSet = {}
            repeated: list[str] = []
            for item in value:
                element = item_element(node, item)
                if element in out:
                    repeated.append(element)
                else:
                    out[element] = below(item) if below is not None and item else {}
            for element in repeated:
                out[element] = {}
            return {SELF: {}, **(fieldset.in_order(out) if len(out) > 1 else out)}

        return walk

    # --- two sides -----------------------------------------------------------------------------------------------

    def difference(self, node: TypeNode, old: Any, new: Any) -> Difference:
        """Compare two values that are both there."""
        if old is new or self.equal(node, old, new):
            return None, None
        if is_atomic(node) or not (old or new):
            return {}, None
        if node.shape == "any":
            return self._untyped_difference(node, old, new)
        if node.shape == "list":
            return self._list_difference(node, _as_list(old), _as_list(new))
        return self._map_difference(node, _as_dict(old), _as_dict(new))

    def _untyped_difference(self, node: TypeNode, old: Any, new: Any) -> Difference:
        if isinstance(old, dict) and isinstance(new, dict):
            return self._map_difference(node, old, new)
        # A value that changed its shape is a changed leaf, and the members of a map on either side come and go.
        if isinstance(old, dict):
            return (None if new is None and old else {}), _without_self(self.whole(node, old)) or None
        members = _without_self(self.whole(node, new)) if isinstance(new, dict) else {}
        if old is None and members:
            return members, None
        return ({SELF: {}, **members} if members else {}), None

    def _map_difference(self, node: TypeNode, old: dict[str, Any], new: dict[str, Any]) -> Difference:
        touched: FieldSet = {}
        removed: FieldSet = {}
        for key, after in new.items():
            before = old.get(key, MISSING)
            if before is after:
                continue
            child = child_node(node, key)
            if before is MISSING:
                touched["f:" + key] = self.whole(child, after)
                continue
            came, went = self.difference(child, before, after)
            if came is not None:
                touched["f:" + key] = came
            if went is not None:
                removed["f:" + key] = went
        for key, before in old.items():
            if key not in new:
                removed["f:" + key] = self.whole(child_node(node, key), before)
        return fieldset.in_order(touched) or None, fieldset.in_order(removed) or None

    def _list_difference(self, node: TypeNode, old: list[Any], new: list[Any]) -> Difference:
        before, after = items_by_element(node, old), items_by_element(node, new)
        touched: FieldSet = {}
        removed: FieldSet = {}
        for element in dict.fromkeys([*before, *after]):
            came, went = self._item_difference(node, before.get(element, []), after.get(element, []))
            if came is not None:
                touched[element] = came
            if went is not None:
                removed[element] = went
        return fieldset.in_order(touched) or None, fieldset.in_order(removed) or None

    def _item_difference(self, node: TypeNode, old: list[Any], new: list[Any]) -> Difference:
        """Items of one path element on both sides; duplicates are one leaf together."""
        item = node.element or ANY
        if len(old) > 1 and len(new) > 1:
            return (None if identical(old, new) else {}), None
        if len(old) > 1:
            return (self.whole(item, new[0]) if new else None), {}
        if len(new) > 1:
            return {}, (self.whole(item, old[0]) if old else None)
        if not old:
            return self.whole(item, new[0]), None
        if not new:
            return None, self.whole(item, old[0])
        return self.difference(item, old[0], new[0])

    def equal(self, node: TypeNode, left: Any, right: Any) -> bool:
        return bool(left == right) and (not self._is_untyped(node) or identical(left, right))

    def _is_untyped(self, node: TypeNode) -> bool:
        """May a boolean turn into a number somewhere below, so that Python's equality is not enough?"""
        known = self._untyped.get(node)
        if known is None:
            self._untyped[node] = False
            below = [*node.fields.values(), *([node.element] if node.element is not None else [])]
            is_free = (node.shape == "any" or node.preserve_unknown) and node.name != FIELDS_V1
            known = is_free or any(self._is_untyped(child) for child in below)
            self._untyped[node] = known
        return known


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _without_self(node: FieldSet) -> FieldSet:
    return {element: below for element, below in node.items() if element != SELF}
