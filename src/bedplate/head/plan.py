"""What a commit would do: which fact changes on which node.

In: the tree before and after, the top-level objects that differ, and further sources of facts. Out: one action per node
and fact, then what nodes do about it. Nodes that the change means nothing to are not looked at, and what a group of
nodes has in common is compared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bedplate.head.affected import affected
from bedplate.head.explain import NO_FACTS, Fact, Facts, Place, Renderer, layered
from bedplate.head.resolve import Source
from bedplate.head.schema.ranges import natural
from bedplate.head.tree import Address, Tree

__all__ = ["PlannedAction", "plan", "touched_between"]


class PlannedAction(NamedTuple):
    """One line: what is added, changed, removed or released (left as it is from now on), and what follows from it: a
    file is tested, a service restarted or reloaded. `source` is what causes it (for remove: what had). `effect` says in
    words what a file does to services, and that a service is started or stopped."""

    node: str
    kind: str
    name: str
    verb: str
    source: Source
    old: str
    new: str
    effect: str = ""


def plan(
    before: Tree,
    after: Tree,
    touched: Iterable[Address],
    renderers: Sequence[Renderer] = (),
    *,
    only: str = "",
) -> list[PlannedAction]:
    """What would change, by node in natural order, or on one node."""
    steps: list[PlannedAction] = []
    differing_in_common: dict[tuple[int, int], list[Place]] = {}
    for node in sorted(affected(before, after, touched), key=natural) if not only else [only]:
        old = layered(before, node, renderers) if before.find("device", node) is not None else NO_FACTS
        new = layered(after, node, renderers) if after.find("device", node) is not None else NO_FACTS
        # Trees keep the mappings of their groups, so that an identity stands for one as long as this takes.
        groups = id(old.common), id(new.common)
        differing = differing_in_common.get(groups)
        if differing is None:
            places = {*old.common, *new.common}
            differing = [place for place in places if old.common.get(place) != new.common.get(place)]
            differing_in_common[groups] = differing
        actions = []
        for place in sorted({*differing, *old.own, *new.own}):
            was, now = old.fact(place), new.fact(place)
            if was != now and (action := _action(node, place, was, now, new)) is not None:
                actions.append(action)
        steps += actions
        if any(action.kind == "file" and action.effect for action in actions):
            steps += _followed(actions, old, new)
    return steps


def _action(node: str, place: Place, was: Fact | None, now: Fact | None, new: Facts) -> PlannedAction | None:
    if now is None:
        assert was is not None
        released = was.kind == "file" and new.fact(("unmanaged", was.name)) is not None
        effect = "stop" if was.kind == "service" else "" if released else _words(was, testing=False)
        return PlannedAction(node, *place, "release" if released else "remove", was.source, was.value, "", effect)
    effect = "start" if was is None and now.kind == "service" else _words(now)
    if was is None:
        return PlannedAction(node, *place, "add", now.source, "", now.value, effect)
    if was.value == now.value and was.detail == now.detail:
        same = was.source == now.source
        return None if same else PlannedAction(node, *place, "change", now.source, was.value, now.value)
    return PlannedAction(node, *place, "change", now.source, was.value, now.value, effect)


def _words(fact: Fact, *, testing: bool = True) -> str:
    verbs = [verb if verb == "test" else f"{verb} {name}" for verb, name in fact.effects if testing or verb != "test"]
    return ", ".join(verbs)


def _followed(actions: Sequence[PlannedAction], old: Facts, new: Facts) -> list[PlannedAction]:
    """Tests of new files, and what services that run before and after do about files; a restart makes a reload
    needless."""
    tests: list[PlannedAction] = []
    services: dict[str, PlannedAction] = {}
    for action in actions:
        if action.kind != "file" or not action.effect:
            continue
        place = action.kind, action.name
        fact = new.fact(place) or old.fact(place)
        for verb, name in fact.effects if fact is not None else ():
            if verb == "test":
                if action.verb != "remove":
                    tests.append(PlannedAction(action.node, "file", name, verb, action.source, "", ""))
            elif old.fact(("service", name)) and new.fact(("service", name)) and not _restarts(services.get(name)):
                services[name] = PlannedAction(action.node, "service", name, verb, action.source, "", "")
    return [*tests, *(services[name] for name in sorted(services))]


def _restarts(action: PlannedAction | None) -> bool:
    return action is not None and action.verb == "restart"


def touched_between(before: Tree, after: Tree) -> list[Address]:
    """The top-level objects that differ between two trees; what they share costs a comparison of identities."""
    addresses: list[Address] = []
    for mode in before.schema.modes:
        old, new = before.mode(mode), after.mode(mode)
        if old is not new:
            addresses.extend((mode, key) for key in sorted(set(old) | set(new)) if old.get(key) != new.get(key))
    return addresses
