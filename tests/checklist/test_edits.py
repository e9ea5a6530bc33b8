"""Checklist A, items 16 to 20, 22 to 24 and 36 to 39: adding, removing, finding, and what is refused."""

from __future__ import annotations

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.head.service import Head


async def test_item_016_append_adds_keeps_what_is_there_and_takes_nothing_twice(desk: Desk) -> None:
    await desk.do("kubernetes", "labelsets", "use nvidia", "set categories default")
    await desk.do("append categories gpu-nodes")
    assert await desk.do("get categories") == "default\ngpu-nodes\n"
    await desk.do("append categories default,gpu-nodes")
    assert await desk.do("get categories") == "default\ngpu-nodes\n"


async def test_item_016_removefrom_takes_one_out(desk: Desk) -> None:
    await desk.do("kubernetes", "set trusteddomains a,b,c", "removefrom trusteddomains b")
    assert await desk.do("get trusteddomains") == "a\nc\n"
    assert "'b'" in (await desk.fails("removefrom trusteddomains b")).err


async def test_item_017_add_selects_the_new_object(desk: Desk) -> None:
    await desk.do("category", "add storage")
    assert desk.prompt == "[basecm10->category*[storage*]]% "


@pytest.mark.parametrize(
    ("way", "line", "name"),
    [
        (["category"], "add default", "default"),
        (["device"], "add physicalnode node001", "node001"),
        (["kubernetes", "appgroups"], "add system", "system"),
        (["configurationoverlay use kube-default-master", "roles"], "assign kubelet", "kubelet"),
        (["configurationoverlay use kube-default-master", "roles"], "assign KUBELET", "kubelet"),
    ],
)
async def test_item_017_add_of_a_name_that_is_there_is_refused(
    desk: Desk, way: list[str], line: str, name: str
) -> None:
    await desk.do(*way)
    before = desk.prompt
    assert name in (await desk.fails(line)).err
    assert desk.prompt == before


async def test_item_018_add_with_a_type_makes_an_object_of_that_type(desk: Desk) -> None:
    await desk.do("category use default", "roles", "assign docker::host", "storagebackends")
    for word in ("aufs", "devicemapper", "overlay2"):
        await desk.do(f"add {word} a-{word}")
        assert dict((await desk.table("show")).rows)["Type"] == word
        await desk.do("..")
    assert "zfs" in (await desk.fails("add zfs more")).err


async def test_item_019_removing_and_committing_at_the_list_prints_both_counts(desk: Desk, site_head: Head) -> None:
    await desk.do("configurationoverlay", "remove kube-default-etcd")
    assert desk.prompt == "[basecm10->configurationoverlay*]% "
    assert (await desk.do("commit")).splitlines() == [
        "Successfully removed 1 ConfigurationOverlays",
        "Successfully committed 0 ConfigurationOverlays",
    ]
    assert desk.prompt == "[basecm10->configurationoverlay]% "
    assert site_head.tree.find("configurationoverlay", "kube-default-etcd") is None


async def test_item_019_the_counts_are_those_of_what_was_removed_and_changed(desk: Desk) -> None:
    await desk.do("network", "add a", "..", "add b", "..", "set externalnet domainname x")
    out = await desk.do("commit")
    assert "Successfully committed 3 Networks" in out
    await desk.do("remove a", "remove b", "set externalnet domainname y")
    out = await desk.do("commit")
    assert "Successfully removed 2 Networks" in out
    assert "Successfully committed 1 Networks" in out


async def test_item_020_staged_removals_keep_the_indexes_and_a_commit_counts_anew(desk: Desk) -> None:
    await desk.do("device use master", "roles", "use firewall", "openports")
    await desk.do("add ACCEPT net 10443 tcp fw", "commit", "..")
    await desk.do("remove 0", "remove 1")
    assert (await desk.table("list")).column("Index") == ["2"]
    assert await desk.do("add ACCEPT net 443 tcp fw") == "ok.\n"
    assert desk.prompt.endswith("openports*[3]]% ")
    table = await desk.table("list")
    assert (table.column("Index"), table.column("Port")) == (["2", "3"], ["10443", "443"])
    await desk.do("commit")
    table = await desk.table("list")
    assert (table.column("Index"), table.column("Port")) == (["0", "1"], ["10443", "443"])


