"""Values of the Common Expression Language at run time.

JSON values are themselves (a JSON number without fraction is an `int`). The classes here are what JSON does not have:
unsigned numbers, times, durations, optionals, types, quantities, addresses, URLs and semantic versions. `equals` is
CEL's `==`, which never mixes kinds except numbers.
"""

from __future__ import annotations

import dataclasses
import decimal
import ipaddress
import re
import urllib.parse
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import total_ordering
from typing import Any

from bedplate.api import quantity
from bedplate.apiserver.schema import gotext

__all__ = [
    "NONE",
    "NO_OVERLOAD",
    "TOO_DEEP",
    "CelError",
    "Cidr",
    "Duration",
    "Optional",
    "Quantity",
    "Semver",
    "Timestamp",
    "TypeValue",
    "UInt",
    "Url",
    "equals",
    "kind_of",
    "parse_duration",
    "parse_timestamp",
]

MAX_INT, MIN_INT, MAX_UINT = 2**63 - 1, -(2**63), 2**64 - 1


class CelError(Exception):
    """An expression could not be evaluated; the text is the server's."""


NO_OVERLOAD = "no such overload"
TOO_DEEP = "expression recursion limit exceeded"


class UInt(int):
    """An unsigned number."""


@dataclass(frozen=True, slots=True)
class TypeValue:
    name: str


@total_ordering
@dataclass(frozen=True, slots=True)
class Duration:
    nanoseconds: int

    def __lt__(self, other: Duration) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __str__(self) -> str:
        seconds = decimal.Decimal(self.nanoseconds) / 1_000_000_000
        return f"{seconds.normalize():f}s"


@total_ordering
@dataclass(frozen=True, slots=True)
class Timestamp:
    """Nanoseconds since 1970."""

    nanoseconds: int

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanoseconds < other.nanoseconds

    @property
    def moment(self) -> datetime:
        seconds, rest = divmod(self.nanoseconds, 1_000_000_000)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=rest // 1000)

    def __str__(self) -> str:
        text = self.moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
        rest = f"{self.nanoseconds % 1_000_000_000:09d}".rstrip("0")
        return text + (f".{rest}" if rest else "") + "Z"


@dataclass(frozen=True, slots=True)
class Optional:
    """`present` tells an absent value from a null one."""

    value: Any
    present: bool = True


NONE = Optional(None, present=False)

_DURATION_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> Duration:
    """Go's syntax, exact to the nanosecond."""
    body = text[1:] if text[:1] in ("+", "-") else text
    parts = list(_DURATION_PART.finditer(body))
    if body != "0" and (not parts or "".join(part.group() for part in parts) != body):
        raise ValueError(f"time: invalid duration {gotext.quote(text)}")
    total = sum(int(decimal.Decimal(part[1]) * _DURATION_UNITS[part[2]]) for part in parts)
    return Duration(-total if text.startswith("-") else total)


_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid timestamp {gotext.quote(text)}")
    return _timestamp(match)


def parse_date(text: str) -> Timestamp:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid date {gotext.quote(text)}")
    year, month, day = map(int, match.groups())
    return Timestamp(_seconds(datetime(year, month, day, tzinfo=UTC)) * 1_000_000_000)


def _seconds(moment: datetime) -> int:
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def _timestamp(match: re.Match[str]) -> Timestamp:
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    if match[8]:
        shift = timedelta(hours=int(match[9]), minutes=int(match[10]))
        moment += -shift if match[8] == "+" else shift
    fraction = int((match[7] or "")[:9].ljust(9, "0"))
    return Timestamp(_seconds(moment) * 1_000_000_000 + fraction)


_MIN_EXPONENT, _MAX_EXPONENT = -1000, 100
_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """A resource.Quantity: a number exact to 1e-9."""

    number: decimal.Decimal
    is_inexact: bool = dataclasses.field(default=False, compare=False)
    """a fraction with a binary suffix: the server keeps it in a form it does not read back as an integer."""

    @classmethod
    def parse(cls, text: str) -> Quantity:
        match = _QUANTITY.fullmatch(text) if len(text) <= quantity.MAX_LENGTH else None
        if match is None:
            raise ValueError(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        suffix = match[3] or ""
        if len(suffix) > 2 and not _MIN_EXPONENT <= int(suffix[1:]) <= _MAX_EXPONENT:
            raise ValueError("unable to parse quantity's suffix")
        with decimal.localcontext(decimal.Context(prec=quantity.PRECISION)):
            number = decimal.Decimal(match[1] + match[2])
            if suffix in _BINARY:
                number *= 2 ** _BINARY[suffix]
            elif suffix in _SUFFIXES:
                number = number.scaleb(_SUFFIXES[suffix])
            else:
                number = number.scaleb(int(suffix[1:]))
            number = number.quantize(decimal.Decimal("1e-9"), rounding=decimal.ROUND_UP)
            return cls(number, suffix in _BINARY and "." in match[2])

    def __lt__(self, other: Quantity) -> bool:
        return self.number < other.number


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with a prefix length; the address keeps its host bits."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    prefix: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Url:
    text: str
    parts: urllib.parse.SplitResult


_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII)


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; its build part takes no part in order."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Semver:
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise ValueError(_semver_fault(text))
        pre = tuple(match[4].split(".")) if match[4] else ()
        return cls(int(match[1]), int(match[2]), int(match[3]), pre)

    @classmethod
    def normalize(cls, text: str) -> str:
        """`v1.02` becomes `1.2.0`."""
        text = text.removeprefix("v")
        cut = min((at for at in (text.find("-"), text.find("+")) if at >= 0), default=len(text))
        parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in text[:cut].split(".")]
        if len(parts) < 3 and text[cut:]:
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        return ".".join(parts + ["0"] * (3 - len(parts))) + text[cut:]

    @property
    def _order(self) -> tuple[Any, ...]:
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, not self.pre, pre)

    def __lt__(self, other: Semver) -> bool:
        return self._order < other._order


def _semver_fault(text: str) -> str:
    if not text:
        return "Version string empty"
    if text.count(".") < 2:
        return "No Major.Minor.Patch elements found"
    for name, part in zip(("major", "minor", "patch"), text.split(".", 2), strict=True):
        body = re.split(r"[-+]", part, maxsplit=1)[0]
        if not body.isdigit():
            return f"Invalid character(s) found in {name} number {gotext.quote(body)}"
    return f"Invalid version {gotext.quote(text)}"


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    Optional: "optional_type",
    TypeValue: "type",
    Quantity: "kubernetes.Quantity",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
    Cidr: "net.CIDR",
    Url: "kubernetes.URL",
    Semver: "kubernetes.Semver",
}


def kind_of(value: Any) -> str:
    """The name of a value's type, as `type(value)` compares it."""
    return _KINDS.get(type(value), "kubernetes.NamedFormat")


_NUMBERS = frozenset({int, UInt, float})


def equals(left: Any, right: Any) -> bool:
    kind, other = type(left), type(right)
    if kind is not other:
        return kind in _NUMBERS and other in _NUMBERS and left == right
    if kind is list:
        return len(left) == len(right) and all(map(equals, left, right))
    if kind is dict:
        return len(left) == len(right) and all(key in right and equals(left[key], right[key]) for key in left)
    if kind is Optional:
        return left.present == right.present and (not left.present or equals(left.value, right.value))
    return bool(left == right)
