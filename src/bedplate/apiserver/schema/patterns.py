"""Regular expressions as Go has them (RE2), with Go's wording for faulty ones.

In: a pattern. Out: a compiled RE2 pattern, or `PatternError`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

__all__ = ["PatternError", "compile_pattern"]

_WORDING = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
}


class PatternError(ValueError):
    """A pattern Go would not compile; the text is Go's."""


def _quiet() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


_OPTIONS = _quiet()


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raw = error.args[0]
        what, _, where = (raw.decode() if isinstance(raw, bytes) else str(raw)).partition(": ")
        where = "" if what.startswith("trailing") else where
        raise PatternError(f"error parsing regexp: {_WORDING.get(what, what)}: `{where}`") from error
