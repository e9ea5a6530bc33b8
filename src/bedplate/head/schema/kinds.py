"""Kinds of values: how each is read from the shell, checked, shown, and carried in JSON.

In: text people typed, or decoded JSON. Out: values (`objects.Value`), texts, JSON. A `ValueError` says what is wrong
with the value; the row it stands in adds the parameter's name. `json_schema` says exactly which JSON is accepted; what
no schema can say is `Unfit`. Kinds hold no state and are shared.
"""

from __future__ import annotations

import ipaddress
import re
import reprlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from bedplate.api.headapi import MASK
from bedplate.core.duration import format_duration, parse_duration
from bedplate.head.objects import Secret, Value

__all__ = [
    "BLANKS",
    "Address",
    "Blob",
    "Bool",
    "Choice",
    "Cidr",
    "Duration",
    "HostAddress",
    "Integer",
    "Kind",
    "Mac",
    "Path",
    "Port",
    "SecretText",
    "Seed",
    "Size",
    "Text",
    "TokenText",
    "Unfit",
    "is_strong_token",
    "quoted",
    "size_in_words",
]

_YES = {"yes", "y", "true", "on", "1"}
_NO = {"no", "n", "false", "off", "0"}
_CENTURY_S = 100 * 366 * 86400
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PLAIN = r"[^\x00-\x08\x0b-\x1f\x7f]"


BLANKS = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""Blanks and control characters, for a pattern's brackets; what `\\s` means is not the same everywhere."""


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong = 3, 200, 100


def quoted(value: object) -> str:
    """A value in a message: short, however large it is, or deep."""
    return _SHORT.repr(value)


class Unfit(ValueError):
    """A value of the right form that still cannot be, such as a network with bits set behind its prefix."""


def _matching(pattern: str) -> dict[str, Any]:
    """The schema of a text that is empty or matches whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})?$"}


def size_in_words(count: int) -> str:
    """Bytes as the shell shows them: `914B`, `1.01KiB`, `244KiB`."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    unit = 0
    while amount >= 1024 and unit < len(units) - 1:
        amount, unit = amount / 1024, unit + 1
    if unit == 0:
        return f"{count}B"
    digits = 0 if amount >= 100 else 1 if amount >= 10 else 2
    text = f"{amount:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + units[unit]


@dataclass(frozen=True)
class Kind:
    """One line of text. `empty` says whether it may be left out."""

    name: ClassVar[str] = "text"
    secret: ClassVar[bool] = False
    multiple: ClassVar[bool] = False

    def parse(self, text: str) -> Value:
        """The value in what somebody typed."""
        self.check(text)
        return text

    def check(self, value: Value) -> None:
        """Raise ValueError unless the value is one of this kind."""
        if not isinstance(value, str):
            raise ValueError(f"{quoted(value)} must be text")
        _plain(value)

    def show(self, value: Value) -> str:
        """The cell of a table."""
        return str(value)

    def lines(self, value: Value) -> list[str]:
        """What `get` prints."""
        return [self.show(value)]

    def decode(self, data: Any) -> Value:
        """From JSON; raises ValueError."""
        self.check(data)
        value: Value = data
        return value

    def choices(self) -> Sequence[str]:
        """What completion offers, where the values are known."""
        return ()

    def json_schema(self) -> dict[str, Any]:
        """What `decode` accepts, as JSON Schema."""
        return {"type": "string", "pattern": f"^{_PLAIN}*$"}

    @property
    def target_mode(self) -> str:
        """The mode that the value names objects of; empty for anything but a reference."""
        return ""


