"""A real and an embedded API server for the runtime's tests, each started once."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from tests import servers

from bedplate.api.resources import NAMESPACES
from bedplate.kube import Client, config


@pytest.fixture(scope="module", params=[pytest.param("real", marks=pytest.mark.real), "embedded"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    with contextlib.ExitStack() as stack:
        try:
            opener = servers.real() if request.param == "real" else servers.embedded("--history", "1s")
            yield stack.enter_context(opener)
        except servers.Missing as err:
            pytest.skip(f"{request.param}: {err}")


@pytest.fixture
def settings(server: servers.Server) -> config.ClientConfig:
    return config.load(server.kubeconfig, environ={}).with_rate(-1, 1)


@pytest.fixture
async def client(settings: config.ClientConfig) -> AsyncIterator[Client]:
    async with Client(settings) as opened:
        yield opened


@pytest.fixture
async def namespace(client: Client) -> str:
    name = f"runtime-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name
