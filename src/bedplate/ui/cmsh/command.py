"""How a command is declared: one declaration gives its parsing, its help page, its completion and its reference.

In: `@command(...)` above a coroutine. Out: `COMMANDS` by name; `Arguments` of a typed command. Where a command is
offered is said by `where`; what it does is the coroutine's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bedplate.core import errors
from bedplate.ui.cmsh.language import Usage

if TYPE_CHECKING:
    from bedplate.ui.cmsh.desk import Desk

__all__ = [
    "COMMANDS",
    "DELIMITER",
    "FAILED",
    "LEFT_OUT",
    "OK",
    "USAGE",
    "VERBOSE",
    "Arguments",
    "Command",
    "Option",
    "Where",
    "command",
    "is_left_out",
    "whole",
    "worst",
]

OK, FAILED, USAGE = 0, 1, 2

LEFT_OUT = {
    "nodeoverview": ("agents do not report what goes through their interfaces", "sysinfo shows what they report"),
    "capi": ("Cluster API is not part of this release", "help lists the commands"),
}
"""Commands of the manual that there are not, why, and what to do instead."""


def is_left_out(word: str) -> errors.BedplateError:
    """What somebody is told who asks for one of them."""
    why, hint = LEFT_OUT[word]
    return errors.Unavailable(f"there is no command {word}: {why}", hint=hint)


Run = Callable[["Desk", "Arguments"], Awaitable[int | None]]
Where = Callable[["Desk"], str]
"""Empty where the command is offered; otherwise what one has to do first, in words."""
Words = Callable[["Desk", "Arguments"], Iterable[tuple[str, str]]]
"""What may stand as the next word, each with one line about it; given what has been typed before it."""


@dataclass(frozen=True)
class Option:
    """`-v, --verbose`, or with a value `-d, --delimiter <string>`."""

    short: str
    long: str
    doc: str
    value: str = ""

    @property
    def name(self) -> str:
        return self.long.removeprefix("--")

    def shown(self) -> str:
        names = ", ".join(name for name in (self.short, self.long) if name)
        return f"{names} <{self.value}>" if self.value else names


VERBOSE = Option("-v", "--verbose", "Be more verbose: do not truncate cells")
DELIMITER = Option(
    "-d",
    "--delimiter",
    "Put <string> between columns; {} gives JSON, and {<digit>} JSON indented by that many spaces",
    value="string",
)


@dataclass
class Arguments:
    """The words behind a command, options taken out."""

    words: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    waiting: Option | None = None
    """The option whose value is still to come; while completing."""
    partial: str = ""
    """The word that is being typed; while completing."""

    def flag(self, name: str) -> bool:
        return name in self.options

    def value(self, name: str, otherwise: str = "") -> str:
        return self.options.get(name, otherwise)

    def number(self, name: str, otherwise: int) -> int:
        """The value of an option that is a whole number. Raises `Usage`."""
        value = self.options.get(name)
        if value is None:
            return otherwise
        return whole(value, f"--{name}", "for example 20")


def worst(codes: Iterable[int]) -> int:
    """One exit code for several: a failure, then wrong usage, then a plan that found something to do."""
    unique = set(codes)
    return next((code for code in (FAILED, USAGE) if code in unique), max(unique, default=OK))


def whole(text: str, what: str, hint: str = "history lists the numbers of revisions") -> int:
    """A number somebody typed. Raises `Usage`."""
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Usage(f"{what}: {text!r} must be a number", hint=hint)
    return int(text)


@dataclass(frozen=True)
class Command:
    """One command as it is declared.

    `leading`: options stand before the first word alone, because values may begin with `-`.
    `moves`: the command is about where one stands, so that `<mode> <command>` leaves one there.
    `selects`: it chooses the object that the next commands are about, so that after a failure none is chosen."""

    name: str
    about: str
    usage: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]
    run: Run
    where: Where
    words: Words
    options: tuple[Option, ...] = ()
    least: int = 0
    most: int | None = None
    leading: bool = False
    moves: bool = False
    selects: bool = False

    def arguments(self, typed: Sequence[str], *, partial: bool = False) -> Arguments:
        """What was typed behind the name. Raises `Usage`, unless the line is still being typed (`partial`)."""
        arguments, is_options = Arguments(), True
        left = list(typed)
        while left:
            word = left.pop(0)
            if word == "--" and is_options:
                is_options = False
            elif is_options and _looks_like_option(word) and not (self.leading and arguments.words):
                self._option(word, left, arguments, partial)
            else:
                arguments.words.append(word)
        if not partial and len(arguments.words) < self.least:
            raise Usage(f"{self.name} needs more arguments: {self.usage[0]}", hint=f"help {self.name} shows how")
        if not partial and self.most is not None and len(arguments.words) > self.most:
            extra = arguments.words[self.most]
            raise Usage(
                f"{self.name}: {extra!r} is one argument too many: {self.usage[0]}", hint=f"help {self.name} shows how"
            )
        return arguments

    def _option(self, word: str, left: list[str], arguments: Arguments, partial: bool) -> None:
        name, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        for option in self.options:
            if name not in (option.short, option.long):
                continue
            if not option.value:
                arguments.options[option.name] = ""
            elif has_value or left:
                arguments.options[option.name] = value if has_value else left.pop(0)
            elif partial:
                arguments.waiting = option
            else:
                raise Usage(f"{self.name}: {name} needs a value", hint=f"help {self.name} shows how")
            return
        if not partial:
            known = ", ".join(option.shown() for option in self.options) or "none"
            raise Usage(f"{self.name} has no option {name}", hint=f"options: {known}")


def _looks_like_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()


COMMANDS: dict[str, Command] = {}


def anywhere(desk: Desk) -> str:
    return ""


def nothing(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return ()


def command(
    name: str,
    about: str,
    *usage: str,
    examples: Sequence[tuple[str, str]],
    options: Sequence[Option] = (),
    where: Where = anywhere,
    words: Words = nothing,
    least: int = 0,
    most: int | None = 0,
    leading: bool = False,
    moves: bool = False,
    selects: bool = False,
) -> Callable[[Run], Run]:
    """Declare a command; `most` None takes any number of words."""

    def declare(run: Run) -> Run:
        COMMANDS[name] = Command(
            name=name,
            about=about,
            usage=usage or (name,),
            examples=tuple(examples),
            run=run,
            where=where,
            words=words,
            options=tuple(options),
            least=least,
            most=most,
            leading=leading,
            moves=moves or selects,
            selects=selects,
        )
        return run

    return declare
