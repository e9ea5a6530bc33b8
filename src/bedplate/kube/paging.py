"""Pages of a list, the next one under way while the present one is read and decoded.

In: a way to stream a page's bytes and a decoder. Out: page after page. The continue token stands at the head of a
page, before its items, so the request for the next page leaves as soon as the head is here: the server encodes while
we decode. At most one page is ahead of the reader. A server that writes its fields in another order is read page by
page.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol, TypeVar

__all__ = ["PageStream", "peek_token", "read_ahead"]

P = TypeVar("P", bound="HasToken")
# Streams the bytes of the page that a continue token (empty: the first) leads to.
PageStream = Callable[[str], AsyncIterator[bytes]]
_ITEMS = b'"items":['
_TOKEN = re.compile(rb'"continue":"([A-Za-z0-9_=+/-]+)"')
HEAD_BYTES = 64 * 1024


def peek_token(head: bytes) -> str | None:
    """The continue token in the first bytes of a list; empty: none before the items; None: it cannot be told yet."""
    end = head.find(_ITEMS)
    if end < 0:
        return None
    token = _TOKEN.search(head, 0, end)
    return token[1].decode() if token else ""


class HasToken(Protocol):
    """A decoded page that knows where the next one begins."""

    @property
    def continue_token(self) -> str: ...


class _Fetch:
    """A page being fetched: `token` is known when its head is here, the bytes when `whole` is done."""

    def __init__(self, open_page: PageStream, token: str) -> None:
        self.token: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.whole = asyncio.create_task(self._read(open_page, token))

    async def _read(self, open_page: PageStream, token: str) -> bytes:
        try:
            chunks: list[bytes] = []
            size_bytes = 0
            async for chunk in open_page(token):
                chunks.append(chunk)
                size_bytes += len(chunk)
                if not self.token.done() and (size_bytes <= HEAD_BYTES or len(chunks) == 1):
                    following = peek_token(b"".join(chunks))
                    if following is not None:
                        self.token.set_result(following)
            return b"".join(chunks)
        finally:
            if not self.token.done():
                self.token.set_result("")

    async def drop(self) -> None:
        self.whole.cancel()
        await asyncio.gather(self.whole, return_exceptions=True)


async def read_ahead(open_page: PageStream, decode: Callable[[bytes], P]) -> AsyncGenerator[P, None]:
    """Every page in order. The token in a decoded page decides; what was guessed from its head must agree with it."""
    page: _Fetch | None = _Fetch(open_page, "")
    following: _Fetch | None = None
    try:
        while page is not None:
            guess = await page.token
            if guess:
                following = _Fetch(open_page, guess)
            decoded = decode(await page.whole)
            token = decoded.continue_token
            if following is not None and token != guess:
                await following.drop()
                following = None
            if following is None and token:
                following = _Fetch(open_page, token)
            yield decoded
            page, following = following, None
    finally:
        for unread in (page, following):
            if unread is not None:
                await unread.drop()
