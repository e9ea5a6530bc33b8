"""Whatever two people do, the tree is that of a simple model; undo and exchange lose nothing."""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.head.conftest import KEY
from tests.store import etcd_cluster

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.exchange import export, stage
from bedplate.head.objects import Obj, Secret
from bedplate.head.schema import codec
from bedplate.head.service import Head, Stale
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore

Opener = Callable[[pathlib.Path], AbstractAsyncContextManager[Store]]
Flat = dict[str, Any]

CLUSTERS = ["one", "two"]


def flat(tree: Tree) -> Flat:
    """The tree as the model holds it: plain data by object."""
    return {f"{mode}/{obj.key}": codec.encode(tree.schema, obj, codec.plain) for mode, obj in tree.objects()}


@dataclass
class Person:
    """What the model knows of a session: the plain data it works on, and what it saw of each object it edits."""

    session: Session
    mine: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)


class Model:
    """Plain dictionaries; one number per object for staleness; all states there ever were."""

    def __init__(self) -> None:
        self.now: Flat = {}
        self.numbers: dict[str, int] = {}
        self.states: list[Flat] = [{}]

    def see(self, person: Person, place: str) -> Any:
        if place not in person.mine or person.mine[place] == self._base(person, place):
            person.mine[place] = _copy(self.now.get(place))
            person.seen[place] = self.numbers.get(place, 0) if place in self.now else 0
        return person.mine[place]

    def commit(self, person: Person) -> bool:
        """Whether the commit is allowed; it is then done."""
        edits = {place: data for place, data in person.mine.items() if data != self._base(person, place)}
        person.mine = edits
        for place in edits:
            if (self.numbers.get(place, 0) if place in self.now else 0) != person.seen[place]:
                return False
        after = {place: data for place, data in {**self.now, **edits}.items() if data is not None}
        person.mine = {}
        self.step(after)
        return True

    def _base(self, person: Person, place: str) -> Any:
        number = person.seen[place]
        return self.states[number].get(place) if number else None

    def step(self, after: Flat) -> None:
        if after == self.now:
            return
        number = len(self.states)
        for place in set(after) | set(self.now):
            if after.get(place) != self.now.get(place):
                self.numbers[place] = number
        self.now = _copy(after)
        self.states.append(_copy(after))


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, list) else data


def tidy(data: Any) -> Any:
    """Without parts that hold nothing, as storage has it."""
    return {key: value for key, value in data.items() if value not in ({}, [])}


step = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(CLUSTERS)),
    st.tuples(st.just("remove"), st.sampled_from(CLUSTERS)),
    st.tuples(st.just("notes"), st.sampled_from(CLUSTERS), st.sampled_from(["", "x", "y"])),
    st.tuples(st.just("secret"), st.sampled_from(CLUSTERS), st.sampled_from(["", "hush", "psst"])),
    st.tuples(st.just("extra"), st.sampled_from(CLUSTERS), st.sampled_from(["e1", "e2"]), st.sampled_from(["1", "2"])),
    st.tuples(st.just("user"), st.sampled_from(CLUSTERS), st.sampled_from(["u1", "u2"])),
    st.tuples(st.just("commit")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("undo"), st.integers(1, 6)),
)
script = st.lists(st.tuples(st.integers(0, 1), step), max_size=25)


def touched(before: Flat, after: Flat) -> set[str]:
    return {place for place in set(before) | set(after) if before.get(place) != after.get(place)}


