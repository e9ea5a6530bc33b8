"""list, show, get: choosing objects and parameters, several at once, and what a node inherits."""

from __future__ import annotations

import json

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.head.schema import tables


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("device list node00[1-3]", ["node001", "node002", "node003"]),
        ("device list node00[1-3] -f name", ["node001", "node002", "node003"]),
        ("device list node001..node002 basecm*", ["basecm10", "node001", "node002"]),
        ("device list node001,node003", ["node001", "node003"]),
        ("device list master", ["basecm10"]),
        ("device list type=HeadNode", ["basecm10"]),
        ("device list node00[1-2] category=def*", ["node001", "node002"]),
        ("device list node00? category!=default", []),
        ("device list node00[1-2] softwareimage=default-image", ["node001", "node002"]),
        ("device list node00[1-2] hostname~2$", ["node002"]),
        ("device list node00[1-2] -s -hostname", ["node002", "node001"]),
        ("device list node00[1-2] -s type,-hostname", ["node002", "node001"]),
        ("configurationoverlay list nodes=node001 priority=510", ["kube-default-master"]),
        ("configurationoverlay list -s -priority roles=*kubelet*", ["kube-default-master", "kube-default-worker"]),
    ],
)
async def test_a_list_of_some_objects(desk: Desk, line: str, names: list[str]) -> None:
    assert [row[0] for row in (await desk.table(line)).rows] == names


async def test_a_list_sorts_as_people_count(desk: Desk) -> None:
    await desk.do("category; clone default c2; set notes 9; .. ; clone default c10; set notes 10; set -e rack 5")
    assert (await desk.table("category list c2 c10 -s name")).column("Name (key)") == ["c2", "c10"]
    assert (await desk.table("category list -s -notes -f name c2 c10")).column("Name (key)") == ["c10", "c2"]
    assert (await desk.table("category list -f name,rack rack=5")).rows == [["c10", "5"]]


async def test_a_list_that_is_asked_for_again_is_not_read_again_unless_it_changed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    table = tables.list_table
    monkeypatch.setattr(tables, "list_table", lambda *args: read.append(len(args[2])) or table(*args))  # type: ignore[func-returns-value]
    first = await desk.do("device; list")
    assert await desk.do("device; list") == first
    assert len(read) == 1
    assert await desk.do("device; list -s -hostname") != first
    assert await desk.do("device; list") == first
    assert len(read) == 3
    assert "00:00:00:00:00:07" in await desk.do("device; set node001 mac 00:00:00:00:00:07; list")
    assert len(read) == 4
    await desk.do("refresh")
    assert await desk.do("device; list") == first


async def test_a_column_has_the_width_that_was_asked_for(desk: Desk) -> None:
    lines = (await desk.do("device list node001 -f name:4,category:12,type")).splitlines()
    assert lines == ["Hos+ Category     Type", "---- ------------ ------------", "nod+ default      PhysicalNode"]
    assert "node001" in await desk.do("device list node001 -v -f name:4")
    refused = await desk.fails("device list -f name:x")
    assert refused.code == 2 and "a width, for example name:20" in refused.err


async def test_a_list_of_what_is_not_there_is_refused(desk: Desk) -> None:
    assert "nodeTYPO" in (await desk.fails("device list nodeTYPO")).err
    assert "colour" in (await desk.fails("device list colour=red")).err
    assert (await desk.fails("device list hostname~(")).code == 2
    assert (await desk.fails("list node001")).code == 2


async def test_numbers_and_booleans_are_such_in_json(desk: Desk) -> None:
    (overlay,) = json.loads(await desk.do("configurationoverlay list kube-default-master -d {}"))
    assert (overlay["Priority"], overlay["All head nodes"]) == (510, False)
    shown = json.loads(await desk.do("configurationoverlay show kube-default-master -d {}"))
    assert {row["Parameter"]: row["Value"] for row in shown}["Priority"] == 510
    assert json.loads(await desk.do("configurationoverlay list -d {} -f priority kube-default-master")) == [
        {"Priority": 510}
    ]
    assert json.loads(await desk.do("list -d {}"))[0]["Objects"] == 2
    assert isinstance(json.loads(await desk.do("history -n 1 -d {}"))[0]["Revision"], int)


async def test_the_top_lists_the_modes(desk: Desk) -> None:
    table = await desk.table("list")
    assert "category" in table.column("Mode (key)")
    assert table.column("Objects")[table.column("Mode (key)").index("kubernetes")] == "1"


