"""The form of a deployment as data: the questions of the declaration with values, help and what is wrong. Pure.

In: a site, and texts by key as a browser sends them, or answers. Out: `SetupForm`. Values, messages and the order are
those of the wizard, whose `Steps` decide them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bedplate.api.setups import SetupForm, SetupProblem, SetupQuestion, SetupScreen
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head.schema import ranges
from bedplate.setup.answers import declaration, document, fitting
from bedplate.setup.answers.declaration import Field
from bedplate.setup.answers.kinds import Integer, Names, Secret
from bedplate.setup.answers.maps import Operators
from bedplate.setup.answers.site import Site
from bedplate.setup.engine.masking import Masker
from bedplate.setup.tool.operations import stamped
from bedplate.setup.wizard.steps import Steps

__all__ = ["of_answers", "of_typed"]

_LISTED = 24
"""So many names can be ticked one by one; of more, they are typed."""
_mask = Masker()


def of_typed(site: Site, typed: Mapping[str, str], prefilled: Mapping[str, str], clock: Clock) -> SetupForm:
    """The form with what was typed. Keys that are not in the declaration do not count."""
    steps = Steps(site, document.defaults())
    for question in declaration.QUESTIONS:
        text = typed.get(question.path)
        if text is not None and (not question.is_prefilled or text.strip() != prefilled.get(question.path)):
            steps.type(question, text)
    return _form(steps, clock)


def of_answers(site: Site, answers: Mapping[str, Any], clock: Clock) -> SetupForm:
    """The form with answers of the right form."""
    return _form(Steps(site, answers), clock)


def _form(steps: Steps, clock: Clock) -> SetupForm:
    values, problems = _values(steps), steps.problems()
    screens = []
    for screen in declaration.SCREENS:
        if screen.number == declaration.SUMMARY:
            continue
        wrong = steps.problems_of(screen)
        rows = [_question(steps, field, values, wrong) for field in steps.fields(screen)]
        screens.append(SetupScreen(number=screen.number, title=screen.title, about=screen.about, questions=rows))
    return SetupForm(
        cluster=str(values["kubernetes"]["name"]),
        screens=screens,
        problems=[SetupProblem(path=path, text=_mask(text)) for path, text in problems.items()],
        answers=document.save(stamped(values, clock)) if not problems else "",
    )


def _values(steps: Steps) -> dict[str, Any]:
    """The values to show: one that has not the right form does not keep the others from being prefilled."""
    given = steps.given
    wrong = [path for path, _ in document.problems(given)]
    if not wrong:
        return steps.values
    repaired = given
    for path in wrong:
        repaired = document.with_value(repaired, _question_of(path), declaration.by_path()[_question_of(path)].default)
    try:
        values = fitting.complete(repaired, steps.site)
    except errors.Invalid:
        return given
    for path in map(_question_of, wrong):
        values = document.with_value(values, path, declaration.value_at(given, path))
    return values


def _question_of(path: str) -> str:
    """The question that a problem belongs to: a name that is none belongs to the list that it is in."""
    while path not in declaration.by_path():
        path = path.rpartition(".")[0]
    return path


def _question(steps: Steps, field: Field, values: Mapping[str, Any], problems: Mapping[str, str]) -> SetupQuestion:
    value = declaration.value_at(values, field.path)
    value = field.default if value is None else value
    choices, names = list(steps.choices(field)), steps.nameable(field)
    text = field.kind.text(value)
    if choices and text not in choices:
        choices.append(text)
    return SetupQuestion(
        path=field.path,
        title=field.title,
        help=field.help,
        # An address with a password in it is refused, and not shown again. What is typed as a secret stays in the form.
        text=text if isinstance(field.kind, Secret) or _mask(text) == text else "",
        kind=_kind(field, choices),
        choices=choices,
        names=_tickable(names, value),
        available=steps.offered(field),
        problem=_mask(problems.get(field.path, "")),
        asked=field.when(values),
        prefilled=field.is_prefilled and not declaration.value_at(steps.given, field.path),
    )


def _kind(field: Field, choices: list[str]) -> Literal["text", "number", "choice", "names", "secret"]:
    if choices:
        return "choice"
    if isinstance(field.kind, Names | Operators):
        return "names"
    if isinstance(field.kind, Secret):
        return "secret"
    return "number" if isinstance(field.kind, Integer) else "text"


def _tickable(names: list[str] | None, value: Any) -> list[str]:
    """The names, unless there are too many of them, or another one or a range was typed."""
    value = list(value) if isinstance(value, dict) else value
    if not names or len(names) > _LISTED or not isinstance(value, list):
        return []
    try:
        meant = {name for part in value for name in ranges.expand(part, _LISTED)}
    except (ValueError, errors.BedplateError):
        return []
    return names if meant <= set(names) and meant == set(value) else []
