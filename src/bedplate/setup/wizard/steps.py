"""The wizard without its terminal: which operations and screens there are, values and what is wrong with them. Pure.

In: a site and what was typed so far. Out: the values to show, complete with prefilled ones, and problems by key. What
somebody typed stays; what nobody touched follows, so that another cluster's name gets other networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.core import errors
from bedplate.head.schema import ranges
from bedplate.setup.answers import declaration, document, fitting
from bedplate.setup.answers.declaration import Field, Screen
from bedplate.setup.answers.kinds import Bool, Choice
from bedplate.setup.answers.site import Site

__all__ = ["Operation", "Outcome", "Steps", "operations"]


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of the first screen."""

    action: str
    title: str
    about: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the wizard ended: an action of the tool, or `save`, or `exit`; with the answers, and the file to save."""

    action: str
    answers: dict[str, Any] = field(default_factory=dict)
    file: str = ""


_DEPLOY = Operation("deploy", "Deploy", "Make a new Kubernetes cluster")
_EXIT = Operation("exit", "Exit", "Leave without changing anything")
_RESUME = Operation("resume", "Resume", "Continue the run that was interrupted")
_UNDO = Operation("undo", "Undo", "Take back what the interrupted run did")
_LATER = (
    Operation("configure-ingress", "Configure Ingress", "Give the ingress its certificate"),
    Operation("add-user", "Add user", "Create a Kubernetes user"),
    Operation("list-users", "List users", "Show all configured users"),
    Operation("list-operators", "List operators", "Show operators and whether their API is available"),
)


def operations(site: Site, *, is_interrupted: bool = False) -> list[Operation]:
    """What the first screen offers: Deploy and Exit alone before there is a cluster."""
    interrupted = (_RESUME, _UNDO) if is_interrupted else ()
    return [_DEPLOY, *interrupted, *(_LATER if site.clusters else ()), _EXIT]


class Steps:
    """The answers of one session."""

    def __init__(self, site: Site, start: Mapping[str, Any]) -> None:
        self.site = site
        self._typed: dict[str, Any] = {}
        self._start = dict(start)
        self._values: dict[str, Any] | None = None
        self._problems: dict[str, str] | None = None

    @property
    def screens(self) -> list[Screen]:
        """In the order of the documentation; the summary is the last one."""
        return list(declaration.SCREENS)

    def fields(self, screen: Screen) -> list[Field]:
        return [each for each in declaration.FIELDS if each.screen == screen.number]

    @property
    def given(self) -> dict[str, Any]:
        """The answers as they were typed; what nobody touched is as it was at the start."""
        answers = self._start
        for path, value in self._typed.items():
            answers = document.with_value(answers, path, value)
        return dict(answers)

    @property
    def values(self) -> dict[str, Any]:
        """With prefilled values; without them while something that was typed has not the right form."""
        if self._values is None:
            self._values = self._completed()
        return self._values

    def _completed(self) -> dict[str, Any]:
        given = self.given
        if document.problems(given):
            return given
        try:
            return fitting.complete(given, self.site)
        except errors.Invalid:
            return given

    def text(self, question: Field) -> str:
        return question.kind.text(declaration.value_at(self.values, question.path))

    def type(self, question: Field, text: str) -> None:
        """Take what was typed; the text that is prefilled does not count as an answer."""
        if text != self.text(question):
            self._typed[question.path] = question.kind.parse(text)
            self._values = self._problems = None

    def is_asked(self, question: Field) -> bool:
        return question.when(self.values)

    def problems(self) -> dict[str, str]:
        """What is wrong, by key; the first problem of each."""
        if self._problems is None:
            self._problems = self._found()
        return self._problems

    def _found(self) -> dict[str, str]:
        wrong = document.problems(self.given)
        problems = wrong or fitting.problems(self.values, self.site)
        texts: dict[str, str] = {}
        for path, text in problems:
            texts.setdefault(path, text)
        return texts

    def problems_of(self, screen: Screen) -> dict[str, str]:
        """What is wrong with the questions of a screen, by key; a problem of several questions is with the first."""
        own = [question.path for question in self.fields(screen) if self.is_asked(question)]
        texts: dict[str, str] = {}
        for path, text in self.problems().items():
            fits = [each for each in own if each == path or each.startswith(f"{path}.")]
            # Which nodes there are is known once all three screens with nodes were answered.
            is_later = path == "kubernetes.nodes" and screen.number != 9
            if fits and not is_later:
                texts.setdefault(fits[0], text)
        return texts

    def choices(self, question: Field) -> Sequence[str]:
        """The values to choose from; empty for a question that takes any."""
        if isinstance(question.kind, Choice):
            return question.kind.options
        if isinstance(question.kind, Bool):
            return ("yes", "no")
        if question.path == "kubernetes.version":
            return declaration.minors()
        return self.site.network_names if question.path == "kubernetes.networks.internal" else ()

    def offered(self, question: Field) -> str:
        """What can be named here: nodes that belong to no cluster, categories, head nodes."""
        names = self.nameable(question)
        if names is None:
            return ""
        shown = ranges.compress(names).split(",") if question.path.endswith(".nodes") and names else names
        return ", ".join(shown) or "none"

    def nameable(self, question: Field) -> list[str] | None:
        """The names that can be given here, in natural order; None for a question about something else."""
        match question.path.rpartition(".")[2]:
            case "nodes":
                free = [n.name for n in self.site.nodes.values() if not (n.is_head or n.cluster or n.registry)]
                return sorted(free, key=ranges.natural)
            case "categories":
                return list(self.site.categories)
            case "head_nodes":
                return self.site.head_nodes
        return None
