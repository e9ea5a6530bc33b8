"""Conditional requests: ETags, `If-Match` and `If-None-Match`. Pure but for reading headers.

In: a request and the entity tag of what it asks about. Out: whether it is to be answered with 304, or refused with 412.
"""

from __future__ import annotations

import re

from aiohttp import web

from bedplate.ui.rest.problems import Malformed, Precondition

__all__ = ["etag", "is_known", "require_absent", "require_match"]

_TAGS = re.compile(r'\s*(?:\*|(?:W/)?"[^"]*"(?:\s*,\s*(?:W/)?"[^"]*")*)\s*')
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def etag(tag: object) -> str:
    """The header's value."""
    return f'"{tag}"'


def _tags(request: web.Request, header: str) -> list[str] | None:
    """The tags in a header, `*` as it is; None when there is none."""
    values = request.headers.getall(header, [])
    if not values:
        return None
    text = ", ".join(values)
    if not _TAGS.fullmatch(text):
        raise Malformed(f"{header}: {text[:100]!r} is not an entity tag", hint='write it with quotes: "12"')
    return ["*"] if text.strip() == "*" else _TAG.findall(text)


def is_known(request: web.Request, tag: str) -> bool:
    """Whether the asker has it already (304)."""
    tags = _tags(request, "If-None-Match")
    return tags is not None and ("*" in tags or tag in tags)


def require_match(request: web.Request, tag: str | None, what: str) -> bool:
    """Raise `Precondition` unless `If-Match` names the tag; whether there was such a header. None: nothing is there."""
    tags = _tags(request, "If-Match")
    if tags is None:
        return False
    if tag is None:
        raise Precondition(f"{what} does not exist", hint="create it without If-Match")
    if "*" not in tags and tag not in tags:
        raise Precondition(f"{what} is now at revision {tag}", hint="read it again and retry")
    return True


def require_absent(request: web.Request, tag: str | None, what: str) -> None:
    """Raise `Precondition` when `If-None-Match` does not allow what is there."""
    if tag is not None and is_known(request, tag):
        raise Precondition(f"{what} exists, in revision {tag}", hint="leave out If-None-Match to replace it")
