"""set, append, removefrom, clear, add, clone, remove, options: what they stage, and what they refuse."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.ui.cmsh.machine import Host
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend


async def test_several_objects_are_set_at_once(desk: Desk) -> None:
    await desk.do("device", "set node00[1-3] notes rack one", "set -n node004,node005 notes 'rack two'")
    out = await desk.do("get -n node00[1-6] notes")
    assert out.splitlines() == [
        "node001: rack one",
        "node002: rack one",
        "node003: rack one",
        "node004: rack two",
        "node005: rack two",
        "node006: ",
    ]
    await desk.do("set -c default notes all", "get -n node00[1-6] notes | sort -u")
    await desk.do("clear -n node00[1-6] notes")
    assert not desk.shell.left()


async def test_a_list_takes_words_and_commas_alike(desk: Desk) -> None:
    await desk.do("kubernetes", "set trusteddomains a,b c")
    assert await desk.do("get trusteddomains") == "a\nb\nc\n"
    await desk.do("append trusteddomains c d", "removefrom trusteddomains a b")
    assert await desk.do("get trusteddomains") == "c\nd\n"
    assert "'z'" in (await desk.fails("removefrom trusteddomains z")).err
    assert "one value" in (await desk.fails("append version 2")).err


async def test_values_may_begin_with_a_dash(desk: Desk) -> None:
    await desk.do("configurationoverlay use kube-default-master", "set priority -1")
    assert await desk.do("get priority") == "-1\n"
    await desk.do("kubernetes", "set notes -x", "get notes")
    assert await desk.do("get notes") == "-x\n"


async def test_a_key_is_not_set_and_the_way_around_is_named(desk: Desk) -> None:
    said = await desk.fails("category set default name other")
    assert "rename" in said.err
    assert "enter it" in (await desk.fails("category set default roles x")).err
    assert "cannot be set" in (await desk.fails("device set node001 type HeadNode")).err


async def test_a_parameter_without_a_value_says_what_may_stand_there(desk: Desk) -> None:
    said = await desk.fails("device set node001 nextinstallmode")
    assert said.code == 2
    assert "NOSYNC" in said.err


async def test_a_secret_is_asked_for_without_being_shown(site_head: Head) -> None:
    questions: list[str] = []
    out: list[str] = []

    async def secret(question: str) -> str | None:
        questions.append(question)
        return "hush"

    backend = LocalBackend(site_head, name="basecm10", identity=Identity.local("alice"))
    shell = Shell(backend, out.append, out.append, host=Host(secret=secret))
    assert await shell.run_line("kubernetes; set kubecakey; get kubecakey; show; diff; commit; history; audit") == 0
    assert questions == ["Kube CA Key: "]
    assert "hush" not in "".join(out)
    assert str(site_head.tree.get(("kubernetes", "default")).values["kube_ca_key"].reveal()) == "hush"  # type: ignore[union-attr]


async def test_a_secret_nobody_can_be_asked_for_can_come_from_a_file(desk: Desk, tmp_path: Path) -> None:
    assert "-f" in (await desk.fails("kubernetes set kubecakey")).err
    (tmp_path / "key").write_text("-----BEGIN KEY-----\nabc\n")
    await desk.do("kubernetes", f"set -f {tmp_path}/key kubecakey", "commit")
    assert await desk.do("get kubecakey") == "*****\n"


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("kubernetes set kubecakey abc", True),
        ("/; kubernetes; set KubeCaKey abc", True),
        ("user set admin token abc", True),
        ("set 'broken", True),
        ("get kubecakey", False),
        ("set notes abc", False),
    ],
)
def test_lines_with_secrets_are_known(desk: Desk, line: str, holds: bool) -> None:
    assert desk.shell.holds_secret(line) is holds


async def test_a_file_that_is_not_there_is_named(desk: Desk, tmp_path: Path) -> None:
    await desk.do("kubernetes", "appgroups", "add amd", "applications", "add plugin")
    assert "/nowhere/at/all" in (await desk.fails("set config /nowhere/at/all")).err
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in (await desk.fails(f"set config {tmp_path}/binary")).err
    await desk.do('set config ""')
    assert dict((await desk.table("show")).rows)["Config"] == "<0B>"


async def test_an_editor_that_fails_changes_nothing(site_head: Head) -> None:
    out: list[str] = []
    shell = Shell(LocalBackend(site_head, name="basecm10", identity=Identity.local("alice")), out.append, out.append)
    assert await shell.run_line("kubernetes; appgroups use system; applications use calico; set config") == 1
    assert "editor" in out[-1]
    assert not shell.left()


async def test_an_added_object_is_selected_and_a_second_of_its_name_refused(desk: Desk) -> None:
    await desk.do("category add gpu")
    assert desk.prompt == "[basecm10->category*[gpu*]]% "
    assert "use gpu" in (await desk.fails("add gpu")).err
    assert (await desk.fails("add one two")).code == 2
    assert "aufs" in (await desk.fails("category; use gpu; roles; assign docker::host; storagebackends; add one")).err


async def test_clone_copies_all_but_key_and_secrets(desk: Desk) -> None:
    await desk.do("kubernetes use default", "clone staging")
    assert desk.prompt == "[basecm10->kubernetes*[staging*]]% "
    rows = dict((await desk.table("show")).rows)
    assert rows["Version"] == "1.27.10-150500.1.1"
    assert rows["Kube CA Key"] == "< not set >"
    assert rows["App Groups"] == "<1 in submode>"
    await desk.do("/", "category clone default copied")
    assert desk.prompt == "[basecm10->category*[copied*]]% "


async def test_a_removed_object_is_left(desk: Desk) -> None:
    await desk.do("category add gpu", "remove")
    assert desk.prompt == "[basecm10->category]% "
    await desk.do("device remove node00[4-5] node006")
    assert desk.shell.left() == ["device[node004]", "device[node005]", "device[node006]"]


@pytest.mark.parametrize("value", ["10.0.0.1/40", "300.1.1.1/24", "10.0.0", "fd00::1/129", "x"])
async def test_an_address_that_cannot_be_is_refused_when_it_is_set(desk: Desk, value: str) -> None:
    await desk.do("category use default", "roles", "assign docker::host")
    assert (await desk.fails(f"set bridgeip {value}")).err.startswith("error: bridgeip: ")
    for good in ("10.0.0.1/24", "10.0.0.1", "fd00::1/64", "''"):
        await desk.do(f"set bridgeip {good}")


@pytest.mark.parametrize("text", ["52-54-00-AB-cd-01", "5254.00AB.cd01", "525400ABcd01", "52:54:00:AB:cd:01"])
async def test_a_mac_address_may_have_dashes(desk: Desk, text: str) -> None:
    await desk.do(f"device set node001 mac {text}")
    assert await desk.do("device get node001 mac") == "52:54:00:AB:cd:01\n"
    await desk.fails("device set node001 mac 52-54-00-AB-cd")


async def test_a_rule_that_cannot_be_is_refused_when_it_is_added(desk: Desk) -> None:
    await desk.do("device use master", "roles use firewall", "openports")
    before = await desk.do("list")
    assert "port: a rule needs one" in (await desk.fails("add ACCEPT net")).err
    assert "DNAT" in (await desk.fails("add DNAT net 443 tcp fw")).err
    assert await desk.do("list") == before
    await desk.do("add ACCEPT net 443")


async def test_errors_name_parameters_as_they_are_typed(desk: Desk) -> None:
    await desk.do("category set default softwareimage nowhere")
    assert "category[default]: softwareimage names softwareimage 'nowhere'" in (await desk.fails("category commit")).err
    await desk.do("revert", "softwareimage; remove default-image")
    assert "category[default] (softwareimage)" in (await desk.fails("commit")).err
    assert "nextinstallmode: " in (await desk.fails("device set node001 nextinstallmode x")).err


async def test_a_renamed_object_takes_its_references_along(desk: Desk, site_head: Head) -> None:
    await desk.do("device use node001", "rename node101")
    assert desk.prompt == "[basecm10->device*[node101*]]% "
    modified = (await desk.table("modified")).rows
    assert ["device", "node101", "PhysicalNode", "renamed from node001"] in modified
    assert ["device", "node001", "PhysicalNode", "removed"] in modified
    await desk.do("commit")
    assert not desk.shell.left(), "what belongs together is committed together"
    assert site_head.tree.find("device", "node001") is None
    nodes = await desk.do("configurationoverlay get kube-default-master nodes")
    assert "node101" in nodes.split() and "node001" not in nodes.split()
    await desk.do("category rename default standard", "/", "commit")
    assert await desk.do("device get node101 category") == "standard\n"


async def test_a_rename_is_dropped_whole(desk: Desk, site_head: Head) -> None:
    await desk.do("category use default", "rename standard", "refresh")
    assert not desk.shell.left()
    assert desk.shell.desk.session.tree == site_head.tree


async def test_what_cannot_be_renamed(desk: Desk) -> None:
    assert "already" in (await desk.fails("device rename node001 node002")).err
    assert "head" in (await desk.fails("device rename basecm10 other")).err
    assert "rename" in (await desk.fails("device set node001 hostname other")).err
    await desk.fails("device use master; roles; rename firewall other")
    await desk.fails("device rename nodeTYPO other")
    assert desk.prompt == "[basecm10->device]% "
    assert not desk.shell.left()


async def test_two_objects_exchange_their_names(desk: Desk, site_head: Head) -> None:
    await desk.do("device set node001 notes one; device set node004 notes four; device commit")
    overlay = set((await desk.do("configurationoverlay get kube-default-master nodes")).split())
    await desk.do("device swap node001 node004", "device use node001", "commit")
    assert not desk.shell.left()
    assert await desk.do("device get node001 notes") == "four\n"
    assert await desk.do("device get node004 notes") == "one\n"
    after = set((await desk.do("configurationoverlay get kube-default-master nodes")).split())
    assert after == overlay - {"node001"} | {"node004"}
    await desk.fails("device swap node001 node001")
    await desk.fails("device swap node001 basecm10")


async def test_what_uses_an_object_is_listed(desk: Desk) -> None:
    rows = (await desk.table("softwareimage usedby default-image")).rows
    assert ["default-image", "category", "default", "softwareimage"] in rows
    await desk.do("category use default")
    assert ["default", "device", "node001", "category"] in (await desk.table("usedby")).rows
    assert (await desk.fails("device use master; roles; usedby firewall")).code == 2


async def test_validate_tells_what_a_commit_would(desk: Desk, site_head: Head) -> None:
    assert await desk.do("validate") == "ok.\n"
    await desk.do("category use default", "set softwareimage nowhere")
    before = site_head.revision
    assert "nowhere" in (await desk.fails("validate")).err
    assert "nowhere" in (await desk.fails("/; validate")).err
    assert await desk.do("device use node001; validate") == "ok.\n"
    assert site_head.revision == before


async def test_a_device_is_a_compute_node_unless_said_otherwise(desk: Desk) -> None:
    await desk.do("device", "add node777")
    assert await desk.do("get type") == "PhysicalNode\n"
    await desk.do("..", "add headnode head2")
    assert await desk.do("get type") == "HeadNode\n"
    assert (await desk.fails("device add physicalnode")).code == 2
    assert "device takes add [type] <name> (types: headnode, physicalnode)" in (await desk.fails("device add")).err


async def test_roles_are_assigned_and_unassigned_where_roles_are(desk: Desk) -> None:
    assert "roles" in (await desk.fails("category use default; assign docker::host")).err
    await desk.do("use default", "roles", "assign DOCKER::host")
    assert desk.prompt == "[basecm10->category*[default*]->roles*[Docker::Host*]]% "
    await desk.do("unassign docker::HOST")
    assert desk.prompt == "[basecm10->category[default]->roles]% "
    assert "Etcd::Host" in (await desk.fails("assign docker")).err


async def test_kubelet_options_are_set_changed_and_cleared(desk: Desk) -> None:
    await desk.do("configurationoverlay use kube-default-master", "roles")
    assert (await desk.fails("options kube-apiserver.yaml")).code == 2
    await desk.do("options kubelet kube-apiserver.yaml set audit-log-maxage=7", "use kubelet")
    await desk.do("options kube-apiserver.yaml set audit-log-maxage=8", "options etcd.yaml set sidecar verbose")
    rows = (await desk.table("options")).rows
    assert ["kube-apiserver.yaml", "kube-apiserver", "audit-log-maxage", "8"] in rows
    assert ["etcd.yaml", "sidecar", "verbose", ""] in rows
    assert await desk.do("options etcd.yaml -d ,") == "Filename,Container,Key,Value\netcd.yaml,sidecar,verbose,\n"
    long = "https://" + "x" * 60
    await desk.do(f"options etcd.yaml set url={long}")
    assert long not in await desk.do("options")
    assert long in await desk.do("options -v")
    await desk.do("options /etc/kubernetes/manifests/etcd.yaml clear sidecar verbose")
    assert "verbose" in (await desk.fails("options etcd.yaml clear sidecar verbose")).err
    assert "kube-scheduler.yaml" in (await desk.fails("options kube-proxy.yaml set a=b")).err
    assert (await desk.fails("options etcd.yaml put a=b")).code == 2


async def test_foreach_runs_commands_for_each_object_and_comes_back(desk: Desk) -> None:
    await desk.do("device use node006")
    assert await desk.do("foreach -n node00[1-2] (set notes 'a;b'; get notes)") == "a;b\na;b\n"
    assert desk.prompt == "[basecm10->device*[node006]]% "
    assert await desk.do("foreach -v node001 node002 (get ip)") == "node001:\n10.141.0.1\nnode002:\n10.141.0.2\n"
    assert (await desk.do("foreach * (get network) | sort | uniq -c")).split() == ["7", "internalnet"]


@pytest.mark.parametrize(
    "line", ["foreach * get notes", "foreach (get notes)", "foreach * (get notes | wc)", "foreach * (!date)"]
)
async def test_foreach_says_what_it_lacks(desk: Desk, line: str) -> None:
    await desk.do("category")
    assert (await desk.fails(line)).code == 2


async def test_foreach_goes_on_with_the_next_object_after_a_failure(desk: Desk) -> None:
    said = await desk.fails("device foreach * (set notes x; get category)")
    assert said.code == 1
    assert "device[basecm10]" in said.err
    assert said.out == "default\n" * 6
    assert len(desk.shell.left()) == 7


async def test_an_export_is_written_for_its_owner_alone_and_imported_again(desk: Desk, tmp_path: Path) -> None:
    await desk.do(f"export {tmp_path}/site.yaml")
    (tmp_path / "taken").write_text("mine")
    assert "already exists" in (await desk.fails(f"export {tmp_path}/taken")).err
    assert (tmp_path / "taken").read_text() == "mine"
    await desk.do(f"export --force {tmp_path}/taken")
    assert (tmp_path / "taken").read_text() == (tmp_path / "site.yaml").read_text()
    assert sorted(path.name for path in tmp_path.glob("*t*")) == ["site.yaml", "taken"]
    assert stat.S_IMODE((tmp_path / "site.yaml").stat().st_mode) == 0o600
    assert (tmp_path / "site.yaml").read_text() == await desk.do("export")
    await desk.do(f"import {tmp_path}/site.yaml")
    assert not desk.shell.left()
    text = (tmp_path / "site.yaml").read_text().replace("10.141.0.1\n", "10.141.9.9\n")
    (tmp_path / "site.yaml").write_text(text)
    assert "10.141.9.9" in await desk.do(f"import {tmp_path}/site.yaml --dry-run")
    assert not desk.shell.left()
    await desk.do(f"import {tmp_path}/site.yaml")
    assert desk.shell.left() == ["device[node001]"]
    await desk.do("commit")
    assert await desk.do("device get node001 ip") == "10.141.9.9\n"


async def test_an_import_can_remove_what_the_file_does_not_name(desk: Desk, tmp_path: Path) -> None:
    await desk.do(
        f"export {tmp_path}/site.yaml", "category add spare", "/", "commit", f"import --prune {tmp_path}/site.yaml"
    )
    assert desk.shell.left() == ["category[spare]"]
    assert "<removed>" in await desk.do("diff")


async def test_secrets_are_exported_only_when_somebody_agrees(desk: Desk) -> None:
    assert "sesame" not in await desk.do("export")
    assert "confirmed" in (await desk.fails("export --with-secrets")).err
    assert "sesame-three" in await desk.do("export --with-secrets --yes")


async def test_files_that_cannot_be_imported_or_written_are_named(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("format: something else\n")
    for line in (f"import {tmp_path}/none.yaml", f"import {tmp_path}/bad.yaml", f"export {tmp_path}/none/site.yaml"):
        assert (await desk.fails(line)).code == 1
    assert not desk.shell.left()
