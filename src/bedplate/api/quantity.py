"""Kubernetes quantities in their canonical spelling: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`.

`canonical` takes what an object says (text or number) and returns what an API server would answer with; text that is no
quantity comes back unchanged, because validation is not this module's task.
"""

from __future__ import annotations

import decimal
import functools
import re
from typing import Any

__all__ = ["MAX_EXPONENT", "MAX_LENGTH", "PRECISION", "TooLong", "canonical", "parse"]

MAX_LENGTH = 512
"""A longer text is not a quantity: exact arithmetic with it would take long."""
MAX_EXPONENT = 40
PRECISION = 640
"""Digits that hold every quantity of that length and exponent, down to a billionth."""
_FORM = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_NANO = decimal.Decimal("1e-9")
_TOO_LARGE = 10**MAX_LENGTH
_MILLI = decimal.Decimal("1e-3")


# Objects repeat few spellings, and exact arithmetic is slow.
@functools.lru_cache(maxsize=4096)
def parse(text: str) -> decimal.Decimal | None:
    """The value, None when the text is not a quantity. Finer than a billionth is rounded up, as Kubernetes does."""
    match = _FORM.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        return None
    sign, digits, suffix = match[1], match[2], match[3] or ""
    with decimal.localcontext(decimal.Context(prec=PRECISION)):
        value = decimal.Decimal(digits)
        if suffix in _BINARY[1:]:
            value *= 1024 ** _BINARY.index(suffix)
        elif suffix in _DECIMAL:
            value = value.scaleb(_DECIMAL[suffix])
        elif abs(int(suffix[1:])) > MAX_EXPONENT:
            return None
        else:
            value = value.scaleb(int(suffix[1:]))
        value = _round_up(value, _NANO)
        return -value if sign == "-" else value


class TooLong(ValueError):
    """A quantity with more characters than `MAX_LENGTH`; `given` is what the object says."""

    def __init__(self, given: Any) -> None:
        super().__init__(f"a quantity must have at most {MAX_LENGTH} characters")
        self.given = given


def canonical(given: Any, *, in_list: bool = False) -> Any:
    """The canonical text. `in_list`: a value of a ResourceList, which holds nothing finer than a thousandth."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return given
    if (isinstance(given, str) and len(given) > MAX_LENGTH) or (isinstance(given, int) and abs(given) >= _TOO_LARGE):
        raise TooLong(given)
    text = _canonical(str(given), in_list)
    return given if text is None else text


@functools.lru_cache(maxsize=4096)
def _canonical(text: str, in_list: bool) -> str | None:
    value = parse(text)
    if value is None:
        return None
    with decimal.localcontext(decimal.Context(prec=PRECISION)):
        if in_list:
            value = _round_up(value, _MILLI)
        if value == 0:
            return "0"
        is_whole = value == value.to_integral_value()
        if text.endswith("i") and abs(value) >= 1024 and is_whole:
            return _binary(int(value))
        return _decimal(value, has_exponent=re.search(r"[eE][+-]?\d", text) is not None)


def _round_up(value: decimal.Decimal, unit: decimal.Decimal) -> decimal.Decimal:
    return value.quantize(unit, rounding=decimal.ROUND_CEILING) if value % unit else value


def _binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < len(_BINARY) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power]}"


def _decimal(value: decimal.Decimal, *, has_exponent: bool) -> str:
    sign, digits, exponent = value.normalize().as_tuple()
    number = int("".join(map(str, digits)))
    exponent = int(exponent)
    while exponent % 3 or (exponent > 18 and not has_exponent):
        number *= 10
        exponent -= 1
    if has_exponent:
        suffix = f"e{exponent}" if exponent else ""
    else:
        suffix = _SUFFIXES[exponent]
    return f"{'-' if sign else ''}{number}{suffix}"
