"""The shell's language: one line of text to statements. Pure.

In: a line. Out: statements, each with its words, the host's filter behind the first `|`, the file behind `>` or `>>`,
or the host's command behind `!`. `;` separates statements, `#` at the beginning of a word starts a comment. Single and
double quotes protect blanks, `;`, `#`, `>` and `|`; so do parentheses that open a word and are closed again, which stay
in the word (`foreach` reads them). What words mean is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bedplate.core import errors

__all__ = ["Statement", "Usage", "earlier", "parse", "quote", "tail"]

_BLANKS = " \t\r\n"
_SPECIAL = _BLANKS + ";|#>'\"\\()"


class Usage(errors.Terminal):
    """A line or its arguments are not valid; the shell's exit code is then 2."""

    exit_code = 2


@dataclass(slots=True)
class Statement:
    """One command. `host` is set for a line of the host's shell; `filter` is what the output is piped through, `file`
    what it is written to, or added to."""

    words: list[str] = field(default_factory=list)
    host: str | None = None
    filter: str = ""
    file: str | None = None
    appends: bool = False
    last_start: int = 0
    """Where the last word begins in the line; for completion."""


def parse(line: str) -> list[Statement]:
    """The statements of a line; empty ones are left out. Raises `Usage` for a quote that is not closed."""
    statements = _Reader(line, tolerant=False).statements()
    return [statement for statement in statements if statement.words or statement.host is not None]


def tail(line: str) -> tuple[Statement, str]:
    """The statement a line ends with, without the word that is being typed; and that word."""
    reader = _Reader(line, tolerant=True)
    last = reader.statements()[-1]
    if last.file is not None:
        return last, last.file
    if not reader.in_word:
        last.last_start = len(line)
        return last, ""
    return last, last.words.pop()


def earlier(line: str) -> list[Statement]:
    """The statements in front of the one that a line ends with."""
    return _Reader(line, tolerant=True).statements()[:-1]


def quote(word: str) -> str:
    """A word as it must be typed."""
    if word and not any(letter in _SPECIAL for letter in word):
        return word
    return "'" + word + "'" if "'" not in word else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass
class _Reader:
    _line: str
    tolerant: bool
    _at: int = 0
    in_word: bool = False

    def statements(self) -> list[Statement]:
        statements = [Statement()]
        while self._at < len(self._line):
            letter = self._line[self._at]
            if letter in _BLANKS:
                self._at += 1
            elif letter == "#":
                self._at = len(self._line)
            elif letter == ";":
                self._at += 1
                statements.append(Statement())
            elif letter == "!" and not statements[-1].words:
                self._at += 1
                statements[-1].host = self._raw().strip()
            elif letter == "|":
                if statements[-1].file is not None and not self.tolerant:
                    raise Usage("nothing may follow the name of the file behind >", hint="put > FILE at the end")
                self._at += 1
                statements[-1].filter = self._raw().strip()
                if not statements[-1].filter and not self.tolerant:
                    raise Usage("there is no command after |", hint="for example: list | grep node")
            elif letter == ">" and statements[-1].words and statements[-1].file is None:
                self._redirect(statements[-1])
            elif statements[-1].file is not None and not self.tolerant:
                raise Usage("nothing may follow the name of the file behind >", hint="put > FILE at the end")
            else:
                statements[-1].last_start = self._at
                statements[-1].words.append(self._word())
        return statements

    def _redirect(self, statement: Statement) -> None:
        statement.appends = self._line.startswith(">>", self._at)
        self._at += 2 if statement.appends else 1
        while self._at < len(self._line) and self._line[self._at] in _BLANKS:
            self._at += 1
        self.in_word = False
        statement.last_start = self._at
        statement.file = self._word() if self._line[self._at : self._at + 1] not in ("", ";", "|", "#") else ""
        if not statement.file and not self.tolerant:
            raise Usage("there is no file after >", hint="for example: list > nodes.txt")

    def _word(self) -> str:
        self.in_word = True
        if self._line[self._at] == "(":
            end = _closing(self._line, self._at)
            if end:
                text, self._at = self._line[self._at : end], end
                self.in_word = end == len(self._line)
                return text
        parts: list[str] = []
        while self._at < len(self._line):
            letter = self._line[self._at]
            if letter in _BLANKS or letter in ";|":
                self.in_word = False
                break
            if letter in "'\"":
                parts.append(self._quoted(letter))
            elif letter == "\\" and self._line[self._at + 1 : self._at + 2] in tuple(_SPECIAL):
                parts.append(self._line[self._at + 1])
                self._at += 2
            else:
                parts.append(letter)
                self._at += 1
        return "".join(parts)

    def _quoted(self, mark: str) -> str:
        begin, self._at = self._at, self._at + 1
        parts: list[str] = []
        while self._at < len(self._line):
            letter = self._line[self._at]
            if letter == "\\" and mark == '"' and self._line[self._at + 1 : self._at + 2] in ('"', "\\"):
                parts.append(self._line[self._at + 1])
                self._at += 2
                continue
            self._at += 1
            if letter == mark:
                return "".join(parts)
            parts.append(letter)
        if not self.tolerant:
            raise Usage(
                f"the quote {mark} in column {begin + 1} is not closed",
                hint="put a quote character between quotes of the other kind",
            )
        return "".join(parts)

    def _raw(self) -> str:
        """Up to the next `;`, as it was typed: it is for the host's shell, which knows quotes and pipes itself."""
        begin, is_open = self._at, ""
        self.in_word = False
        while self._at < len(self._line):
            letter = self._line[self._at]
            if is_open:
                is_open = "" if letter == is_open else is_open
            elif letter in "'\"":
                is_open = letter
            elif letter == ";":
                break
            elif letter == "#" and self._line[self._at - 1] in _BLANKS:
                text, self._at = self._line[begin : self._at], len(self._line)
                return text
            self._at += 1
        if is_open and not self.tolerant:
            raise Usage(f"a quote {is_open} is not closed", hint="the host's shell needs it closed")
        return self._line[begin : self._at]


def _closing(line: str, begin: int) -> int:
    """Where the parenthesis that opens at `begin` is closed, behind it; 0 when it is not."""
    depth, is_open = 0, ""
    for at in range(begin, len(line)):
        letter = line[at]
        if is_open:
            is_open = "" if letter == is_open else is_open
        elif letter in "'\"":
            is_open = letter
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                return at + 1
    return 0
