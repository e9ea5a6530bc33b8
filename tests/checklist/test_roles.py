"""Checklist F from the shell, as far as no node is needed: etcd, static pods' flags, drop-ins, proxy, firewall."""

from __future__ import annotations

import pytest
from tests.checklist.test_docker import planned
from tests.ui.transcripts.driving import Desk

ETCD = ("configurationoverlay use kube-default-etcd", "roles", "use etcd::host")
KUBELET = ("configurationoverlay use kube-default-master", "roles", "use kubelet")
CONTAINERD = ("configurationoverlay use kube-default-worker", "roles", "use generic::containerd")
CRI = "/cm/local/apps/containerd/var/etc/conf.d/cri.toml"


async def file_on(desk: Desk, node: str, path: str) -> str:
    return await desk.do(f"device explain -v {node} {path}")


async def test_item_118_the_members_file_has_the_options_of_the_table(desk: Desk) -> None:
    await desk.do(*ETCD)
    conf = await file_on(desk, "node002", "/cm/local/apps/etcd/current/etc/cm-etcd.conf")
    for text in ("node002", "/var/lib/etcd", "http://node002:5001", "http://node002:5002", "127.0.0.1:2379", "5000"):
        assert text in conf, text
    assert "$hostname" not in conf
    await desk.do("set snapshotcount 777", "set spool /data/etcd")
    conf = await file_on(desk, "node002", "/cm/local/apps/etcd/current/etc/cm-etcd.conf")
    assert "777" in conf and "/data/etcd" in conf


async def test_item_119_a_members_certificate_beats_the_clusters(desk: Desk) -> None:
    await desk.do("etcd", "set membercertificate /pki/cluster.crt", "set membercertificatekey /pki/cluster.key")
    path = "/cm/local/apps/etcd/current/etc/cm-etcd.conf"
    assert "/pki/cluster.crt" in await file_on(desk, "node001", path)
    await desk.do(*ETCD, "set membercertificate /pki/own.crt", "set membercertificatekey /pki/own.key")
    conf = await file_on(desk, "node001", path)
    assert "/pki/own.crt" in conf and "/pki/own.key" in conf and "/pki/cluster" not in conf


async def test_item_120_options_puts_flags_in_lists_them_in_four_columns_and_takes_them_away(desk: Desk) -> None:
    await desk.do(*KUBELET, "options kube-apiserver.yaml set advertise-address=192.168.200.148")
    await desk.do("options /etc/kubernetes/manifests/kube-scheduler.yaml set profiling")
    table = await desk.table("options")
    assert table.headers == ["Filename", "Container", "Key", "Value"]
    assert table.rows == [
        ["kube-apiserver.yaml", "kube-apiserver", "advertise-address", "192.168.200.148"],
        ["kube-scheduler.yaml", "kube-scheduler", "profiling", ""],
    ]
    assert (await desk.table("options kube-scheduler.yaml")).rows == table.rows[1:]
    flags = {row[1]: row[2] for row in (await desk.table("device explain node001")).rows if row[0] == "flag"}
    assert flags == {
        "kube-apiserver.yaml:kube-apiserver:advertise-address": "--advertise-address=192.168.200.148",
        "kube-scheduler.yaml:kube-scheduler:profiling": "--profiling",
    }
    await desk.do("options kube-apiserver.yaml set advertise-address=10.0.0.1")
    assert (await desk.table("options")).rows[0][3] == "10.0.0.1", "a flag is there once"
    await desk.do("options kube-apiserver.yaml clear advertise-address", "options kube-scheduler.yaml clear profiling")
    assert (await desk.table("options")).rows == []


async def test_item_120_the_role_is_named_at_the_list(desk: Desk) -> None:
    await desk.do(*KUBELET[:2], "options kubelet kube-apiserver.yaml set kube-apiserver v=4")
    assert (await desk.table("options kubelet")).rows == [["kube-apiserver.yaml", "kube-apiserver", "v", "4"]]


@pytest.mark.parametrize("name", ["kube-apiserver", "coredns.yaml", "/etc/passwd", "../kube-apiserver.yaml"])
async def test_item_122_an_unknown_manifest_is_refused(desk: Desk, name: str) -> None:
    await desk.do(*KUBELET)
    assert name in (await desk.fails(f"options {name} set v=4")).err


