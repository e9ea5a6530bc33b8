"""What each node should be now: its digest is kept as long as it holds, and follows every revision."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.head import sites
from tests.head.committing import commit, commit_session
from tests.ui.rest.serving import KEY

from bedplate.head import wants as module
from bedplate.head.desired import desired
from bedplate.head.entities import SCHEMA
from bedplate.head.service import Alone, Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.head.wants import Base, Wants
from bedplate.store.sqlite import SqliteStore


@pytest.fixture
async def head(tmp_path: pathlib.Path) -> AsyncIterator[Head]:
    async with SqliteStore(tmp_path / "x.db", history_s=None) as store, Head(store, SCHEMA, Vault(KEY)) as opened:
        await commit(opened, [Edit(mode, obj.key, None, obj) for mode, obj in sites.manual().objects()])
        yield opened


async def change(head: Head, *path: str, **values: str) -> None:
    session = head.session()
    for name, value in values.items():
        session.set(path, name, value)
    await commit_session(head, session)


async def test_a_digest_is_made_once_and_again_for_the_nodes_of_a_change(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(tree: object, node: str, revision: int = 0) -> object:
        made.append(node)
        return desired(tree, node, revision)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "desired", counted)
    wants, names = Wants(head), list(head.tree.mode("device"))
    await wants.prepare(names)
    assert sorted(made) == sorted(names)
    made.clear()
    await wants.prepare(names)
    assert [wants.digest(name) for name in names] and made == []
    await change(head, "device", "node007", notes="x", category="gpu-nodes")
    await wants.prepare(names)
    assert made == ["node007"]
    assert wants.digest("node007") == desired(head.tree, "node007").digest
    assert wants.digest("nobody") == ""


async def test_a_node_that_is_held_back_is_what_it_was(head: Head) -> None:
    wants, before = Wants(head), head.tree
    first = wants.state("node007")
    await change(head, "category", "default", softwareimage="my-new-image")
    wants.base = Base(1, before, frozenset({"node007"}))
    assert wants.is_held("node007") and not wants.is_held("node004")
    assert wants.state("node007") == first and wants.digest("node007") == first.digest
    assert wants.state("node004").revision == 2
    wants.base = None
    assert wants.digest("node007") == desired(head.tree, "node007").digest != first.digest


async def test_the_nodes_that_a_revision_makes_something_else_of(head: Head) -> None:
    wants = Wants(head)
    await change(head, "category", "gpu-nodes", notes="nothing on a node")
    await change(head, "category", "gpu-nodes", softwareimage="my-new-image")
    await change(head, "category", "gpu-nodes", softwareimage="default-image")
    assert await wants.with_work(2) == []
    assert await wants.with_work(3) == ["node005", "node006"] == await wants.with_work(4)
    assert len(await wants.with_work(1)) == len(head.tree.mode("device"))


async def test_a_service_of_head_nodes_runs_on_the_active_or_the_passive_one_as_it_says(head: Head) -> None:
    session = head.session()
    for name, word in (("ntpd", "ACTIVE"), ("mirror", "PASSIVE"), ("sshd", "ALWAYS")):
        session.set(session.add(("device", "basecm10", "services"), name), "runif", word)
        session.set(session.add(("device", "node001", "services"), name), "runif", word)
    await commit_session(head, session)
    wants, standing = Wants(head), Alone("basecm10", "")
    head.standing = standing

    def services(node: str = "basecm10") -> set[str]:
        state = wants.state(node)
        assert state.digest == wants.digest(node)
        return {service.name for service in state.services} & {"ntpd", "mirror", "sshd"}

    assert services() == {"ntpd", "sshd"}
    before = wants.digest("basecm10")
    standing.active_name = "other"
    assert wants.digest("basecm10") != before
    assert services() == {"mirror", "sshd"}
    standing.active_name = ""
    assert services() == {"mirror", "sshd"}, "nobody is known to be active: what ran goes on"
    assert services("node001") == {"ntpd", "mirror", "sshd"}, "it says nothing about other nodes"
