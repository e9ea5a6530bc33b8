"""The demonstration's tree: valid, without warnings, and with something for explain to say."""

from __future__ import annotations

from bedplate.cli.up import demotree
from bedplate.head import site, validate
from bedplate.head.desired import desired
from bedplate.head.entities import SCHEMA
from bedplate.head.resolve import resolve
from bedplate.head.session import Session
from bedplate.head.tree import Tree


def demonstration() -> Tree:
    first = [(edit.mode, edit.new) for edit in site.first_tree("basecm10", 20) if edit.new is not None]
    session = Session(Tree(SCHEMA, first))
    demotree.stage(session)
    assert validate.problems(session.tree, [(edit.mode, edit.key) for edit in session.edits()]) == []
    return session.tree


def test_the_tree_is_valid_and_renders_without_warnings() -> None:
    tree = demonstration()
    categories = [str(obj.values.get("category", "")) for obj in tree.mode("device").values()]
    assert (categories.count("default"), categories.count(demotree.GPU_CATEGORY)) == (10, 10)
    for name in tree.mode("device"):
        assert desired(tree, name, 1).warnings == (), name


def test_an_overlay_beats_another_one_somewhere() -> None:
    given = resolve(demonstration(), "node015").roles["generic::containerd"]
    assert str(given.source) == "overlay:gpu-runtime"
    assert [str(source) for source in given.beaten] == ["overlay:kube-default-worker"]


def test_staging_it_twice_changes_nothing() -> None:
    session = Session(demonstration())
    demotree.stage(session)
    assert session.edits() == []
