"""Forms from declarations: which input stands for which row, and what a submitted form says.

In: an object with its declaration, the tree for what it refers to and inherits, and texts as a browser sends them. Out:
inputs for the templates; a new object, or an error beside each field that cannot be read. A secret is never put into an
input: an empty one keeps what is there. Nothing is staged here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Obj, Tree
from bedplate.head.resolve import inherited
from bedplate.head.schema.entity import Entity, Field
from bedplate.head.schema.kinds import Blob, Bool, Choice, Integer, Kind
from bedplate.head.schema.ranges import ListOf, NodeList, Reference, natural
from bedplate.ui.web import links

__all__ = ["CLEAR", "EXTRA", "FIELD", "Input", "Outcome", "Section", "inputs", "read", "sections", "seen", "settable"]

FIELD, EXTRA, CLEAR = "f.", "x.", "clear."
"""What the names of inputs begin with: a field, an extra parameter, the box that takes a secret away."""
_LISTED = 200
_BOXES = 24
"""So many objects can be ticked one by one; of more, the names are typed."""
_LINKED = 6
"""So many objects that a field refers to are linked; more would be a list of their own."""


@dataclass(frozen=True, slots=True)
class Input:
    """One labelled control. `form` is select, boxes, text, number, area or secret; `ways` are the pages of the objects
    that it refers to now."""

    name: str
    label: str
    doc: str
    form: str
    text: str
    options: tuple[tuple[str, str], ...] = ()
    suggestions: tuple[str, ...] = ()
    note: str = ""
    error: str = ""
    is_set: bool = False
    low: int | None = None
    high: int | None = None
    rows: int = 1
    ways: tuple[tuple[str, str], ...] = ()


class Section(NamedTuple):
    """The controls of one group of the declaration; folded where it is rarely used and nothing in it is set."""

    label: str
    inputs: tuple[Input, ...]
    is_folded: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The object as the form wants it; `problems` by input; with any, nothing is to be staged."""

    obj: Obj
    problems: Mapping[str, str]
    told: tuple[str, ...] = ()


def seen(obj: Obj) -> str:
    """What a form remembers of the object it was made for, to notice that it is another one by now."""
    content = (obj.type, obj.key, obj.revision, sorted(map(repr, obj.values.items())), sorted(obj.extras.items()))
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def inputs(
    tree: Tree, obj: Obj, typed: Mapping[str, str] | None = None, problems: Mapping[str, str] | None = None
) -> list[Input]:
    """The controls of an object, with its values or with what was typed before."""
    typed, problems = typed or {}, problems or {}
    controls = []
    for field in settable(tree.schema.of(obj)):
        control = _input(tree, obj, field)
        text = control.text if field.kind.secret else _lines(typed.get(control.name, control.text))
        controls.append(replace(control, text=text, error=problems.get(control.name, "")))
    return controls


def settable(entity: type[Entity]) -> list[Field]:
    """The fields that a form has, in the order of the declaration."""
    return [field for field in entity.fields if not field.readonly]


def sections(entity: type[Entity], controls: Iterable[Input]) -> list[Section]:
    """Controls in the groups of the declaration. What is wrong, or set, is never folded away."""
    by_name = {control.name: control for control in controls}
    groups = []
    for group, rows in entity.grouped():
        inputs = tuple(by_name[FIELD + row.attribute] for row in rows if FIELD + row.attribute in by_name)
        if inputs:
            is_folded = group.is_rare and not any(control.is_set or control.error for control in inputs)
            groups.append(Section(group.label, inputs, is_folded))
    return groups


def _input(tree: Tree, obj: Obj, field: Field) -> Input:
    kind, name = field.kind, FIELD + field.attribute
    is_set = field.attribute in obj.values
    if kind.secret:
        return Input(name, field.label, field.doc, "secret", "", is_set=bool(field.value(obj)))
    note, gives = _note(tree, obj, field)
    text, targets = _text(obj, field), field.targets(field.value(obj) or ())
    targets = targets if len(targets) <= _LINKED else ()
    ways = tuple((key, links.show((field.target_mode, key))) for key in targets if tree.find(field.target_mode, key))
    base = Input(name, field.label, field.doc, "text", text, note=note, is_set=is_set, ways=ways)
    if isinstance(kind, Bool | Choice):
        options = _options(field, kind.choices(), gives)
        return replace(base, form="select", options=options, note=note if field.inherits else "")
    if isinstance(kind, Reference):
        keys = sorted(tree.mode(kind.mode), key=natural)
        if len(keys) <= _LISTED:
            return replace(base, form="select", options=_options(field, keys, gives, base.text))
        return replace(base, suggestions=tuple(keys[:_LISTED]))
    if isinstance(kind, Integer):
        return replace(base, form="number", low=kind.low, high=kind.high)
    if isinstance(kind, Blob):
        return replace(base, form="area", rows=min(max(base.text.count("\n") + 2, 6), 24))
    if isinstance(kind, ListOf) and not isinstance(kind, NodeList):
        known = tuple(sorted(tree.mode(kind.target_mode), key=natural)) if kind.target_mode else ()
        if known and len(known) <= _BOXES:
            return replace(base, form="boxes", options=_boxes(known, text.splitlines()))
        known = known[:_LISTED]
        return replace(base, form="area", rows=min(base.text.count("\n") + 2, 12), suggestions=known)
    if "\n" in base.text or field.attribute == "notes":
        return replace(base, form="area", rows=3)
    return base


