"""Fixtures that all tests share: a server on both sides, a client of it, a namespace.

A folder that needs another kind of server overrides `server` in its conftest; `settings`, `client` and `namespace`
follow it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import programs, servers

from bedplate.api.resources import NAMESPACES
from bedplate.core import errors
from bedplate.kube import Client, config


@pytest.fixture(params=["real", "embedded"])
def server(request: pytest.FixtureRequest) -> servers.Server:
    """An API server that other tests use too: the real one in `make verify`, the embedded one in `make test`."""
    return programs.server(request.param)


@pytest.fixture(scope="module", params=["real", "embedded"])
def own_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server of this module alone, for tests that use names, or look at objects, which a cluster has once."""
    with programs.own_server(request.param) as running:
        yield running


@pytest.fixture
def settings(server: servers.Server) -> config.ClientConfig:
    """An administrator's configuration, without a rate limit."""
    return config.load(server.kubeconfig, environ={}).with_rate(-1, 1)


@pytest.fixture
async def client(settings: config.ClientConfig) -> AsyncIterator[Client]:
    async with Client(settings) as opened:
        yield opened


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of the test's own; its name may also be the prefix of objects without a namespace."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    with contextlib.suppress(errors.NotFound):
        await client.delete(NAMESPACES, name)


@pytest.fixture
def nv_ipam() -> Path:
    """Our CNI plugin."""
    return programs.nv_ipam()


@pytest.fixture
def kubectl_program() -> Path:
    """kubectl, without a server."""
    return programs.built("kubectl")
