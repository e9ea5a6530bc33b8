"""The systems of nodes: known, unsupported, or not told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.setup.kubernetes.grounds import ground

from bedplate.api.headapi import System
from bedplate.core import errors
from bedplate.setup.kubernetes import distributions

STAGE = "Check Distribution"


@pytest.mark.parametrize(
    ("id_", "version"),
    [("debian", "12"), ("ubuntu", "24.04"), ("rhel", "9.4"), ("rocky", "8.10"), ("sles", "15.6"), ("debian", "13")],
)
def test_systems_of_the_file_are_supported_with_their_minor_releases(id_: str, version: str) -> None:
    assert distributions.judged({"node001": System(id=id_, version=version)}) == ((), ())


def test_others_are_named_with_node_and_system_and_silent_nodes_are_told_apart() -> None:
    present = {
        "node001": System(id="ubuntu", version="18.04"),
        "node002": System(id="plan9", version="4"),
        "node003": None,
        "node004": System(packages="apt"),
        "node005": System(id="rhel", version="90"),
        "node006": System(id="debian"),
    }
    problems, silent = distributions.judged(present)
    assert problems == (
        "node001: Ubuntu 18.04 is not one of 20.04, 22.04, 24.04, 26.04",
        "node002: the system plan9 4 is not supported",
        "node005: Red Hat Enterprise Linux 90 is not one of 8, 9, 10",
        "node006: Debian without a version is not one of 11, 12, 13",
    )
    assert silent == ("node003", "node004")


async def test_the_stage_refuses_before_anything_is_changed_and_only_warns_of_silent_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        names = list(on.stages)
        effects = [name for name in names if on.stages[name].effects]
        assert names.index(STAGE) < names.index(effects[0])
        await on.tells("node001", id="debian", version="12", packages="folder")
        await on.do(STAGE)
        assert on.said == ["Distributions: debian 12", "Warning: the distribution of node002, node003 is not known"]
        await on.tells("node002", id="plan9")
        with pytest.raises(errors.Invalid, match="distribution of some nodes is not supported") as refused:
            await on.do(STAGE)
        assert "--no-distro-checks" in refused.value.hint


async def test_small_nodes_are_refused_where_the_answers_are_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch, strict=True) as on:
        for node in ("node001", "node002", "node003"):
            await on.tells(node, memory=32 * 2**30, cores=8)
        await on.do("Check Nodes")
        await on.tells("node002", memory=4 * 2**30, cores=1)
        with pytest.raises(errors.Invalid, match="nodes are too small") as refused:
            await on.do("Check Nodes")
        assert list(refused.value.problems) == [
            "node002 has 4.0 GiB of memory; 16 GB are recommended",
            "node002 has 1 core; 2 are recommended",
        ]
        on.answers["kubernetes"]["strict"] = False
        await on.do("Check Nodes")


async def test_control_plane_nodes_that_are_workers_by_name_alone_are_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: dict[str, list[str]] = {"nodes__masters__nodes": ["node001", "node002", "node003"]}
    async with ground(tmp_path, monkeypatch, **places, nodes__workers__nodes=["node002"]) as on:
        for node in ("node001", "node002", "node003"):
            await on.tells(node, id="debian")
        await on.do("Check Nodes")
        assert [line.partition(" runs")[0] for line in on.said] == [
            "Warning: node002 is a control plane node and",
            "3 control plane nodes, 0 workers",
        ]
