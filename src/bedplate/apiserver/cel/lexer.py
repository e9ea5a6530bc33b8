"""Text of an expression to tokens.

In: source text. Out: tokens with their line and column, literals already read. Raises `SyntaxFault`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

__all__ = ["RESERVED", "Fault", "SyntaxFault", "Token", "tokenize"]

RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"),
        *("namespace", "return", "var", "void", "while"),
    )
)


class Fault(NamedTuple):
    """One thing wrong with an expression, and where (lines count from 1, columns from 0)."""

    line: int
    column: int
    message: str


class SyntaxFault(Exception):
    """The source is not an expression."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.fault = Fault(line, column, message)


class Token(NamedTuple):
    kind: str
    """ident, op, int, uint, double, string, bytes, word (true, false, null, in), end."""
    text: str
    line: int
    column: int
    value: Any = None


_VALID_ESCAPE = r"""\\(?:[abfnrtv\\?"'`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<string>[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
              |[bB]?(?:\"{3}(?:[^\\]|ESC)*?\"{3}|'{3}(?:[^\\]|ESC)*?'{3}
                     |"(?:[^"\\\n\r]|ESC)*"|'(?:[^'\\\n\r]|ESC)*'))
  | (?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|\d+)
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<op>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])
    """.replace("ESC", _VALID_ESCAPE),
    re.VERBOSE | re.DOTALL,
)
_SKIPPED = re.compile(
    r"""[&|=].?|"(?:[^"\\\n\r]|ESC)*(?:\\.)?|'(?:[^'\\\n\r]|ESC)*(?:\\.)?|.""".replace("ESC", _VALID_ESCAPE), re.DOTALL
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
# Far more than a number of 64 bits has, and fewer than Python refuses to read.
_MAX_DIGITS = 1000
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def tokenize(source: str) -> tuple[list[Token], list[Fault]]:
    """The tokens, and what was skipped because no token begins there."""
    tokens: list[Token] = []
    faults: list[Fault] = []
    at, line, line_start = 0, 1, 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        column = at - line_start
        if match is None:
            skipped = _SKIPPED.match(source, at)
            assert skipped is not None
            faults.append(Fault(line, column, f"Syntax error: token recognition error at: '{skipped.group()}'"))
            at = skipped.end()
            continue
        kind, text = str(match.lastgroup), match.group()
        if kind != "space":
            try:
                tokens.append(_read(kind, text, line, column))
            except SyntaxFault as error:
                faults.append(error.fault)
        newlines = text.count("\n")
        if newlines:
            line += newlines
            line_start = at + text.rindex("\n") + 1
        at = match.end()
    tokens.append(Token("end", "<EOF>", line, at - line_start))
    return tokens, faults


def _read(kind: str, text: str, line: int, column: int) -> Token:
    if kind == "ident" and text in ("true", "false", "null", "in"):
        return Token("word", text, line, column)
    if kind in ("int", "uint"):
        body = text[:-1] if kind == "uint" else text
        if len(body) > _MAX_DIGITS:
            raise SyntaxFault(f"invalid {kind} literal", line, column)
        return Token(kind, text, line, column, int(body, 0) if body.startswith("0x") else int(body))
    if kind == "double":
        return Token("double", text, line, column, float(text))
    if kind == "string":
        return _read_string(text, line, column)
    return Token(kind, text, line, column)


def _read_string(text: str, line: int, column: int) -> Token:
    prefix = re.match(r"[bBrR]*", text)
    assert prefix is not None
    marks = prefix.group().lower()
    body = text[len(marks) :]
    width = 3 if body[:3] in ('"""', "'''") else 1
    body = body[width:-width]
    is_bytes = "b" in marks
    if "r" not in marks:
        body = _ESCAPE.sub(lambda match: _unescape(match, is_bytes, line, column), body)
    if not is_bytes:
        return Token("string", text, line, column, body)
    # In a bytes literal \xNN is a byte; other letters stand for their UTF-8 form.
    octets = b"".join(
        bytes([ord(letter) - 0xE000]) if 0xE000 <= ord(letter) < 0xE100 else letter.encode() for letter in body
    )
    return Token("bytes", text, line, column, octets)


def _unescape(match: re.Match[str], is_bytes: bool, line: int, column: int) -> str:
    simple, hex2, hex4, hex8, octal, wrong = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    if wrong is not None:
        raise SyntaxFault(f"Syntax error: token recognition error at: '{match.group()}'", line, column)
    if hex2 is not None or octal is not None:
        code = int(hex2, 16) if hex2 is not None else int(octal, 8)
        return chr(0xE000 + code) if is_bytes else chr(code)
    return chr(int(hex4 or hex8, 16))
