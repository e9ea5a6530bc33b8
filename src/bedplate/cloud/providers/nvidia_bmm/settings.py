"""Reading single settings: a key of the file, or the variable of the same name, which wins when it is not empty.

In: the file's content and the environment. Out: values of the kinds the configuration has; problems are gathered, not
raised. `a.bC` is key `bC` below `a` in the file and `NVIDIA_BMM_A_B_C` in the environment. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Reader", "variable"]

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def variable(key: str) -> str:
    """The name of the environment variable that overrides a key."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.replace("CIDRs", "Cidrs"))
    return f"NVIDIA_BMM_{words.replace('.', '_').upper()}"


class Reader:
    """Two layers of values. It remembers which keys were asked for: the others are unknown."""

    def __init__(self, content: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._content = content
        self._environ = environ
        self._known: set[str] = set()

    def warnings(self) -> list[str]:
        """The keys of the file that nobody asked for."""
        return [f"unknown key {path}{_suggestion(path, self._known)}" for path in self._unknown(self._content, "")]

    def _unknown(self, content: Mapping[Any, Any], prefix: str) -> list[str]:
        unknown: list[str] = []
        for key, value in content.items():
            path = f"{prefix}{key}"
            if path in self._known:
                continue
            is_parent = any(known.startswith(f"{path}.") for known in self._known)
            if is_parent and isinstance(value, dict):
                unknown += self._unknown(value, f"{path}.")
            elif is_parent and value is not None:
                self.problems.append(f"{path}: must be a mapping of settings")
            elif not is_parent:
                unknown.append(path)
        return unknown

    def from_environ(self, key: str) -> str:
        """The variable's value."""
        return self._environ.get(variable(key), "").strip()

    def from_file(self, key: str) -> str:
        """The file's value, as text."""
        value = self._raw(key)
        if value is None:
            return ""
        if isinstance(value, bool | dict | list):
            self.problems.append(f"{key}: must be text")
            return ""
        return str(value).strip()

    def _raw(self, key: str) -> Any:
        self._known.add(key)
        value: Any = self._content
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def text(self, key: str, default: str = "") -> str:
        """A text; empty counts as not set."""
        in_file = self.from_file(key)
        return self.from_environ(key) or in_file or default

    def required(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key)
        if not value:
            self.problems.append(f"{key}: is required (environment {variable(key)})")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false by default."""
        raw = self._raw(key)
        text = (self.from_environ(key) or ("" if raw is None else str(raw))).lower()
        if text and text not in _TRUE + _FALSE:
            self.problems.append(f"{key}: must be true or false")
        return text in _TRUE

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of several words; the first by default."""
        value = self.text(key, allowed[0])
        if value not in allowed:
            self.problems.append(f"{key}: must be one of {', '.join(allowed)}")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """A list; in the environment its words are separated by commas."""
        raw = self._raw(key)
        text = self.from_environ(key)
        if text or isinstance(raw, str):
            raw = [part.strip() for part in (text or str(raw)).split(",") if part.strip()]
        if raw is None:
            return ()
        if not isinstance(raw, list) or any(isinstance(word, bool | dict | list | None) for word in raw):
            self.problems.append(f"{key}: must be a list of strings")
            return ()
        return tuple(str(word) for word in raw)

    def names(self, key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        """A list of words out of those allowed."""
        words = self.words(key)
        for word in words:
            if word not in allowed:
                self.problems.append(f"{key}: {word!r} is none of {', '.join(allowed)}")
        return words

    def mapping(self, key: str) -> dict[str, str]:
        """Texts by name; in the environment `name=text,name=text`."""
        raw = self._raw(key)
        if text := self.from_environ(key):
            raw = dict(part.strip().partition("=")[::2] for part in text.split(",") if part.strip())
        if raw is None:
            return {}
        if not isinstance(raw, dict) or any(isinstance(value, dict | list | None) for value in raw.values()):
            self.problems.append(f"{key}: must be a mapping of strings")
            return {}
        return {str(name).strip(): str(value).strip() for name, value in raw.items()}


def _suggestion(path: str, known: set[str]) -> str:
    near = difflib.get_close_matches(path, sorted(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
