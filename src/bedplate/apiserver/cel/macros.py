"""The macros at run time: loops over lists and maps, and what depends on an optional being there.

In: the closures of a macro's parts. Out: one closure. An element that decides `all` or `exists` outweighs errors on
others, as CEL wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bedplate.apiserver.cel import strings
from bedplate.apiserver.cel.values import NO_OVERLOAD, NONE, CelError, Optional
from bedplate.apiserver.schema import gotext

__all__ = ["FAILURES", "MACROS", "Closure", "Slots", "as_bool", "optional_macro", "shown_key", "steps"]

Slots = list[Any]
Closure = Callable[[Slots], Any]

# A null where the schema promises a value, or data that a schema does not describe, ends in these.
FAILURES = (CelError, TypeError, AttributeError)


def shown_key(key: Any) -> str:
    return key if type(key) is str else gotext.show(key)


def as_bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise CelError(NO_OVERLOAD)


Steps = Callable[[Slots], Iterable[Any]]


def steps(source: Closure, first: int, is_pair: bool) -> Steps:
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


def _all(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    return lambda slots: _quantify(walk, condition, slots, ends_with=False)


def _exists(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    return lambda slots: _quantify(walk, condition, slots, ends_with=True)


def _quantify(walk: Steps, condition: Closure | None, slots: Slots, *, ends_with: bool) -> bool:
    """An element that decides wins over errors on others; otherwise the last error is the result."""
    assert condition is not None
    failed: Exception | None = None
    for _ in walk(slots):
        try:
            if as_bool(condition(slots)) is ends_with:
                return ends_with
        except FAILURES as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not ends_with


def _exists_one(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert condition is not None
    return lambda slots: sum(as_bool(condition(slots)) for _ in walk(slots)) == 1


def _filter(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert condition is not None
    return lambda slots: [item for item in walk(slots) if as_bool(condition(slots))]


def _map(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None
    if condition is None:
        return lambda slots: [result(slots) for _ in walk(slots)]
    return lambda slots: [result(slots) for _ in walk(slots) if as_bool(condition(slots))]


def _transform_map(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None
    if condition is None:
        return lambda slots: {pair[0]: result(slots) for pair in walk(slots)}
    return lambda slots: {pair[0]: result(slots) for pair in walk(slots) if as_bool(condition(slots))}


def _transform_entries(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None

    def run(slots: Slots) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for _ in walk(slots):
            if condition is not None and not as_bool(condition(slots)):
                continue
            entries: Mapping[Any, Any] = result(slots)
            for key, value in entries.items():
                if key in mapping:
                    raise CelError(f"insert failed: key {shown_key(key)} already exists")
                mapping[key] = value
        return mapping

    return run


def _sort_by(walk: Steps, condition: Closure | None, result: Closure | None) -> Closure:
    assert result is not None

    def run(slots: Slots) -> list[Any]:
        items: list[Any] = []
        keys: list[Any] = []
        for item in walk(slots):
            items.append(item)
            keys.append(result(slots))
        return strings.sort_by(items, keys)

    return run


MACROS: dict[str, Callable[[Steps, Closure | None, Closure | None], Closure]] = {
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


def optional_macro(macro: str, source: Closure, slot: int, result: Closure) -> Closure:
    def run(slots: Slots) -> Optional:
        holder = source(slots)
        if not holder.present:
            return NONE
        slots[slot] = holder.value
        value = result(slots)
        return Optional(value) if macro == "optMap" else value

    return run
