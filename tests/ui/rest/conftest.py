"""Fixtures of the API's tests."""

from __future__ import annotations

import io
import pathlib
import sys
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from tests.ui.rest.serving import Served, served

from bedplate.client import HeadClient
from bedplate.core import logging


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as opened:
        yield opened


@pytest.fixture
async def client(server: Served) -> AsyncIterator[HeadClient]:
    """An administrator's."""
    async with server.client() as opened:
        yield opened


@pytest.fixture
async def http(server: Served) -> AsyncIterator[aiohttp.ClientSession]:
    """Plain HTTP, as an administrator."""
    headers = {"Authorization": f"Bearer {server.tokens['admin']}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as opened:
        yield opened


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that is logged, at the highest verbosity."""
    made = io.StringIO()
    logging.configure(logging.LogOptions(verbosity=10), made)
    yield made
    logging.configure(logging.LogOptions(), sys.__stderr__)
