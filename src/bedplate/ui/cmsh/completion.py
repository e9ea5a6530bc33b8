"""What may be typed next, and what a slip may have meant. Pure but for file names.

In: the desk and a line that is being typed. Out: words that fit, from the declarations that commands are parsed by;
what TAB then puts in, or the words in columns as a shell shows them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bedplate.core import errors
from bedplate.head import Path
from bedplate.head.schema.entity import Entity, Field, Row, Submode
from bedplate.ui.cmsh import language
from bedplate.ui.cmsh.command import COMMANDS, Arguments, Command
from bedplate.ui.cmsh.desk import MASTER, Desk

__all__ = ["Completion", "Step", "advice", "columns", "complete", "files", "objects", "parameters", "step", "values"]

_GAP = 2
_GOES_ON = ("/", "=", ",", " ", "[")

Pairs = Iterable[tuple[str, str]]
Enter = Callable[[str, Sequence[str]], tuple[Path, Sequence[str]] | None]


class Completion(NamedTuple):
    """A word that fits: `text` replaces the last `length` letters of the line; `about` is one line on what it is."""

    text: str
    length: int
    about: str = ""


def complete(desk: Desk, line: str, enter: Enter) -> list[Completion]:
    """The words that fit at the end of a line. Moves the desk; the caller brings it back."""
    statement, partial = language.tail(line)
    if statement.host is not None or statement.filter:
        return []
    if statement.file is not None:
        names = sorted((text, about) for text, about in files(partial) if text.startswith(partial))
        return [Completion(_typed(text), len(line) - statement.last_start, about) for text, about in names]
    try:
        for earlier in language.earlier(line):
            _go(desk, earlier.words, enter)
        pairs = _next(desk, statement.words, partial, enter)
    except errors.BedplateError:
        return []
    head, comma, _ = partial.rpartition(",")
    if comma and not any(text.startswith(partial) for text, _ in pairs):
        pairs = [(f"{head},{text}", about) for text, about in pairs]
    length = len(line) - statement.last_start
    fits = {text: about for text, about in pairs if text.lower().startswith(partial.lower())}
    return [Completion(_typed(text), length, about) for text, about in sorted(fits.items())]


def _typed(text: str) -> str:
    return text if text.endswith("/") else language.quote(text)


def _go(desk: Desk, words: list[str], enter: Enter) -> None:
    """Stand where the commands in front of a `;` will lead, as far as that is known without running them."""
    while words:
        command = COMMANDS.get(words[0].lower())
        if command is not None and not command.where(desk):
            if command.name == "use" and len(words) > 1:
                desk.place = desk.find(desk.list_here(), words[1])
            elif command.name in ("..", "exit"):
                desk.place = desk.place[:-1]
            elif command.name == "/":
                desk.place = ()
            return
        entered = enter(words[0], words[1:])
        if entered is None:
            return
        before, (desk.place, rest) = desk.place, entered
        words = list(rest)
        following = COMMANDS.get(words[0].lower()) if words else None
        if following is not None and not following.moves:
            desk.place = before
            return


def _next(desk: Desk, words: list[str], partial: str, enter: Enter) -> list[tuple[str, str]]:
    while words:
        command = COMMANDS.get(words[0].lower())
        if command is not None and not command.where(desk):
            return list(_arguments(desk, command, words[1:], partial))
        entered = enter(words[0], words[1:])
        if entered is None:
            return list(_submode_of(desk, words))
        desk.place, words = entered[0], list(entered[1])
    return list(offered(desk))


def _arguments(desk: Desk, command: Command, words: list[str], partial: str) -> Pairs:
    args = command.arguments(words, partial=True)
    args.partial = partial
    if partial.startswith("-") and not (command.leading and args.words):
        for option in command.options:
            yield option.long, option.doc
        return
    yield from command.words(desk, args)


def _submode_of(desk: Desk, words: list[str]) -> Pairs:
    """`applications <TAB>` at a list: the objects that have such a submode."""
    if len(words) != 1 or not desk.place:
        return []
    here = desk.list_place
    has = any(words[0].lower() == row.shell for entity in desk.submode(here).of for row in entity.submodes)
    return objects(desk, here) if has else []


def offered(desk: Desk) -> Pairs:
    """What a line may begin with here."""
    for command in COMMANDS.values():
        if not command.where(desk):
            yield command.name, command.about
    yield from desk.aliases.items()
    if desk.is_at_object:
        for submode in desk.entity(desk.place).submodes:
            yield submode.shell, submode.doc
    elif desk.place:
        for entity in desk.submode(desk.place).of:
            for submode in entity.submodes:
                yield submode.shell, f"{submode.doc}; followed by the name of an object"
    for name, mode in desk.schema.modes.items():
        yield name, mode.doc


def objects(desk: Desk, path: Path) -> Pairs:
    """The objects of a list."""
    for key in desk.children(path):
        yield key, desk.get((*path, key)).type
    if path == ("device",):
        yield MASTER, "the active head node"


def parameters(desk: Desk, args: Arguments, accept: Callable[[Row], bool]) -> tuple[Pairs, Path | None]:
    """Parameters of the object a command is about, or the objects, where none is chosen yet; and that object. Of the
    words those are left that stand behind the object's name."""
    words = list(args.words)
    if desk.is_at_object:
        path = desk.place
    elif not words and not args.flag("nodes"):
        return objects(desk, desk.list_here()), None
    else:
        name = args.value("nodes") or words.pop(0)
        paths = desk.several(desk.list_here(), name)
        path = paths[0]
    args.words[:] = words
    if words:
        return (), path
    obj = desk.get(path)
    rows = ((row.shell, row.doc) for row in desk.schema.of(obj).rows if accept(row))
    return [*rows, *((name, "extra parameter") for name in obj.extras)], path


