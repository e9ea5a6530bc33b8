"""What two people do to a tree, done twice: by a simple model of plain dictionaries, and by the head.

In: steps (who, verb, words) and a hand that carries them out on the real thing: `SessionHand` on sessions, others where
they live. Out: nothing, or an assertion: after each step the committed tree and what each session sees are those of the
model.

The objects are Kubernetes clusters (values, a secret, a list, extras, children with names) and overlays with a
firewall (an indexed list). A place is `mode/key`; its data is the object as JSON, with indexed children by index.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from hypothesis import strategies as st
from tests.head.committing import commit_session, undo

from bedplate.core import errors
from bedplate.head.objects import Obj
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Schema
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.head.tree import Tree

__all__ = ["Hand", "Model", "Play", "SessionHand", "flat", "leaves", "script", "settle", "touched"]

Flat = dict[str, Any]
Step = tuple[Any, ...]

FIREWALL = "firewall"


def flat(tree: Tree) -> Flat:
    """The tree as the model holds it: plain data by object."""
    return {f"{mode}/{obj.key}": plain(tree.schema, obj) for mode, obj in tree.objects()}


def plain(schema: Schema, obj: Obj) -> Any:
    data = codec.encode(schema, obj, codec.plain)
    role = data.get("children", {}).get("roles", {}).get(FIREWALL)
    if role is not None and "children" in role:
        held = obj.below("roles")[FIREWALL].below("open_ports")
        keys = sorted(held, key=int)
        role["children"]["open_ports"] = dict(zip(keys, role["children"]["open_ports"], strict=True))
    return data


@dataclass
class Person:
    """What the model knows of a session: the data it works on, what it saw of each object, the indexes it used."""

    mine: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def drop(self, place: str) -> None:
        for held in (self.mine, self.seen, self.used):
            held.pop(place, None)


class Model:
    """The present state, one number per object for staleness, and all states there ever were."""

    def __init__(self, start: Flat, revision: int) -> None:
        self.now: Flat = copy.deepcopy(start)
        self.first = revision
        self.numbers: dict[str, int] = dict.fromkeys(start, revision)
        self.states: list[Flat] = [copy.deepcopy(start)]

    @property
    def revision(self) -> int:
        return self.first + len(self.states) - 1

    def state(self, revision: int) -> Flat:
        return self.states[revision - self.first]

    def number(self, place: str) -> int:
        return self.numbers[place] if place in self.now else -1

    def see(self, person: Person, place: str) -> Any:
        """The person's own version, or a copy of the present one when there is no edit."""
        if place not in person.mine or person.mine[place] == self._base(person, place):
            person.drop(place)
            person.mine[place] = copy.deepcopy(self.now.get(place))
            person.seen[place] = self.number(place)
        return person.mine[place]

    def view(self, person: Person) -> Flat:
        edits = self.edits(person)
        merged = {**self.now, **edits}
        return {place: data for place, data in merged.items() if data is not None}

    def edits(self, person: Person) -> Flat:
        return {place: data for place, data in person.mine.items() if data != self._base(person, place)}

    def commit(self, person: Person) -> bool:
        """Whether the commit is allowed; it is then done."""
        edits = self.edits(person)
        if any(self.number(place) != person.seen[place] for place in edits):
            return False
        after = {**self.now, **{place: renumbered(data) for place, data in edits.items()}}
        for place in list(person.mine):
            person.drop(place)
        self.step({place: data for place, data in after.items() if data is not None})
        return True

    def _base(self, person: Person, place: str) -> Any:
        number = person.seen[place]
        return self.state(number).get(place) if number >= 0 else None

    def step(self, after: Flat) -> None:
        if after == self.now:
            return
        self.states.append(copy.deepcopy(after))
        for place in touched(self.now, after):
            self.numbers[place] = self.revision
        self.now = copy.deepcopy(after)


def renumbered(data: Any) -> Any:
    """Indexed children counted from 0, as a commit leaves them."""
    data = copy.deepcopy(data)
    role = (data or {}).get("children", {}).get("roles", {}).get(FIREWALL, {})
    if "children" in role:
        held = role["children"]["open_ports"]
        role["children"]["open_ports"] = {str(at): held[key] for at, key in enumerate(sorted(held, key=int))}
    return data


