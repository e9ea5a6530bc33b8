"""Why something is as it is on a node: every fact with the object that caused it.

In: a tree and a node; further sources of facts (rendered files) are passed in. Out: facts, sorted. Pure, so that any
past tree can be asked the same. Facts that nodes of one group share are worked out once per tree (`Facts`).
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bedplate.head import resolve
from bedplate.head.entities.nodes import Customization, Service
from bedplate.head.objects import Obj
from bedplate.head.resolve import Given, Resolved, Source
from bedplate.head.tree import Tree

__all__ = ["NO_FACTS", "Fact", "Facts", "Place", "Renderer", "explain", "facts", "layered"]


class Fact(NamedTuple):
    """One thing that holds on a node. `value` of a file is its mode and a digest; `next_best` is who would win next;
    `detail` is what else must be equal for the fact to be the same. `effects` are what a change of it brings about:
    verbs with a service, or `test` with the file itself."""

    kind: str
    name: str
    value: str
    source: Source
    next_best: str = ""
    detail: object = None
    effects: tuple[tuple[str, str], ...] = ()


_BY_NAME = operator.itemgetter(0, 1)

Place = tuple[str, str]
"""A fact's kind and name."""


@dataclass(frozen=True)
class Renderer:
    """A source of further facts. `own` gives those in which a node may differ from the one that speaks for its group;
    it is given both and that one's facts; None when more differs. Without `own` every fact is the node's own."""

    whole: Callable[[Tree, Resolved], Iterable[Fact]]
    own: Callable[[Tree, Resolved, Resolved, Mapping[Place, Fact]], Iterable[Fact] | None] | None = None


class Facts(NamedTuple):
    """What holds on a node, by kind and name: what is its own, else what its group has in common. The latter is one
    mapping for all nodes of the group in a tree, so that two of them can be compared once for all."""

    own: Mapping[Place, Fact]
    common: Mapping[Place, Fact]

    def fact(self, place: Place) -> Fact | None:
        return self.own.get(place) or self.common.get(place)


NO_FACTS = Facts({}, {})


def facts(tree: Tree, name: str, renderers: Sequence[Renderer] = ()) -> dict[Place, Fact]:
    """All that holds on a node, by kind and name, sorted."""
    layers = layered(tree, name, renderers)
    return dict(sorted({**layers.common, **layers.own}.items()))


def layered(tree: Tree, name: str, renderers: Sequence[Renderer] = ()) -> Facts:
    """All that holds on a node, and what of it holds for its group."""
    resolved = resolve.resolve(tree, name)
    sharing = [renderer for renderer in renderers if renderer.own is not None]
    if resolved.group is not None:
        first, common = _common(tree, resolved, sharing)
        own: dict[Place, Fact] = {}
        for renderer in renderers:
            own_of = renderer.own
            more = renderer.whole(tree, resolved) if own_of is None else own_of(tree, resolved, first, common)
            if more is None:
                break
            own.update(((fact.kind, fact.name), fact) for fact in more)
        else:
            own.update(((fact.kind, fact.name), fact) for fact in _given(resolved))
            return Facts(own, common)
    return Facts(_whole(tree, resolved, renderers), {})


def _whole(tree: Tree, resolved: Resolved, renderers: Sequence[Renderer]) -> dict[Place, Fact]:
    entries = [*_resolved(resolved), *_given(resolved), *_customizations(resolved)]
    for renderer in renderers:
        entries.extend(renderer.whole(tree, resolved))
    return {(fact.kind, fact.name): fact for fact in sorted(entries, key=_BY_NAME)}


_Speaker = tuple[Resolved, Mapping[Place, Fact]]


def _common(tree: Tree, resolved: Resolved, renderers: Sequence[Renderer]) -> _Speaker:
    """The node that speaks for a group, the first that is asked about, and the facts that it has not for itself."""
    place = ("facts", resolved.group, *renderers)
    speaker: _Speaker | None = tree.derived.get(place)
    if speaker is None:
        speaker = resolved, _whole(tree, replace(resolved, labels={}, settings={}), renderers)
        tree.derived[place] = speaker
    return speaker


