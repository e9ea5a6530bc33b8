"""A deployment in the wizard, without its terminal: which screens there are, values and what is wrong with them. Pure.

In: a site and what was typed so far. Out: the values to show, complete with prefilled ones, and problems by key. What
somebody typed stays; what nobody touched follows, so that another cluster's name gets other networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.core import errors
from bedplate.head.schema import ranges
from bedplate.setup.answers import declaration, document, features, fitting
from bedplate.setup.answers.declaration import Field, Screen
from bedplate.setup.answers.kinds import Bool, Choice, Secret
from bedplate.setup.answers.maps import Operators
from bedplate.setup.answers.site import Site
from bedplate.setup.engine.masking import STARS
from bedplate.setup.operators import OPERATORS

__all__ = ["Outcome", "Steps"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the wizard ended: an action of the tool, or `save`, or `exit`; with the answers of a deployment and the file
    to save, or the flags of another action."""

    action: str
    answers: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    flags: dict[str, Any] = field(default_factory=dict)


class Steps:
    """The answers of one session."""

    def __init__(self, site: Site, start: Mapping[str, Any], *, has_device_mapper: bool = False) -> None:
        self.site = site
        self._has_device_mapper = has_device_mapper
        self._typed: dict[str, Any] = {}
        self._start = dict(start)
        self._values: dict[str, Any] | None = None
        self._problems: dict[str, str] | None = None

    @property
    def screens(self) -> list[Screen]:
        """Those with a question that applies, in the order of the documentation; the summary is the last one."""
        return [page for page in declaration.SCREENS if page.number == declaration.SUMMARY or self._is_shown(page)]

    def _is_shown(self, screen: Screen) -> bool:
        return any(self.is_asked(question) for question in self.fields(screen))

    def fields(self, screen: Screen) -> list[Field]:
        return [each for each in declaration.QUESTIONS if each.screen == screen.number]

    @property
    def given(self) -> dict[str, Any]:
        """The answers as they were typed; what nobody touched is as it was at the start."""
        answers, chosen = self._start, features.OPERATORS_PATH
        for path, value in sorted(self._typed.items(), key=lambda typed: typed[0].count(".")):
            # What was said of an operator does not count once the operator is not chosen any more.
            if not path.startswith(f"{chosen}.") or declaration.by_path()[path].when(answers):
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

    def value(self, question: Field) -> Any:
        """The value of a question; the default of one about an operator that is not chosen."""
        value = declaration.value_at(self.values, question.path)
        return question.default if value is None else value

    def text(self, question: Field) -> str:
        return question.kind.text(self.value(question))

    def shown(self, question: Field) -> str:
        """The text as people may see it."""
        text = self.text(question)
        return STARS if text and isinstance(question.kind, Secret) else text

    def type(self, question: Field, text: str) -> None:
        """Take what was typed; the text that is prefilled does not count as an answer."""
        if text != self.text(question):
            value = question.kind.parse(text)
            if isinstance(question.kind, Operators):
                value = question.kind.chosen(value, self.value(question))
            self._typed[question.path] = value
            self._values = self._problems = None

    @property
    def masked(self) -> dict[str, Any]:
        """The values as people may see them."""
        answers = self.values
        for question in declaration.FIELDS:
            if isinstance(question.kind, Secret):
                answers = document.with_value(answers, question.path, self.shown(question))
        return answers

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
            fits = fits or [each for each in own if path.startswith(f"{each}.")]
            # Which nodes there are is known once all three screens with nodes were answered.
            is_later = path == "kubernetes.nodes" and screen.number != 9
            if fits and not is_later:
                texts.setdefault(fits[0], text)
        return texts

    def choices(self, question: Field) -> Sequence[str]:
        """The values to choose from; empty for a question that takes any."""
        if question.path == "docker.storage_backend" and not self._has_device_mapper:
            return declaration.BACKENDS[:1]
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
            case "operators":
                return [operator.name for operator in OPERATORS]
        return None