def _text(obj: Obj, field: Field) -> str:
    """The value as the input shows it: what is inherited stands in the note alone."""
    if field.inherits and field.attribute not in obj.values:
        return ""
    value = field.value(obj)
    if value is None:
        return ""
    if isinstance(field.kind, ListOf) and not isinstance(field.kind, NodeList):
        return "\n".join(field.kind.lines(value))
    return str(value) if isinstance(field.kind, Blob) else field.kind.show(value)


def _note(tree: Tree, obj: Obj, field: Field) -> tuple[str, str]:
    """What holds when the input is left empty, in words, and that value."""
    if field.inherits:
        bare = obj.with_value(field.attribute, None)
        value, source = inherited(tree, bare, field)
        shown = _shown(field.kind, value)
        if source is not None and shown:
            return f"{shown} from {source}, unless set here", shown
    shown = _shown(field.kind, field.default)
    return (f"default: {shown}", shown) if shown and not isinstance(field.kind, Blob) else ("", "")


def _shown(kind: Kind, value: object) -> str:
    return "" if value in (None, "", ()) else kind.show(value)  # type: ignore[arg-type]


def _options(field: Field, words: Sequence[str], gives: str, current: str = "") -> tuple[tuple[str, str], ...]:
    """The words, and an empty one where nothing may be chosen. A held word that is gone stays choosable."""
    options = [(word, word) for word in words]
    if current and current not in words:
        options.append((current, f"{current} (does not exist)"))
    if field.inherits:
        return (("", f"inherit ({gives})" if gives else "inherit"), *options)
    if isinstance(field.kind, Bool) or (isinstance(field.kind, Choice) and field.default):
        return tuple((word, f"{word} (default)" if word == gives else word) for word in words)
    return (("", "none"), *options)


def _boxes(known: Sequence[str], present: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What is set comes first and in its order, so that a form that is sent back as it came changes nothing."""
    gone = [(key, key if key in known else f"{key} (does not exist)") for key in present]
    return (*gone, *((key, key) for key in known if key not in present))


def read(tree: Tree, obj: Obj, typed: Mapping[str, str]) -> Outcome:
    """What a submitted form makes of the object. What was not touched stays as it is, to the letter."""
    edited, problems, told = obj, dict[str, str](), []
    for field in settable(tree.schema.of(obj)):
        name = FIELD + field.attribute
        if name not in typed:
            continue
        text = _lines(typed[name])
        if isinstance(field.kind, ListOf):
            text = text.removeprefix("\n")  # of the empty input that says that no box may be ticked
        try:
            changed = _changed(tree, edited, field, text, CLEAR + field.attribute in typed)
        except errors.Invalid as wrong:
            problems[name] = str(wrong).removeprefix(f"{field.shell}: ")
            continue
        if changed is not edited and field.notice:
            told.append(field.notice)
        edited = changed
    edited = _extras(edited, typed, problems)
    if not problems:
        problems.update(_whole(tree, edited))
    return Outcome(edited, problems, tuple(told))


def _changed(tree: Tree, obj: Obj, field: Field, text: str, cleared: bool) -> Obj:
    if field.kind.secret:
        if cleared:
            return obj.with_value(field.attribute, None)
        # Keys have many lines and end with one; a word that was pasted with its line's end does not.
        text = text if "\n" in text.strip("\n") else text.strip("\n")
        return obj.with_value(field.attribute, field.parse(text)) if text else obj
    if text == _text(obj, field):
        return obj
    if not text.strip():
        return obj.with_value(field.attribute, None)
    value = field.parse(text)
    for key in field.targets(value):
        if tree.find(field.kind.target_mode, key) is None:
            raise errors.Invalid(f"there is no {field.kind.target_mode} {key!r}")
    return obj.with_value(field.attribute, field.normal(value))


def _extras(obj: Obj, typed: Mapping[str, str], problems: dict[str, str]) -> Obj:
    for name in list(obj.extras):
        if EXTRA + name in typed:
            text = _lines(typed[EXTRA + name])
            obj = obj.with_extra(name, text or None) if text != obj.extras[name] else obj
    name, text = typed.get("extra.name", "").strip(), _lines(typed.get("extra.value", ""))
    if not name and not text:
        return obj
    if re.search("[ ,=]", name) or not re.fullmatch(headapi.EXTRA, name):
        problems["extra.name"] = "a name without spaces, commas, equals signs and control characters"
        return obj
    return obj.with_extra(name, text)


def _whole(tree: Tree, obj: Obj) -> dict[str, str]:
    """What the declaration says about the object as a whole, beside the field that the sentence begins with."""
    labels = {field.shell: FIELD + field.attribute for field in settable(tree.schema.of(obj))}
    problems: dict[str, str] = {}
    for problem in tree.schema.of(obj).problems(obj, tree.find):
        label, _, words = problem.partition(": ")
        if label in labels:
            problems.setdefault(labels[label], words)
    return problems


def _lines(text: str) -> str:
    """Browsers end lines as in mail."""
    return text.replace("\r\n", "\n")
