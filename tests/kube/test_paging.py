"""Reading pages ahead: order, bound, faults, and servers that write their fields in another order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.kube import paging


@dataclass
class Page:
    items: list[int]
    continue_token: str


def decode(body: bytes) -> Page:
    document = json.loads(body)
    return Page(document["items"], document["metadata"].get("continue", ""))


class Server:
    """Pages of a list of numbers; remembers which were asked for."""

    def __init__(self, pages: list[list[int]], *, items_first: bool = False, chunk_bytes: int = 7) -> None:
        self.pages = pages
        self.items_first = items_first
        self.chunk_bytes = chunk_bytes
        self.opened: list[str] = []
        self.closed = 0

    async def open_page(self, token: str) -> AsyncIterator[bytes]:
        self.opened.append(token)
        number = int(token.removeprefix("t") or 0)
        metadata = {"resourceVersion": "1"}
        if number + 1 < len(self.pages):
            metadata["continue"] = f"t{number + 1}"
        fields = {"metadata": metadata, "items": self.pages[number]}
        if self.items_first:
            fields = dict(reversed(fields.items()))
        body = json.dumps(fields, separators=(",", ":")).encode()
        try:
            for start in range(0, len(body), self.chunk_bytes):
                await asyncio.sleep(0)
                yield body[start : start + self.chunk_bytes]
        finally:
            self.closed += 1


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6),
    st.booleans(),
    st.integers(1, 200),
)
def test_all_pages_come_once_and_in_order(pages: list[list[int]], items_first: bool, chunk_bytes: int) -> None:
    server = Server(pages, items_first=items_first, chunk_bytes=chunk_bytes)

    async def read() -> list[list[int]]:
        return [page.items async for page in paging.read_ahead(server.open_page, decode)]

    assert asyncio.run(read()) == pages
    assert len(server.opened) == len(pages)


async def test_a_token_that_was_guessed_wrong_is_not_followed() -> None:
    server = Server([[1], [2], [3]], chunk_bytes=10_000)

    async def open_page(token: str) -> AsyncIterator[bytes]:
        async for chunk in server.open_page(token):
            yield chunk.replace(b"{", b'{"odd":{"continue":"t2"},', 1)

    assert [page.items async for page in paging.read_ahead(open_page, decode)] == [[1], [2], [3]]


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_one_page_is_under_way_while_another_is_read_and_no_more() -> None:
    server = Server([[1], [2], [3], [4]])
    pages = paging.read_ahead(server.open_page, decode)
    assert (await anext(pages)).items == [1]
    await settle()
    assert server.opened == ["", "t1"]
    await pages.aclose()


async def test_leaving_early_ends_what_was_under_way() -> None:
    server = Server([[1], [2], [3]], chunk_bytes=1)
    pages = paging.read_ahead(server.open_page, decode)
    await anext(pages)
    await pages.aclose()
    assert server.closed == len(server.opened)
    assert len(asyncio.all_tasks()) == 1


async def test_a_page_that_fails_raises_at_its_turn_and_leaves_no_task() -> None:
    server = Server([[1], [2], [3]])

    async def open_page(token: str) -> AsyncIterator[bytes]:
        if token == "t1":
            raise ConnectionError("gone")
        async for chunk in server.open_page(token):
            yield chunk

    seen = []
    with pytest.raises(ConnectionError):
        async for page in paging.read_ahead(open_page, decode):
            seen += page.items
    assert seen == [1]
    assert len(asyncio.all_tasks()) == 1


async def test_a_page_that_cannot_be_decoded_leaves_no_task() -> None:
    def refuse(_: bytes) -> Page:
        raise ValueError("no list")

    with pytest.raises(ValueError, match="no list"):
        async for _ in paging.read_ahead(Server([[1], [2]]).open_page, refuse):
            pass
    assert len(asyncio.all_tasks()) == 1


def test_a_token_is_seen_only_before_the_items() -> None:
    assert paging.peek_token(b'{"metadata":{"continue":"abc"},"items":[') == "abc"
    assert paging.peek_token(b'{"metadata":{"continue":"abc"},"it') is None
    assert paging.peek_token(b'{"metadata":{},"items":[{"continue":"abc"}]}') == ""
