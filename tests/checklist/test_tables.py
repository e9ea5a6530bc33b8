"""Checklist A, items 10 to 15, 21, 25 to 27 and 33: what show, list and get print."""

from __future__ import annotations

import json

import pytest
from tests.ui.transcripts.driving import Desk, read_table

# The rows of each entity, in the order in which `show` prints them.
ROWS = {
    ("category use default", "roles", "assign docker::host"): (
        "Name, Revision, Type, Add services, Spool, Tmp dir, Enable SELinux, Default Ulimits, Debug, Log Level,"
        " Bridge IP, Bridge, MTU, API Sockets, Iptables, User Namespace Remap, Insecure Registries, Enable TLS,"
        " Verify TLS, TLS CA, TLS Certificate, TLS Key, Certificates Path, Storage Backends, Containerd Socket,"
        " Runtime, Options"
    ),
    ("category use default", "roles", "assign docker::host", "storagebackends", "add devicemapper dm"): (
        "Name, Revision, Type, Loop Data Size, Loop Metadata Size, Loop Device Size, Pool Device, Filesystem,"
        " Block Size, Blk Discard, Mkfs Arguments, Mount Options"
    ),
    ("configurationoverlay use kube-default-master", "roles", "use generic::containerd"): (
        "Name, Revision, Type, Add services, Provisioning associations, Services, Configurations, Environments,"
        " Exclude list snippets, Data node"
    ),
    (
        "configurationoverlay use kube-default-master",
        "roles",
        "use generic::containerd",
        "configurations",
        "use containerd-cri",
    ): (
        "Name, Type, Create directory, Filename, Filemask directory, User name, Group name, Disabled,"
        " Service action on write, Service stop on failure, Content, Filemask"
    ),
    ("configurationoverlay use kube-default-master", "roles", "use kubelet"): (
        "Name, Revision, Type, Add services, Kubernetes Cluster, Control plane, Worker, Max Pods, Options"
    ),
    ("configurationoverlay use kube-default-etcd", "roles", "use etcd::host"): (
        "Name, Revision, Type, Add services, Etcd Cluster, Member Name, Spool, Advertise Client URLs,"
        " Advertise Peers URLs, Listen Client URLs, Listen Peer URLs, Snapshot Count, Debug, Member Certificate,"
        " Member Certificate Key, Options"
    ),
    ("configurationoverlay use kube-default-etcd",): (
        "Name, Revision, All head nodes, Priority, Nodes, Categories, Roles, Customizations"
    ),
    ("kubernetes",): (
        "Name, Revision, Etcd Cluster, Pod Network, Pod Network Node Mask, Internal Network, KubeDNS IP,"
        " Kubernetes API server, Kubernetes API server proxy port, App Groups, Label Sets, Notes, Version,"
        " Trusted domains, Module file template, Kubeadm init file, Service Network, Kubeadm CERT Key, Kube CA Cert,"
        " Kube CA Key, Kubernetes users, External, External Kubernetes Ingress server, External port, Capi template,"
        " Capi namespace, Kubernetes management cluster"
    ),
    ("kubernetes", "appgroups", "use system"): "Name, Revision, Enabled, applications",
    ("kubernetes", "appgroups", "applications system", "use calico"): (
        "Name, Revision, Format, Enabled, Config, Environment, Exclude list snippets"
    ),
    ("network use internalnet",): "Name, Revision, Base address, Netmask bits, Domain name, Type",
    ("device use node001", "services", "add nslcd"): (
        "Revision, Service, Run if, Monitored, Autostart, Timeout, Belongs to role, Sickness check script,"
        " Sickness check script timeout, Sickness check interval"
    ),
}
# Rows that must be there in this order; others may stand between them.
SOME_ROWS = {
    ("etcd",): (
        "Name, Election Timeout, Heart Beat Interval, CA, CA Key, Member Certificate, Member Certificate Key,"
        " Client CA, Client Certificate, Client Certificate Key"
    ),
    ("kubernetes", "labelsets", "use nvidia"): "Name, Labels, Nodes, Categories",
    ("softwareimage use default-image",): "Name, Path",
    ("device use master", "roles", "use firewall"): "Name, Revision, Type, Add services",
}
COLUMNS = {
    ("kubernetes",): "Name (key)",
    ("configurationoverlay",): "Name (key), Priority, All head nodes, Nodes, Categories, Roles",
    ("kubernetes", "appgroups"): "Name (key), Applications",
    ("kubernetes", "appgroups", "applications system"): "Name (key), Format, Enabled",
    ("kubernetes", "appgroups", "applications system", "environment calico"): "Name (key), Value, Nodes environment",
    ("configurationoverlay use kube-default-master", "roles", "environments generic::containerd"): (
        "Name (key), Value, Node Environment"
    ),
    ("device use node001", "services"): "Service (key), Monitored, Autostart",
    ("device use master", "roles", "openports firewall"): (
        "Index, Action, Network, Port, Destination, Protocol, Address, Description"
    ),
}


