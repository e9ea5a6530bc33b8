"""Docker on the nodes of a new cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.setup.kubernetes.grounds import ground

from bedplate.head.desired import desired
from bedplate.setup.kubernetes import remove

STAGE = "Assign Docker Role"


@pytest.mark.parametrize("backend", ["overlay2", "devicemapper"])
async def test_members_get_the_role_with_its_backend_and_lose_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    docker = {"install": True, "storage_backend": backend}
    async with ground(tmp_path, monkeypatch, docker, nodes__workers__categories=["default"]) as on:
        assert on.stages[STAGE].plugin == "docker"
        await on.do(STAGE)
        assert on.awaited == []
        for node in ("node001", "node006"):
            state = desired(on.backend.tree, node)
            assert state.packages == ("cm-docker",)
            (conf,) = [file for file in state.files if file.path == "/etc/docker/daemon.json"]
            assert json.loads(conf.content)["storage-driver"] == backend
        assert remove.remains(on.backend.tree, "default").overlays == ("kube-default-docker",)
        await on.undo(STAGE)
        assert desired(on.backend.tree, "node001").packages == ()


async def test_without_the_answer_there_is_no_such_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        assert STAGE not in on.stages