def leaves(data: Any, way: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value in nested mappings by the way to it."""
    if not isinstance(data, dict):
        return {way: data}
    return {place: value for key, inner in data.items() for place, value in leaves(inner, (*way, key)).items()}


class Play:
    """Does each step on the real head and on the model, and compares."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.model = Model()
        self.people = [Person(head.session()), Person(head.session())]

    async def run(self, steps: list[tuple[int, Any]]) -> None:
        for who, (verb, *words) in steps:
            person = self.people[who]
            person.session.follow(self.head.tree)
            if verb == "commit":
                await self._commit(person, who)
            elif verb == "undo":
                await self._undo(words[0])
            else:
                self._edit(person, verb, *words)
            assert flat(self.head.tree) == self.model.now
            assert self.head.revision == len(self.model.states) - 1

    def _edit(self, person: Person, verb: str, name: str, *words: str) -> None:
        place, path = f"kubernetes/{name}", ("kubernetes", name)
        data = self.model.see(person, place)
        session = person.session
        if verb == "add":
            if data is None:
                session.add(("kubernetes",), name)
                person.mine[place] = {"type": "KubeCluster"}
            else:
                with pytest.raises(errors.AlreadyExists):
                    session.add(("kubernetes",), name)
            return
        if data is None:
            with pytest.raises(errors.NotFound):
                session.tree.get(path)
            return
        if verb == "remove":
            session.remove(path)
            person.mine[place] = None
            return
        if verb == "user":
            users = data.setdefault("children", {}).setdefault("kubernetes_users", {})
            if words[0] in users:
                session.remove((*path, "kubernetes_users", words[0]))
                del users[words[0]]
                data["children"] = tidy(data["children"])
            else:
                session.add((*path, "kubernetes_users"), words[0])
                users[words[0]] = {"type": "KubernetesUser"}
        elif verb == "extra":
            session.set_extra(path, words[0], words[1])
            data.setdefault("extras", {})[words[0]] = words[1]
        else:
            attribute = {"notes": "notes", "secret": "kube_ca_key"}[verb]
            session.set(path, attribute.replace("_", ""), words[0])
            values = data.setdefault("values", {})
            values.pop(attribute, None)
            if words[0]:
                values[attribute] = words[0]
        person.mine[place] = tidy(data)

    async def _commit(self, person: Person, who: int) -> None:
        expected = self.model.commit(person)
        if expected:
            await self.head.commit_session(person.session, f"person{who}")
        else:
            with pytest.raises(Stale):
                await self.head.commit_session(person.session, f"person{who}")

    async def _undo(self, back: int) -> None:
        """An undo puts back what its revision changed and nothing else; a later change of the object may refuse it."""
        number, states = self.head.revision - back + 1, self.model.states
        if number < 1:
            return
        expected = leaves(self.model.now)
        before, after = leaves(states[number - 1]), leaves(states[number])
        changed = [leaf for leaf in set(before) | set(after) if before.get(leaf) != after.get(leaf)]
        untouched_since = all(expected.get(leaf) == after.get(leaf) for leaf in changed)
        for leaf in changed:
            expected.pop(leaf, None)
            expected.update({leaf: before[leaf]} if leaf in before else {})
        try:
            await self.head.undo(number, "undoer")
        except errors.Conflict:
            later = [touched(states[k - 1], states[k]) for k in range(number + 1, len(states))]
            assert touched(states[number - 1], states[number]) & set().union(*later)
            return
        assert untouched_since
        assert leaves(flat(self.head.tree)) == expected
        self.model.step(flat(self.head.tree))


async def play(store: Store, steps: list[tuple[int, Any]]) -> None:
    async with Head(store, SCHEMA, Vault(KEY), clock=ManualClock()) as head:
        game = Play(head)
        await game.run(steps)
        for number, state in enumerate(game.model.states):
            assert flat(await head.tree_at(number)) == state
        async with Head(store, SCHEMA, Vault(KEY)) as other:
            assert other.tree == head.tree
        await undo_all(head, game.model)


async def undo_all(head: Head, model: Model) -> None:
    """Undo the last n commits, newest first: the tree is that of n commits ago, for every n."""
    last = head.revision
    for number in range(last, 0, -1):
        await head.undo(number, "undoer")
        assert flat(head.tree) == model.states[number - 1]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script)
def test_two_sessions_give_the_tree_of_the_model(steps: list[tuple[int, Any]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with SqliteStore(pathlib.Path(folder) / "store.db", history_s=None) as store:
                await play(store, steps)

    asyncio.run(run())


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
