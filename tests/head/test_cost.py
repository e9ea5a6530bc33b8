"""How much is done, counted: 10,000 nodes and 20 overlays must stay cheap."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import pytest
from tests.head import sites
from tests.head.committing import commit_session

from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.exchange import export, stage
from bedplate.head.plan import plan
from bedplate.head.policy import Identity
from bedplate.head.resolve import resolve
from bedplate.head.schema import tables
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore

ALICE = Identity.local("alice")


def finish(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that has nothing to wait for."""
    with contextlib.suppress(StopIteration):
        work.send(None)
        raise AssertionError("it waited")


def calls(work: Callable[[], object]) -> int:
    """How many Python functions the work calls."""
    count = 0

    def tally(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(tally)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def small() -> Tree:
    return sites.large(500)


@pytest.fixture(scope="module")
def big() -> Tree:
    return sites.large(5000)


def test_item_219_resolving_one_node_costs_the_same_in_a_large_tree(small: Tree, big: Tree) -> None:
    assert calls(lambda: resolve(big, "node00003")) <= calls(lambda: resolve(small, "node00003")) * 1.2


def test_item_219_resolving_all_nodes_is_linear(small: Tree, big: Tree) -> None:
    few = calls(lambda: [resolve(small, name) for name in small.mode("device")])
    many = calls(lambda: [resolve(big, name) for name in big.mode("device")])
    assert many <= few * 10 * 1.2


def stage_one(tree: Tree) -> Session:
    session = Session(tree)
    session.set(("device", "node00003"), "notes", "x")
    return session


def test_item_219_staging_and_planning_one_change_costs_the_same_in_a_large_tree(small: Tree, big: Tree) -> None:
    def work(tree: Tree) -> Callable[[], object]:
        return lambda: plan(tree, stage_one(tree).tree, [("device", "node00003")])

    assert calls(work(big)) <= calls(work(small)) * 1.3


async def test_item_219_a_commit_indexes_validates_and_writes_what_changed_alone(tmp_path: Any, vault: Vault) -> None:
    counts = []
    for number, count in enumerate([300, 3000]):
        async with (
            SqliteStore(tmp_path / f"{number}.db", history_s=None) as store,
            Head(store, SCHEMA, vault, clock=ManualClock()) as head,
        ):
            session = head.session()
            stage(session, export(sites.large(count)))
            await commit_session(head, session, "alice")
            session.set(("device", "node00003"), "notes", "x")
            edits = session.edits()
            before = Tree.steps
            written = await store.revision()
            done = calls(lambda head=head, edits=edits: finish(head.check_as(ALICE, edits)))  # type: ignore[misc]
            assert Tree.steps - before == 1
            await commit_session(head, session, "alice")
            assert await store.revision() == written + 1
            counts.append(done)
    assert counts[1] <= counts[0] * 1.2


def test_the_keys_of_a_mode_are_sorted_once_for_all_trees_that_have_them(small: Tree) -> None:
    edited, categories = stage_one(small).tree, small.keys("category")
    assert edited.keys("device") is small.keys("device") == sorted(small.mode("device"))
    session = Session(small)
    session.add(("device",), "another", "physicalnode")
    assert session.tree.keys("device") == sorted(session.tree.mode("device"))
    assert session.tree.keys("category") is categories


def test_a_list_costs_few_calls_for_each_object(small: Tree, big: Tree) -> None:
    def work(tree: Tree) -> Callable[[], object]:
        return lambda: tables.list_table(SCHEMA.mode("device"), tree.mode("device"), tree.keys("device"))

    few, many = calls(work(small)), calls(work(big))
    assert many <= few * 10 * 1.05
    assert many <= len(big.mode("device")), "a column at once, not a cell"
