"""Packages of a cluster's roles: waited for, or left out and looked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.setup.kubernetes import sites
from tests.setup.kubernetes.grounds import Ground, ground

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.desired import desired
from bedplate.setup.kubernetes import packages

BEFORE = ("Create Networks", "Create Etcd Cluster", "Create Kube Cluster")


async def test_the_stage_waits_for_the_revision_that_gave_the_roles_and_tells_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.do(*BEFORE)
        on.awaited.clear()
        await on.do("Assign Roles")
        assert on.awaited == []
        given = on.served.head.revision
        await on.do("Install Packages")
        assert on.awaited == [given]
        assert "kubelet" in desired(on.served.head.tree, "node002").packages
        assert "node002,node003: cm-containerd, conntrack, kubeadm, kubectl, kubelet, nftables, nginx" in on.said
        await on.undo("Install Packages")
        assert on.said[-1] == "They go with the roles"


async def _answer(on: Ground, lines: dict[str, list[str]]) -> None:
    """Agents that tell which programs they lack."""
    assert on.served.service.fleet is not None
    errands, told = on.served.service.fleet.errands, set[str]()
    while len(told) < len(lines):
        for item in errands.list(()):
            if item.kind == "care" and item.state == "waiting":
                told.add(item.id)
                for state in ("accepted", "done"):
                    answer = headapi.ErrandTold(id=item.id, state=state, lines=lines[item.node])  # type: ignore[arg-type]
                    await errands.told(item.node, [answer])
        await asyncio.sleep(0.01)


async def test_with_packages_skipped_no_role_of_the_cluster_brings_any_and_missing_programs_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch, {"install": True}, skip__packages=True) as on:
        assert "Install Packages" not in on.stages
        await on.do(*BEFORE, "Assign Docker Role")
        lacking: dict[str, Any] = {"node001": ["missing etcd", "missing nginx"], "node002": ["missing kubelet"]}
        answering = asyncio.create_task(_answer(on, {**lacking, "node003": []}))
        with pytest.raises(errors.Invalid) as refused:
            await on.do("Assign Roles")
        await answering
        assert list(refused.value.problems) == [
            "node001: there is no program etcd",
            "node002: there is no program kubelet",
        ]
        assert on.find("configurationoverlay", "kube-default-worker") is None
        on.awaited.clear()
        answering = asyncio.create_task(_answer(on, {name: [] for name in ("node001", "node002", "node003")}))
        await on.do("Assign Roles")
        await answering
        assert on.awaited == [on.served.head.revision]
        for node in ("node001", "node002", "node003"):
            assert desired(on.served.head.tree, node).packages == ()
            assert desired(on.served.head.tree, node).files


def test_a_node_needs_the_programs_of_its_roles() -> None:
    settings = sites.settings(nodes__etcd__nodes=["node004"])
    needed = packages.needed(settings)
    assert needed["node004"] == ("etcd",)
    assert needed["node001"] == needed["node002"]
    assert "etcd" not in needed["node001"] and "nft" in needed["node001"]
    told = {"node004": ["missing kubelet", "missing etcd"], "node001": ["missing kubelet-checks"]}
    assert packages.missing(settings, told) == ["node004: there is no program etcd"]