def words(text: str) -> list[str]:
    return text.split(", ")


@pytest.mark.parametrize("way", ROWS, ids=lambda way: "-".join(way))
async def test_item_010_show_prints_the_rows_of_the_documents_in_their_order(desk: Desk, way: tuple[str, ...]) -> None:
    await desk.do(*way)
    table = await desk.table("show")
    assert table.headers == ["Parameter", "Value"]
    assert table.column("Parameter") == words(ROWS[way])


@pytest.mark.parametrize("way", SOME_ROWS, ids=lambda way: "-".join(way))
async def test_item_010_show_has_the_documented_rows_among_others(desk: Desk, way: tuple[str, ...]) -> None:
    await desk.do(*way)
    wanted = words(SOME_ROWS[way])
    assert [label for label in (await desk.table("show")).column("Parameter") if label in wanted] == wanted


async def test_item_010_show_takes_a_name_at_the_list(desk: Desk) -> None:
    by_name = await desk.do("category", "show default")
    assert by_name == await desk.do("use default", "show") == await desk.do("category show default")


@pytest.mark.parametrize("way", COLUMNS, ids=lambda way: "-".join(way))
async def test_item_011_list_has_the_documented_columns(desk: Desk, way: tuple[str, ...]) -> None:
    await desk.do(*way)
    assert (await desk.table("list")).headers == words(COLUMNS[way])


async def test_item_011_list_has_one_row_for_each_object_sorted_by_its_key(desk: Desk) -> None:
    await desk.do("network")
    table = await desk.table("list")
    assert table.headers[0] == "Name (key)"
    assert table.column("Name (key)") == ["externalnet", "internalnet", "kube-default-pod", "kube-default-service"]
    await desk.do("add a-network")
    assert (await desk.table("list")).column("Name (key)")[0] == "a-network", "staged objects stand in it, too"


async def test_item_012_list_cuts_long_cells_with_a_plus_unless_told_not_to(desk: Desk) -> None:
    await desk.do("device use master", "roles", "use firewall", "openports")
    cut = (await desk.table("list")).column("Description")
    assert cut == ["Kubernetes 'default' In+"] * 2
    assert all(len(cell) == 24 for cell in cut)
    whole = (await desk.table("list -v")).column("Description")
    assert whole == ["Kubernetes 'default' Ingress HTTP", "Kubernetes 'default' Ingress HTTPS"]
    assert (await desk.table("list --verbose")).column("Description") == whole


async def test_item_013_get_prints_several_values_one_a_line_and_show_joins_them(desk: Desk) -> None:
    await desk.do("kubernetes", "set trusteddomains one.example,two.example,three.example")
    assert await desk.do("get trusteddomains") == "one.example\ntwo.example\nthree.example\n"
    rows = dict((await desk.table("show")).rows)
    assert rows["Trusted domains"] == "one.example,two.example,three.example"


async def test_item_014_an_inherited_value_tells_its_source_until_it_is_overridden(desk: Desk) -> None:
    await desk.do("device use node001")
    assert await desk.do("get softwareimage") == "default-image (category:default)\n"
    await desk.do("set softwareimage my-new-image")
    assert await desk.do("get softwareimage") == "my-new-image\n"
    await desk.do("clear softwareimage")
    assert await desk.do("get softwareimage") == "default-image (category:default)\n"


async def test_item_015_set_with_an_objects_name_works_at_the_list(desk: Desk) -> None:
    await desk.do("category", "set default notes changed")
    assert desk.prompt == "[basecm10->category*]% "
    assert await desk.do("get default notes") == "changed\n"
    await desk.do("use gpu-nodes")
    assert desk.prompt == "[basecm10->category*[gpu-nodes]]% "


