"""The shell itself: version, whoami, alias, unalias, run, time, watch, jobs."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence

import bedplate
from bedplate.core import errors
from bedplate.ui.cmsh import completion, language
from bedplate.ui.cmsh.command import COMMANDS, DELIMITER, FAILED, USAGE, VERBOSE, Arguments, Option, command, worst
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table
from bedplate.ui.cmsh.machine import read_file

__all__ = ["typed_again"]

_ALIAS = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*$")
_DEEPEST = 10
_CLEAR = "\x1b[H\x1b[2J"


@command("version", "Show the version of this shell", examples=[("version", "The version, and that of Python")])
async def _version(desk: Desk, args: Arguments) -> None:
    desk.say(f"cmsh {bedplate.__version__} (Python {platform.python_version()})")


@command(
    "whoami",
    "Show who the head takes you for, what you may do, and which head answers",
    "whoami [OPTIONS]",
    options=[VERBOSE, DELIMITER],
    examples=[("whoami", "User, role, head node and its revision")],
)
async def _whoami(desk: Desk, args: Arguments) -> None:
    who = await desk.backend.whoami()
    rows: list[list[Cell]] = [
        ["User", who.user],
        ["Role", who.role],
        ["Known by", who.via],
        ["Head node", who.head],
        ["Active", who.is_active],
        ["Revision", who.revision],
    ]
    desk.table(Table(["Parameter", "Value"], rows, uncut=frozenset({0, 1})), args)


def _alias_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return desk.aliases.items() if not args.words else ()


@command(
    "alias",
    "Define a word that stands for commands, or list those that are defined",
    "alias [OPTIONS]",
    "alias <word> <commands>",
    options=[VERBOSE, DELIMITER],
    examples=[
        ("alias", "What is defined"),
        ("alias down 'device status -s DOWN'", "down then shows them; words behind it are added at the end"),
        ("alias both 'device list; category list'", "Several commands"),
    ],
    words=_alias_words,
    most=None,
    leading=True,
)
async def _alias(desk: Desk, args: Arguments) -> None:
    if not args.words:
        rows = [[name, text] for name, text in sorted(desk.aliases.items())]
        desk.table(Table(["Word (key)", "Commands"], rows, uncut=frozenset({0, 1})), args)
        return
    name, words = args.words[0], args.words[1:]
    if not words:
        if name not in desk.aliases:
            raise errors.NotFound(f"there is no alias {name!r}", hint="alias lists them")
        desk.say(desk.aliases[name])
        return
    if not _ALIAS.match(name) or name.lower() in COMMANDS or name.lower() in desk.schema.modes:
        raise errors.Invalid(
            f"{name!r} cannot be an alias", hint="take a word that is neither a command nor a mode, such as nodes-down"
        )
    text = words[0] if len(words) == 1 else typed_again(words)
    language.parse(text)
    desk.aliases[name] = text


@command(
    "unalias",
    "Forget an alias",
    "unalias <word>",
    examples=[("unalias down", "The word means nothing again")],
    words=_alias_words,
    least=1,
    most=1,
)
async def _unalias(desk: Desk, args: Arguments) -> None:
    if desk.aliases.pop(args.words[0], None) is None:
        raise errors.NotFound(f"there is no alias {args.words[0]!r}", hint="alias lists them")


def typed_again(words: Sequence[str]) -> str:
    """Words as a line that means the same."""
    return " ".join(word if word.startswith("(") and word.endswith(")") else language.quote(word) for word in words)


@command(
    "run",
    "Run the commands of a file in this shell",
    "run [OPTIONS] <file>",
    options=[Option("-q", "--quit", "Stop at the first command that fails")],
    examples=[
        ("run changes.cmsh", "Place and staged changes are those of this shell"),
        ("run -q changes.cmsh", "Leave out the rest after a failure"),
    ],
    words=lambda desk, args: completion.files(args.partial) if not args.words else (),
    least=1,
    most=1,
)
async def _run(desk: Desk, args: Arguments) -> int:
    name, codes = args.words[0], []
    lines = read_file(name).splitlines()
    if desk.depth >= _DEEPEST:
        raise errors.Invalid(f"{name} was not run: files run each other", hint=f"at most {_DEEPEST} within each other")
    desk.depth += 1
    try:
        for number, line in enumerate(lines, 1):
            codes.append(await desk.run_line(line))
            if codes[-1] in (FAILED, USAGE):
                desk.note(f"note: that was line {number} of {name}")
                if args.flag("quit"):
                    break
            if desk.is_over:
                break
    finally:
        desk.depth -= 1
    return worst(codes)


@command(
    "time",
    "Run a command, and say how long it took",
    "time <command> ...",
    examples=[("time device list", "The time is written to standard error")],
    least=1,
    most=None,
    leading=True,
    moves=True,
)
async def _time(desk: Desk, args: Arguments) -> int:
    began = desk.clock.monotonic()
    code = await desk.run(typed_again(args.words))
    desk.note(f"time: {desk.clock.monotonic() - began:.3f} s")
    return code


@command(
    "watch",
    "Run a command again and again, until Ctrl-C",
    "watch [OPTIONS] <command> ...",
    options=[
        Option("-n", "--interval", "Seconds between two runs (2)", value="seconds"),
        Option("", "--count", "End after so many runs", value="count"),
    ],
    examples=[
        ("watch device status", "Every 2 seconds; Ctrl-C ends it"),
        ("watch -n 10 --count 6 device status -s DOWN", "For a minute"),
    ],
    least=1,
    most=None,
    leading=True,
)
async def _watch(desk: Desk, args: Arguments) -> int:
    interval, count = args.number("interval", 2), args.number("count", 0)
    if not desk.is_interactive and not count:
        raise Usage("watch needs --count here", hint="only at a terminal can Ctrl-C end it")
    before, codes = desk.place, []
    while True:
        if desk.is_interactive:
            desk.write(_CLEAR)
        codes.append(await desk.run(typed_again(args.words)))
        desk.place = before
        if len(codes) == count or desk.is_over or codes[-1] in (FAILED, USAGE):
            return codes[-1]
        await desk.clock.sleep(max(interval, 1))
        await desk.backend.catch_up()
        desk.session.follow(desk.backend.tree)


@command(
    "jobs",
    "List the devices that have not yet applied what is committed for them",
    "jobs [OPTIONS]",
    options=[VERBOSE, DELIMITER],
    examples=[("jobs", "Who still has work to do; watch jobs shows it coming to an end")],
)
async def _jobs(desk: Desk, args: Arguments) -> None:
    from bedplate.head.desired import desired

    tree, revision = desk.backend.tree, desk.backend.revision
    rows: list[list[Cell]] = [
        [state.node, state.state, state.applied or "", revision, state.heard]
        for state in await desk.backend.states()
        if state.heard and tree.find("device", state.node) is not None
        if state.digest and desired(tree, state.node).digest != state.digest
    ]
    headers = ["Hostname (key)", "Status", "Applied", "Committed", "Last report"]
    desk.table(Table(headers, rows, times=frozenset({4})), args)
