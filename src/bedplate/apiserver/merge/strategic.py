"""Strategic merge patch: a merge patch that knows the type, so that lists merge item by item.

In: a document, a decoded patch and the `TypeNode` of a built-in kind (custom kinds have no strategic merge; the caller
answers 415). Out: a new document that shares unchanged parts with the old one; no argument is changed. Faults are
`StatusError`s in the real server's words. Unknown fields are not looked for here.

Directives: `$patch: replace|delete` in a map or in an item of a merging list, `$retainKeys`,
`$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`.
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver.merge.patches import unprocessable
from bedplate.apiserver.shape.typegraph import TypeNode
from bedplate.apiserver.status import StatusError, bad_request

__all__ = ["strategic_merge"]

PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"

Map = dict[str, Any]
Items = list[Any]


def strategic_merge(document: Map, patch: Any, node: TypeNode) -> Map:
    """The document after the patch."""
    if patch is None:
        return document
    if not isinstance(patch, dict):
        raise bad_request(f"json: cannot unmarshal {_json_kind(patch)} into Go value of type map[string]interface {{}}")
    return _merge_maps(document, patch, node)


def _merge_maps(original: Map, patch: Map, node: TypeNode | None) -> Map:
    if PATCH in patch:
        return _by_directive(patch)
    out = dict(original)
    patch = dict(patch)
    _retain_keys(out, patch)
    for key in [key for key in patch if key.startswith(SET_ORDER)]:
        _merge_in_order(out, patch, key, node)
    for key, value in patch.items():
        _merge_member(out, key, value, node)
    return out


def _by_directive(patch: Map) -> Map:
    if patch[PATCH] == "replace":
        return {key: value for key, value in patch.items() if key != PATCH}
    if patch[PATCH] == "delete":
        return {}
    raise _failure(f"unknown patch type: {patch[PATCH]} in map: {_go_text(patch)}")


def _retain_keys(out: Map, patch: Map) -> None:
    if RETAIN_KEYS not in patch:
        return
    retained = patch.pop(RETAIN_KEYS)
    fault = bad_request("invalid patch format of retainKeys")
    if not isinstance(retained, list):
        raise fault
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_FROM, SET_ORDER)) and key not in retained:
            raise fault
    for key in [key for key in out if key not in retained]:
        del out[key]


def _merge_member(out: Map, key: str, value: Any, node: TypeNode | None) -> None:
    is_deletion = key.startswith(DELETE_FROM)
    if is_deletion:
        key = _directive_field(key, "invalid patch format of primitive list")
    if value is None:
        out.pop(key, None)
        return
    current = out.get(key)
    if current is None or _shape(current) != _shape(value):
        if not is_deletion:
            _put(out, key, _without_directives(_without_nulls(value)))
    elif isinstance(value, dict):
        field = _field_node(node, key)
        out[key] = value if _strategy(field) == "replace" else _merge_maps(current, value, field)
    elif isinstance(value, list):
        field = _list_node(node, key)
        out[key] = _merge_lists(current, value, field, is_deletion=is_deletion)
    else:
        out[key] = value


# --- lists -----------------------------------------------------------------------------------------------------------


def _merge_lists(current: Items, patch: Items, field: TypeNode, *, is_deletion: bool = False) -> Items:
    if _strategy(field) != "merge" and not is_deletion:
        return patch
    if not current and not patch:
        return current
    if not _holds_maps(current, patch):
        if is_deletion:
            return [item for item in current if not _contains(patch, item)]
        merged = _distinct([*current, *patch])
        return _ordered(merged, patch, current, "")
    key = field.patch_key
    if not key:
        raise _failure(f"cannot merge lists without merge key for {_go_kind(field.element)}")
    current, patch = _special_items(current, patch, key)
    return _ordered(_merge_items(current, patch, key, field), patch, current, key)


def _merge_items(current: Items, patch: Items, key: str, field: TypeNode) -> Items:
    merged = list(current)
    places: dict[Any, int] = {}
    for place, item in enumerate(merged):
        if isinstance(item, dict) and key in item:
            places.setdefault(_hashable(item[key]), place)
    for item in patch:
        if key not in item:
            raise _no_merge_key(item, key)
        place = places.get(_hashable(item[key]), -1)
        if place >= 0:
            merged[place] = _merge_maps(merged[place], item, field.element)
        else:
            places[_hashable(item[key])] = len(merged)
            merged.append(item)
    return merged


def _hashable(value: Any) -> Any:
    """A key that is not a scalar does not fit its type; validation refuses it later."""
    return _go_text(value) if isinstance(value, dict | list) else value


def _special_items(current: Items, patch: Items, key: str) -> tuple[Items, Items]:
    """Carry out the items that are directives; what is left of both lists."""
    plain = []
    replaces = False
    for item in patch:
        directive = item.get(PATCH)
        if PATCH not in item:
            plain.append(item)
        elif directive == "delete":
            if key not in item:
                raise _no_merge_key(item, key)
            current = [other for other in current if key not in other or other[key] != item[key]]
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise _failure("merging lists cannot yet be specified in the patch")
        else:
            raise _failure(f"unknown patch type: {directive} in map: {_go_text(item)}")
    return (plain, []) if replaces else (current, plain)


def _ordered(merged: Items, patch_order: Items, live_order: Items, key: str) -> Items:
    """Items of the patch in its order, the others in the live order, put between them where the live list had them."""
    patched = [_identity(item, key) for item in patch_order]
    live = [_identity(item, key) for item in live_order]
    ours: Items = []
    theirs: Items = []
    for item in merged:
        if key and key not in item:
            raise _no_merge_key(item, key)
        (ours if _identity(item, key) in patched else theirs).append(item)
    ours.sort(key=lambda item: patched.index(_identity(item, key)))
    out: Items = []
    left = right = 0
    while left < len(theirs) and right < len(ours):
        before, after = _place(live, _identity(theirs[left], key)), _place(live, _identity(ours[right], key))
        if 0 <= before < after:
            out.append(theirs[left])
            left += 1
        else:
            out.append(ours[right])
            right += 1
    return out + theirs[left:] + ours[right:]


def _merge_in_order(out: Map, patch: Map, directive: str, node: TypeNode | None) -> None:
    """`$setElementOrder/<field>`: merge that field's list now, and bring it into the given order."""
    order = patch.pop(directive)
    if not isinstance(order, list):
        raise _bad_type("[]interface {}", order)
    name = _directive_field(directive, "invalid patch format of setElementOrder list")
    current, change = out.get(name), patch.get(name)
    for value, is_there in ((current, name in out), (change, name in patch)):
        if is_there and not isinstance(value, list):
            raise _bad_type("[]interface {}", value)
    field = _list_node(node, name)
    key = field.patch_key
    if change:
        _check_order(change, order, key)
    if current is None and change is None:
        return
    if current is None:
        merged = _without_directives(change)
    elif change is None:
        merged = current
    else:
        merged = _merge_lists(current, change, field)
    patch.pop(name, None)
    if not current and not change:
        raise _failure("no elements in any of the given slices")
    _holds_maps(current or [], change or [])
    out[name] = _ordered(merged, order, current or [], key)


