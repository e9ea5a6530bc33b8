"""Why something is as it is on a node: every fact with the object that caused it.

In: a tree and a node; further sources of facts (rendered files) are passed in. Out: facts, sorted. Pure, so that any
past tree can be asked the same.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bedplate.head import resolve
from bedplate.head.entities.nodes import Customization, Service
from bedplate.head.objects import Obj
from bedplate.head.resolve import Resolved, Source
from bedplate.head.tree import Tree

__all__ = ["Fact", "Renderer", "explain", "facts"]


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

Renderer = Callable[[Tree, Resolved], Iterable[Fact]]


def facts(tree: Tree, name: str, renderers: Sequence[Renderer] = ()) -> dict[tuple[str, str], Fact]:
    """All that holds on a node, by kind and name."""
    resolved = resolve.resolve(tree, name)
    entries = [*_resolved(resolved), *_customizations(resolved)]
    for renderer in renderers:
        entries.extend(renderer(tree, resolved))
    return {(fact.kind, fact.name): fact for fact in sorted(entries, key=_BY_NAME)}


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
    for kind, table in [
        ("label", resolved.labels),
        ("environment", resolved.environment),
        ("setting", resolved.settings),
    ]:
        for name, value in table.items():
            beaten = value.beaten[0] if value.beaten else None
            yield Fact(kind, name, value.value, value.source, f"{beaten[0]} ({beaten[1]})" if beaten else "")
    for exclude in resolved.excludes:
        yield Fact("exclude", f"{exclude.mode}:{exclude.pattern}", exclude.pattern, exclude.source)


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
