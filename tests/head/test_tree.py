"""The tree as a value: a change gives a new tree and leaves the old one, its objects and its index alone."""

from __future__ import annotations

from tests.head import sites

from bedplate.head.objects import Obj
from bedplate.head.tree import Tree


def test_a_change_shares_the_rest_and_the_old_tree_stays() -> None:
    old = sites.large(300)
    objects = list(old.objects())
    node = old.mode("device")["node00003"]
    changed = old.with_object("device", "node00003", node.with_value("notes", "x"))
    assert list(old.objects()) == objects
    differing = [key for key in old.mode("device") if old.mode("device")[key] is not changed.mode("device")[key]]
    assert differing == ["node00003"]
    assert changed.mode("category") is old.mode("category")


def test_removing_and_putting_back_gives_an_equal_tree_with_an_equal_index() -> None:
    old = sites.large(50)
    node = old.mode("device")["node00003"]
    without = old.with_object("device", "node00003", None)
    assert without.find("device", "node00003") is None
    assert without != old
    back = without.with_object("device", "node00003", node)
    assert back == old
    category = str(node.values["category"])
    for tree, is_named in ((old, True), (without, False), (back, True)):
        assert ("node00003" in tree.referrers("category", category, "device")) is is_named


def test_removing_what_is_not_there_changes_nothing() -> None:
    old = sites.large(5)
    assert old.with_object("device", "nobody", None) is old
    assert isinstance(old, Tree)


def test_objects_are_replaced_together_as_one_by_one() -> None:
    tree = sites.large(20)
    device = tree.get(("device", "node00003"))
    changes: list[tuple[str, str, Obj | None]] = [
        ("device", "node00003", device.with_value("category", "c1")),
        ("category", "another", Obj("Category", "another")),
        ("device", "node00004", tree.get(("device", "node00004")).with_value("category", "another")),
        ("device", "node00005", None),
        ("device", "node00003", device),
    ]
    step = tree
    for change in changes:
        step = step.with_object(*change)
    together = tree.with_objects(changes)
    assert together == step
    assert together._referrers == Tree(together.schema, together.objects())._referrers
    assert together.keys("device") == step.keys("device") != tree.keys("device")
    assert tree.with_objects([("device", "node00003", device)]) is tree
