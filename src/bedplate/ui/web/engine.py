"""Templates and files of the page, and the headers every answer carries.

In: names of templates with their values. Out: responses. The style sheet and the script are files of this package, read
once and served from memory; nothing comes from another host, and no page holds a script or a style of its own.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jinja2
import markupsafe
from aiohttp import web

from bedplate.api import states
from bedplate.api.headapi import Revision
from bedplate.head.entities import SCHEMA
from bedplate.ui.cmsh import wording
from bedplate.ui.web import diffs, links

__all__ = ["SECURITY", "StaticFile", "respond", "static", "static_address"]

_FOLDER = pathlib.Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class StaticFile(NamedTuple):
    """A file of the page; its digest stands in its address, so that a browser may keep it for good."""

    body: bytes
    type: str
    digest: str


@functools.cache
def static(name: str) -> StaticFile | None:
    """A file by name; None when the page has none of that name."""
    path = _FOLDER / "static" / name
    if path.parent != _FOLDER / "static" or path.suffix not in _TYPES or not path.is_file():
        return None
    body = path.read_bytes()
    return StaticFile(body, _TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:16])


def static_address(name: str) -> str:
    file = static(name)
    assert file is not None, name
    return f"/static/{name}?v={file.digest}"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        links=links, static=static_address, short=diffs.short, tones=states.TONES, meaning=states.MEANING
    )
    environment.filters.update(short_time=_short_time, linked=_linked, sentence=_sentence, summary=_summary)
    return environment


def _short_time(moment: str) -> str:
    """`2026-01-01 10:00:00` of an RFC 3339 time; always UTC, as the page says once."""
    return moment[:19].replace("T", " ")


def _summary(revision: Revision) -> str:
    """What a revision is about, as the shell's history says it: its message, else what it changed."""
    return wording.summary(SCHEMA, revision)


def _sentence(text: str) -> str:
    """As a sentence of its own begins."""
    return text[:1].upper() + text[1:]


def _linked(text: str, active: str = "") -> markupsafe.Markup:
    """A sentence in which revisions, and the active head, lead to their pages. No other address does: a sentence may
    hold what somebody else wrote."""
    safe, url = str(markupsafe.escape(text)), str(markupsafe.escape(active))
    if url.startswith("https://"):
        safe = re.sub(rf"{re.escape(url)}(?![\w.:/@-])", f'<a href="{url}/">{url}</a>', safe)
    return markupsafe.Markup(re.sub(r"\brevision (\d+)", r'<a href="/history/\1">revision \1</a>', safe))


def respond(template: str, values: Mapping[str, Any], status: int = 200) -> web.Response:
    """A page."""
    text = _environment().get_template(template).render(values)
    return web.Response(
        status=status, text=text, content_type="text/html", headers={**SECURITY, "Cache-Control": "no-store"}
    )
