"""Which nodes --pull means, and logins that are whole."""

from __future__ import annotations

import pytest
from tests.setup.conftest import tool
from tests.setup.tool.driving import Tool

from bedplate.core import errors
from bedplate.setup.tool.pulls import parse_selector, selected

__all__ = ["tool"]

THOSE = ["node001", "node002", "node003"]
LABELS = {"node001": {"a": "1", "b": ""}, "node002": {"a": "2"}, "node003": {}}


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("a=1", ["node001"]),
        ("a==2", ["node002"]),
        ("a!=1", ["node002", "node003"]),
        ("a!=1, a!=2", ["node003"]),
        ("b=", ["node001"]),
        ("x.example/y-z!=1,a=2", ["node002"]),
    ],
)
def test_item_103_selectors_have_three_operators_and_commas(query: str, nodes: list[str]) -> None:
    assert selected(THOSE, None, parse_selector(query), LABELS) == nodes


@pytest.mark.parametrize("query", ["", "a", "=1", "a=1,", "a in (1)", "!a", "a=1 b=2", "a=-;rm", "../x=1/.."])
def test_item_103_another_selector_is_refused(query: str) -> None:
    with pytest.raises(errors.Invalid, match="--node-selector"):
        parse_selector(query)


def test_item_103_names_and_ranges_mean_nodes_of_the_cluster_alone() -> None:
    assert selected(THOSE, "node00[2-3],node002", (), LABELS) == ["node002", "node003"]
    assert selected(THOSE, None, (), LABELS) == THOSE
    assert selected(THOSE, "node001,node002", parse_selector("a!=1"), LABELS) == ["node002"]
    with pytest.raises(errors.NotFound, match=r"'node009', 'node1'"):
        selected(THOSE, "node001,node009,node1", (), LABELS)
    for wrong in ("..", "", "node00[3-1]"):
        with pytest.raises((errors.Invalid, errors.NotFound)):
            selected(THOSE, wrong, (), LABELS)
    with pytest.raises(errors.NotFound, match="no node"):
        selected(THOSE, None, parse_selector("a=9"), LABELS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--images nginx,busybox"),
        (("--images", "--privileged"), "is not the name of an image"),
        (("--images", "a b"), "is not the name of an image"),
        (("--images", "nginx", "--docker-io-username", "a"), "--docker-io-password"),
        (("--images", "nginx", "--pull-registry-server", "r:5000"), "--pull-registry-username"),
        (("--images", "nginx", "--node-selector", "a>1"), "--node-selector"),
        (("--images", "nginx", "--pull-registry-email", "alice"), "is not a mail address"),
        (("--images", "nginx", "--pull-registry-email", "a@example.com"), "--pull-registry-server"),
    ],
)
def test_wrong_words_change_nothing_and_need_no_head(tool: Tool, words: tuple[str, ...], told: str) -> None:
    done = tool("--pull", *words, on_head=False)
    assert done.exit_code == 2, done.stdout + done.stderr
    assert told in done.stderr


@pytest.mark.parametrize("action", ["--pull", "--update-addons"])
def test_without_a_cluster_there_is_nothing_to_do(tool: Tool, action: str) -> None:
    words = ["--images", "nginx"] if action == "--pull" else []
    done = tool(action, *words)
    assert done.exit_code == 2
    assert "there is no cluster" in done.stderr
