"""Variables in texts, and words as the files of systemd write them.

`$NAME` and `${NAME}` stand for a value, `$$` for a dollar sign. In: a text and values by name. Out: the text, and the
names it has no value for, which stay as they are. Values come from people: none may end a line or a quotation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["command_word", "environment_word", "filled", "one_line", "unit_word", "unknown"]

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})")


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its variables replaced; names without a value are left as they are."""

    def value(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        return values.get(match["plain"] or match["braced"], match[0])

    return _VARIABLE.sub(value, text) if "$" in text else text


def unknown(text: str, values: Mapping[str, str]) -> list[str]:
    """The names in a text that no value is known for."""
    names = {match["plain"] or match["braced"] for match in _VARIABLE.finditer(text) if not match["dollar"]}
    return sorted(names - set(values))


def one_line(text: str) -> str:
    """Without line breaks and runs of blanks."""
    return " ".join(text.split())


def unit_word(text: str) -> str:
    """One word of a setting in a unit file, quoted where it needs to be."""
    plain = one_line(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"' if re.search(r"[\s'\"\\;#]", plain) else plain


def command_word(text: str) -> str:
    """One word of a command in a unit file, where variables are replaced, too."""
    return unit_word(text).replace("$", "$$")


def environment_word(text: str) -> str:
    """A value in an environment file, quoted where it needs to be."""
    if not re.search(r"[\s'\"\\;#`$]", text):
        return text
    escaped = re.sub(r'(["\\`$])', r"\\\1", one_line(text))
    return f'"{escaped}"'
