"""Fixtures for other people's programs against the embedded API server."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from tests import servers, tiers
from tests.endurance import running
from tests.scripts.conftest import helm, kubectl, on_both

__all__ = ["helm", "kubectl", "on_both"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Embedded]:
    """An embedded server of the module's own: these programs leave much behind."""
    with running.Embedded(tmp_path_factory.mktemp("peers")).running() as server:
        yield server


def pytest_sessionfinish() -> None:
    servers.shared.close()


def program(family: str, version: str, name: str) -> pathlib.Path:
    """A program of the cache folder, or a skip."""
    tiers.guard(name)
    path = servers.cache_folder() / family / version / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} {version} is not in the cache folder (make setup builds it)")
    return path