def is_settable(row: Row) -> bool:
    return isinstance(row, Field) and not row.readonly


def is_readable(row: Row) -> bool:
    return True


def values(desk: Desk, path: Path, word: str, partial: str = "") -> Pairs:
    """What a parameter may be set to, where that is known."""
    row = desk.entity(path).row(word)
    if isinstance(row, Submode) or not isinstance(row, Field):
        return
    for choice in row.kind.choices():
        yield choice, row.doc
    if row.kind.target_mode:
        yield from ((key, row.kind.target_mode) for key in desk.session.children((row.kind.target_mode,)))
    if row.kind.name == "file":
        yield from files(partial)


def files(partial: str) -> Pairs:
    """Names of files that begin as the word does."""
    folder, _, _ = partial.rpartition("/")
    shown = f"{folder}/" if "/" in partial else ""
    try:
        entries = list(os.scandir(os.path.expanduser(shown) or "."))
    except OSError:
        return
    for entry in entries:
        if partial.endswith(".") or not entry.name.startswith("."):
            yield (f"{shown}{entry.name}/", "folder") if entry.is_dir() else (f"{shown}{entry.name}", "file")


def advice(desk: Desk, word: str) -> str:
    """What somebody who typed an unknown word may have meant."""
    import difflib  # only ever needed after a slip

    name = word.lower()
    if desk.is_at_object and any(row.shell == name for row in desk.entity(desk.place).rows):
        return f"{name} is a parameter: get {name} reads it, set {name} VALUE changes it"
    if desk.place and desk.named(desk.list_place, word) is not None:
        return f"{word} is an object: use {word} selects it"
    owners = [mode for mode, submode in desk.schema.modes.items() if any(_has(entity, name) for entity in submode.of)]
    if owners:
        return f"{name} is a submode of {', '.join(owners)}: select an object there first"
    close = difflib.get_close_matches(name, [text for text, _ in offered(desk)], n=1)
    return f"did you mean {close[0]}?" if close else "help lists the commands, modes and submodes"


def _has(entity: type[Entity], name: str) -> bool:
    return any(submode.shell == name for submode in entity.submodes)


class Step(NamedTuple):
    """What one TAB does: `text` replaces the last `length` letters; `choices` are what could follow instead."""

    text: str = ""
    length: int = 0
    choices: tuple[str, ...] = ()


def step(line: str, fitting: Sequence[Completion]) -> Step:
    """What a TAB at the end of the line does: one word is put in whole, several as far as they agree."""
    if not fitting:
        return Step()
    if len({(completion.text, completion.length) for completion in fitting}) == 1:
        text = fitting[0].text
        return Step(text if text.endswith(_GOES_ON) else text + " ", fitting[0].length)
    length = max(completion.length for completion in fitting)
    typed = line[len(line) - length :]
    choices = tuple(sorted({completion.text for completion in fitting}))
    # Words may replace parts of different lengths (quotes, ranges); then there is nothing they agree on.
    agreed = _agreed(choices) if all(completion.length == length for completion in fitting) else ""
    if len(agreed) > len(typed):
        return Step(agreed, length)
    return Step(choices=choices)


def _agreed(choices: Sequence[str]) -> str:
    """How all of them begin. They are sorted, so the first and the last differ the most."""
    first, last = choices[0], choices[-1]
    differ = (at for at, (letter, other) in enumerate(zip(first, last, strict=False)) if letter != other)
    return first[: next(differ, min(len(first), len(last)))]


def columns(words: Sequence[str], width: int, most_rows: int = 0) -> str:
    """The words in columns of one width, read downwards; `most_rows` > 0 leaves out the rest and says how many."""
    if not words:
        return ""
    cell = max(map(len, words)) + _GAP
    across = max(1, (width + _GAP) // cell)
    rows = -(-len(words) // across)
    left_out = 0
    if most_rows and rows > most_rows:
        left_out = len(words) - most_rows * across
        words, rows = words[: most_rows * across], most_rows
    lines = ["".join(word.ljust(cell) for word in words[row::rows]).rstrip() for row in range(rows)]
    if left_out:
        lines.append(f"... and {left_out} more; type more letters to narrow the list")
    return "\n".join(lines)
