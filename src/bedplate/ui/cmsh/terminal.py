"""A shell at a real terminal: line editing, history, TAB, notices above the prompt, Ctrl-C and Ctrl-D.

In: keys, and events of the backend. Out: lines for the shell, one at a time; what it says goes to the terminal. Notices
that come while a command runs wait for the next prompt, so that they do not stand in its output. Lines are kept in a
file for the next shell that only its owner reads, without those that name a secret. This module needs prompt-toolkit,
which costs a start 150 ms; nothing but an interactive shell imports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from bedplate.api.headapi import Notice
from bedplate.core import errors
from bedplate.core.clock import SystemClock, rfc3339
from bedplate.ui.backend import Event
from bedplate.ui.cmsh import completion, wording
from bedplate.ui.cmsh.machine import Machine
from bedplate.ui.cmsh.running import beside
from bedplate.ui.cmsh.shell import Shell

__all__ = ["Lines", "Terminal", "sounds_secret"]

_KEPT_LINES = 2000
_WORDS = re.compile(r"[^\s'\"]+")
_SUSPECT = ("password", "passphrase", "secret", "token", "credential", "privatekey")

Run = Callable[[str], Coroutine[Any, Any, int]]
_KEPT = 10_000
_GATHERED_S = 0.2
_ROWS = 30
_STYLES = {"warning": "\x1b[33m", "error": "\x1b[31m"}
_PLAIN = "\x1b[0m"
_OWN = "fg:ansidefault"
"""The look of the prompt. Blanks without a style are passed over with the cursor: whoever waits for the blank behind
the prompt, as programs do, would wait forever."""
_DUMB = ("", "dumb", "unknown")


class Terminal:
    """A shell at a terminal. `own` says whether this shell made a revision; others' are shown as notices."""

    def __init__(
        self, machine: Machine, environment: Mapping[str, str], history: pathlib.Path | None, own: Callable[[int], bool]
    ) -> None:
        self._machine = machine
        self._own = own
        self._history = history
        self._is_dumb = environment.get("TERM", "").lower() in _DUMB
        self._is_colourful = not environment.get("NO_COLOR") and not self._is_dumb
        self._output = Vt100_Output.from_pty(sys.stdout, term=environment.get("TERM"))
        # Asking where the cursor is serves menus, of which there are none; a slow terminal would answer into the line.
        self._output.enable_cpr = False
        self._waiting: deque[Event] = deque(maxlen=_KEPT)
        self._flushing: asyncio.Task[None] | None = None
        self._running: asyncio.Task[int] | None = None
        self._reading: PromptSession[str] | None = None
        self._tabbed = ""

    # What a shell writes and asks

    def out(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def err(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(self._painted(text, text.partition(":")[0]) if sys.stderr.isatty() else text)
        sys.stderr.flush()

    async def ask(self, question: str) -> str | None:
        return await self._answer(question, is_password=False)

    async def secret(self, question: str) -> str | None:
        return await self._answer(question, is_password=True)

    async def _answer(self, question: str, *, is_password: bool) -> str | None:
        session: PromptSession[str] = PromptSession(output=self._drawn(), color_depth=self._depth())
        try:
            return await self._read(session, lambda: question, is_password=is_password)
        except (EOFError, KeyboardInterrupt):
            return None

    # The loop

    async def run(self, shell: Shell, run_line: Run) -> int:
        """Read lines and have them run until the shell is over; 0, as leaving is not a failure, or the code of what
        ended a shell that quits at a failure."""
        session: PromptSession[str] = PromptSession(
            history=Lines(self._history, shell.holds_secret),
            key_bindings=self._bindings(shell),
            output=self._drawn(),
            color_depth=self._depth(),
            reserve_space_for_menu=0,
            complete_while_typing=False,
        )
        self.out(shell.greeting + "\n")
        async with self._signals(), beside(self._follow(shell)):
            while not shell.is_over:
                self._flush(shell)
                try:
                    text = await self._read(session, lambda: self._prompt(shell.prompt()))
                except KeyboardInterrupt:
                    continue
                except EOFError:
                    if await self._may_leave(shell):
                        break
                    continue
                shell.new_entry()
                for line in text.splitlines():
                    if not shell.is_over:
                        await self._run(run_line(line))
        return shell.exit_code

    async def _read(
        self, session: PromptSession[str], message: Callable[[], FormattedText | str], *, is_password: bool = False
    ) -> str:
        before, self._reading = self._reading, session
        try:
            return await session.prompt_async(message, is_password=is_password, handle_sigint=False)
        finally:
            self._reading = before

    async def _run(self, line: Coroutine[Any, Any, int]) -> None:
        """Run one line; Ctrl-C ends it and nothing else."""
        self._running = asyncio.create_task(line)
        try:
            await asyncio.wait({self._running})
            if self._running.cancelled():
                self.err("\ninterrupted\n")
            else:
                self._running.result()
        finally:
            self._running.cancel()
            self._running = None

    async def _may_leave(self, shell: Shell) -> bool:
        left = shell.left()
        if not left:
            return True
        self.out("\n".join(["not committed:", *(f"  {line}" for line in left), ""]))
        session: PromptSession[str] = PromptSession(output=self._drawn(), color_depth=self._depth())
        try:
            answer = await self._read(session, lambda: "leave and drop these changes? [y/N] ")
        except KeyboardInterrupt:
            return False
        except EOFError:
            return True  # said twice, or there is no terminal any more
        return answer.strip().lower() in ("y", "yes")

    # Signals

    @contextlib.asynccontextmanager
    async def _signals(self) -> AsyncIterator[None]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        # The terminal is put back as it was before the process ends.
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)

    def _interrupt(self) -> None:
        """Ctrl-C outside the editor of lines: ends the command that runs, unless a child has the terminal."""
        if self._machine.is_busy:
            return
        if self._reading is not None and self._reading.app.is_running:
            self._reading.app.exit(exception=KeyboardInterrupt())
        elif self._running is not None:
            self._running.cancel()

    # Keys

    def _bindings(self, shell: Shell) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("tab")
        def complete(event: KeyPressEvent) -> None:
            self._complete(shell, event)

        return keys

    def _complete(self, shell: Shell, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        line = buffer.document.text_before_cursor
        did = completion.step(line, shell.complete(line))
        if did.text:
            buffer.delete_before_cursor(did.length)
            buffer.insert_text(did.text)
            self._tabbed = buffer.document.text_before_cursor
        elif did.choices and self._tabbed == line:
            size = shutil.get_terminal_size((80, 24))
            shown = completion.columns(did.choices, size.columns, most_rows=max(_ROWS, size.lines - 2))
            run_in_terminal(lambda: self.out(shown + "\n"), render_cli_done=True)
        else:
            # The first TAB where there are several ways: as in other shells, only the second one shows them.
            self._tabbed = line
            self._output.bell()

    # Notices

    async def _follow(self, shell: Shell) -> None:
        try:
            async for event in shell.backend.follow():
                self._notify(shell, event)
        except Exception as err:
            # Whatever ended it, the session with what is staged in it goes on; only our own errors say no secret.
            why = str(err) if isinstance(err, errors.BedplateError) else f"internal error ({type(err).__name__})"
            text = f"notices and changes by other users are no longer received: {why}"
            time = rfc3339(SystemClock().now())
            self._notify(shell, Notice(id=0, time=time, severity="error", host=shell.backend.name, text=text))

    def _notify(self, shell: Shell, event: Event) -> None:
        self._waiting.append(event)
        if self._running is None and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.create_task(self._flush_above(shell))

    async def _flush_above(self, shell: Shell) -> None:
        # What many nodes do after a commit comes within moments; it is told once, and the prompt drawn again once.
        await asyncio.sleep(_GATHERED_S)
        await run_in_terminal(lambda: self._flush(shell))

    def _flush(self, shell: Shell) -> None:
        if self._running is not None:
            return
        events, self._waiting = self._waiting, deque(maxlen=_KEPT)
        if not shell.desk.shows_events:
            return
        news = [wording.shown(event, shell.backend.name, self._own) for event in events]
        for notice in wording.gathered(notice for notice in news if notice is not None):
            self.out(self._painted(wording.line(notice), notice.severity) + "\n")

    # Looks

    def _drawn(self) -> Vt100_Output | None:
        """Where lines are edited; None lets prompt-toolkit read them plainly, for programs that act as a terminal."""
        return None if self._is_dumb else self._output

    def _depth(self) -> ColorDepth | None:
        return None if self._is_colourful else ColorDepth.DEPTH_1_BIT

    def _painted(self, text: str, severity: str) -> str:
        style = _STYLES.get(severity) if self._is_colourful else None
        if style is None:
            return text
        body = text.rstrip("\n")
        return f"{style}{body}{_PLAIN}{text[len(body) :]}"

    def _prompt(self, text: str) -> FormattedText:
        """The prompt; its stars are highlighted."""
        if not self._is_colourful:
            return FormattedText([(_OWN, text)])
        return FormattedText([("bold ansiyellow" if piece == "*" else _OWN, piece) for piece in _pieces(text)])


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for part in text.split("*"):
        pieces += [part, "*"]
    return [piece for piece in pieces[:-1] if piece]


def sounds_secret(line: str) -> bool:
    """Whether something follows a word that sounds like the name of a secret, declared or not (extras are not).

    Rather a harmless line too few in the history than a secret in it: neither quotes nor the place are looked at.
    """
    words = [word.lower() for word in _WORDS.findall(line)]
    return any(part in word for word in words[:-1] for part in _SUSPECT)


class Lines(History):
    """The history of typed lines; without a path the lines live as long as the shell."""

    def __init__(self, path: pathlib.Path | None, holds_secret: Callable[[str], bool]) -> None:
        super().__init__()
        self._path = path
        self._holds_secret = holds_secret

    def append_string(self, string: str) -> None:
        if string.strip() and not self._holds_secret(string) and not sounds_secret(string):
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        if self._path is None:
            return []
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        if len(lines) > 2 * _KEPT_LINES:
            self._shorten(lines[-_KEPT_LINES:])
        return reversed(lines[-_KEPT_LINES:])

    def _shorten(self, lines: list[str]) -> None:
        assert self._path is not None
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
            fresh.replace(self._path)

    def store_string(self, string: str) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in string.splitlines()))
        except OSError:
            # A folder that cannot be written must not stand in the way of work; the next shell knows less.
            self._path = None
