"""Pagination: when a list is at its end, when it is read again, and when it is not complete."""

from __future__ import annotations

import pytest

from bedplate.cloud.instancecache import IncompleteList
from bedplate.cloud.providers.nvidia_bmm.api import PAGE_SIZE, Page, Pagination, read_all


class Server:
    """Serves numbers; `totals` is what the header says, request by request; the last goes on."""

    def __init__(self, count: int, page_size: int = PAGE_SIZE, totals: list[int | None] | None = None) -> None:
        self.items = [str(number) for number in range(count)]
        self.page_size = page_size
        self.totals: list[int | None] = totals if totals is not None else [count]
        self.asked: list[int] = []

    async def fetch(self, number: int) -> Page[str]:
        total = self.totals[min(len(self.asked), len(self.totals) - 1)]
        self.asked.append(number)
        items = self.items[(number - 1) * self.page_size : number * self.page_size]
        return Page(items, None if total is None else Pagination(number, self.page_size, total))

    async def read(self) -> list[str]:
        return await read_all(self.fetch, lambda item: item)


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (1, 1), (99, 1), (100, 1), (101, 2), (250, 3), (300, 3)])
async def test_a_list_ends_where_the_header_says(count: int, pages: int) -> None:
    server = Server(count)
    assert await server.read() == server.items and len(server.asked) == pages


async def test_the_headers_page_size_counts_not_ours() -> None:
    server = Server(250, page_size=20)
    assert await server.read() == server.items and len(server.asked) == 13


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (99, 1), (100, 2), (250, 3)])
async def test_without_a_header_a_short_page_is_the_last(count: int, pages: int) -> None:
    server = Server(count, totals=[None])
    assert await server.read() == server.items and len(server.asked) == pages


async def test_a_total_that_changes_on_the_way_means_one_more_reading() -> None:
    server = Server(250, totals=[250, 251, 250])
    assert await server.read() == server.items and server.asked == [1, 2, 1, 2, 3]


async def test_a_total_that_keeps_changing_leaves_an_incomplete_list() -> None:
    server = Server(250, totals=[250, 249, 250, 249, 248])
    with pytest.raises(IncompleteList) as caught:
        await server.read()
    assert server.asked == [1, 2, 1, 2, 3] and len(caught.value.instances) == 250


async def test_fewer_items_than_the_total_are_an_incomplete_list() -> None:
    server = Server(249, totals=[250])
    with pytest.raises(IncompleteList) as caught:
        await server.read()
    assert len(caught.value.instances) == 249 and server.asked == [1, 2, 3, 1, 2, 3]


async def test_an_item_that_comes_twice_hides_another() -> None:
    server = Server(200)
    server.items[150] = "7"
    with pytest.raises(IncompleteList):
        await server.read()


async def test_a_header_that_vanishes_proves_nothing() -> None:
    with pytest.raises(IncompleteList):
        await Server(150, totals=[150, None, 150, None]).read()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"pageNumber": 1, "pageSize": 100}',
        '{"pageNumber": "1", "pageSize": 100, "total": 5}',
        '{"pageNumber": 1, "pageSize": 0, "total": 5}',
        '{"pageNumber": 1, "pageSize": 100, "total": -1}',
        '{"pageNumber": 2, "pageSize": 100, "total": 5}',
    ],
)
def test_a_header_that_makes_no_sense_is_said_so(text: str) -> None:
    assert isinstance(Pagination.of({"x-pagination": text}, 1), str)


def test_the_header_as_the_document_has_it() -> None:
    text = '{"pageNumber": 1, "pageSize": 20, "total": 2, "orderBy": "CREATED_ASC"}'
    assert Pagination.of({"x-pagination": text}, 1) == Pagination(1, 20, 2)
    assert Pagination.of({}, 1) is None