async def test_item_022_a_submode_with_the_name_of_its_object_selects_and_enters(desk: Desk) -> None:
    await desk.do("kubernetes", "appgroups", "applications system")
    assert desk.prompt == "[basecm10->kubernetes[default]->appgroups[system]->applications]% "
    await desk.do("environment calico")
    assert desk.prompt.endswith("->applications[calico]->environment]% ")


async def test_item_023_master_is_the_active_head_node(desk: Desk) -> None:
    await desk.do("device use master")
    assert desk.prompt == "[basecm10->device[basecm10]]% "


@pytest.mark.parametrize("typed", ["docker::host", "DOCKER::HOST", "Docker::Host"])
async def test_item_024_roles_are_found_whatever_their_case_and_shown_as_they_are_written(
    desk: Desk, typed: str
) -> None:
    await desk.do("category use default", "roles", f"assign {typed}")
    assert desk.prompt.endswith("roles*[Docker::Host*]]% ")
    await desk.do("..", f"use {typed.lower()}")
    assert desk.prompt.endswith("roles*[Docker::Host*]]% ")
    assert "Docker::Host" in await desk.do("..", "list")
    await desk.do(f"remove {typed}")
    assert desk.prompt == "[basecm10->category[default]->roles]% "


async def test_item_036_the_second_of_two_commits_is_refused_and_names_the_first(desk: Desk, other: Desk) -> None:
    await desk.do("kubernetes", "set notes mine")
    await other.do("kubernetes", "set version other", "commit")
    said = await desk.fails("commit")
    assert "bob" in said.err and "revision 2" in said.err
    assert desk.prompt == "[basecm10->kubernetes*[default*]]% ", "what was typed is still there"
    assert await desk.do("get notes") == "mine\n"


async def test_item_036_refresh_takes_the_others_and_the_edit_can_be_made_again(desk: Desk, other: Desk) -> None:
    await desk.do("kubernetes", "set notes mine")
    await other.do("kubernetes", "set version other", "commit")
    await desk.fails("commit")
    await desk.do("refresh")
    assert desk.prompt == "[basecm10->kubernetes[default]]% "
    await desk.do("set notes mine", "commit")
    assert await desk.do("get version") == "other\n"
    assert await desk.do("get notes") == "mine\n"


async def test_item_036_force_overwrites(desk: Desk, other: Desk) -> None:
    await desk.do("kubernetes", "set notes mine")
    await other.do("kubernetes", "set version other", "commit")
    await desk.fails("commit")
    await desk.do("commit --force")
    assert await desk.do("get notes") == "mine\n"


async def test_item_036_edits_of_different_objects_do_not_meet(desk: Desk, other: Desk) -> None:
    await desk.do("category use default", "set notes mine")
    await other.do("category use gpu-nodes", "set notes other", "commit")
    await desk.do("commit")
    assert await desk.do("category", "get gpu-nodes notes") == "other\n"
    assert await desk.do("get default notes") == "mine\n"


async def test_item_037_node_ranges_are_understood_and_shown_short(desk: Desk) -> None:
    await desk.do("configurationoverlay", "add rack", "set nodes node00[4-6],node001")
    assert await desk.do("get nodes") == "node001\nnode004\nnode005\nnode006\n"
    assert dict((await desk.table("show")).rows)["Nodes"] == "node001,node004..node006"
    await desk.do("set nodes node00[1-2]")
    assert dict((await desk.table("show")).rows)["Nodes"] == "node001,node002"
    await desk.do("set nodes node001..node003", "append nodes node004", "removefrom nodes node00[1-2]")
    assert dict((await desk.table("show")).rows)["Nodes"] == "node003,node004"


