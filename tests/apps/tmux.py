"""A program in a real terminal: tmux runs it, tests type keys and read the screen.

In: a command line, an environment. Out: the screen as text, whenever it is asked for. The tmux server has a socket of
its own in a folder of the test, and ends with it. Nothing here knows how long anything takes: tests wait for what they
want to see, up to a generous deadline.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping

from tests import programs
from tests.waiting import DEADLINE_S, wait_until

NOT_INHERITED = ("TMUX", "NO_COLOR", "COLUMNS", "LINES")
"""What the terminal of whoever runs the tests wants is not for the one the tests make."""


class Screen:
    """One terminal of 100 columns and 40 lines."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        # Else a prompt in the first line, drawn again, would stand in the history of the screen twice.
        (folder / "conf").write_text("set -gq scroll-on-clear off\n")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._folder / "socket"), "-f", str(self._folder / "conf"), *words],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={name: value for name, value in os.environ.items() if name not in NOT_INHERITED},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, command: list[str], environment: Mapping[str, str]) -> None:
        variables = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        # What the program leaves behind is looked at as well, so the terminal outlives it.
        # It does not die of the Ctrl-C that is meant for the program.
        line = "trap : INT; " + shlex.join(command) + '; echo "[left with $?]"; exec cat'
        self._tmux("new-session", "-d", "-s", "t", "-x", "100", "-y", "40", *variables, line)

    def type(self, text: str) -> None:
        """Type a text as it is."""
        self._tmux("send-keys", "-t", "t", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names: Enter, Tab, C-c, C-d, Up."""
        self._tmux("send-keys", "-t", "t", *keys)

    def enter(self, line: str) -> None:
        self.type(line)
        self.press("Enter")

    def text(self, *, with_colours: bool = False) -> str:
        """The screen with what scrolled off it, without blanks at the ends of lines."""
        shown = self._tmux("capture-pane", "-p", "-t", "t", "-S", "-", "-J", *(["-e"] if with_colours else []))
        return "\n".join(line.rstrip() for line in shown.rstrip().splitlines())

    def lines(self) -> list[str]:
        return self.text().splitlines()

    def last(self) -> str:
        """The line the cursor is most likely in: the last one that is not empty."""
        return next((line for line in reversed(self.lines()) if line), "")

    def wait(self, wanted: str | Callable[[Screen], bool], what: str = "") -> str:
        """The screen once it shows a text, or once something is true of it."""

        def shown() -> str:
            if callable(wanted):
                # What was read before it became true may not show it yet.
                return self.text() if wanted(self) else ""
            return text if wanted in (text := self.text()) else ""

        return wait_until(shown, f"the screen shows {what or repr(wanted)}", step_s=0.1, describe=self.text)

    def wait_prompt(self, prompt: str) -> str:
        """The screen once its last line is that prompt and nothing else."""
        return self.wait(lambda screen: screen.last() == prompt.rstrip(), f"the prompt {prompt}")

    def kill(self) -> None:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self._tmux("kill-server")


@contextlib.contextmanager
def terminal(command: list[str], environment: Mapping[str, str]) -> Iterator[Screen]:
    """A terminal in which the command runs; it ends with the block, whatever happens in it."""
    programs.on_path("tmux")
    # Not in the test's own folder, whose path may be longer than the name of a socket can be.
    with tempfile.TemporaryDirectory(prefix="tmux-") as folder:
        screen = Screen(pathlib.Path(folder))
        try:
            screen.start(command, environment)
            yield screen
        finally:
            screen.kill()
