"""The pages of setups: the form of a deployment, its summary, and runs with their stages as they go.

In: visits, and the setup tool that the daemon was given. Out: pages, the answers as a file, and runs that were started
under the name of who is signed in. The form, its order, its help and its messages are data of the tool: nothing here
knows a question. What was answered travels in the form itself, so that the back button and a second head do no harm.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from aiohttp import web

from bedplate.api.setups import SetupForm, SetupQuestion, SetupScreen
from bedplate.core import errors
from bedplate.head.setups import Busy
from bedplate.ui import setups
from bedplate.ui.web import engine
from bedplate.ui.web.forms import Input, Section
from bedplate.ui.web.visit import Visit

__all__ = ["act", "check", "deploy", "form", "overview", "remove_form", "run"]

ANSWER, PREFILLED = "a.", "p."
"""What the names of inputs begin with: an answer, and the text that was there before anybody typed."""
_STARS = "********"
_TONES = {
    "starting": "warn",
    "running": "warn",
    "undoing": "warn",
    "completed": "good",
    "done": "good",
    "failed": "bad",
    "interrupted": "bad",
    "refused": "bad",
    "aborted": "bad",
}


class Row(NamedTuple):
    """A line of the summary."""

    title: str
    text: str


async def overview(visit: Visit) -> web.StreamResponse:
    """What runs now, the last run for each cluster, and the clusters there are."""
    runs = setups.setups_of(visit.service).runs()
    known = {run.cluster for run in runs}
    clusters = [name for name in visit.service.head.tree.mode("kubernetes") if name not in known]
    return _page(visit, "setups.html", "Setup", runs=runs, clusters=sorted(clusters))


async def form(visit: Visit) -> web.StreamResponse:
    """The form with prefilled values."""
    tool = setups.demand_start(visit.service, visit.person)
    return _asked(visit, tool.form({}, {}))


async def check(visit: Visit) -> web.StreamResponse:
    """What is wrong, and the values, for the script of the form: as JSON, by the names of its inputs."""
    filled = await _filled(visit)
    questions = [question for screen in filled.screens for question in screen.questions]
    answer = {
        ANSWER + each.path: {"text": each.text, "problem": each.problem, "asked": each.asked} for each in questions
    }
    headers = {**engine.SECURITY, "Cache-Control": "no-store"}
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json", headers=headers)


async def deploy(visit: Visit) -> web.StreamResponse:
    """Check the form; then show the summary, give the file, or start the run."""
    filled, then = await _filled(visit), visit.typed.get("then", "check")
    if filled.problems or then == "edit":
        return _asked(visit, filled, 400 if filled.problems else 200, is_checked=then != "edit")
    if then == "save":
        name = f"kubernetes-{filled.cluster}.yaml"
        headers = {
            **engine.SECURITY,
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{name}"',
        }
        return web.Response(text=filled.answers, content_type="application/yaml", headers=headers)
    if then != "deploy":
        summary = [(screen.title, _rows(screen)) for screen in filled.screens]
        texts, file = _texts(filled), _file(filled)
        return _page(visit, "setupsummary.html", "Summary", filled=filled, file=file, summary=summary, answers=texts)
    try:
        run = await setups.deploy(visit.service, visit.person, filled)
    except Busy as err:
        return _told(visit, err, err.cluster)
    visit.login.say(f"The deployment of the cluster {run.cluster} has begun.", "good")
    return visit.go(_way(run.cluster))


async def run(visit: Visit) -> web.StreamResponse:
    """The last run for a cluster: its stages, and what can be done."""
    cluster = visit.request.match_info["cluster"]
    shown = setups.setups_of(visit.service).run(cluster)
    current = [stage for stage in shown.stages if stage.state in ("running", "undoing", "failed")]
    return _page(
        visit,
        "setuprun.html",
        f"{shown.operation or 'run'} of {cluster}",
        run=shown,
        done=sum(stage.state in ("done", "undone") for stage in shown.stages),
        current=current,
        is_there=visit.service.head.tree.find("kubernetes", cluster) is not None,
    )


async def remove_form(visit: Visit) -> web.StreamResponse:
    """Asks for the name of the cluster that is to be removed."""
    setups.demand_start(visit.service, visit.person)
    return _confirm(visit, visit.request.match_info["cluster"])


async def act(visit: Visit) -> web.StreamResponse:
    """Resume, undo or abort a run, or remove a cluster."""
    cluster, action = visit.request.match_info["cluster"], visit.request.match_info["action"]
    confirm = visit.typed.get("confirm", "").strip()
    if action == "remove" and confirm != cluster:
        setups.demand_start(visit.service, visit.person)
        return _confirm(visit, cluster, problem=f"type {cluster} to remove it; nothing was changed")
    try:
        await setups.act(visit.service, visit.person, cluster, action, confirm)  # type: ignore[arg-type]
    except Busy as err:
        return _told(visit, err, err.cluster)
    except errors.Conflict as err:
        return _told(visit, err, cluster)
    return visit.go(_way(cluster))


def _confirm(visit: Visit, cluster: str, problem: str = "") -> web.Response:
    if not setups.is_known(visit.service, cluster):
        raise errors.NotFound(f"there is no cluster {cluster!r} to remove", hint="the page Setup lists all")
    return _page(
        visit, "setupremove.html", f"Remove {cluster}", 400 if problem else 200, cluster=cluster, problem=problem
    )


def _told(visit: Visit, err: errors.BedplateError, cluster: str) -> web.Response:
    visit.login.say(f"{err.message}.", "warning", err.hint)
    return visit.go(_way(cluster) if cluster else "/setup")


def _way(cluster: str) -> str:
    return f"/setup/runs/{cluster}"


def _page(visit: Visit, template: str, title: str, status: int = 200, **values: object) -> web.Response:
    may_start = setups.may_start(visit.service, visit.person)
    return visit.page(template, title, status, may_start=may_start, setup_tones=_TONES, **values)


# The form


async def _filled(visit: Visit) -> SetupForm:
    tool = setups.demand_start(visit.service, visit.person)
    # Long lists take their time: others are answered meanwhile.
    return await asyncio.to_thread(tool.form, _below(visit.typed, ANSWER), _below(visit.typed, PREFILLED))


def _below(typed: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in typed.items() if name.startswith(prefix)}


def _asked(visit: Visit, filled: SetupForm, status: int = 200, *, is_checked: bool = False) -> web.Response:
    sections = [
        (screen, Section(screen.title, tuple(_input(each, is_checked=is_checked) for each in screen.questions), False))
        for screen in filled.screens
    ]
    questions = {ANSWER + each.path: each for screen in filled.screens for each in screen.questions}
    problems = len(filled.problems) if is_checked else 0
    return _page(
        visit,
        "setupform.html",
        "Deploy a cluster",
        status,
        sections=sections,
        questions=questions,
        prefilled={PREFILLED + each.path: each.text for each in questions.values() if each.prefilled},
        problems=problems,
    )


def _input(question: SetupQuestion, *, is_checked: bool) -> Input:
    available = f"available: {question.available}" if question.available else ""
    if question.kind == "choice":
        form, options = "select", tuple((word, word) for word in question.choices)
    elif question.names:
        form, options = "boxes", tuple((name, name) for name in question.names)
    else:
        form, options = (question.kind if question.kind in ("number", "secret") else "text"), ()
        form = "password" if form == "secret" else form
    return Input(
        ANSWER + question.path,
        question.title,
        question.help,
        form,
        "\n".join(question.text.split(", ")) if form == "boxes" else question.text,
        options=options,
        note=available if form != "boxes" else "",
        # A form that nobody has filled in yet is not wrong.
        error=question.problem if is_checked else "",
    )


def _rows(screen: SetupScreen) -> list[Row]:
    return [Row(each.title, _STARS if _is_secret(each) else each.text) for each in screen.questions if each.asked]


def _is_secret(question: SetupQuestion) -> bool:
    return question.kind == "secret" and bool(question.text)


def _file(filled: SetupForm) -> str:
    """The answers as they may be seen; the file that is saved has everything."""
    text = filled.answers
    for question in (each for screen in filled.screens for each in screen.questions if _is_secret(each)):
        key = re.escape(question.path.rpartition(".")[2])
        # What is folded goes on in lines that are further in, and in empty ones.
        text = re.sub(rf"(?m)^( +)({key}: ).*(?:\n\1 +.*|\n(?=\n))*", rf"\1\2'{_STARS}'", text)
    return text


def _texts(filled: SetupForm) -> dict[str, str]:
    return {ANSWER + each.path: each.text for screen in filled.screens for each in screen.questions}