async def test_item_123_the_main_file_imports_the_drop_ins_and_a_change_restarts(desk: Desk) -> None:
    conf = await file_on(desk, "node004", "/cm/local/apps/containerd/var/etc/config.toml")
    assert 'imports = ["/cm/local/apps/containerd/var/etc/conf.d/*.toml"]' in conf
    await desk.do(*CONTAINERD, "configurations", "use containerd-cri", "set content {files}/690")
    assert ["node004", "service", "containerd", "restart"] in await planned(desk)


async def test_item_123_a_configuration_that_is_removed_takes_its_file_away(desk: Desk) -> None:
    await desk.do(*CONTAINERD, "configurations", "remove containerd-cri")
    actions = await planned(desk)
    assert ["node004", "file", CRI, "remove"] in actions


async def test_item_123_mode_and_owner_are_those_of_the_configuration(desk: Desk) -> None:
    await desk.do(*CONTAINERD, "configurations", "use containerd-cri")
    await desk.do("set filemask 0600", "set username daemon", "set groupname staff")
    (row,) = [row for row in (await desk.table("device explain -v node004")).rows if row[1] == CRI]
    assert row[0] == "file" and row[2].startswith("0600 daemon:staff")


async def test_item_124_a_disabled_configuration_is_no_longer_managed(desk: Desk) -> None:
    await desk.do(*CONTAINERD, "configurations", "use containerd-cri", "set disabled yes")
    actions = await planned(desk)
    assert next(action[3] for action in actions if action[1:3] == ["file", CRI]) not in ("remove", "change")
    assert (await desk.fails(f"device explain -v node004 {CRI}")).err


async def test_item_125_the_roles_environment_is_put_into_its_files(desk: Desk) -> None:
    (desk.files / "cri.toml").write_text('sandbox_image = "$sandbox"\nother = "${sandbox}"\ncost = "$$5"\n')
    await desk.do(*CONTAINERD, "configurations", "use containerd-cri", "set content {files}/cri.toml")
    assert await file_on(desk, "node004", CRI) == 'sandbox_image = "pause"\nother = "pause"\ncost = "$5"\n'


async def test_item_126_excluded_paths_stand_in_the_nodes_list(desk: Desk) -> None:
    await desk.do(*CONTAINERD, "excludelistsnippets", "add more", "set excludelist /scratch,/var/spool/x")
    names = {row[1] for row in (await desk.table("device explain node004")).rows if row[0] == "exclude"}
    assert {"sync:/scratch", "update:/scratch", "sync:/var/spool/x", "sync:/var/lib/containerd"} <= names


async def test_item_128_the_ingress_extras_put_a_listener_on_443_and_reload_the_proxy(desk: Desk) -> None:
    conf = await file_on(desk, "basecm10", "/etc/nginx/nginx.conf")
    assert "listen 10443;" in conf and "listen 443;" not in conf
    await desk.do("kubernetes", "set -e ingress_proxy_backend_port 30443")
    await desk.do("set -e ingress_proxy_listen_port 443", "set -e ingress_proxy_enable true")
    conf = await file_on(desk, "basecm10", "/etc/nginx/nginx.conf")
    assert "listen 443;" in conf and "10.141.0.1:30443" in conf
    actions = await planned(desk)
    assert ["basecm10", "service", "nginx", "reload"] in actions
    await desk.do("set -e ingress_proxy_enable false")
    assert "listen 443;" not in await file_on(desk, "basecm10", "/etc/nginx/nginx.conf")


async def test_item_132_a_dnat_row_gives_shorewalls_line(desk: Desk) -> None:
    await desk.do("device use master", "roles", "use firewall", "openports")
    await desk.do("add DNAT net 30443 tcp nat:10.141.0.1:30443")
    rules = await file_on(desk, "basecm10", "/etc/shorewall/rules")
    assert ["DNAT", "net", "nat:10.141.0.1:30443", "tcp", "30443"] in [line.split() for line in rules.splitlines()]
