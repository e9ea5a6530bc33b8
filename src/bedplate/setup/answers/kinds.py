"""The kinds of values that answers have. Pure.

In: a value of a YAML file, or a text typed in the wizard. Out: what is wrong with it, its JSON Schema, its text.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from bedplate.head.schema import ranges

__all__ = ["Bool", "Choice", "Cidr", "File", "Files", "Integer", "Kind", "Names", "Secret", "Text"]

_LONGEST = 4096
_MOST_NAMES = 10_000
"""More than a Kubernetes cluster can have nodes: reading more would keep a head busy for nothing."""


class Kind(Protocol):
    """What a question takes."""

    @property
    def about(self) -> str:
        """What is expected, after "must be"."""

    def problem(self, value: Any) -> str:
        """What is wrong with the value, or nothing."""

    def schema(self) -> dict[str, Any]: ...

    def parse(self, text: str) -> Any:
        """The value of a typed text; a text that has none is returned as it is, for `problem` to say so."""

    def text(self, value: Any) -> str: ...


class _Texts:
    """Values that are texts."""

    def parse(self, text: str) -> Any:
        return text.strip()

    def text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True)
class Text(_Texts):
    """A text of a form."""

    pattern: str = r"[^\x00-\x1f\x7f]*"
    about: str = "a text of one line"
    is_optional: bool = True

    def problem(self, value: Any) -> str:
        if not isinstance(value, str):
            return f"must be {self.about}, not {_shown(value)}"
        if not value:
            return "" if self.is_optional else "must not be empty"
        if len(value) > _LONGEST or re.fullmatch(self.pattern, value) is None:
            return f"must be {self.about}, not {_shown(value)}"
        return ""

    def schema(self) -> dict[str, Any]:
        pattern = f"^({self.pattern})?$" if self.is_optional else f"^({self.pattern})$"
        return {"type": "string", "pattern": pattern}


@dataclass(frozen=True)
class Secret(Text):
    """A text that is not shown again: stars in the wizard and in what the tool says. What is wrong with one does not
    repeat it."""

    about: str = "a text of one line"

    def problem(self, value: Any) -> str:
        return f"must be {self.about}" if super().problem(value) else ""

    def parse(self, text: str) -> Any:
        return text


@dataclass(frozen=True)
class Bool:
    about: str = "true or false"

    def problem(self, value: Any) -> str:
        return "" if isinstance(value, bool) else f"must be {self.about}, not {_shown(value)}"

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def parse(self, text: str) -> Any:
        return {"yes": True, "true": True, "no": False, "false": False}.get(text.strip().lower(), text)

    def text(self, value: Any) -> str:
        return "yes" if value is True else "no" if value is False else str(value)


@dataclass(frozen=True)
class Choice(_Texts):
    options: tuple[str, ...]

    @property
    def about(self) -> str:
        return f"one of {', '.join(self.options)}"

    def problem(self, value: Any) -> str:
        return "" if value in self.options else f"must be {self.about}, not {_shown(value)}"

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.options)}


@dataclass(frozen=True)
class Integer:
    low: int
    high: int

    @property
    def about(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def problem(self, value: Any) -> str:
        is_good = isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        return "" if is_good else f"must be {self.about}, not {_shown(value)}"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def parse(self, text: str) -> Any:
        text = text.strip()
        return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text

    def text(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True)
class Cidr(_Texts):
    """A range of IPv4 addresses; empty: chosen so that it overlaps nothing."""

    longest: int = 24
    shortest: int = 8

    @property
    def about(self) -> str:
        return f"an IPv4 network such as 10.150.0.0/16, with {self.shortest} to {self.longest} netmask bits"

    def problem(self, value: Any) -> str:
        if value == "":
            return ""
        if not isinstance(value, str) or "/" not in value:
            return f"must be {self.about}, not {_shown(value)}"
        try:
            network = ipaddress.IPv4Network(value)
        except ValueError as err:
            return f"must be {self.about}: {err}"
        if not self.shortest <= network.prefixlen <= self.longest:
            return f"must be {self.about}, not {_shown(value)}"
        return ""

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2})?$"}


@dataclass(frozen=True)
class File(_Texts):
    """A path; it must be absolute, for the file with the answers is used in other folders, too."""

    about: str = "an absolute path"

    def problem(self, value: Any) -> str:
        if not isinstance(value, str):
            return f"must be {self.about}, not {_shown(value)}"
        if value and (not value.startswith("/") or "\0" in value or ".." in value.split("/")):
            return f"must be {self.about}, not {_shown(value)}"
        return ""

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^(/.*)?$"}


@dataclass(frozen=True)
class Names:
    """Names of nodes or other objects; nodes may be given as ranges."""

    what: str = "nodes"
    has_ranges: bool = True

    @property
    def about(self) -> str:
        return f"a list of {self.what}"

    def problem(self, value: Any) -> str:
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            return f"must be {self.about}, not {_shown(value)}"
        count = 0
        for name in value:
            try:
                count += len(ranges.expand(name, _MOST_NAMES)) if self.has_ranges else 1
            except ValueError as err:
                return str(err)
            if count > _MOST_NAMES:
                return f"must be a list of at most {_MOST_NAMES} {self.what}"
        duplicates = sorted(name for name, times in Counter(value).items() if times > 1)
        return f"has {duplicates[0]!r} twice" if duplicates else ""

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}

    def parse(self, text: str) -> Any:
        return [part for part in re.split(r"[,\s]+(?![^\[]*\])", text.strip()) if part]

    def text(self, value: Any) -> str:
        return ", ".join(value) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Files(Names):
    """Paths of files, each absolute."""

    what: str = "absolute paths"
    has_ranges: bool = False

    def problem(self, value: Any) -> str:
        wrong = super().problem(value)
        return wrong or next((text for path in value if (text := File().problem(path))), "")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