def _check_order(change: Items, order: Items, key: str) -> None:
    """Every changed item must be in the order list, and in the same order."""
    if not order:
        return
    rest = [item for item in change if not (isinstance(item, dict) and PATCH in item)]
    place = 0
    for item in order:
        if place < len(rest) and _key_of(rest[place], key) == _key_of(item, key):
            place += 1
    if place < len(rest):
        texts = _go_text(change), _go_text(order)
        raise _failure(f"The order in patch list:\n{texts[0]}\n doesn't match {SET_ORDER} list:\n{texts[1]}\n")


def _key_of(item: Any, key: str) -> Any:
    if not key:
        return item
    if not isinstance(item, dict):
        raise _bad_type("map[string]interface {}", item)
    if key not in item:
        raise _no_merge_key(item, key)
    return item[key]


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _place(order: Items, identity: Any) -> int:
    return order.index(identity) if identity in order else -1


def _contains(items: Items, item: Any) -> bool:
    return any(other == item and type(other) is type(item) for other in items)


def _distinct(items: Items) -> Items:
    out: Items = []
    for item in items:
        if not _contains(out, item):
            out.append(item)
    return out


def _holds_maps(*lists: Items) -> bool:
    """Are the items maps? They must all be of one type."""
    kinds = [_go_type(item) for items in lists for item in items]
    if kinds[:1] == ["[]interface {}"]:
        raise unprocessable()
    if len(set(kinds)) > 1:
        raise _failure(f"list element types are not identical: {_go_text(list(lists))}")
    return kinds[:1] == ["map[string]interface {}"]