def explain(tree: Tree, name: str, about: str = "", renderers: Sequence[Renderer] = ()) -> list[tuple[Fact, int]]:
    """The facts of a node, or those of one name with what would win next, each with the revision that last wrote its
    cause."""
    pairs = []
    for fact in facts(tree, name, renderers).values():
        if about and about != fact.name:
            continue
        if about and not fact.next_best:
            fact = fact._replace(next_best=_following(tree, name, fact, renderers))
        cause = tree.find(fact.source.mode, fact.source.key)
        pairs.append((fact, cause.revision if cause is not None else 0))
    return pairs


def _following(tree: Tree, node: str, fact: Fact, renderers: Sequence[Renderer]) -> str:
    """What would hold if the cause of a fact were gone, in words; empty for nothing."""
    mode, key, part = fact.source
    cause = tree.find(mode, key)
    if cause is None:
        return ""
    values = {name: value for name, value in cause.values.items() if (fact.kind, name) != ("setting", fact.name)}
    gone = {part} if part else {fact.name} if fact.kind == "service" else set()
    children = {
        submode: {name: child for name, child in inner.items() if name not in gone}
        for submode, inner in cause.children.items()
    }
    without = replace(cause, values=values, children={name: inner for name, inner in children.items() if inner})
    if without == cause:
        return ""
    heir = facts(tree.with_object(mode, key, without), node, renderers).get((fact.kind, fact.name))
    if heir is None:
        return ""
    return f"{heir.value} ({heir.source})" if fact.kind in ("label", "environment", "setting") else str(heir.source)


def _resolved(resolved: Resolved) -> Iterable[Fact]:
    for name, given in resolved.roles.items():
        beaten_by = str(given.beaten[0]) if given.beaten else ""
        yield Fact("role", name, given.role.type, given.source, beaten_by, given.role)
    for name, (service, source) in resolved.services.items():
        yield Fact("service", name, _service_words(service), source, detail=service)
    for name, value in resolved.environment.items():
        yield _value("environment", name, value)
    for exclude in resolved.excludes:
        yield Fact("exclude", f"{exclude.mode}:{exclude.pattern}", exclude.pattern, exclude.source)


def _given(resolved: Resolved) -> Iterable[Fact]:
    """What nodes of one group may have for themselves."""
    for name, value in resolved.labels.items():
        yield _value("label", name, value)
    for name, value in resolved.settings.items():
        yield _value("setting", name, value)


def _value(kind: str, name: str, given: Given) -> Fact:
    beaten = given.beaten[0] if given.beaten else None
    return Fact(kind, name, given.value, given.source, f"{beaten[0]} ({beaten[1]})" if beaten else "")


def _service_words(service: Obj) -> str:
    """The rows that people ask about; all others count as detail."""
    words = [
        "monitored" if Service.monitored.value(service) else "not monitored",
        "autostart" if Service.autostart.value(service) else "no autostart",
    ]
    run_if = Service.run_if.value(service)
    return ", ".join(words if run_if == "ALWAYS" else [*words, f"run if {run_if}"])


def _customizations(resolved: Resolved) -> Iterable[Fact]:
    """Files of overlays; of two for one path the overlay that comes first wins."""
    taken: dict[str, Fact] = {}
    for overlay in resolved.overlays:
        for name, held_file in sorted(overlay.below("customizations").items()):
            path = str(Customization.filename.value(held_file))
            if not path or Customization.disabled.value(held_file):
                continue
            source = Source("configurationoverlay", overlay.key, name)
            if path in taken:
                first = taken[path]
                taken[path] = first if first.next_best else first._replace(next_best=str(source))
                continue
            digest = hashlib.sha256(str(Customization.content.value(held_file)).encode()).hexdigest()
            taken[path] = Fact("file", path, f"{Customization.filemask.value(held_file)} sha256:{digest}", source)
    return taken.values()