BAD = [
    ("kubernetes", "external", "maybe"),
    ("kubernetes", "kubernetesapiserverproxyport", "70000"),
    ("kubernetes", "kubernetesapiserverproxyport", "many"),
    ("kubernetes", "kubednsip", "10.150.255.999"),
    ("kubernetes", "kubernetesapiserver", "ftp://x"),
    ("network use internalnet", "baseaddress", "10.141.0.0/16"),
    ("network use internalnet", "netmaskbits", "129"),
    ("network use internalnet", "type", "Neither"),
    ("device use node001", "mac", "00:11"),
    ("device use node001", "nextinstallmode", "SOMETIMES"),
    ("configurationoverlay use kube-default-etcd", "priority", "high"),
    ("configurationoverlay use kube-default-etcd", "nodes", "node00[6-4]"),
    ("softwareimage use default-image", "path", "cm/images"),
    ("user", "role", "king"),
    ("healthcheck", "interval", "soon"),
]


@pytest.mark.parametrize(("way", "name", "value"), BAD)
async def test_item_038_a_bad_value_is_refused_with_the_parameter_named(
    desk: Desk, way: str, name: str, value: str
) -> None:
    await desk.do(way)
    if desk.prompt.count("[") == 1:
        await desk.do("add someone")
    before = desk.prompt
    said = await desk.fails(f"set {name} {value}")
    assert said.err.startswith(f"error: {name}: ") and value in said.err
    assert desk.prompt == before


async def test_item_038_a_bad_network_of_a_port_is_refused(desk: Desk) -> None:
    await desk.do("device use master", "roles", "use firewall", "openports", "use 0")
    assert "address: " in (await desk.fails("set address 10.0.0.1/8")).err
    assert "port: " in (await desk.fails("set port 70000")).err


@pytest.mark.parametrize(
    ("way", "line", "named"),
    [
        ("kubernetes", "set etcdcluster missing", "missing"),
        ("kubernetes", "set servicenetwork kube-default-pod", "overlaps"),
        ("device use node001", "set category missing", "missing"),
        ("device use node001", "set ip 10.141.0.2", "node002"),
        ("network use internalnet", "set netmaskbits 8", "baseaddress"),
    ],
)
async def test_item_038_what_only_the_whole_shows_is_refused_at_the_commit(
    desk: Desk, way: str, line: str, named: str
) -> None:
    await desk.do(way)
    said = await desk.type(line)
    if said.code == 0:
        said = await desk.fails("commit")
        assert "*" in desk.prompt, "what was typed is still there"
    assert named in said.err


async def test_item_038_what_others_need_cannot_be_removed(desk: Desk) -> None:
    await desk.do("category", "remove default")
    said = await desk.fails("commit")
    assert "default" in said.err and "node001" in said.err


async def test_item_039_quit_with_staged_changes_says_what_would_be_lost_and_leaves_when_asked_again(
    desk: Desk, site_head: Head
) -> None:
    desk.interactive = True
    desk.leave()
    await desk.do("kubernetes", "set notes passing")
    said = await desk.type("quit")
    assert "kubernetes[default]" in said.out + said.err
    assert not desk.shell.is_over
    assert await desk.do("get notes") == "passing\n", "it is still there"
    await desk.type("quit")
    assert desk.shell.is_over
    assert site_head.revision == 1


async def test_item_039_a_script_that_ends_with_staged_changes_drops_them_with_a_warning(
    desk: Desk, site_head: Head
) -> None:
    await desk.do("kubernetes", "set notes passing")
    said = (await desk.type("quit")).err + desk.finish()
    assert desk.shell.is_over
    assert said.count("warning") == 1 and "kubernetes[default]" in said
    assert site_head.revision == 1


async def test_item_039_quit_without_changes_just_leaves(desk: Desk) -> None:
    said = await desk.type("quit")
    assert said == (0, "", "")
    assert desk.shell.is_over
