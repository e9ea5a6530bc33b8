"""String formats of OpenAPI schemas and the name rules of Kubernetes.

In: text. Out: whether it has a format (`CHECKS`, by normalised name), or the list of what is wrong with a name, in the
server's words. Formats the API server does not know are not here: it ignores them.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
import urllib.parse
from collections.abc import Callable
from datetime import date

from bedplate.core import duration

__all__ = [
    "CHECKS",
    "dns1035_label",
    "dns1123_label",
    "dns1123_subdomain",
    "is_date",
    "is_date_time",
    "label_value",
    "normalize",
    "qualified_name",
]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ALNUM = "and must start and end with an alphanumeric character"


def _name_check(
    limit: int, pattern: str, rule: str, *examples: str, unit: str = "characters"
) -> Callable[[str], list[str]]:
    matcher = re.compile(pattern)
    shown = " or ".join(f"'{example}', " for example in examples)
    fault = f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"

    def check(text: str) -> list[str]:
        faults = [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []
        return faults if matcher.fullmatch(text) else [*faults, fault]

    return check


_label_1123 = _name_check(
    63,
    _LABEL,
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALNUM}",
    "my-name",
    "123-abc",
)
_SUBDOMAIN_RULE = (
    253,
    _SUBDOMAIN,
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ALNUM}",
    "example.com",
)
dns1123_subdomain = _name_check(*_SUBDOMAIN_RULE)
_key_prefix = _name_check(*_SUBDOMAIN_RULE, unit="bytes")


def dns1123_label(text: str) -> list[str]:
    faults = _label_1123(text)
    if faults and "." in text and not dns1123_subdomain(text):
        return [*faults[:-1], "must not contain dots"]
    return faults


dns1035_label = _name_check(
    63,
    _LABEL_1035,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    "my-name",
    "abc-123",
)
label_value = _name_check(
    63,
    f"({_NAME})?",
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345",
    unit="bytes",
)
_name_part = _name_check(
    63,
    _NAME,
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM}",
    "MyName",
    "my.name",
    "123-abc",
    unit="bytes",
)


def qualified_name(text: str) -> list[str]:
    """Faults of `name` or `prefix/name`, the form of label keys."""
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM} "
            "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            f"'{_NAME}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    faults: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            faults.append("prefix part must be non-empty")
        else:
            faults += ["prefix part " + fault for fault in _key_prefix(parts[0])]
    if not parts[-1]:
        return [*faults, "name part must be non-empty", *("name part " + fault for fault in _name_part(""))]
    return faults + ["name part " + fault for fault in _name_part(parts[-1])]


def normalize(name: str) -> str:
    """`date-time` and `datetime` are the same format."""
    return name.replace("-", "")


def is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return text.startswith("0000") and is_date("2000" + text[4:])
    return True


_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII)


def is_date_time(text: str) -> bool:
    day, mark, clock = text.lower().partition("t")
    match = _CLOCK.fullmatch(clock)
    return bool(mark and match and is_date(day) and match[1] <= "23" and match[2] <= "59" and match[3] <= "59")


def _is_uri(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    if any(ord(letter) < 0x20 or letter == "\x7f" for letter in text):
        return False
    return text.startswith("/") or bool(parts.scheme and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", parts.scheme))


_EMAIL = re.compile(r"(?:[^<>]*<)?([^\s@<>()\[\]\\,;:\"]+|\"[^\"]+\")@([^\s@<>()\\,;:\"]+)>?")


def _is_email(text: str) -> bool:
    match = _EMAIL.fullmatch(text.strip())
    if match is None or text.count("<") != text.count(">"):
        return False
    return ".." not in match[1] and not match[1].startswith(".") and not match[1].endswith(".")


def _is_host_text(text: str) -> bool:
    """Letters, digits and symbols of any script."""
    return all(letter in _DIGITS or unicodedata.category(letter)[0] in "LS" for letter in text)


_DIGITS = frozenset("0123456789")


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    if len(text.encode()) > 255 or any(len(label.encode()) > 63 for label in labels):
        return False
    if len(labels) == 1:
        head, rest = text[:1], text[1:].removeprefix("-")
        return bool(head) and _is_host_text(head + rest) and len(rest) <= 62
    top = labels.pop()
    if not 2 <= len(top) <= 63 or not all(unicodedata.category(letter)[0] == "L" for letter in top):
        return False
    inner = all(label and label[0] != "-" and label[-1] != "-" for label in labels)
    return inner and all(_is_host_text(label.replace("-", "")) for label in labels)


def _is_ipv4(text: str) -> bool:
    return _parses(ipaddress.IPv4Address, text)


def _is_ipv6(text: str) -> bool:
    return ":" in text and "%" not in text and _parses(ipaddress.IPv6Address, text)


def _is_cidr(text: str) -> bool:
    address, mark, bits = text.partition("/")
    if not mark or not bits.isdigit() or "%" in text or (len(bits) > 1 and bits[0] == "0"):
        return False
    return _parses(lambda value: ipaddress.ip_network(value, strict=False), f"{address}/{bits}")


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


_PAIR = "[0-9a-fA-F]{2}"
_MAC = re.compile(rf"{_PAIR}([:-]){_PAIR}(\1{_PAIR}){{4}}((\1{_PAIR}){{2}}|(\1{_PAIR}){{14}})?")
_MAC_DOTS = re.compile(r"[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}|(\.[0-9a-fA-F]{4}){7})?")


def _is_mac(text: str) -> bool:
    return bool(_MAC.fullmatch(text) or _MAC_DOTS.fullmatch(text))


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII):
        return False
    total = sum((index + 1) * (10 if digit == "X" else int(digit)) for index, digit in enumerate(digits))
    return total % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"\d{13}", digits, re.ASCII):
        return False
    return sum(int(digit) * (3 if index % 2 else 1) for index, digit in enumerate(digits)) % 10 == 0


_CARD = re.compile(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:2131|1800|35\d{3})\d{11}",
    re.ASCII,
)


def _is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(digit) * (2 if index % 2 else 1) for index, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


_RGB = re.compile(r"rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*(,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*){2}\)")
_LONG_DURATION = re.compile(r"((\d+)\s*([A-Za-zµ]+))", re.ASCII)
_UNITS = frozenset(
    (
        *("ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "m", "min"),
        *("h", "hr", "hour", "d", "day", "w", "wk", "week"),
    )
)
_UNIT_PREFIXES = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _is_duration(text: str) -> bool:
    """Go's syntax, or words as in `2 days`."""
    try:
        duration.parse_duration(text)
    except ValueError:
        units = [unit.lower() for _, _, unit in _LONG_DURATION.findall(text)]
        return any(unit in _UNITS or unit.startswith(_UNIT_PREFIXES) for unit in units)
    return True