def _plain(text: str) -> None:
    if _CONTROL.search(text):
        raise ValueError("contains control characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("cannot be encoded as UTF-8") from None


@dataclass(frozen=True)
class Text(Kind):
    """Text, with a pattern where its form matters; `expected` is the form in words."""

    pattern: str = ""
    expected: str = ""

    def check(self, value: Value) -> None:
        super().check(value)
        if self.pattern and value and not re.fullmatch(self.pattern, str(value)):
            raise ValueError(f"{quoted(value)} is not {self.expected}")

    def json_schema(self) -> dict[str, Any]:
        return _matching(self.pattern) if self.pattern else super().json_schema()


@dataclass(frozen=True)
class Bool(Kind):
    """yes or no."""

    name: ClassVar[str] = "yes or no"

    def parse(self, text: str) -> Value:
        word = text.strip().lower()
        if word in _YES or word in _NO:
            return word in _YES
        raise ValueError(f"{text!r} is neither yes nor no")

    def check(self, value: Value) -> None:
        if not isinstance(value, bool):
            raise ValueError(f"{quoted(value)} is neither yes nor no")

    def show(self, value: Value) -> str:
        return "yes" if value else "no"

    def choices(self) -> Sequence[str]:
        return ("yes", "no")

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Integer(Kind):
    """A whole number within bounds."""

    name: ClassVar[str] = "number"
    low: int = 0
    high: int = 2**53 - 1

    def parse(self, text: str) -> Value:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
            raise ValueError(f"{text!r} must be an integer")
        number = int(text)
        self.check(number)
        return number

    def check(self, value: Value) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{quoted(value)} must be an integer")
        if not self.low <= value <= self.high:
            raise ValueError(f"{value} must be between {self.low} and {self.high}")

    def decode(self, data: Any) -> Value:
        # JSON knows one kind of number: 5.0 is the whole number 5.
        return super().decode(int(data) if isinstance(data, float) and data.is_integer() else data)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Port(Integer):
    """A TCP or UDP port; 0 stands for none where `low` says so."""

    name: ClassVar[str] = "port"
    low: int = 1
    high: int = 65535


@dataclass(frozen=True)
class Duration(Kind):
    """A span in Go's syntax, up to a hundred years; held in seconds."""

    name: ClassVar[str] = "duration"

    def parse(self, text: str) -> Value:
        seconds = parse_duration(text.strip())
        self.check(seconds)
        return seconds

    def check(self, value: Value) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{quoted(value)} must be a number of seconds")
        if not 0 <= value <= _CENTURY_S:
            raise ValueError(f"{quoted(value)} seconds is out of range")

    def show(self, value: Value) -> str:
        assert isinstance(value, int | float)
        return format_duration(float(value))

    def decode(self, data: Any) -> Value:
        self.check(data)
        return float(data)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": 0, "maximum": _CENTURY_S}


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words, in their order; upper and lower case are the same."""

    name: ClassVar[str] = "choice"
    words: tuple[str, ...] = ()

    def parse(self, text: str) -> Value:
        for word in self.words:
            if word.lower() == text.strip().lower():
                return word
        raise ValueError(f"{text!r} is not one of {', '.join(self.words)}")

    def check(self, value: Value) -> None:
        if value not in self.words:
            raise ValueError(f"{quoted(value)} is not one of {', '.join(self.words)}")

    def choices(self) -> Sequence[str]:
        return self.words

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True)
class Address(Kind):
    """An IPv4 or IPv6 address, held in its usual form."""

    name: ClassVar[str] = "IP address"
    expected: ClassVar[str] = "an IP address"

    def parse(self, text: str) -> Value:
        try:
            return self._usual(text.strip()) if text.strip() else ""
        except ValueError:
            raise ValueError(f"{text!r} is not {self.expected}") from None

    def _usual(self, text: str) -> str:
        return str(ipaddress.ip_address(text))

    def check(self, value: Value) -> None:
        if not isinstance(value, str) or self.parse(value) != value:
            raise ValueError(f"{quoted(value)} is not {self.expected}")

    def decode(self, data: Any) -> Value:
        if not isinstance(data, str) or data != data.strip():
            raise ValueError(f"{quoted(data)} is not {self.expected}")
        return self.parse(data)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}, {"maxLength": 0}]}


@dataclass(frozen=True)
class _AddressInForm(Address):
    """An address whose form a pattern describes. A text of that form that names none is `Unfit`, not malformed."""

    form: ClassVar[str]

    def decode(self, data: Any) -> Value:
        if not isinstance(data, str) or not re.fullmatch(f"(?:{self.form})?", data):
            raise ValueError(f"{quoted(data)} is not {self.expected}")
        try:
            return self.parse(data)
        except ValueError as wrong:
            raise Unfit(str(wrong)) from None

    def json_schema(self) -> dict[str, Any]:
        return _matching(self.form)


@dataclass(frozen=True)
class Cidr(_AddressInForm):
    """A network in CIDR form. Bits set behind the prefix are refused: they are most often a slip."""

    name: ClassVar[str] = "network"
    expected: ClassVar[str] = "a network in CIDR form (for example 10.141.0.0/16)"
    form: ClassVar[str] = r"[0-9a-fA-F.:]{2,45}/[0-9]{1,3}"

    def _usual(self, text: str) -> str:
        if "/" not in text:
            raise ValueError
        return str(ipaddress.ip_network(text))


@dataclass(frozen=True)
class HostAddress(_AddressInForm):
    """An address of a machine, with the length of its network's prefix where that matters: `192.168.5.1/24`."""

    name: ClassVar[str] = "address of a host"
    expected: ClassVar[str] = "an IP address, with or without a prefix length (for example 192.168.5.1/24)"
    form: ClassVar[str] = r"[0-9a-fA-F.:]{2,45}(?:/[0-9]{1,3})?"

    def _usual(self, text: str) -> str:
        return str(ipaddress.ip_interface(text)) if "/" in text else str(ipaddress.ip_address(text))


@dataclass(frozen=True)
class Mac(Text):
    """A hardware address; dashes and dots are understood, and held as colons."""

    name: ClassVar[str] = "MAC address"
    pattern: str = r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}"
    expected: str = "a MAC address (for example 52:54:00:12:34:56)"

    def parse(self, text: str) -> Value:
        digits = text.strip()
        for form in (
            r"[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5}",
            r"[0-9A-Fa-f]{4}([.][0-9A-Fa-f]{4}){2}",
            r"[0-9A-Fa-f]{12}",
        ):
            if re.fullmatch(form, digits):
                bare = re.sub("[-.]", "", digits)
                return ":".join(bare[at : at + 2] for at in range(0, 12, 2))
        return super().parse(digits)


