"""Objects as values: a frozen object with values, extras and children; secrets that do not print themselves.

In: nothing but plain values. Out: immutable objects that share what they have in common. No schema is known here: what
a value means is said by its declaration (`schema`), where it stands by the tree (`tree`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

__all__ = ["EMPTY", "Obj", "Secret", "Value"]


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A value that only `reveal` gives away: its text, its traces and its logs show stars."""

    _text: str

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "*****"

    __str__ = __repr__


Value = bool | int | float | str | tuple[str, ...] | Secret
EMPTY: Final[Mapping[str, Obj]] = {}


@dataclass(frozen=True, slots=True)
class Obj:
    """One object of the tree.

    `values` holds what differs from the defaults, by attribute name. `children` holds the objects of each submode by
    key; in an indexed list the keys are the indexes as text. `revision` is the head's revision that last wrote the
    object; it is not part of the object's content, so it does not count when two are compared. The mappings are never
    changed.
    """

    type: str
    key: str
    values: Mapping[str, Value] = field(default_factory=dict)
    extras: Mapping[str, str] = field(default_factory=dict)
    children: Mapping[str, Mapping[str, Obj]] = field(default_factory=dict)
    revision: int = field(default=0, compare=False)

    def below(self, submode: str) -> Mapping[str, Obj]:
        """The children in a submode."""
        return self.children.get(submode, EMPTY)

    def at(self, revision: int) -> Obj:
        """The same object, as that revision wrote it."""
        return Obj(self.type, self.key, self.values, self.extras, self.children, revision)

    def with_value(self, attribute: str, value: Value | None) -> Obj:
        """With that value; None takes it away, so that the default shows again."""
        values = {name: current for name, current in self.values.items() if name != attribute}
        if value is not None:
            values[attribute] = value
        return replace(self, values=values)

    def with_extra(self, name: str, text: str | None) -> Obj:
        extras = {key: value for key, value in self.extras.items() if key != name}
        if text is not None:
            extras[name] = text
        return replace(self, extras=extras)

    def with_child(self, submode: str, key: str, child: Obj | None) -> Obj:
        """With that child; None takes it away. A submode without children is not kept."""
        inner = {name: value for name, value in self.below(submode).items() if name != key}
        if child is not None:
            inner[key] = child
        return self.with_children(submode, inner)

    def with_children(self, submode: str, inner: Mapping[str, Obj]) -> Obj:
        children = {name: objects for name, objects in self.children.items() if name != submode}
        if inner:
            children[submode] = inner
        return replace(self, children=children)
