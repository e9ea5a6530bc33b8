"""What the page and the REST API show of setup tools: the form of a deployment, and runs with their stages.

In: nothing. Out: msgspec Structs, in which nothing is secret but what the caller sent: what stages say is masked before
it gets here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "SetupAction",
    "SetupActionName",
    "SetupForm",
    "SetupList",
    "SetupProblem",
    "SetupQuestion",
    "SetupRun",
    "SetupScreen",
    "SetupStage",
    "SetupStatus",
]

SetupActionName = Literal["resume", "undo", "abort", "remove"]
SetupStatus = Literal["starting", "running", "completed", "failed", "aborted", "undone", "interrupted", "refused"]
"""`interrupted`: the tool was killed; `refused`: it ended before a stage was begun; both say why in `trouble`."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class SetupQuestion(_Answer, frozen=True, omit_defaults=True):
    """A question, with its value as text. `choices` are all values there are; `names` those that can be listed, unless
    they are too many, and `available` the same in short. A question that is not `asked` does not apply. The text of a
    `secret` is what was sent, and must not be shown."""

    path: str
    title: str
    help: str
    text: str
    kind: Literal["text", "number", "choice", "names", "secret"]
    choices: list[str] = []
    names: list[str] = []
    available: str = ""
    problem: str = ""
    asked: bool = True
    prefilled: bool = False
    """Whether the value was chosen to fit the site."""


class SetupScreen(_Answer, frozen=True):
    """Questions about one thing; `number` is the place in the documentation of the tool."""

    number: int
    title: str
    about: str
    questions: list[SetupQuestion]


class SetupProblem(_Answer, frozen=True):
    """What is wrong with the answer at a key."""

    path: str
    text: str


class SetupForm(_Answer, frozen=True):
    """The questions of a deployment in their order. `answers` is the file (YAML) for `cm-kubernetes-setup -c`."""

    cluster: str
    screens: list[SetupScreen]
    problems: list[SetupProblem]
    answers: str


class SetupStage(_Answer, frozen=True, omit_defaults=True):
    """A stage; `lines` is what it said last. Times are RFC 3339."""

    name: str
    plugin: str
    state: Literal["pending", "running", "done", "failed", "undoing", "undone"]
    began: str = ""
    ended: str = ""
    took: float | None = None
    """Seconds, so far for a stage that runs."""
    error: str = ""
    lines: list[str] = []


class SetupRun(_Answer, frozen=True, omit_defaults=True):
    """The last run for a cluster. `by` is who started it on the page or through the API, empty for a terminal;
    `actions` is what can be done with it now."""

    cluster: str
    operation: str
    status: SetupStatus
    percent: int
    began: str = ""
    ended: str = ""
    by: str = ""
    process: int = 0
    trouble: str = ""
    actions: list[SetupActionName] = []
    stages: list[SetupStage] = []


class SetupList(_Answer, frozen=True):
    """The last run for each cluster; the stages of each are with the run itself."""

    items: list[SetupRun]


class SetupAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with the last run for a cluster: `resume` or `undo` one that did not complete, `abort` one that is
    under way; or `remove` the cluster, for which `confirm` must be its name."""

    action: SetupActionName
    confirm: Annotated[str, Meta(max_length=253)] = ""