@dataclass(frozen=True)
class Size(Text):
    """An amount of bytes with its unit as written (`64K`, `100GB`): programs differ in what a unit means to them."""

    name: ClassVar[str] = "size"
    pattern: str = r"[0-9]+(\.[0-9]+)?([kKmMgGtTpP]i?)?[bB]?"
    expected: str = "a size (for example 64K or 100GB)"


@dataclass(frozen=True)
class Path(Kind):
    """An absolute path; it may begin with a variable such as `$spool`."""

    name: ClassVar[str] = "path"

    def check(self, value: Value) -> None:
        super().check(value)
        if value and not str(value).startswith(("/", "$")):
            raise ValueError(f"{quoted(value)} must be an absolute path")

    def json_schema(self) -> dict[str, Any]:
        return _matching(f"[/$]{_PLAIN}*")


@dataclass(frozen=True)
class SecretText(Kind):
    """What must not be seen. Tables show whether it is set, and nothing else."""

    name: ClassVar[str] = "secret"
    secret: ClassVar[bool] = True

    def parse(self, text: str) -> Value:
        return Secret(text) if text else ""

    def check(self, value: Value) -> None:
        if not isinstance(value, Secret) and value != "":
            raise ValueError("is not stored as a secret")

    def show(self, value: Value) -> str:
        return "*****" if value else "< not set >"

    def decode(self, data: Any) -> Value:
        if not isinstance(data, str):
            raise ValueError("a secret must be a string")
        return self.parse(data)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "password"}


@dataclass(frozen=True)
class Seed(SecretText):
    """What an authority and its certificates are made from: the day it was made, and 256 random bits. The word
    `generate` makes a new one."""

    name: ClassVar[str] = "seed"
    GENERATE: ClassVar[str] = "generate"

    def parse(self, text: str) -> Value:
        if text == self.GENERATE:
            return Secret(f"{datetime.now(UTC):%Y-%m-%d}.{secrets.token_hex(32)}")
        if text and text != MASK and not _is_seed(text):
            raise Unfit(f"must be the word {self.GENERATE}, or what that made")
        return super().parse(text)


def _is_seed(text: str) -> bool:
    day, _, bits = text.partition(".")
    try:
        datetime.strptime(day, "%Y-%m-%d")
    except ValueError:
        return False
    return re.fullmatch(r"[0-9a-f]{64}", bits) is not None


def is_strong_token(text: str) -> bool:
    """Whether a text can be a token of at least 128 bits: what random generators print, not what people make up."""
    if len(set(text)) < 8:
        return False
    if re.fullmatch(r"[0-9a-fA-F-]{32,}", text):
        return True
    is_mixed = all(re.search(part, text) for part in ("[a-z]", "[A-Z]", "[0-9]"))
    return is_mixed and re.fullmatch(r"[A-Za-z0-9_.~+/=-]{22,}", text) is not None


@dataclass(frozen=True)
class TokenText(SecretText):
    """A bearer token that somebody chose: a weak one is refused, as it can be guessed over the network."""

    name: ClassVar[str] = "token"

    def parse(self, text: str) -> Value:
        if text and text != MASK and not is_strong_token(text):
            raise Unfit(
                "a token needs at least 128 random bits: 32 hexadecimal digits, or 22 letters of both cases and digits "
                "(openssl rand -hex 32); bedplate head token create makes one"
            )
        return super().parse(text)


@dataclass(frozen=True)
class Blob(Kind):
    """Text of many lines, such as a file; tables show its size alone."""

    name: ClassVar[str] = "file"

    def check(self, value: Value) -> None:
        if not isinstance(value, str):
            raise ValueError("must be text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("cannot be encoded as UTF-8") from None

    def show(self, value: Value) -> str:
        return f"<{size_in_words(len(str(value).encode()))}>"

    def lines(self, value: Value) -> list[str]:
        return [str(value)]

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string"}
