"""Clients for the simulated clouds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from bedplate.sim.clouds import SimulatedCloud


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Any
    text: str
    data: Any = field(default=None)


class Caller:
    """Calls a cloud as a client would, with the cloud's present token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(
        self, cloud: SimulatedCloud, path: str, *, method: str = "GET", token: str | None = None, **kwargs: Any
    ) -> Answer:
        headers = {"Authorization": f"Bearer {cloud.token if token is None else token}", **kwargs.pop("headers", {})}
        base = f"/v2/org/{cloud.org}/carbide" if hasattr(cloud, "org") and not path.startswith("/__sim") else ""
        async with self._session.request(method, cloud.url + base + path, headers=headers, **kwargs) as response:
            text = await response.text()
            data = await response.json() if response.content_type == "application/json" and text else None
            return Answer(response.status, response.headers, text, data)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        # aiohttp would silently repeat a request whose connection was reset.
        opened._retry_connection = False
        yield opened


@pytest.fixture
def call(session: aiohttp.ClientSession) -> Caller:
    return Caller(session)