# --- the type --------------------------------------------------------------------------------------------------------


def _field_node(node: TypeNode | None, key: str) -> TypeNode:
    """The type of a member that is a map or a list on both sides; it must be a declared field."""
    if node is None or node.shape in ("map", "list", "scalar"):
        text = f"merging an object in json but data type is not struct, instead is: {_go_kind(node)}"
        raise _failure(text)
    if key not in node.fields:
        name = node.name.rpartition(".")[2]
        raise _failure(f'unable to find api field in struct {name} for the json field "{key}"')
    return node.fields[key]


def _list_node(node: TypeNode | None, key: str) -> TypeNode:
    field = _field_node(node, key)
    if field.shape != "list":
        raise _failure(f"expected slice or array type, but got: {_go_kind(field)}")
    return field


def _strategy(node: TypeNode) -> str:
    return next((name for name in node.patch_strategy if name != "retainKeys"), "")


def _go_kind(node: TypeNode | None) -> str:
    if node is None:
        return "interface"
    return {"list": "slice", "any": "struct", "scalar": node.scalar}.get(node.shape, node.shape)


# --- values ----------------------------------------------------------------------------------------------------------


def _directive_field(key: str, fault: str) -> str:
    _, slash, field = key.partition("/")
    if not slash or key.split("/", 1)[0] not in (DELETE_FROM, SET_ORDER):
        raise bad_request(fault)
    return field


def _put(out: Map, key: str, value: Any) -> None:
    if value is _DROPPED:
        out.pop(key, None)
    else:
        out[key] = value


_DROPPED: Any = object()


def _without_directives(value: Any) -> Any:
    """A value that is taken as it is must not carry directives: maps that have one are dropped."""
    if isinstance(value, dict):
        if PATCH in value:
            return _DROPPED
        members = {key: _without_directives(item) for key, item in value.items()}
        return {key: item for key, item in members.items() if item is not _DROPPED}
    if isinstance(value, list):
        return [item for item in map(_without_directives, value) if item is not _DROPPED]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _shape(value: Any) -> type:
    return dict if isinstance(value, dict) else list if isinstance(value, list) else str


def _json_kind(value: Any) -> str:
    return {list: "array", str: "string", bool: "bool"}.get(type(value), "number")


def _go_type(value: Any) -> str:
    names = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64"}
    return names.get(type(value), "float64" if isinstance(value, float) else "%!s(<nil>)")


def _go_text(value: Any) -> str:
    """A value as Go's `%v` prints it."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _failure(text: str) -> StatusError:
    """A fault that the real server does not classify: 500 with the bare text."""
    return StatusError(500, "", text)


def _no_merge_key(item: Map, key: str) -> StatusError:
    return _failure(f"map: {_go_text(item)} does not contain declared merge key: {key}")


def _bad_type(expected: str, value: Any) -> StatusError:
    return _failure(f"expected a {expected}, but received a {_go_type(value)}")
