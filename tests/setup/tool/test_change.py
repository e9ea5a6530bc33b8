"""--add-nodes and --remove-nodes on the command line: what is refused before anything changes."""

from __future__ import annotations

import pytest
from tests.setup.tool.driving import Tool


@pytest.mark.parametrize("flag", ["--add-nodes", "--remove-nodes"])
def test_the_plan_is_printed_and_nothing_runs(tool: Tool, flag: str) -> None:
    tool.cluster("default")
    result = tool(flag, "node001", "--plan", "--log-file", tool.log)
    assert result.exit_code == 0, result.output
    assert "Check Nodes" in result.output and "Plan: " in result.output
    assert not tool.log.exists()


@pytest.mark.parametrize("names", ["..", "", " , ", "node[1-", "node[9-1]", "a/b", "node001..x"])
def test_what_is_no_list_of_nodes_is_refused_with_a_sentence(tool: Tool, names: str) -> None:
    tool.cluster("default")
    result = tool("--add-nodes", names, "--plan")
    assert result.exit_code == 2, result.output
    assert "--add-nodes" in result.output and "Traceback" not in result.output


def test_flags_that_do_not_belong_together_are_refused(tool: Tool) -> None:
    both = tool("--add-nodes", "node001", "--remove-nodes", "node002")
    assert both.exit_code == 2 and "mutually exclusive" in both.output
    plane = tool("--remove-nodes", "node001", "--control-plane")
    assert plane.exit_code == 2 and "--control-plane does not apply to --remove-nodes" in plane.output


def test_without_a_cluster_or_with_several_nothing_is_changed(tool: Tool) -> None:
    assert "there is no cluster to add nodes" in tool("--add-nodes", "node001").output
    tool.cluster("one")
    tool.cluster("two", 10444)
    result = tool("--remove-nodes", "node001")
    assert result.exit_code == 2
    assert "there are several clusters to remove nodes: one, two; nothing was changed" in result.output
