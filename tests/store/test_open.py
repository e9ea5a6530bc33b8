"""Options to a store: the right backend, or every fault at once."""

from __future__ import annotations

import pathlib

import pytest
from tests.store import etcd_cluster

from bedplate.core import errors
from bedplate.store.etcd import EtcdStore
from bedplate.store.interface import Put
from bedplate.store.open import StoreOptions, open_store
from bedplate.store.sqlite import SqliteStore


async def test_sqlite_location_opens_that_file(tmp_path: pathlib.Path) -> None:
    async with open_store(StoreOptions(f"sqlite:{tmp_path}/data/store.db")) as store:
        assert isinstance(store, SqliteStore)
        assert await store.commit([Put("/a", b"")]) == 2
    assert (tmp_path / "data" / "store.db").exists()


@pytest.mark.parametrize("location", ["", "etcd"])
async def test_endpoints_open_etcd(etcd: etcd_cluster.Cluster, location: str) -> None:
    options = StoreOptions(location, etcd_endpoints=[f"{etcd.endpoints[0]}/"], etcd_prefix="/open-test")
    async with open_store(options) as store:
        assert isinstance(store, EtcdStore)
        await store.commit([Put("/a", b"")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (StoreOptions(""), ["is not a store"]),
        (StoreOptions("sqlite:"), ["is not a store"]),
        (StoreOptions("postgres:x"), ["is not a store"]),
        (StoreOptions("etcd"), ["needs --etcd-endpoints"]),
        (StoreOptions("sqlite:x", etcd_endpoints=["a:1"]), ["are mutually exclusive"]),
        (StoreOptions("etcd", etcd_endpoints=["nonsense"]), ["must be an endpoint"]),
        (StoreOptions("etcd", etcd_endpoints=["http://a:1"], etcd_cafile="ca"), ["not encrypted"]),
        (
            StoreOptions("", history_s=0, etcd_certfile="x", etcd_user="u"),
            ["is not a store", "must be given together", "user and its password", "must be longer than 0 s"],
        ),
    ],
)
def test_faults_are_reported_together(options: StoreOptions, words: list[str]) -> None:
    with pytest.raises(errors.Invalid) as caught:
        open_store(options)
    assert len(caught.value.problems) == len(words)
    for problem, word in zip(caught.value.problems, words, strict=True):
        assert word in problem
