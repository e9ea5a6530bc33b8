"""The one way YAML is read: as Kubernetes reads it, which is JSON with less punctuation.

In: text. Out: plain values. Dates stay text (JSON has none) and a bare `=` is text (some CRDs enumerate it). `strict`
refuses a key that is given twice in one mapping, because one of the two would be lost without a word; Kubernetes' own
files are read as kubectl reads them, where the later one wins. What is nested so deep, or repeats itself by aliases so
often, that reading it would cost the program its life is refused before it is put together. Raises `yaml.YAMLError`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

__all__ = ["MAX_DEPTH", "MAX_NODES", "Document", "load", "load_all"]

MAX_DEPTH = 200
MAX_NODES = 1_000_000
"""How many values there may be once aliases are written out."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Values as JSON has them."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: loader.construct_scalar(node))


class _StrictLoader(_Loader):
    """The same, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str | int | float | bool):
                seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class Document(NamedTuple):
    """One of several documents, and the line on which its content begins, counted from 1."""

    line: int
    value: Any


def load_all(text: str | bytes, *, strict: bool = False) -> list[Document]:
    """All documents in `text`, but for empty ones."""
    has_aliases = _check_events(text)
    loader = (_StrictLoader if strict else _Loader)(text)
    documents = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if has_aliases:
                _extent(node, {}, set())
            value = loader.construct_document(node)
            if value is not None:
                documents.append(Document(node.start_mark.line + 1, value))
    finally:
        loader.dispose()
    return documents


def load(text: str | bytes, *, strict: bool = False) -> Any:
    """The one document in `text`."""
    has_aliases = _check_events(text)
    loader = (_StrictLoader if strict else _Loader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if has_aliases:
            _extent(node, {}, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_events(text: str | bytes) -> bool:
    """Whether there are aliases; raises for what is too deep. Putting it together takes the machine's stack for each
    level, and ends the process where there is no more of it."""
    depth, has_aliases = 0, False
    for event in yaml.parse(text, Loader=_Base):
        kind = type(event)
        if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            depth += 1
            if depth > MAX_DEPTH:
                raise yaml.YAMLError(f"exceeded max depth of {MAX_DEPTH}")
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            depth -= 1
        elif kind is yaml.AliasEvent:
            has_aliases = True
    return has_aliases


class _Extent(NamedTuple):
    """How many nodes there are once aliases are written out, and how deep they are."""

    nodes: int
    depth: int


def _extent(node: yaml.Node, known: dict[int, _Extent], above: set[int]) -> _Extent:
    """Raises for what is too large or too deep, or is part of itself; `above` are the holders of this node."""
    if isinstance(node, yaml.ScalarNode):
        return _Extent(1, 0)
    if id(node) in known:
        return known[id(node)]
    if id(node) in above:
        raise yaml.YAMLError("an alias contains itself")
    above.add(id(node))
    nodes, depth = 1, 0
    for member in node.value:
        for part in member if isinstance(member, tuple) else (member,):
            inner = _extent(part, known, above)
            nodes, depth = nodes + inner.nodes, max(depth, inner.depth)
    above.discard(id(node))
    if nodes > MAX_NODES:
        raise yaml.YAMLError("document contains excessive aliasing")
    if depth >= MAX_DEPTH:
        raise yaml.YAMLError(f"exceeded max depth of {MAX_DEPTH}")
    known[id(node)] = _Extent(nodes, depth + 1)
    return known[id(node)]
