"""Answers to "why is it so": findings about one object, and how they are shown.

In: findings that some part of the program made from live state. Out: a table for people or JSON for programs, and an
exit code: 0 no problem was found, 1 something needs attention, 3 something could not be checked. Pure but for `show`.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from typing import TextIO

__all__ = ["EXIT_CODES", "Explanation", "Finding", "State", "show"]

_WIDTH = 100


class State:
    """How a finding is to be read."""

    GOOD = "ok"
    NOTICE = "notice"
    """As it should be, and worth knowing: a node that is not ours, a Service of another controller."""
    BAD = "attention"
    UNKNOWN = "unknown"
    """It could not be found out."""


EXIT_CODES = {State.GOOD: 0, State.NOTICE: 0, State.BAD: 1, State.UNKNOWN: 3}
_MARKS = {State.GOOD: " ", State.NOTICE: "·", State.BAD: "!", State.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about the object: the question (`topic`), the answer in a word, and the reason."""

    topic: str
    answer: str
    why: str
    state: str = State.GOOD


@dataclass(frozen=True, slots=True)
class Explanation:
    """All findings about one object."""

    kind: str
    name: str
    findings: tuple[Finding, ...]

    @property
    def state(self) -> str:
        """The worst of all findings; what cannot be found out is worse than what is merely wrong."""
        order = (State.GOOD, State.NOTICE, State.BAD, State.UNKNOWN)
        return max((finding.state for finding in self.findings), key=order.index, default=State.GOOD)


def show(explanation: Explanation, output: str, out: TextIO) -> int:
    """Print it; the exit code that goes with it."""
    out.write(_json(explanation) if output == "json" else _table(explanation))
    return EXIT_CODES[explanation.state]


def _json(explanation: Explanation) -> str:
    findings = [
        {"topic": finding.topic, "answer": finding.answer, "state": finding.state, "why": finding.why}
        for finding in explanation.findings
    ]
    document = {"kind": explanation.kind, "name": explanation.name, "state": explanation.state, "findings": findings}
    return json.dumps(document, indent=2) + "\n"


def _table(explanation: Explanation) -> str:
    topics = max((len(finding.topic) for finding in explanation.findings), default=0)
    answers = max((len(finding.answer) for finding in explanation.findings), default=0)
    lines = [f"{explanation.kind} {explanation.name}"]
    for finding in explanation.findings:
        head = f"{_MARKS[finding.state]} {finding.topic:<{topics}}  {finding.answer:<{answers}}  "
        lines += textwrap.wrap(
            finding.why,
            max(_WIDTH, len(head) + 40),
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
            break_long_words=False,
        ) or [head.rstrip()]
    return "\n".join(lines) + "\n"
