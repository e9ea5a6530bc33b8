"""Reading a BMM list to its end, and knowing whether that was all of it.

In: a function that fetches one page. Out: the items, or `IncompleteList`. The header X-Pagination says how many there
are and how large its pages really are; without it the list ends with the first short page. When the total changes on
the way, or the pages together hold fewer than it says, items may have slipped between two pages: the list is read once
more from the start, and if that happens again, it is incomplete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from bedplate.cloud.instancecache import IncompleteList

__all__ = ["PAGE_SIZE", "Page", "Pagination", "query", "read_all"]

T = TypeVar("T")
PAGE_SIZE = 100
# A server that never comes to an end is broken, not large.
MOST_PAGES = 10_000


class Pagination(msgspec.Struct, frozen=True, rename="camel"):
    """The header X-Pagination."""

    page_number: int
    page_size: int
    total: int

    @staticmethod
    def of(headers: Mapping[str, str], number: int) -> Pagination | str | None:
        """The header's content; None without a header; a text that says what is wrong with it."""
        text = headers.get("x-pagination")
        if text is None:
            return None
        try:
            pagination = msgspec.json.decode(text.encode(), type=Pagination)
        except msgspec.DecodeError as err:
            return f"the header X-Pagination is not usable: {err}"
        if pagination.page_size < 1 or pagination.total < 0:
            return f"the header X-Pagination speaks of {pagination.total} in pages of {pagination.page_size}"
        if pagination.page_number != number:
            return f"page {pagination.page_number} came when page {number} was asked for"
        return pagination


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page and what its header says."""

    items: list[T]
    pagination: Pagination | None


async def read_all(fetch: Callable[[int], Awaitable[Page[T]]], key: Callable[[T], str]) -> list[T]:
    """All items, each once. Raises what `fetch` raises, and `IncompleteList` with what was found."""
    is_complete, items = await _read_once(fetch, key, is_last=False)
    if not is_complete:
        is_complete, items = await _read_once(fetch, key, is_last=True)
    if not is_complete:
        raise IncompleteList("the list changed while it was read, twice", list(items.values()))
    return list(items.values())


async def _read_once(
    fetch: Callable[[int], Awaitable[Page[T]]], key: Callable[[T], str], *, is_last: bool
) -> tuple[bool, dict[str, T]]:
    """Whether nothing disturbed the reading, and what was found; only the last reading goes on after a disturbance."""
    items: dict[str, T] = {}
    totals: set[int] = set()
    for number in range(1, MOST_PAGES):
        page = await fetch(number)
        items |= {key(item): item for item in page.items}
        pagination = page.pagination
        if pagination is None:
            if len(page.items) < PAGE_SIZE:
                # A header that vanishes half-way leaves its total unproven.
                return not totals, items
            continue
        totals.add(pagination.total)
        if len(totals) > 1 and not is_last:
            return False, items
        if number * pagination.page_size >= pagination.total:
            return len(totals) == 1 and len(items) >= pagination.total, items
    return False, items


def query(number: int, *pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The query of one page, in an order that new instances do not disturb."""
    return (*pairs, ("pageNumber", str(number)), ("pageSize", str(PAGE_SIZE)), ("orderBy", "CREATED_ASC"))
