"""Editing many objects of a list at once.

In: visits with the names that were ticked, or a filter, and what to do with each parameter. Out: a form with the
parameters that all of them have; then one staged edit for each object, which the page of staged changes plans and
commits as one revision. What must be unique, and what is secret, cannot be set for several. Nothing here reaches the
head.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web

from bedplate.core import errors
from bedplate.head import Obj, Tree, demand
from bedplate.head.schema import ranges
from bedplate.head.schema.entity import Entity, Field, Submode
from bedplate.ui.web import forms, links, pages, views
from bedplate.ui.web.forms import FIELD, Input
from bedplate.ui.web.visit import Visit

__all__ = ["Outcome", "change", "chosen_by_filter", "edit"]

DO, SET, CLEAR = "do.", "set:", "clear"
"""What the names of selects begin with that say what to do; what a select's value begins with; to go back to what holds
without a value."""
_ROLES = "roles"
_TOLD = 3


class Outcome(NamedTuple):
    """The objects that would be others, by name; `problems` by input; with any, nothing is to be staged."""

    objects: Mapping[str, Obj]
    problems: Mapping[str, str]
    told: tuple[str, ...] = ()


async def chosen_by_filter(visit: Visit) -> web.StreamResponse:
    """The form for everything that a filter leaves."""
    mode = _mode(visit)
    return _form(visit, mode, _matching(visit, mode, visit.request.query.get("q", "")))


async def edit(visit: Visit) -> web.StreamResponse:
    """The form for what was ticked in a list; or, from that form, stage what it says."""
    mode, typed = _mode(visit), visit.typed
    if "names" not in typed:
        names = typed.get("on", "").splitlines()
        if typed.get("which") == "all":
            names = _matching(visit, mode, typed.get("q", ""))
        return _form(visit, mode, names)
    objects = _objects(visit.tree, mode, typed["names"].splitlines())
    if typed.get("seen") != _seen(objects):
        warning = "Some of the objects were changed since this form was opened. Check your input, then stage it again."
        return _form(visit, mode, list(objects), warning=warning, status=409)
    outcome = change(visit.tree, objects, typed)
    if outcome.problems:
        return _form(visit, mode, list(objects), outcome.problems, status=422)
    for name, obj in outcome.objects.items():
        visit.session.put((mode, name), obj)
    for words in outcome.told:
        visit.login.say(words)
    staged, what = len(outcome.objects), links.counted(visit.tree.schema, mode, len(outcome.objects))
    if not staged:
        visit.login.say("Nothing is staged: all of them have these values already.")
        return visit.go(links.show((mode,)))
    visit.login.say(f"{staged} {what} {'is' if staged == 1 else 'are'} staged: one commit changes them all.", "good")
    return visit.go("/changes")


def _mode(visit: Visit) -> str:
    mode = visit.tree.schema.mode(visit.request.match_info["mode"]).shell
    demand(visit.person, "edit", f"mode/{mode}")
    return mode


def _matching(visit: Visit, mode: str, query: str) -> list[str]:
    second = pages.states_column(visit) if mode == "device" else None
    return views.matching(visit.tree, (mode,), query.strip(), second)


def _objects(tree: Tree, mode: str, names: Iterable[str]) -> dict[str, Obj]:
    present = tree.mode(mode)
    return {name: present[name] for name in dict.fromkeys(names) if name in present}


def _seen(objects: Mapping[str, Obj]) -> str:
    return hashlib.sha256("".join(map(forms.seen, objects.values())).encode()).hexdigest()[:16]


def _form(
    visit: Visit,
    mode: str,
    names: Sequence[str],
    problems: Mapping[str, str] | None = None,
    warning: str = "",
    status: int = 200,
) -> web.Response:
    objects, problems = _objects(visit.tree, mode, names), problems or {}
    if not objects:
        visit.login.say("Nothing is selected.", "warning", "Tick what you want to edit, or edit all that match.")
        return visit.go(links.show((mode,)))
    what = links.counted(visit.tree.schema, mode, len(objects))
    return visit.page(
        "bulk.html",
        f"Edit {len(objects)} {what}",
        status,
        mode=mode,
        names=list(objects),
        short_names=ranges.compress(objects),
        what=what,
        plural=links.plural(visit.tree.schema, mode),
        seen=_seen(objects),
        sections=_sections(visit.tree, objects, visit.typed, problems),
        verbs=_verbs(visit.tree, objects),
        typed=visit.typed,
        roles=_roles(visit.tree, objects),
        problems=problems,
        warning=warning,
    )


# The form


def _common(tree: Tree, objects: Mapping[str, Obj]) -> tuple[type[Entity], list[Field]]:
    """A declaration of the objects, and those of its fields that all of them have and several can share."""
    entities = list(dict.fromkeys(tree.schema.of(obj) for obj in objects.values()))
    fields = [field for field in forms.settable(entities[0]) if not field.unique and not field.kind.secret]
    return entities[0], [field for field in fields if all(_has(entity, field) for entity in entities)]


def _has(entity: type[Entity], field: Field) -> bool:
    other = entity.attributes.get(field.attribute)
    return isinstance(other, Field) and other.kind == field.kind


def _sections(
    tree: Tree, objects: Mapping[str, Obj], typed: Mapping[str, str], problems: Mapping[str, str]
) -> list[forms.Section]:
    entity, fields = _common(tree, objects)
    bare = {control.name: control for control in forms.inputs(tree, Obj(entity.type_name(), ""))}
    controls = [_control(field, bare[FIELD + field.attribute], objects.values()) for field in fields]
    return forms.sections(
        entity,
        [
            replace(
                control,
                text=typed.get(control.name, ""),
                error=problems.get(control.name, ""),
                is_set=bool(typed.get(control.name)),
            )
            for control in controls
        ],
    )


def _control(field: Field, control: Input, objects: Iterable[Obj]) -> Input:
    note = _now(field, objects)
    if control.form != "select":
        return replace(control, note=note, ways=())
    options = [(SET + value, words) for value, words in control.options if value]
    unset = "inherit" if field.inherits else "none" if len(options) < len(control.options) else "the default"
    return replace(control, note=note, ways=(), options=(("", "leave as it is"), *options, (CLEAR, unset)))


def _now(field: Field, objects: Iterable[Obj]) -> str:
    """What the objects hold now, the most frequent first."""
    counts = Counter(field.show(obj) if field.attribute in obj.values else "" for obj in objects)
    if len(counts) > _TOLD:
        return f"now: {len(counts)} different values"
    return "now: " + ", ".join(f"{count} {text or 'not set'}" for text, count in counts.most_common())


def _verbs(tree: Tree, objects: Mapping[str, Obj]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """What can be done with what is typed, by input; nothing for those that are chosen from."""
    simple = (("set", "set"), (CLEAR, "clear"))
    several = (("set", "set"), ("add", "add"), ("remove", "remove"), (CLEAR, "clear"))
    return {FIELD + field.attribute: several if field.kind.multiple else simple for field in _common(tree, objects)[1]}


class Roles(NamedTuple):
    """What can be assigned, and what some of the objects have, with how many."""

    words: list[str]
    held: list[tuple[str, int]]


def _roles(tree: Tree, objects: Mapping[str, Obj]) -> Roles | None:
    submode = _role_list(tree, objects)
    if submode is None:
        return None
    counts = Counter(name for obj in objects.values() for name in obj.below(_ROLES))
    return Roles(submode.words(), sorted(counts.items()))


def _role_list(tree: Tree, objects: Mapping[str, Obj]) -> Submode | None:
    """The list of roles, where all of the objects have one."""
    rows = [tree.schema.of(obj).attributes.get(_ROLES) for obj in objects.values()]
    return rows[0] if all(isinstance(row, Submode) for row in rows) and isinstance(rows[0], Submode) else None


# What it says


Step = Callable[[Obj], Obj]


def change(tree: Tree, objects: Mapping[str, Obj], typed: Mapping[str, str]) -> Outcome:
    """What a submitted form makes of the objects."""
    steps: list[Step] = []
    problems: dict[str, str] = {}
    told: list[str] = []
    for field in _common(tree, objects)[1]:
        try:
            step = _step(tree, field, typed)
        except errors.Invalid as wrong:
            problems[FIELD + field.attribute] = str(wrong).removeprefix(f"{field.shell}: ")
            continue
        if step is not None:
            steps.append(step)
            told += [field.notice] if field.notice else []
    submode = _role_list(tree, objects)
    if submode is not None:
        try:
            steps += _role_steps(submode, typed)
        except errors.Invalid as wrong:
            problems["assign"] = f"{wrong.message}; {wrong.hint}" if wrong.hint else wrong.message
    if not steps and not problems:
        problems["nothing"] = "nothing is filled in"
    changed = {name: _applied(obj, steps) for name, obj in objects.items()} if not problems else {}
    return Outcome(
        {name: obj for name, obj in changed.items() if obj != objects[name]}, problems, tuple(dict.fromkeys(told))
    )


def _applied(obj: Obj, steps: Iterable[Step]) -> Obj:
    for step in steps:
        obj = step(obj)
    return obj


def _step(tree: Tree, field: Field, typed: Mapping[str, str]) -> Step | None:
    """What is to be done with a field of each object; None where it is left as it is. Raises `Invalid`."""
    attribute = field.attribute
    text = typed.get(FIELD + attribute, "").replace("\r\n", "\n").removeprefix("\n")
    verb = typed.get(DO + attribute, "set")
    if verb == CLEAR or (DO + attribute not in typed and text == CLEAR):
        return lambda obj: obj.with_value(attribute, None)
    if not text.strip():
        return None
    if DO + attribute not in typed:
        text = text.removeprefix(SET)
    value = field.parse(text)
    for key in field.targets(value):
        if verb != "remove" and tree.find(field.target_mode, key) is None:
            raise errors.Invalid(f"there is no {field.target_mode} {key!r}")
    if verb == "set" or not isinstance(value, tuple):
        return lambda obj: obj.with_value(attribute, field.normal(value))

    def merged(obj: Obj) -> Obj:
        items = field.value(obj)
        assert isinstance(items, tuple)
        kept = dict.fromkeys((*items, *value)) if verb == "add" else [item for item in items if item not in value]
        return obj.with_value(attribute, field.normal(field.kind.decode(list(kept))))

    return merged


def _role_steps(submode: Submode, typed: Mapping[str, str]) -> list[Step]:
    steps: list[Step] = []
    assigned, gone = typed.get("assign", "").strip(), typed.get("unassign", "")
    if gone:
        steps.append(lambda obj: obj.with_child(_ROLES, gone, None))
    if assigned:
        entity, key = submode.naming(assigned)
        steps.append(lambda obj: obj if key in obj.below(_ROLES) else obj.with_child(_ROLES, key, entity.made(key)))
    return steps
