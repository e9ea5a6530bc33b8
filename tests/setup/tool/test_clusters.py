"""`--cluster`: which cluster is meant, for every action that takes the flag."""

from __future__ import annotations

import pytest
from tests.setup.tool.driving import Tool

from bedplate.setup.tool.flags import RUNS

_TYPOS: dict[str, tuple[str, ...]] = {
    "upgrade": ("--upgrade", "1.35"),
    "remove": ("--remove", "--yes-i-really-mean-it"),
    "add-nodes": ("--add-nodes", "node001"),
    "remove-nodes": ("--remove-nodes", "node001"),
    "configure-ingress": ("--configure-ingress",),
    "etcd-restore": ("--etcd-restore", "x", "--yes-i-really-mean-it"),
    "etcd-snapshot": ("--etcd-snapshot",),
    "etcd-snapshots": ("--etcd-snapshots",),
    "certificates": ("--certificates",),
    "renew-certificates": ("--renew-certificates",),
    "list-operators": ("--list-operators",),
    "update-addons": ("--update-addons",),
    "pull": ("--pull", "--images", "nginx"),
}


@pytest.mark.parametrize("action", _TYPOS)
def test_a_name_of_no_cluster_is_wrong_usage_as_the_help_says_and_names_those_there_are(
    tool: Tool, action: str
) -> None:
    tool.cluster("production")
    log = ("--log-file", tool.log) if action in RUNS else ()
    for cluster in ("prodcution", ".."):
        result = tool(*_TYPOS[action], "--cluster", cluster, *log)
        assert result.exit_code == 2, result.output
        assert f"there is no cluster '{cluster}'" in result.output and "production" in result.output
    assert "2 wrong usage or wrong answers" in tool("--help", on_head=False).output


@pytest.mark.parametrize("cluster", ["prodcution", "..", ""])
def test_the_kubeconfig_of_no_cluster_is_wrong_usage_too(tool: Tool, cluster: str) -> None:
    tool.cluster("production")
    result = tool("--kubeconfig-of", cluster)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"there is no cluster '{cluster}'" in result.stderr and "clusters: production" in result.stderr
