"""What keys and commits may look like, and where a prefix ends. Pure; shared by every backend.

In: keys, prefixes and the operations of a commit. Out: bounds for range reads, or `errors.Invalid` naming every fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.core import errors
from bedplate.store.interface import Op, Put

__all__ = ["check_key", "check_ops", "prefix_end"]

_LAST_BEFORE_SURROGATES = 0xD7FF
_FIRST_AFTER_SURROGATES = 0xE000
_LAST_CODE_POINT = 0x10FFFF


def prefix_end(prefix: str) -> str | None:
    """The smallest text that sorts after every key below the prefix; None when nothing does (the empty prefix)."""
    kept = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not kept:
        return None
    last = ord(kept[-1])
    following = _FIRST_AFTER_SURROGATES if last == _LAST_BEFORE_SURROGATES else last + 1
    return kept[:-1] + chr(following)


def check_key(key: str) -> None:
    """Raise `Invalid` unless the key is non-empty text that has a UTF-8 form."""
    fault = _fault(key)
    if fault:
        raise errors.Invalid(fault)


def check_ops(ops: Sequence[Op]) -> None:
    """Raise `Invalid` unless every key is usable and named once, and every expectation is a revision."""
    problems: list[str] = []
    seen: set[str] = set()
    for op in ops:
        key = op.key
        if not key or not key.isascii():
            fault = _fault(key)
            if fault:
                problems.append(fault)
        if key in seen:
            problems.append(f"key {key!r} occurs twice in one commit")
        seen.add(key)
        if op.expect is not None and op.expect < 0:
            problems.append(f"key {key!r} expects revision {op.expect}, which cannot be")
        if isinstance(op, Put) and not isinstance(op.value, bytes):
            problems.append(f"the value of key {key!r} is {type(op.value).__name__}, not bytes")
    if problems:
        raise errors.Invalid("the commit cannot be written", problems=problems)


def _fault(key: str) -> str:
    if not key:
        return "a key must not be empty"
    try:
        key.encode()
    except UnicodeEncodeError:
        return f"key {key!r} has no UTF-8 form"
    return ""
