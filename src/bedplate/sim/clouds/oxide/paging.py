"""Pages of the Oxide API: `limit`, `page_token`, `sort_by`.

In: rows and the query. Out: `{"items": […], "next_page": …}`. As the real server does, every page with something on it
names a next one, so a walk ends with an empty page; and a walk by name passes over equal names at a page's edge.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from bedplate.sim.clouds.exchange import NO_CODE, Refused, Reply, Request, encode
from bedplate.sim.clouds.index import Index, Row

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "page", "page_of"]

DEFAULT_LIMIT, MAX_LIMIT = 100, 3000
_SORTS = ("name_ascending", "name_descending", "id_ascending")


def page(
    request: Request,
    index: Index,
    lag_s: float,
    scope: tuple[str, ...],
    is_wanted: Callable[[Row], bool],
    owner: Callable[[Row], str] | None = None,
) -> Reply:
    """One page; `scope` names what `is_wanted` lets through, `owner` the machine by which a fault may hide a row."""
    sort = _sort(request)
    choose = partial(_choose, is_wanted=is_wanted, sort=sort)
    return _reply(request, index.select((scope, sort), max(lag_s, request.stale_s), choose), sort, owner)


def page_of(request: Request, rows: Iterable[Row], owner: Callable[[Row], str]) -> Reply:
    """One page of a few rows that are at hand."""
    sort = _sort(request)
    return _reply(request, _choose(rows, is_wanted=lambda _: True, sort=sort), sort, owner)


def _reply(request: Request, rows: Sequence[Row], sort: str, owner: Callable[[Row], str] | None) -> Reply:
    token = _token(request)
    if request.dropped:
        name = owner or (lambda row: str(row.data["name"]))
        rows = [row for row in rows if not request.is_dropped(name(row))]
    start = _start(rows, sort, token[1]) if token else 0
    shown = rows[start : start + _limit(request)]
    next_page = _write_token(sort, _key(sort, shown[-1])) if shown else None
    items = b",".join([row.encoded for row in shown])
    return Reply(200, b'{"items":[' + items + b'],"next_page":' + encode(next_page) + b"}")


def _sort(request: Request) -> str:
    token = _token(request)
    sort = token[0] if token else request.query.get("sort_by", "name_ascending")
    if sort not in _SORTS:
        raise Refused(400, f"unable to parse query string: unknown variant `{sort}`", code=NO_CODE)
    return sort


def _key(sort: str, row: Row) -> str:
    return str(row.data["id" if sort == "id_ascending" else "name"])


def _choose(rows: Iterable[Row], *, is_wanted: Callable[[Row], bool], sort: str) -> Sequence[Row]:
    return sorted(filter(is_wanted, rows), key=partial(_key, sort), reverse=sort == "name_descending")


def _start(rows: Sequence[Row], sort: str, last: str) -> int:
    if sort != "name_descending":
        return bisect_right(rows, last, key=partial(_key, sort))
    return next((position for position, row in enumerate(rows) if _key(sort, row) < last), len(rows))


def _limit(request: Request) -> int:
    text = request.query.get("limit")
    if not text:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise Refused(
            400, "unable to parse query string: invalid value for limit: expected a nonzero u32", code=NO_CODE
        )
    return min(int(text), MAX_LIMIT)


def _write_token(sort: str, last: str) -> str:
    return base64.urlsafe_b64encode(encode({"v": "v1", "page_start": {"sort_by": sort, "last_seen": last}})).decode()


def _token(request: Request) -> tuple[str, str] | None:
    text = request.query.get("page_token")
    if not text:
        return None
    try:
        tree: Any = msgspec.json.decode(base64.b64decode(text, altchars=b"-_", validate=True))
        return str(tree["page_start"]["sort_by"]), str(tree["page_start"]["last_seen"])
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise Refused(400, "unable to parse query string: failed to parse pagination token", code=NO_CODE) from None
