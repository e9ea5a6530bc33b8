"""One shell: lines in, text and exit codes out.

In: lines of commands, from a terminal, `-c`, a file or standard input. Out: what the commands say, through `out` and
`err`; whether to go on (`is_over`). Nothing here reads a terminal: who drives it (`terminal`, `apps/cmsh`) does, and
hands in how to edit a text, to ask for a secret, and to run something on the host.

A word is, in this order: a command that is offered here, a submode, an object's submode, a mode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bedplate import __version__
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import Path, Session
from bedplate.head.schema.entity import Entity, Submode
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh import completion, language
from bedplate.ui.cmsh.command import FAILED, LEFT_OUT, OK, USAGE, Command, is_left_out, worst
from bedplate.ui.cmsh.commands import COMMANDS, move
from bedplate.ui.cmsh.commands.session import typed_again
from bedplate.ui.cmsh.completion import Completion
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.machine import Host, put_file

__all__ = ["LEFT_OUT", "Completion", "Shell", "worst"]

Write = Callable[[str], None]
"""Takes text as it is to appear, line ends included."""


class Shell:
    """Runs lines. One shell is one session: its place and its staged edits.

    `interactive` says that somebody sits there: leaving with staged changes is then asked twice, and hints are given.
    `quits` ends the shell at the first failure. After a failure `commit` refuses, until it is forced or everything is
    reverted; somebody who sees each answer before the next line says so with `new_entry`.
    """

    def __init__(
        self,
        backend: Backend,
        out: Write,
        err: Write,
        *,
        host: Host | None = None,
        interactive: bool = False,
        quits: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._quits = quits
        self.exit_code = OK
        """That of the command which ended a shell that quits at a failure."""
        self._out = out
        self._err = err
        self._is_moved = False
        self._expanding: tuple[str, ...] = ()
        self.desk = Desk(
            backend=backend,
            session=Session(backend.tree),
            host=host or Host(),
            write=out,
            note=lambda text: err(text + "\n"),
            run=self._execute_all,
            run_line=self.run_line,
            clock=clock or SystemClock(),
            is_interactive=interactive,
        )

    @property
    def backend(self) -> Backend:
        return self.desk.backend

    @property
    def greeting(self) -> str:
        """What somebody at a terminal reads first."""
        where = f"cmsh {__version__} on {self.backend.name}, revision {self.backend.revision}"
        return f"{where}: help lists the commands, TAB completes, quit leaves"

    @property
    def is_over(self) -> bool:
        """Whether somebody said quit."""
        return self.desk.is_over

    def new_entry(self) -> None:
        """Forget earlier failures: whoever types the next line has seen them."""
        self.desk.failed = 0

    async def run_line(self, text: str) -> int:
        """Run one line (`;` between commands); the worst exit code: 0 ok, 1 failed, 2 usage, 3 plan has work."""
        try:
            statements = language.parse(text)
        except Usage as wrong:
            self._failed(1, USAGE)
            return self._complain(wrong)
        codes = []
        for statement in statements:
            self._follow()
            codes.append(await self._counted(statement.words, self._statement(statement)))
            if self.desk.is_over:
                break
        return worst(codes)

    async def _statement(self, statement: language.Statement) -> int:
        if statement.host is not None:
            return await self._on_host(statement.host, None)
        if statement.filter or statement.file is not None:
            return await self._captured(statement)
        return await self._execute(statement.words)

    async def _counted(self, words: Sequence[str], run: Awaitable[int]) -> int:
        """Run a command; when it fails, nothing is selected that it was to select, and it counts once."""
        before, command = self.desk.failed, _command(words)
        try:
            code = await run
        except errors.BedplateError as wrong:
            if command is not None and command.selects:
                self.desk.place = self.desk.list_place
            code = self._complain(wrong)
        except BaseException:
            self._failed()
            raise
        if code in (FAILED, USAGE):
            # A commit that was refused has done nothing that another one would have to fear.
            is_counted = self.desk.failed > before or (command is not None and command.name == "commit")
            self._failed(0 if is_counted else 1, code)
        return code

    def _failed(self, count: int = 1, code: int = FAILED) -> None:
        self.desk.failed += count
        if self._quits:
            self.desk.is_over, self.exit_code = True, code

    def prompt(self) -> str:
        """`[head->mode[object]->submode]% `, stars included."""
        self._follow()
        return self.desk.prompt()

    def complete(self, text: str) -> list[Completion]:
        """What may stand at the end of a line, sorted."""
        self._follow()
        before = self.desk.place
        try:
            return completion.complete(self.desk, text, self._enter)
        finally:
            self.desk.place = before

    def left(self) -> Sequence[str]:
        """What is staged and would be lost by leaving: objects, as `category[default]`."""
        return [f"{edit.mode}[{edit.key}]" for edit in self.desk.session.edits()]

    def finish(self) -> None:
        """Say what is dropped, if anything is; for whoever drives the shell, at the very end."""
        move.tell_lost(self.desk)

    def holds_secret(self, text: str) -> bool:
        """Whether a line sets a secret in clear: it is kept out of the history."""
        try:
            statements = language.parse(text)
        except Usage:
            return True
        return any(self._sets_secret(statement.words) for statement in statements)

    # Inside

    def _sets_secret(self, words: Sequence[str]) -> bool:
        secrets = {row.shell for entity in self.desk.schema.types.values() for row in entity.fields if row.kind.secret}
        lower = [word.lower() for word in words]
        return "set" in lower and any(word in secrets for word in lower[lower.index("set") :])

    def _follow(self) -> None:
        tree = self.desk.backend.tree
        if tree is not self.desk.session.head:
            self.desk.session.follow(tree)
        self.desk.settle()

    async def _on_host(self, command: str, text: str | None) -> int:
        if not command:
            raise Usage("there is no command after !", hint="for example: !date")
        code, printed = await self.desk.host.run(command, text)
        self.desk.write(printed)
        return FAILED if code else OK

    async def _captured(self, statement: language.Statement) -> int:
        """Run a command whose output goes to a filter or a file; nothing goes there when it is refused."""
        parts: list[str] = []
        before, self.desk.write = self.desk.write, parts.append
        try:
            code = await self._execute(statement.words)
        finally:
            self.desk.write = before
        text = "".join(parts)
        if statement.file is not None:
            put_file(statement.file, text, appends=statement.appends)
            return code
        return worst([code, await self._on_host(statement.filter, text)])

    async def _execute_all(self, text: str) -> int:
        """Statements inside of a command (`foreach`): no pipes, and the first failure ends them."""
        statements = language.parse(text)
        if any(part.host is not None or part.filter or part.file is not None for part in statements):
            raise Usage("!, | and > are not allowed inside parentheses", hint="put | and > after them")
        for statement in statements:
            code = await self._counted(statement.words, self._execute(statement.words))
            if code != OK or self.desk.is_over:
                return code
        return OK

    async def _execute(self, words: Sequence[str]) -> int:
        word, rest = words[0], words[1:]
        command = COMMANDS.get(word.lower())
        reason = command.where(self.desk) if command is not None else ""
        if command is not None and not reason:
            code = await command.run(self.desk, command.arguments(rest))
            self._is_moved = command.moves
            return code or OK
        if word in self.desk.aliases and word not in self._expanding:
            return await self._expanded(word, rest)
        before = self.desk.place
        entered = self._enter(word, rest)
        if entered is not None:
            self.desk.place, rest = entered
            return await self._inside(before, rest)
        raise self._unknown(word, reason)

    async def _expanded(self, word: str, rest: Sequence[str]) -> int:
        """Run what an alias stands for, with the words behind it at the end; the first failure ends it."""
        statements = language.parse(f"{self.desk.aliases[word]} {typed_again(rest)}")
        before, self._expanding = self._expanding, (*self._expanding, word)
        try:
            codes = [OK]
            for statement in statements:
                codes.append(await self._counted(statement.words, self._statement(statement)))
                if codes[-1] in (FAILED, USAGE) or self.desk.is_over:
                    break
            return worst(codes)
        finally:
            self._expanding = before
            self._is_moved = True

    async def _inside(self, before: Path, rest: Sequence[str]) -> int:
        """Run what stands behind a mode's name there, and come back unless it was about going there."""
        self._is_moved = True
        if not rest:
            return OK
        try:
            code = await self._execute(rest)
        except BaseException:
            # What the next commands are about must not be what was selected before a selection that failed.
            command = _command(rest)
            if command is None or not command.selects:
                self.desk.place = before
            raise
        if not self._is_moved:
            self.desk.place = before
        return code

    def _enter(self, word: str, rest: Sequence[str]) -> tuple[Path, Sequence[str]] | None:
        """Where a mode's or submode's name leads, and the words behind it; None when it is neither."""
        desk, name = self.desk, word.lower()
        if desk.is_at_object:
            submode = _submode(desk.entity(desk.place), name)
            if submode is not None:
                return (*desk.place, submode.attribute), rest
        here = desk.list_place
        if here and rest and any(_submode(entity, name) is not None for entity in desk.submode(here).of):
            path = desk.find(here, rest[0])
            submode = _submode(desk.entity(path), name)
            if submode is not None:
                return (*path, submode.attribute), rest[1:]
        if name in desk.schema.modes:
            objects = desk.session.children((name,))
            return ((name, next(iter(objects))) if len(objects) == 1 else (name,)), rest
        return None

    def _unknown(self, word: str, reason: str) -> errors.BedplateError:
        if reason:
            return Usage(f"{word} cannot be used here: {reason}", hint=f"help {word} shows how")
        if word.lower() in LEFT_OUT:
            return is_left_out(word.lower())
        return errors.NotFound(
            f"there is no command, mode or submode {word!r} here", hint=completion.advice(self.desk, word)
        )

    def _complain(self, wrong: errors.BedplateError) -> int:
        problems: Sequence[str] = wrong.problems if isinstance(wrong, errors.Invalid) else ()
        text = f"{wrong.message}: {problems[0]}" if len(problems) == 1 else str(wrong)
        hint = wrong.hint.strip()
        self._err(f"error: {text}{f' ({hint})' if hint else ''}\n")
        return USAGE if isinstance(wrong, Usage) else FAILED


def _command(words: Sequence[str]) -> Command | None:
    """The command in a statement, behind the names of modes and objects."""
    return next((COMMANDS[word.lower()] for word in words if word.lower() in COMMANDS), None)


def _submode(entity: type[Entity], name: str) -> Submode | None:
    return next((row for row in entity.submodes if name in (row.shell, row.attribute)), None)
