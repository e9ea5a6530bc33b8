"""Whatever two people do, the tree is that of a simple model; undo and exchange lose nothing."""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.head.committing import undo
from tests.head.conftest import KEY
from tests.head.treemodel import Model, Play, SessionHand, flat, script, settle
from tests.store import etcd_cluster

from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.exchange import export, stage
from bedplate.head.objects import Obj, Secret
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore


async def play(store: Store, steps: list[tuple[int, Any]]) -> None:
    async with Head(store, SCHEMA, Vault(KEY), clock=ManualClock()) as head:
        await settle(head)
        game = Play(head, SessionHand(head))
        await game.run(steps)
        for number, state in enumerate(game.model.states, game.model.first):
            assert flat(await head.tree_at(number)) == state
        async with Head(store, SCHEMA, Vault(KEY)) as other:
            assert other.tree == head.tree
        await undo_all(head, game.model)


async def undo_all(head: Head, model: Model) -> None:
    """Undo the last n commits, newest first: the tree is that of n commits ago, for every n."""
    last = head.revision
    for number in range(last, model.first, -1):
        await undo(head, number, "undoer")
        assert flat(head.tree) == model.state(number - 1)


def played_on_sqlite(steps: list[tuple[int, Any]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with SqliteStore(pathlib.Path(folder) / "store.db", history_s=None) as store:
                await play(store, steps)

    asyncio.run(run())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script)
def test_two_sessions_give_the_tree_of_the_model(steps: list[tuple[int, Any]]) -> None:
    played_on_sqlite(steps)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(script)
def test_two_sessions_give_the_tree_of_the_model_many_times(steps: list[tuple[int, Any]]) -> None:
    played_on_sqlite(steps)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(script)
def test_two_sessions_give_the_tree_of_the_model_on_etcd(
    etcd: etcd_cluster.Cluster, steps: list[tuple[int, Any]]
) -> None:
    async def run() -> None:
        async with EtcdStore(EtcdOptions(etcd.endpoints, prefix=f"/{uuid.uuid4().hex}")) as store:
            await play(store, steps)

    asyncio.run(run())


text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
blob = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
clusters = st.builds(
    lambda values, extras, secret: Obj(
        "KubeCluster",
        "default",
        {name: value for name, value in values.items() if value} | ({"kube_ca_key": Secret(secret)} if secret else {}),
        extras,
    ),
    st.fixed_dictionaries({"notes": text, "kubeadm_init_file": blob, "version": text}),
    st.dictionaries(st.text("abcxyz_", min_size=1), text, max_size=3),
    blob,
)


@settings(deadline=None)
@given(clusters)
def test_export_import_export_is_identical_whatever_the_values(cluster: Obj) -> None:
    tree = Tree(SCHEMA, [("kubernetes", cluster)])
    for with_secrets in (True, False):
        session = Session(Tree(SCHEMA))
        stage(session, export(tree, with_secrets=with_secrets))
        assert export(session.tree, with_secrets=with_secrets) == export(tree, with_secrets=with_secrets)
        if with_secrets:
            assert session.tree == tree