def _pattern(pattern: str) -> Callable[[str], bool]:
    matcher = re.compile(pattern, re.ASCII)
    return lambda text: matcher.fullmatch(text) is not None


_HEX4 = "[0-9a-fA-F]{4}"

CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _pattern("[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _is_mac,
    "uuid": _pattern(rf"[0-9a-fA-F]{{8}}-?{_HEX4}-?{_HEX4}-?{_HEX4}-?[0-9a-fA-F]{{12}}"),
    "uuid3": _pattern(rf"[0-9a-fA-F]{{8}}-?{_HEX4}-?3[0-9a-fA-F]{{3}}-?{_HEX4}-?[0-9a-fA-F]{{12}}"),
    "uuid4": _pattern(rf"[0-9a-fA-F]{{8}}-?{_HEX4}-?4[0-9a-fA-F]{{3}}-?[89abAB][0-9a-fA-F]{{3}}-?[0-9a-fA-F]{{12}}"),
    "uuid5": _pattern(rf"[0-9a-fA-F]{{8}}-?{_HEX4}-?5[0-9a-fA-F]{{3}}-?[89abAB][0-9a-fA-F]{{3}}-?[0-9a-fA-F]{{12}}"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _pattern(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _pattern("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": lambda text: _RGB.fullmatch(text) is not None,
    "byte": _pattern("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": is_date,
    "duration": _is_duration,
    "datetime": is_date_time,
    "k8sshortname": lambda text: not dns1123_label(text),
    "k8slongname": lambda text: not dns1123_subdomain(text),
}
