"""Applications as somebody at a shell meets them."""

from __future__ import annotations

import pathlib

from tests.ui.transcripts.driving import Desk

from bedplate.head.desired import desired
from bedplate.head.render.assemble import ENVIRONMENT
from bedplate.head.service import Head

DAEMON_SET = """apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: amdgpu-device-plugin-daemonset
  namespace: kube-system
spec:
  selector:
    matchLabels: {name: amdgpu-dp-ds}
"""


async def test_item_187_manifests_that_are_not_valid_are_refused_at_the_commit_with_the_line(
    desk: Desk, site_head: Head, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text(DAEMON_SET + "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: [a\n")
    await desk.do("kubernetes", "appgroups", "add amd", "applications", "add device-plugin", f"set config {file}")
    before = site_head.revision
    told = (await desk.fails("commit")).err
    assert "applications[device-plugin]: config: line 14: " in told
    assert site_head.revision == before
    file.write_text(DAEMON_SET + "---\napiVersion: v1\nkind: ConfigMap\n")
    await desk.do(f"set config {file}")
    assert "config: line 10: ConfigMap: metadata is missing" in (await desk.fails("commit")).err
    file.write_text(DAEMON_SET.replace("namespace: kube-system", "namespace: $WHERE"))
    await desk.do(f"set config {file}", "commit")
    assert site_head.revision == before + 1


async def test_item_187_a_variable_that_breaks_the_manifests_is_refused_as_well(
    desk: Desk, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text(DAEMON_SET.replace("kube-system", "$WHERE"))
    await desk.do("kubernetes", "appgroups", "add amd", "applications", "add device-plugin", f"set config {file}")
    await desk.do("environment", "add WHERE", "set value '{'")
    assert "config: line " in (await desk.fails("kubernetes; commit")).err


async def test_item_188_variables_for_nodes_are_exported_there_and_others_are_not(desk: Desk, site_head: Head) -> None:
    await desk.do("kubernetes", "appgroups", "add amd", "applications", "add device-plugin", "environment")
    await desk.do("add FOR_NODES", "set value 'a b'", "set nodesenvironment yes", "commit")
    await desk.do("..", "add MANIFESTS_ONLY", "set value c", "set nodesenvironment no", "commit")

    def exported() -> str:
        files = {file.path: file.content for file in desired(site_head.tree, "node001").files}
        return files.get(ENVIRONMENT, "")

    assert "export FOR_NODES='a b'\n" in exported() and "MANIFESTS_ONLY" not in exported()
    await desk.do("kubernetes", "appgroups", "use amd", "set enabled no", "commit")
    assert "FOR_NODES" not in exported()