async def test_a_list_can_be_narrowed_to_nodes_and_to_a_category(desk: Desk) -> None:
    await desk.do("device set node006 category gpu-nodes")
    assert (await desk.table("device list -n node00[2-4],node006")).column("Hostname (key)") == [
        "node002",
        "node003",
        "node004",
        "node006",
    ]
    assert (await desk.table("device list -c gpu-nodes")).column("Hostname (key)") == ["node006"]
    assert (await desk.fails("device list -c nowhere")).code == 1
    assert (await desk.fails("category list -c default")).code == 2
    assert (await desk.fails("device list -n node09[1-2]")).code == 1


async def test_a_list_can_show_other_parameters_inherited_ones_included(desk: Desk) -> None:
    table = await desk.table("device list -n node001,node002 -f hostname,softwareimage")
    assert table.headers == ["Hostname (key)", "Software image"]
    assert table.rows[0] == ["node001", "default-image (category:default)"]
    assert "softwareimag" in (await desk.fails("device list -f hostname,softwareimag")).err


async def test_show_tells_where_an_inherited_value_comes_from(desk: Desk) -> None:
    rows = dict((await desk.table("device show node001")).rows)
    assert rows["Software image"] == "default-image (category:default)"
    await desk.do("device set node001 softwareimage my-new-image")
    assert dict((await desk.table("device show node001")).rows)["Software image"] == "my-new-image"
    await desk.do("device clear node001 softwareimage")
    assert dict((await desk.table("device show node001")).rows)["Software image"] == "default-image (category:default)"


async def test_show_tells_what_parameters_mean_when_asked(desk: Desk) -> None:
    assert (await desk.table("device show node001")).headers == ["Parameter", "Value"]
    table = await desk.table("device show -v node001")
    assert table.headers == ["Parameter", "Value", "Meaning"]
    assert table.column("Meaning")[table.column("Parameter").index("Hostname")] == "the machine's name"


async def test_several_objects_are_shown_one_after_the_other(desk: Desk) -> None:
    out = await desk.do("device show node00[1-2]")
    assert out.count("Hostname") == 2


async def test_get_names_the_object_when_there_are_several(desk: Desk) -> None:
    assert await desk.do("device get -n node00[1-2] category") == "node001: default\nnode002: default\n"
    assert await desk.do("device get node001 category") == "default\n"
    assert await desk.do("device use node002", "get node001 ip") == "10.141.0.1\n"


async def test_get_of_a_submode_names_what_is_in_it(desk: Desk) -> None:
    assert "kubelet\n" in await desk.do("configurationoverlay get kube-default-master roles")


async def test_extras_are_read_like_parameters(desk: Desk) -> None:
    await desk.do("kubernetes", "set -e ingress_proxy_enable true")
    assert await desk.do("get ingress_proxy_enable") == "true\n"
    await desk.do("set ingress_proxy_enable false")
    assert await desk.do("get ingress_proxy_enable") == "false\n"
    await desk.do("clear ingress_proxy_enable")
    assert "ingress_proxy_enable" in (await desk.fails("get ingress_proxy_enable")).err


async def test_tables_are_json_on_demand(desk: Desk) -> None:
    rows = json.loads(await desk.do("device show -d {} node001"))
    assert {"Parameter": "Hostname", "Value": "node001"} in rows


async def test_a_nodes_services_are_those_of_its_roles_too(desk: Desk) -> None:
    await desk.do(
        "category use default", "roles", "assign docker::host", "/", "commit", "device use node004", "services"
    )
    table = await desk.table("list")
    assert table.headers == ["Service (key)", "Monitored", "Autostart"]
    assert "docker" in table.column("Service (key)")
    assert dict((await desk.table("show docker")).rows)["Belongs to role"] == "yes"


async def test_a_roles_service_can_be_overridden_on_a_node_but_not_removed(desk: Desk) -> None:
    await desk.do(
        "category use default", "roles", "assign docker::host", "/", "commit", "device use node004", "services"
    )
    assert "role" in (await desk.fails("remove docker")).err
    await desk.do("use docker", "set autostart no")
    assert desk.prompt == "[basecm10->device*[node004*]->services*[docker*]]% "
    await desk.do("commit")
    assert await desk.do("get autostart") == "no\n"
    assert await desk.do("device use node003", "services", "get docker autostart") == "yes\n"


@pytest.mark.parametrize("line", ["show", "get name", "set notes x", "add x", "use x", "remove x", "append nodes x"])
async def test_at_the_top_a_command_for_objects_says_to_enter_a_mode(desk: Desk, line: str) -> None:
    said = await desk.fails(line)
    assert said.code == 2
    assert "device" in said.err


@pytest.mark.parametrize("line", ["show", "set notes", "get notes", "explain"])
async def test_at_a_list_a_command_for_one_object_says_to_select_it(desk: Desk, line: str) -> None:
    await desk.do("device")
    said = await desk.fails(line)
    assert said.code == 2
    assert "use" in said.err
