"""TAB: what fits at every place, from the same declarations as commands and objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.ui.cmsh.shell import LEFT_OUT


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("dev", ["device"]),
        ("device us", ["use", "usedby", "user"]),
        ("device use node00", ["node001", "node002", "node003", "node004", "node005", "node006"]),
        ("device use mas", ["master"]),
        ("list; categ", ["category"]),
        ("category set default soft", ["softwareimage"]),
        ("category set default softwareimage ", ["default-image", "my-new-image"]),
        ("device set node001 nextinstallmode n", ["NOSYNC"]),
        ("device list --f", ["--format"]),
        ("device list -c ", ["default", "gpu-nodes"]),
        ("configurationoverlay append kube-default-master categories default,g", ["default,gpu-nodes"]),
        ("device add ", ["headnode", "physicalnode"]),
        ("kubernetes appgroups applications sys", ["system"]),
        ("help und", ["undo"]),
        ("history category/d", ["category/default"]),
        ("list | gr", []),
        ("!ec", []),
        ("frobnicate x", []),
        ("quit ", []),
    ],
)
async def test_from_the_top(desk: Desk, line: str, first: list[str]) -> None:
    assert desk.completes(line) == first
    assert desk.prompt == "[basecm10]% ", "looking does not move"


async def test_below_a_role(desk: Desk) -> None:
    await desk.do("configurationoverlay use kube-default-master", "roles")
    assert "kubelet" in desk.completes("use ")
    assert "Docker::Host" in desk.completes("assign D")
    assert desk.completes("options ") == ["kubelet"]
    await desk.do("use kubelet")
    assert desk.completes("options kube-a") == ["kube-apiserver.yaml"]
    assert desk.completes("options kube-apiserver.yaml ") == ["clear", "set"]
    assert "maxpods" in desk.completes("get ")
    assert desk.completes("set worker ") == ["no", "yes"]


async def test_an_indexed_list_offers_the_values_in_their_order(desk: Desk) -> None:
    await desk.do("device use master", "roles use firewall", "openports")
    assert desk.completes("add ") == ["ACCEPT", "DNAT", "DROP", "REJECT"]
    assert desk.completes("add ACCEPT net 443 t") == ["TCP"]
    assert desk.completes("remove ") == ["0", "1"]


async def test_files_are_offered_where_a_file_is_wanted(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "plug in.yaml").write_text("x")
    (tmp_path / "folder").mkdir()
    await desk.do("kubernetes", "appgroups use system", "applications use cni")
    assert desk.completes(f"set config {tmp_path}/plug") == [f"'{tmp_path}/plug in.yaml'"]
    assert f"{tmp_path}/folder/" in desk.completes(f"import {tmp_path}/fo")
    assert desk.completes("set config /no/such/folder/x") == []


async def test_facts_are_offered_to_explain(desk: Desk) -> None:
    await desk.do("device use node001")
    assert "kubelet" in desk.completes("explain kube")


async def test_commands_of_the_manual_that_there_are_not_are_not_offered_and_say_so(desk: Desk) -> None:
    await desk.do("device use node001")
    offered = set(desk.completes(""))
    for name in LEFT_OUT:
        assert name not in offered
        assert f"there is no command {name}" in (await desk.fails(name)).err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("devics", "did you mean device"),
        ("category; default", "use default"),
        ("category use default; softwareimage2", "softwareimage"),
        ("category use default; installmode", "get installmode"),
        ("kubernetes; roles", "submode of device"),
        ("xyzzy", "help"),
        ("device use node1", "did you mean node001"),
        ("category use default; set notez x", "did you mean notes"),
        ("help lst", "did you mean list"),
    ],
)
async def test_a_slip_is_answered_with_what_may_have_been_meant(desk: Desk, line: str, hint: str) -> None:
    said = await desk.fails(line)
    assert hint in said.err
    assert len(said.err.splitlines()) == 1


async def test_what_follows_a_semicolon_is_completed_where_it_will_run(desk: Desk) -> None:
    assert desk.completes("device; use node00") == [f"node00{number}" for number in range(1, 7)]
    assert desk.completes("category use default; get softw") == ["softwareimage"]
    assert desk.completes("category list; get softw") == []
    assert "firewall" in desk.completes("device use master; roles; use fire")
    assert desk.completes("category use default; ..; use def") == ["default"]
    assert desk.completes("category use default; /; devi") == ["device"]
    assert desk.prompt == "[basecm10]% "
