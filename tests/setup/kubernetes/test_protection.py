"""Etcd nodes are data nodes while there is a cluster, and what they were afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.setup.kubernetes.grounds import Ground, ground

from bedplate.api.headapi import Transfer
from bedplate.core import errors
from bedplate.setup.kubernetes import remove

STAGE = "Protect Etcd Nodes"
ETCD = {"nodes__etcd__nodes": ["node00[4-5]", "node001"]}


def _data_nodes(on: Ground) -> set[str]:
    devices = on.backend.tree.mode("device").items()
    return {name for name, device in devices if device.values.get("data_node")}


async def test_item_89_a_deployment_makes_etcd_nodes_data_nodes_which_a_full_installation_needs_the_name_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch, **ETCD) as on:
        await on.do("Create Etcd Cluster", STAGE)
        assert _data_nodes(on) == {"node001", "node004", "node005"}
        head, full = on.backend.fleet, Transfer(write=True, full=True)
        with pytest.raises(errors.Invalid, match="node004 is a data node: a full installation would wipe") as refused:
            await head.ask_errand(["node004"], "imageupdate", transfer=full)
        assert "--confirm node004" in refused.value.hint
        with pytest.raises(errors.Invalid) as other:
            confirmed = Transfer(write=True, full=True, confirm=["node004"])
            await head.ask_errand(["node004"], "imageupdate", transfer=confirmed)
        assert "data node" not in other.value.message  # it has no tree; the confirmation was enough


async def test_item_89_what_was_a_data_node_before_stays_one_after_an_undone_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch, **ETCD) as on:
        await on.backend.fleet.patch("device", "node004", values={"data_node": True})
        await on.do("Create Etcd Cluster", STAGE, STAGE)
        assert _data_nodes(on) == {"node001", "node004", "node005"}
        await on.undo(STAGE)
        assert _data_nodes(on) == {"node004"}
        await on.undo(STAGE, "Create Etcd Cluster")
        assert on.find("etcd", "kube-default") is None


async def test_item_89_a_removal_gives_the_devices_back_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch, **ETCD) as on:
        await on.backend.fleet.patch("device", "node005", values={"data_node": True})
        await on.do("Create Networks", "Create Etcd Cluster", STAGE, "Create Kube Cluster")
        (stage,) = [each for each in remove.stages("default") if each.name == "Remove Etcd Spool"]
        await stage.run(on.context())
        await on.backend.catch_up()
        assert _data_nodes(on) == {"node005"}
        assert on.find("etcd", "kube-default") is None
