"""The backends under test. A case written against `store` or `backend` runs on each of them."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import pytest
from tests import programs
from tests.store import etcd_cluster
from tests.waiting import until

from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore


class Backend(Protocol):
    """Opens a store; opened again, it finds what it held before. `fresh` is one that holds nothing."""

    name: str

    def open(self) -> Store: ...

    def fresh(self) -> Backend: ...


class SqliteBackend:
    name = "sqlite"

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.path = folder / "store.db"

    def open(self) -> Store:
        return SqliteStore(self.path, history_s=None)

    def fresh(self) -> Backend:
        return SqliteBackend(self._folder / uuid.uuid4().hex)


class EtcdBackend:
    name = "etcd"

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints
        self._prefix = f"/{uuid.uuid4().hex}"

    def open(self) -> Store:
        return EtcdStore(EtcdOptions(self._endpoints, prefix=self._prefix))

    def fresh(self) -> Backend:
        return EtcdBackend(self._endpoints)


async def keys_of(store: Store, prefix: str, *, revision: int = 0, after: str = "") -> list[str]:
    return [entry.key for entry in (await store.list(prefix, revision=revision, after=after)).entries]


async def compact(store: Store, revision: int) -> None:
    """Compact, and wait until the space is given back too: what must not be lost might be lost only then."""
    await store.compact(revision)
    if isinstance(store, SqliteStore):
        await until(lambda: store._writer._swept >= store._feed.oldest)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd_cluster.Cluster]:
    """One etcd for the session; every test has a prefix of its own in it."""
    with programs.etcd(tmp_path_factory.mktemp("etcd"), arguments=("--unsafe-no-fsync",)) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "etcd"])
def backend(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Backend:
    if request.param == "sqlite":
        return SqliteBackend(tmp_path)
    cluster: etcd_cluster.Cluster = request.getfixturevalue("etcd")
    return EtcdBackend(cluster.endpoints)


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    async with backend.open() as opened:
        yield opened
