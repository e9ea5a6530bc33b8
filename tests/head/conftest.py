"""Heads under test: on SQLite, and where a case asks for `head` on each backend, on a real etcd, too."""

from __future__ import annotations

import base64
import pathlib
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from tests import programs
from tests.store import etcd_cluster

from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.service import Head
from bedplate.head.vault import Vault
from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore

KEY = base64.urlsafe_b64encode(bytes(range(32)))


@pytest.fixture
def vault() -> Vault:
    return Vault(KEY)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd_cluster.Cluster]:
    """One etcd for the session; every test has a prefix of its own in it."""
    with programs.etcd(tmp_path_factory.mktemp("etcd"), arguments=("--unsafe-no-fsync",)) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[Store]:
    made: Store
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "store.db", history_s=None)
    else:
        cluster: etcd_cluster.Cluster = request.getfixturevalue("etcd")
        made = EtcdStore(EtcdOptions(cluster.endpoints, prefix=f"/{uuid.uuid4().hex}"))
    async with made as opened:
        yield opened


@pytest.fixture
async def head(store: Store, vault: Vault) -> AsyncIterator[Head]:
    async with Head(store, SCHEMA, vault, clock=ManualClock()) as opened:
        yield opened
