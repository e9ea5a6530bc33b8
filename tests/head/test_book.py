"""Small records beside the tree, as several heads of a site hold them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from tests.waiting import until

from bedplate.head.book import Book, write
from bedplate.store.sqlite import SqliteStore


class Note(msgspec.Struct, frozen=True):
    text: str


async def test_what_changes_while_another_change_is_adopted_is_adopted_too(tmp_path: Path) -> None:
    """Adopting takes its time: a head reads a tree of long ago meanwhile."""
    async with SqliteStore(tmp_path / "x.db", history_s=None) as store:
        book, other = Book(store, "/notes/", Note), Book(store, "/notes/", Note)
        going, go, adopted = asyncio.Event(), asyncio.Event(), list[str]()

        async def adopt() -> None:
            held = book.get("now")
            text = held.text if held is not None else ""
            going.set()
            await go.wait()
            adopted.append(text)

        await book.open()
        following = asyncio.create_task(book.follow_with(adopt))
        try:
            await write(store, [other.change("now", Note("first"))])
            await going.wait()
            await write(store, [other.change("now", Note("last"))])
            await until(lambda: book.get("now") == Note("last"))
            go.set()
            await until(lambda: adopted == ["first", "last"], describe=lambda: str(adopted))
        finally:
            following.cancel()
            await asyncio.wait([following])
