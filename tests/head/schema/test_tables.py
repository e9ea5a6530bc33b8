"""The cells of `show` and `list`."""

from __future__ import annotations

from tests.head import sites

from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.schema.tables import list_table, show_rows


def test_item_021_extras_come_first_by_name() -> None:
    obj = Obj("KubeCluster", "default", extras={"b_port": "443", "a_enable": "true"})
    rows = show_rows(SCHEMA, obj)
    assert rows[:3] == [("a_enable", "true"), ("b_port", "443"), ("Name", "default")]


def test_item_011_a_list_has_a_row_per_object_sorted_by_key() -> None:
    tree = sites.manual()
    headers, columns = list_table(SCHEMA, SCHEMA.mode("configurationoverlay"), tree.mode("configurationoverlay"))
    rows = [list(row) for row in zip(*columns, strict=True)]
    assert headers[0] == "Name (key)"
    assert rows == [
        ["kube-default-etcd", 500, False, "node001..node003", "", "Etcd::Host"],
        ["kube-default-master", 510, False, "node001..node003", "", "generic::containerd,kubelet"],
        ["kube-default-worker", 500, False, "node004..node006", "default", "generic::containerd,kubelet"],
    ]


def test_a_list_of_several_types_leaves_blank_what_one_of_them_lacks() -> None:
    tree = sites.manual()
    headers, columns = list_table(SCHEMA, SCHEMA.mode("device"), tree.mode("device"))
    rows = [list(row) for row in zip(*columns, strict=True)]
    assert headers == ["Hostname (key)", "Type", "MAC", "Category", "IP", "Network"]
    assert rows[0] == ["basecm10", "HeadNode", "", "", "", ""]
    assert rows[1] == ["node001", "PhysicalNode", "", "default", "", ""]


def test_an_indexed_list_is_sorted_by_number() -> None:
    ports = {str(number): Obj("OpenPort", str(number), {"port": "443"}) for number in (10, 9, 0)}
    (submode,) = SCHEMA.types["FirewallRole"].submodes
    headers, columns = list_table(SCHEMA, submode, ports)
    rows = [list(row) for row in zip(*columns, strict=True)]
    assert headers == ["Index", "Action", "Network", "Port", "Destination", "Protocol", "Address", "Description"]
    assert [row[0] for row in rows] == ["0", "9", "10"]
    assert rows[0][1:] == ["ACCEPT", "net", "443", "fw", "TCP", "0.0.0.0/0", ""]


def test_names_of_roles_stand_in_the_order_of_the_alphabet_whatever_their_case() -> None:
    roles = {name: Obj(kind, name) for name, kind in [("kubelet", "KubeletRole"), ("Etcd::Host", "EtcdHostRole")]}
    overlay = Obj("ConfigurationOverlay", "o", children={"roles": {**roles, "capi": Obj("CapiRole", "capi")}})
    assert dict(show_rows(SCHEMA, overlay))["Roles"] == "capi,Etcd::Host,kubelet"