def tidy(data: Any) -> Any:
    """Without parts that hold nothing, as storage has it."""
    return {key: value for key, value in data.items() if value not in ({}, [])}


def touched(before: Flat, after: Flat) -> set[str]:
    return {place for place in set(before) | set(after) if before.get(place) != after.get(place)}


def leaves(data: Any, way: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value in nested mappings by the way to it."""
    if not isinstance(data, dict):
        return {way: data}
    return {place: value for key, inner in data.items() for place, value in leaves(inner, (*way, key)).items()}


_cluster = st.sampled_from(["one", "one", "two"])
_overlay = st.sampled_from(["left", "left", "right"])
_domain = st.sampled_from(["a.example", "b.example", "c.example"])
step = st.one_of(
    st.tuples(st.just("add"), _cluster),
    st.tuples(st.just("remove"), _cluster),
    st.tuples(st.just("clone"), _cluster, _cluster),
    st.tuples(st.just("notes"), _cluster, st.sampled_from(["", "x", "y"])),
    st.tuples(st.just("secret"), _cluster, st.sampled_from(["", "hush", "psst"])),
    st.tuples(st.just("domains"), _cluster, st.lists(_domain, max_size=3, unique=True)),
    *[st.tuples(st.just("append"), _cluster, _domain)] * 2,
    st.tuples(st.just("takeout"), _cluster, _domain),
    st.tuples(st.just("clear"), _cluster, st.sampled_from(["notes", "kube_ca_key", "trusted_domains"])),
    st.tuples(st.just("extra"), _cluster, st.sampled_from(["e1", "e2"]), st.sampled_from(["1", "2"])),
    st.tuples(st.just("user"), _cluster, st.sampled_from(["u1", "u2"])),
    st.tuples(st.just("port"), _overlay, st.sampled_from(["80", "443"])),
    st.tuples(st.just("port"), _overlay, st.sampled_from(["80", "443"])),
    st.tuples(st.just("unport"), _overlay, st.integers(0, 3)),
    *[st.tuples(st.just("refresh"), _cluster)] * 2,
    st.tuples(st.just("revert")),
    *[st.tuples(st.just("commit"))] * 3,
    st.tuples(st.just("undo"), st.integers(1, 6)),
)
script = st.lists(st.tuples(st.integers(0, 1), step), min_size=12, max_size=50)


class Hand(Protocol):
    """Does to the real thing what the model does. Each raises an error of ours where the head refuses."""

    async def edit(self, who: int, verb: str, place: str, *words: Any) -> None: ...

    async def refresh(self, who: int, place: str) -> None: ...

    async def revert(self, who: int) -> None: ...

    async def commit(self, who: int) -> None: ...

    async def undo(self, number: int) -> None: ...

    def session(self, who: int) -> Session: ...


async def settle(head: Head) -> None:
    """What is there at the beginning, so that steps meet something; two of each kind that nobody touches."""
    session = head.session()
    for name in ("one", "fix1", "fix2"):
        session.add(("kubernetes",), name)
    for name in ("left", "fix1", "fix2"):
        session.add(("configurationoverlay",), name)
    await commit_session(head, session, "setup")


class Play:
    """Each step on both sides, and a comparison after it."""

    def __init__(self, head: Head, hand: Hand) -> None:
        self.head = head
        self.hand = hand
        self.model = Model(flat(head.tree), head.revision)
        self.people = [Person(), Person()]

    async def run(self, steps: list[tuple[int, Step]]) -> None:
        for who, (verb, *words) in steps:
            if verb == "commit":
                await self._commit(who)
            elif verb == "undo":
                await self._undo(words[0])
            elif verb == "revert":
                await self.hand.revert(who)
                self.people[who] = Person()
            else:
                await self._edit(who, verb, *words)
            self._compare()

    def _compare(self) -> None:
        assert flat(self.head.tree) == self.model.now
        assert self.head.revision == self.model.revision
        for who, person in enumerate(self.people):
            seen, wanted = flat(self.hand.session(who).tree), self.model.view(person)
            places = touched(seen, wanted)
            assert not places, [(f"person {who}", place, seen.get(place), wanted.get(place)) for place in places]

    async def _edit(self, who: int, verb: str, name: str, *words: Any) -> None:
        person = self.people[who]
        place = f"configurationoverlay/{name}" if verb in ("port", "unport") else f"kubernetes/{name}"
        data = self.model.see(person, place)
        if verb == "refresh":
            if data is not None:
                await self.hand.refresh(who, place)
                person.drop(place)
            return
        if verb == "clone":
            target = f"kubernetes/{words[0]}"
            words = (words[0], data, self.model.see(person, target))
        refused, after = outcome(verb, data, person, place, *words)
        if refused is not None:
            with pytest.raises(refused):
                await self.hand.edit(who, verb, place, *(["99"] if verb == "unport" else words[:1]))
            return
        await self.hand.edit(who, verb, place, *edit_words(verb, data, words))
        person.mine[f"kubernetes/{words[0]}" if verb == "clone" else place] = after

    async def _commit(self, who: int) -> None:
        if self.model.commit(self.people[who]):
            await self.hand.commit(who)
        else:
            with pytest.raises(errors.Conflict):
                await self.hand.commit(who)

    async def _undo(self, back: int) -> None:
        """An undo puts back what its revision changed and nothing else; a later change of the object may refuse it."""
        number, model = self.head.revision - back + 1, self.model
        if number <= model.first:
            return
        expected = leaves(model.now)
        before, after = leaves(model.state(number - 1)), leaves(model.state(number))
        changed = [leaf for leaf in set(before) | set(after) if before.get(leaf) != after.get(leaf)]
        untouched_since = all(expected.get(leaf) == after.get(leaf) for leaf in changed)
        for leaf in changed:
            expected.pop(leaf, None)
            expected.update({leaf: before[leaf]} if leaf in before else {})
        try:
            await self.hand.undo(number)
        except errors.Conflict:
            later = [touched(model.state(k - 1), model.state(k)) for k in range(number + 1, model.revision + 1)]
            assert touched(model.state(number - 1), model.state(number)) & set().union(*later)
            return
        assert untouched_since
        assert leaves(flat(self.head.tree)) == expected
        model.step(flat(self.head.tree))


def edit_words(verb: str, data: Any, words: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the hand needs to know: for a child whether it is there, for an index its number."""
    if verb == "user":
        return (*words, words[0] in data.get("children", {}).get("kubernetes_users", {}))
    if verb == "unport":
        return (indexes(data)[words[0]],)
    if verb == "port":
        roles = (data or {}).get("children", {}).get("roles", {})
        return (*words, data is not None, FIREWALL in roles)
    return words[:1] if verb == "clone" else words


def indexes(data: Any) -> list[str]:
    role = (data or {}).get("children", {}).get("roles", {}).get(FIREWALL, {})
    return sorted(role.get("children", {}).get("open_ports", {}), key=int)


def outcome(verb: str, data: Any, person: Person, place: str, *words: Any) -> tuple[type[Exception] | None, Any]:
    """What refuses the step, or the object's data after it."""
    if verb == "add":
        return (None, {"type": "KubeCluster"}) if data is None else (errors.AlreadyExists, None)
    if verb == "port":
        return None, with_port(copy.deepcopy(data), person, place, words[0])
    if verb == "unport":
        held = indexes(data)
        if words[0] >= len(held):
            return errors.NotFound, None
        return None, without_port(copy.deepcopy(data), person, place, held[words[0]])
    if data is None:
        return errors.NotFound, None
    if verb == "remove":
        return None, None
    if verb == "clone":
        if words[2] is not None or words[1] is words[2]:
            return errors.AlreadyExists, None
        copied = copy.deepcopy(words[1])
        copied.get("values", {}).pop("kube_ca_key", None)
        return None, tidy(copied)
    return changed(verb, copy.deepcopy(data), *words)


def changed(verb: str, data: Any, *words: Any) -> tuple[type[Exception] | None, Any]:
    if verb == "user":
        users = data.setdefault("children", {}).setdefault("kubernetes_users", {})
        if words[0] in users:
            del users[words[0]]
        else:
            users[words[0]] = {"type": "KubernetesUser"}
        data["children"] = tidy(data["children"])
        return None, tidy(data)
    if verb == "extra":
        data.setdefault("extras", {})[words[0]] = words[1]
        return None, data
    values = data.setdefault("values", {})
    held = values.get("trusted_domains", [])
    if verb == "takeout" and words[0] not in held:
        return errors.NotFound, None
    given = {
        "notes": lambda: {"notes": words[0]},
        "secret": lambda: {"kube_ca_key": words[0]},
        "clear": lambda: {words[0]: ""},
        "domains": lambda: {"trusted_domains": words[0]},
        "append": lambda: {"trusted_domains": [*held, *([words[0]] if words[0] not in held else [])]},
        "takeout": lambda: {"trusted_domains": [one for one in held if one != words[0]]},
    }[verb]()
    values.update(given)
    data["values"] = {name: value for name, value in values.items() if value not in ("", [])}
    return None, tidy(data)


def with_port(data: Any, person: Person, place: str, port: str) -> Any:
    data = data if data is not None else {"type": "ConfigurationOverlay"}
    roles = data.setdefault("children", {}).setdefault("roles", {})
    role = roles.setdefault(FIREWALL, {"type": "FirewallRole"})
    ports = role.setdefault("children", {}).setdefault("open_ports", {})
    index = max(person.used.get(place, -1), *map(int, ports), -1) + 1
    person.used[place] = index
    ports[str(index)] = {"type": "OpenPort", "values": {"port": port}}
    return data


def without_port(data: Any, person: Person, place: str, index: str) -> Any:
    role = data["children"]["roles"][FIREWALL]
    ports = role["children"]["open_ports"]
    person.used[place] = max(person.used.get(place, -1), *map(int, ports))
    del ports[index]
    if not ports:
        del role["children"]
    return data


class SessionHand:
    """The hand of a front end without words: sessions of the head's own."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._sessions = [head.session(), head.session()]

    def session(self, who: int) -> Session:
        self._sessions[who].follow(self._head.tree)
        return self._sessions[who]

    async def edit(self, who: int, verb: str, place: str, *words: Any) -> None:
        mode, _, name = place.partition("/")
        session, path = self.session(who), (mode, name)
        if verb == "add":
            session.add((mode,), name)
        elif verb == "port":
            self._port(session, path, *words)
        elif verb == "unport":
            session.remove((*path, "roles", FIREWALL, "open_ports", str(words[0])))
        elif verb == "remove":
            session.remove(path)
        elif verb == "clone":
            session.clone(path, words[0])
        elif verb == "user":
            session.tree.get(path)
            if len(words) > 1 and words[1]:
                session.remove((*path, "kubernetes_users", words[0]))
            else:
                session.add((*path, "kubernetes_users"), words[0])
        elif verb == "extra":
            session.set_extra(path, *words) if len(words) > 1 else session.tree.get(path)
        else:
            self._value(session, path, verb, words[0])

    def _port(self, session: Session, path: tuple[str, str], port: str, has_overlay: bool, has_role: bool) -> None:
        if not has_overlay:
            session.add(path[:1], path[1])
        if not has_role:
            session.add((*path, "roles"), FIREWALL)
        session.add_indexed((*path, "roles", FIREWALL, "open_ports"), ["ACCEPT", "net", port, "tcp", "fw"])

    def _value(self, session: Session, path: tuple[str, str], verb: str, word: Any) -> None:
        if verb in ("notes", "secret"):
            session.set(path, {"notes": "notes", "secret": "kubecakey"}[verb], word)
        elif verb == "clear":
            session.clear(path, word.replace("_", ""))
        elif verb == "domains":
            session.set(path, "trusteddomains", ",".join(word))
        elif verb == "append":
            session.append(path, "trusteddomains", word)
        else:
            session.remove_from(path, "trusteddomains", word)

    async def refresh(self, who: int, place: str) -> None:
        mode, _, name = place.partition("/")
        self.session(who).drop((mode, name))

    async def revert(self, who: int) -> None:
        self.session(who).drop()

    async def commit(self, who: int) -> None:
        await commit_session(self._head, self.session(who), f"person{who}")

    async def undo(self, number: int) -> None:
        await undo(self._head, number, "undoer")
