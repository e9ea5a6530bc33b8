"""Staging: the forms that change objects in the login's own session. Nothing here reaches the head.

In: visits with what was typed. Out: forms, with errors beside their fields; on to the object's page when something was
staged.
"""

from __future__ import annotations

from aiohttp import web

from bedplate.core import errors
from bedplate.head import Path, demand
from bedplate.ui.web import forms, links, views
from bedplate.ui.web.visit import Visit

__all__ = ["add", "add_form", "allow", "clone", "edit", "edit_form", "remove"]


def allow(visit: Visit, path: Path) -> None:
    """Say at once that a mode is not this person's to edit, and not only when it is committed."""
    demand(visit.person, "edit", f"mode/{path[0]}")


def _object_path(visit: Visit) -> Path:
    path = visit.path()
    if len(path) % 2:
        raise errors.NotFound("the address names a list, not an object")
    return path


async def edit_form(visit: Visit) -> web.StreamResponse:
    """The form of an object."""
    path = _object_path(visit)
    allow(visit, path)
    return _form(visit, path)


def _form(
    visit: Visit,
    path: Path,
    problems: dict[str, str] | None = None,
    warning: str = "",
    status: int = 200,
) -> web.Response:
    obj = visit.tree.get(path)
    inputs = forms.inputs(visit.tree, obj, visit.typed, problems)
    return visit.page(
        "edit.html",
        f"Edit {obj.key}",
        status,
        path=path,
        obj=obj,
        noun=visit.tree.schema.of(obj).noun,
        sections=forms.sections(visit.tree.schema.of(obj), inputs),
        seen=forms.seen(obj),
        problems=problems or {},
        extras=[
            (name, visit.typed.get(forms.EXTRA + name, text), forms.EXTRA + name)
            for name, text in sorted(obj.extras.items())
        ],
        extra_name=visit.typed.get("extra.name", ""),
        extra_value=visit.typed.get("extra.value", ""),
        warning=warning,
        has_secret=any(control.form == "secret" for control in inputs),
    )


async def edit(visit: Visit) -> web.StreamResponse:
    """Stage what the form says; the form again where something cannot be read."""
    path = _object_path(visit)
    allow(visit, path)
    obj = visit.tree.get(path)
    if visit.typed.get("seen") != forms.seen(obj):
        warning = (
            "The object was changed since this form was opened. Your input is kept: check it, then stage it again."
        )
        return _form(visit, path, warning=warning, status=409)
    outcome = forms.read(visit.tree, obj, visit.typed)
    if outcome.problems:
        return _form(visit, path, dict(outcome.problems), status=422)
    visit.session.put(path, outcome.obj)
    is_planned = visit.typed.get("then") == "plan"
    for words in outcome.told:
        visit.login.say(words)
    if visit.session.is_changed(path):
        hint = "" if is_planned else "Look at the plan, then commit."
        visit.login.say(f"{links.title(path)} is staged.", "good", hint)
    else:
        visit.login.say(f"{links.title(path)} has no changes: nothing is staged for it.")
    return visit.go("/changes" if is_planned else links.show(path))


async def add_form(visit: Visit) -> web.StreamResponse:
    """The form for a new object of a list."""
    place = visit.path()
    if len(place) % 2 == 0:
        raise errors.NotFound("the address names an object, not a list")
    allow(visit, place)
    return _new(visit, place)


def _new(visit: Visit, place: Path, problem: str = "", hint: str = "", status: int = 200) -> web.Response:
    submode, _ = views.submode_at(visit.tree, place)
    nouns = sorted({entity.noun for entity in submode.of})
    return visit.page(
        "add.html",
        f"New {nouns[0] if len(nouns) == 1 else 'object'}",
        status,
        place=place,
        submode=submode,
        types=[(entity.word, entity.noun) for entity in submode.of] if submode.typed else [],
        names=[] if submode.typed else submode.words(),
        name=visit.typed.get("name", ""),
        word=visit.typed.get("type", submode.of[-1].word if submode.typed else ""),
        problem=problem,
        hint=hint,
    )


async def add(visit: Visit) -> web.StreamResponse:
    """Stage a new object, then show its form."""
    place = visit.path()
    allow(visit, place)
    submode = visit.session.submode(place)
    try:
        if submode.indexed:
            path = visit.session.add_indexed(place)
        else:
            path = visit.session.add(place, visit.typed.get("name", "").strip(), visit.typed.get("type", ""))
    except (errors.Invalid, errors.AlreadyExists) as wrong:
        return _new(visit, place, str(wrong), wrong.hint, 422)
    visit.login.say(
        f"{links.title(path)} is staged as new.", "good", "Fill in the required values, then look at the plan."
    )
    return visit.go(links.edit(path))


async def clone(visit: Visit) -> web.StreamResponse:
    """Stage a copy under another name: all but secrets and what must be unique."""
    path = _object_path(visit)
    allow(visit, path)
    copy = visit.session.clone(path, visit.typed.get("name", "").strip())
    visit.login.say(f"{links.title(copy)} is staged as a copy of {path[-1]}.", "good")
    return visit.go(links.edit(copy))


async def remove(visit: Visit) -> web.StreamResponse:
    """Stage the removal of an object."""
    path = _object_path(visit)
    allow(visit, path)
    visit.session.remove(path)
    visit.login.say(f"The removal of {links.title(path)} is staged.", "warning", "Look at the plan, then commit.")
    return visit.go(links.show(path[:-1]))