async def test_item_021_extras_stand_first_in_show_by_name_and_last(desk: Desk) -> None:
    await desk.do("kubernetes", "set -e zebra 1", "set --extra ant two", "set -e Monkey 'a b'", "commit")
    desk.leave()
    await desk.do("kubernetes")
    rows = (await desk.table("show")).rows
    assert rows[:4] == [["Monkey", "a b"], ["ant", "two"], ["zebra", "1"], ["Name", "default"]]


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "<0B>"), (914, "<914B>"), (1034, "<1.01KiB>"), (1219, "<1.19KiB>"), (249856, "<244KiB>")]
)
async def test_item_025_a_file_is_taken_in_byte_for_byte_and_shown_by_its_size(
    desk: Desk, size: int, shown: str
) -> None:
    begin = "apiVersion: v1\nkind: Pod # äöü\n\nmetadata: {name: a}\r\n#\ttab\n" if size > 100 else ""
    content = begin + "#" * (size - len(begin.encode()))
    (desk.files / "config.yaml").write_bytes(content.encode())
    await desk.do("kubernetes", "appgroups", "applications system", "use root", "set config {files}/config.yaml")
    assert dict((await desk.table("show")).rows)["Config"] == shown
    assert await desk.do("get config") == content
    await desk.do("commit")
    desk.leave()
    await desk.do("kubernetes", "appgroups", "applications system", "use root")
    assert await desk.do("get config") == content


async def test_item_025_a_file_that_is_not_there_is_refused_by_name(desk: Desk) -> None:
    await desk.do("kubernetes", "appgroups", "applications system", "use root")
    said = await desk.fails("set config {files}/missing.yaml")
    assert "missing.yaml" in said.err
    assert "*" not in desk.prompt


async def test_item_026_set_without_a_value_opens_the_editor(desk: Desk) -> None:
    await desk.do("kubernetes", "appgroups", "applications system", "use dashboard_ingress")
    before = await desk.do("get config")
    await desk.type("set config")
    assert desk.edited == [before], "the editor begins with what is there"
    assert "*" not in desk.prompt, "saved as it was: nothing changed"
    desk.edits.append("kind: Other\n")
    await desk.do("set config")
    assert "applications*[dashboard_ingress*]" in desk.prompt
    assert await desk.do("get config") == "kind: Other\n"


async def test_item_027_secrets_are_shown_as_set_or_not_set_and_as_nothing_else(desk: Desk) -> None:
    await desk.do("kubernetes")
    rows = dict((await desk.table("show")).rows)
    assert [rows[label] for label in ("Kubeadm CERT Key", "Kube CA Cert", "Kube CA Key")] == ["*****"] * 3
    await desk.do("clear kubecakey")
    assert dict((await desk.table("show")).rows)["Kube CA Key"] == "< not set >"
    await desk.do("set kubecakey 'open sesame'")
    assert dict((await desk.table("show")).rows)["Kube CA Key"] == "*****"
    for line in ("get kubecakey", "show", "show -d {}", "diff", "plan", "plan -v", "commit", "history", "diff 2"):
        assert "sesame" not in (await desk.type(line)).out, line


async def test_item_033_another_delimiter_stands_between_the_columns(desk: Desk) -> None:
    lines = (await desk.do("category", "list -d ,")).splitlines()
    assert lines[0].split(",")[0] == "Name (key)"
    assert [line.split(",")[:2] for line in lines[1:]] == [["default", "default-image"], ["gpu-nodes", "default-image"]]
    assert (await desk.do("list --delimiter ' @ '")).splitlines()[-1].startswith("gpu-nodes @ default-image")


async def test_item_033_braces_give_json_and_a_digit_its_indentation(desk: Desk) -> None:
    out = await desk.do("category", "list -d {}")
    listed = json.loads(out)
    assert [row["Name"] for row in listed] == ["default", "gpu-nodes"]
    assert out.strip().count("\n") == 0
    indented = await desk.do("list -d {2}")
    assert json.loads(indented) == listed
    assert '\n  {\n    "Name": "default"' in indented
    shown = json.loads(await desk.do("use default", "show -d {}"))
    assert {"Parameter": "Name", "Value": "default"} in shown or shown == [{"Name": "default"}] or shown["Name"]


async def test_item_033_json_has_whole_cells(desk: Desk) -> None:
    await desk.do("device use master", "roles", "use firewall", "openports")
    listed = json.loads(await desk.do("list -d {}"))
    assert [row["Description"] for row in listed] == [
        "Kubernetes 'default' Ingress HTTP",
        "Kubernetes 'default' Ingress HTTPS",
    ]
    assert listed[0]["Port"] == "30080"
    assert read_table(await desk.do("list")).headers[0] == "Index"
