"""--add-nodes and --remove-nodes on the command line: what is refused before anything changes."""

from __future__ import annotations

import os

import pytest
from tests.head.clusters import kubesites
from tests.setup.tool.driving import Tool

from bedplate.setup.engine import lock


def managed(tool: Tool, *, planes: tuple[str, ...] = ("node001",), workers: tuple[str, ...] = ("node002",)) -> None:
    """A cluster whose nodes the head joins and drains; node003 is free."""
    tree = kubesites.tree(planes=planes, workers=workers, nodes=3)
    modes = ("etcd", "kubernetes", "configurationoverlay")
    tool.put(("category", tree.get(("category", "gpu"))))
    tool.put(*((mode, obj) for mode in modes for obj in tree.mode(mode).values()))


@pytest.mark.parametrize(("flag", "node"), [("--add-nodes", "node003"), ("--remove-nodes", "node002")])
def test_the_plan_is_printed_and_nothing_runs(tool: Tool, flag: str, node: str) -> None:
    managed(tool)
    result = tool(flag, node, "--plan", "--log-file", tool.log)
    assert result.exit_code == 0, result.output
    assert "Check Nodes" in result.output and "Plan: " in result.output
    assert not tool.log.exists()


@pytest.mark.parametrize("more", [(), ("--plan",)])
@pytest.mark.parametrize(
    ("flag", "names", "told"),
    [
        ("--add-nodes", "nod003", "nod003: there is no such device"),
        ("--add-nodes", "node003,node002", "node002 is part of the cluster default already"),
        ("--add-nodes", "node00[1-2],node009", "node009: there is no such device"),
        ("--remove-nodes", "node003", "node003 is not part of the cluster default"),
        ("--remove-nodes", "node009", "node009: there is no such device"),
        ("--remove-nodes", "node001", "the last control plane node of the Kubernetes cluster default"),
        ("--remove-nodes", "node001,node002", "the last control plane node of the Kubernetes cluster default"),
    ],
)
def test_items_109_110_nodes_that_cannot_come_or_go_are_wrong_usage_and_no_run_begins(
    tool: Tool, flag: str, names: str, told: str, more: tuple[str, ...]
) -> None:
    managed(tool)
    result = tool(flag, names, *more, "--log-file", tool.log)
    assert result.exit_code == 2, result.output
    assert told in result.output and "Traceback" not in result.output
    assert not (tool.data / "setup" / "default").exists()


def test_more_members_of_etcd_than_it_can_spare_are_refused_at_once(tool: Tool) -> None:
    three = ("node001", "node002", "node003")
    managed(tool, planes=three, workers=three)
    result = tool("--remove-nodes", "node00[1-2]", "--log-file", tool.log)
    assert result.exit_code == 2
    assert "this would take 2 of 3 members of the etcd cluster kube-default" in result.output
    assert tool("--remove-nodes", "node001,node001", "--plan").exit_code == 0


def test_while_another_process_is_at_the_cluster_that_one_is_named_and_not_an_interrupted_run(tool: Tool) -> None:
    managed(tool)
    state = tool.data / "setup"
    journal = state / "default" / "journal.json"
    journal.parent.mkdir(parents=True)
    journal.write_text(
        '{"title":"t","operation":"add-nodes","cluster":"default","began":"","pid":1,"answers":{},'
        '"stages":[{"name":"Join Nodes","plugin":"kubernetes","state":"running"}]}'
    )
    words = ("--add-nodes", "node003", "--log-file", str(tool.log))
    with lock.hold(state, lock.Holder(os.getpid(), "today", "add-nodes of the cluster default", "default")):
        result = tool(*words)
    assert result.exit_code == 1
    told = f"another setup is running: add-nodes of the cluster default, process {os.getpid()}, since today"
    assert told in result.output and "did not finish" not in result.output
    assert "an earlier addition of nodes of the cluster default did not finish" in tool(*words).output


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
