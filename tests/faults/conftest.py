"""Servers for the fault tests: each test gets one of its own, since it will be killed."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.faults import places

from bedplate.api.resources import NAMESPACES
from bedplate.core import errors
from bedplate.kube import Client, config


@pytest.fixture(params=["real", "embedded"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[places.Place]:
    async with places.opened(request.param, tmp_path / "server") as server:
        yield server


@pytest.fixture
async def settings(place: places.Place) -> config.ClientConfig:
    return config.load(place.kubeconfig, environ={}).with_rate(-1, 1)


@pytest.fixture
async def namespace(client: Client) -> str:
    name = f"faults-{uuid.uuid4().hex[:8]}"
    try:
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    except errors.AlreadyExists:
        pass
    return name
