"""Servers for the client's tests: a real kube-apiserver and the embedded one, each started when first asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

import pytest
from tests import servers
from tests.kube.certs import Authority, Pair

from bedplate.kube import config


@dataclasses.dataclass(frozen=True)
class Place:
    """A running server, and an administrator's client certificate that it accepts (the real one only)."""

    server: servers.Server
    administrator: Pair | None


class Places:
    """Servers by name; all of them end with the session."""

    def __init__(self, stack: contextlib.ExitStack, folder: pathlib.Path) -> None:
        self._stack = stack
        self._folder = folder
        self._running: dict[str, Place] = {}

    def get(self, name: str) -> Place:
        if name not in self._running:
            try:
                self._running[name] = self._start(name)
            except servers.Missing as err:
                pytest.skip(f"{name}: {err}")
        return self._running[name]

    def _start(self, name: str) -> Place:
        if name == "embedded":
            return Place(self._stack.enter_context(servers.embedded()), None)
        authority = Authority("test clients")
        file = self._folder / "clients.crt"
        file.write_bytes(authority.pem)
        started = self._stack.enter_context(servers.real(api_arguments=(f"--client-ca-file={file}",)))
        return Place(started, authority.issue("ann", group="system:masters"))


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with contextlib.ExitStack() as stack:
        yield Places(stack, tmp_path_factory.mktemp("kube"))


@pytest.fixture(params=["real", "embedded"])
def place(request: pytest.FixtureRequest, places: Places) -> Place:
    return places.get(request.param)


@pytest.fixture
def real(places: Places) -> Place:
    return places.get("real")


@pytest.fixture
def settings(place: Place) -> config.ClientConfig:
    """The administrator's configuration of the server under test, without a rate limit."""
    return config.load(place.server.kubeconfig, environ={}).with_rate(-1, 1)
