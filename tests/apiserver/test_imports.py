"""The API server's modules stand in an order: none imports, directly or in a circle, what imports it."""

from __future__ import annotations

import graphlib

import grimp


def circle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of a circle of imports, those for type checking included; empty when there is none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as err:
        return list(err.args[1])
    return []


def test_a_circle_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = grimp.build_graph("bedplate", cache_dir=None)
    modules = {name for name in graph.modules if name.startswith("bedplate.apiserver")}
    assert len(modules) > 100
    assert circle({name: graph.find_modules_directly_imported_by(name) & modules for name in modules}) == []
