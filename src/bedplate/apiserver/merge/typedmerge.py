"""Typed values put together and taken apart: merge a configuration into a value, remove paths from it, check it.

In: plain JSON values, their `TypeNode`, field sets. Out: new values (unchanged parts are shared, arguments stay as they
are) or the list of faults, in the words of the real server. `apply` is made of these steps.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bedplate.apiserver.merge import fieldset
from bedplate.apiserver.merge.fieldset import SELF, FieldSet
from bedplate.apiserver.merge.typedvalue import (
    MISSING,
    Mistyped,
    child_node,
    is_atomic,
    is_leaf_value,
    item_element,
    items_by_element,
)
from bedplate.apiserver.schema import gotext
from bedplate.apiserver.shape.typegraph import ANY, TypeNode

__all__ = ["collapsed", "merge", "problems", "remove", "with_named_fields"]


# --- merge -----------------------------------------------------------------------------------------------------------


def merge(node: TypeNode, live: Any, config: Any) -> Any:
    """`live` with everything that `config` mentions; nothing is removed. MISSING stands for an absent side."""
    if config is MISSING or live is MISSING:
        return live if config is MISSING else config
    if is_atomic(node) or not (live or config):
        return config
    if node.shape == "list":
        if isinstance(live, list) or isinstance(config, list):
            return _merge_lists(node, live or [], config or [])
        return config
    if isinstance(live, dict) and (isinstance(config, dict) or config is None):
        return _merge_maps(node, live, config or {})
    return config


def _merge_maps(node: TypeNode, live: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    out = dict(live)
    for key, value in config.items():
        out[key] = merge(child_node(node, key), live.get(key, MISSING), value)
    return out


def _merge_lists(node: TypeNode, live: list[Any], config: list[Any]) -> list[Any]:
    """Both lists in one: the configuration's order wins for what both have, live items keep their neighbours."""
    ours = {element: items[0] for element, items in items_by_element(node, config).items()}
    order = list(ours)
    live_elements = [item_element(node, item) for item in live]
    theirs: dict[str, Any] = {}
    for element, item in zip(live_elements, live, strict=True):
        theirs[element] = None if element in theirs else item
    shared = iter([element for element in order if element in theirs])
    next_shared = next(shared, None)
    out: list[Any] = []
    taken: set[str] = set()
    left = right = 0
    while left < len(live_elements) or right < len(order):
        if left < len(live_elements):
            element = live_elements[left]
            if element not in ours:
                out.append(live[left])
                left += 1
                continue
            if right < len(order) and order[right] != element and next_shared not in (None, element):
                # It comes (or came) at the place that the configuration gives it.
                left += 1
                continue
            left += element in taken or order[right] == element
        if right < len(order):
            element = order[right]
            taken.add(element)
            out.append(merge(node.element or ANY, theirs.get(element, MISSING), ours[element]))
            right += 1
            if next_shared == element:
                next_shared = next(shared, None)
    return out


# --- remove ----------------------------------------------------------------------------------------------------------


def remove(node: TypeNode, value: Any, unwanted: FieldSet) -> Any:
    """`value` without the members of `unwanted`. A list or map of which nothing is left becomes None."""
    if not isinstance(value, dict | list):
        return value
    if not value or is_leaf_value(node, value):
        return None
    if isinstance(value, list):
        items = []
        for item in value:
            below = unwanted.get(item_element(node, item))
            if below is None:
                items.append(item)
            elif below and SELF not in below:
                items.append(remove(node.element or ANY, item, below))
        return items or None
    out = {}
    for key, item in value.items():
        below = unwanted.get(fieldset.field_element(key))
        if below is None:
            out[key] = item
        elif below and SELF not in below:
            out[key] = remove(child_node(node, key), item, below)
    return out or None


def with_named_fields(node: TypeNode | None, fields: FieldSet) -> FieldSet:
    """The set with every declared field on the way to a member made a member too (map keys and items are not)."""
    out: FieldSet = {}
    for element, below in fields.items():
        if element == SELF or not below:
            out[element] = below
            continue
        named, child = False, None
        if element[0] == "f" and node is not None and node.shape != "list":
            named = node.shape == "struct" and element[2:] in node.fields
            child = child_node(node, element[2:])
        elif element[0] == "k" and node is not None and node.shape == "list":
            child = node.element
        deeper = with_named_fields(child, below)
        out[element] = {SELF: {}, **deeper} if named else deeper
    return out


def collapsed(node: TypeNode, fields: FieldSet) -> FieldSet:
    """The set after its type has changed: what is below a list or map that has become atomic is now that one leaf."""
    out = fields
    for element, below in fields.items():
        if not below or element == SELF:
            continue
        if element[0] == "f":
            child = child_node(node, element[2:]) if node.shape != "list" else ANY
        else:
            child = (node.element or ANY) if node.shape == "list" else ANY
        if child.shape == "any":
            continue
        kept = {} if is_atomic(child) and child.shape != "scalar" else collapsed(child, below)
        if kept is not below:
            out = {**out, element: kept}
    return out


# --- check -----------------------------------------------------------------------------------------------------------


def problems(node: TypeNode, value: Any, *, path: str = "", lenient: bool = False) -> list[str]:
    """What keeps an applied configuration from fitting its type: unknown fields, wrong types, duplicate items."""
    if value is None:
        return []
    if node.shape == "scalar":
        return _scalar_problems(node, value, path)
    if node.shape == "list":
        return _list_problems(node, value, path, lenient)
    if node.shape == "any":
        return []
    if not isinstance(value, dict):
        return [f"{path}: expected map, got {_shown(value)}"]
    lenient = lenient or node.preserve_unknown
    faults: list[str] = []
    for key, item in value.items():
        where = f"{path}.{key}"
        if node.shape == "struct" and key not in node.fields and node.fields and not lenient:
            return [*faults, f"{where}: field not declared in schema"]
        faults += problems(child_node(node, key), item, path=where, lenient=lenient)
    return faults


def _list_problems(node: TypeNode, value: Any, path: str, lenient: bool) -> list[str]:
    if not isinstance(value, list):
        return [f"{path}: expected list, got {_shown(value)}"]
    faults: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        where = f"[{index}]"
        if node.list_type != "atomic":
            try:
                element = item_element(node, item)
            except Mistyped as err:
                return [*faults, f"{path}: element {index}: {err}"]
            where = fieldset.element_text(element)
            if element in seen:
                faults.append(f"{path}: duplicate entries for key {where}")
            seen.add(element)
        faults += problems(node.element or ANY, item, path=path + where, lenient=lenient)
    return faults


def _scalar_problems(node: TypeNode, value: Any, path: str) -> list[str]:
    kind = node.scalar
    if kind in ("integer", "number"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            return [f"{path}: expected numeric (int or float), got {_go_type(value)}"]
    elif kind == "boolean":
        if not isinstance(value, bool):
            return [f"{path}: expected boolean, got {_shown(value)}"]
    elif kind in ("string", "bytes") and node.format in ("", "byte"):
        if not isinstance(value, str):
            return [f"{path}: expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"]
    elif isinstance(value, dict | list):
        return [f"{path}: expected any scalar, got {_shown(value)}"]
    return []


def _go_type(value: Any) -> str:
    names = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    """A value as Go prints it in these texts."""
    return f"&{{{gotext.show(value)}}}"


def _go_syntax(value: Any) -> str:
    """A value as Go source, as `%#v` prints it."""
    if isinstance(value, dict):
        members = ", ".join(f"{_go_syntax(key)}:{_go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_go_syntax, value)) + "}"
    if value is None:
        return "interface {}(nil)"
    return msgspec.json.encode(value).decode()
