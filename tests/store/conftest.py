"""The backends under test. A case written against `store` or `backend` runs on each of them."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore


class Backend(Protocol):
    """Opens a store; opened again, it finds what it held before."""

    name: str

    def open(self) -> Store: ...


class SqliteBackend:
    name = "sqlite"

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "store.db"

    def open(self) -> Store:
        return SqliteStore(self.path, history_s=None)


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Backend:
    return SqliteBackend(tmp_path)


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    async with backend.open() as opened:
        yield opened
