"""The one way YAML is read: as Kubernetes reads it, which is JSON with less punctuation.

In: text. Out: plain values. Dates stay text (JSON has none) and a bare `=` is text (some CRDs enumerate it). `strict`
refuses a key that is given twice in one mapping, because one of the two would be lost without a word; Kubernetes' own
files are read as kubectl reads them, where the later one wins. Raises `yaml.YAMLError`.
"""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["load"]

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


def load(text: str | bytes, *, strict: bool = False) -> Any:
    """The one document in `text`."""
    return yaml.load(text, Loader=_StrictLoader if strict else _Loader)
