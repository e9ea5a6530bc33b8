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
    headers, (block,) = list_table(SCHEMA.mode("configurationoverlay"), tree.mode("configurationoverlay"))
    rows = [list(row) for row in zip(*block.columns, strict=True)]
    assert headers[0] == "Name (key)"
    assert rows == [
        ["kube-default-etcd", 500, False, "node001..node003", "", "Etcd::Host"],
        ["kube-default-master", 510, False, "node001..node003", "", "generic::containerd,kubelet"],
        ["kube-default-worker", 500, False, "node004..node006", "default", "generic::containerd,kubelet"],
    ]


def test_a_list_of_several_types_leaves_blank_what_one_of_them_lacks() -> None:
    tree = sites.manual()
    headers, (block,) = list_table(SCHEMA.mode("device"), tree.mode("device"))
    rows = [list(row) for row in zip(*block.columns, strict=True)]
    assert headers == ["Hostname (key)", "Type", "MAC", "Category", "IP", "Network"]
    assert rows[0] == ["basecm10", "HeadNode", "", "", "", ""]
    assert rows[1] == ["node001", "PhysicalNode", "", "default", "", ""]


def test_an_indexed_list_is_sorted_by_number() -> None:
    ports = {str(number): Obj("OpenPort", str(number), {"port": "443"}) for number in (10, 9, 0)}
    (submode,) = SCHEMA.types["FirewallRole"].submodes
    headers, (block,) = list_table(submode, ports)
    rows = [list(row) for row in zip(*block.columns, strict=True)]
    assert headers == ["Index", "Action", "Network", "Port", "Destination", "Protocol", "Address", "Description"]
    assert [row[0] for row in rows] == ["0", "9", "10"]
    assert rows[0][1:] == ["ACCEPT", "net", "443", "fw", "TCP", "0.0.0.0/0", ""]


def test_names_of_roles_stand_in_the_order_of_the_alphabet_whatever_their_case() -> None:
    roles = {name: Obj(kind, name) for name, kind in [("kubelet", "KubeletRole"), ("Etcd::Host", "EtcdHostRole")]}
    overlay = Obj("ConfigurationOverlay", "o", children={"roles": {**roles, "capi": Obj("CapiRole", "capi")}})
    assert dict(show_rows(SCHEMA, overlay))["Roles"] == "capi,Etcd::Host,kubelet"


def test_what_is_listed_again_is_read_again_where_it_changed() -> None:
    devices = {f"node{number:04}": Obj("PhysicalNode", f"node{number:04}") for number in range(1700)}
    _, before = list_table(SCHEMA.mode("device"), devices)
    assert [len(block.columns[0]) for block in before] == [500, 500, 500, 200]

    def again(changed: dict[str, Obj]) -> list[bool]:
        """Of which blocks the list is new; it is the same as one that was never read before."""
        _, blocks = list_table(SCHEMA.mode("device"), changed, before=before)
        assert [block.columns for block in blocks] == [
            block.columns for block in list_table(SCHEMA.mode("device"), changed)[1]
        ]
        return [index >= len(before) or block is not before[index] for index, block in enumerate(blocks)]

    assert again(devices) == [False] * 4
    assert again(devices | {"node0700": Obj("PhysicalNode", "node0700", {"ip": "10.0.0.1"})}) == [
        False,
        True,
        False,
        False,
    ]
    assert again(devices | {"node1700": Obj("PhysicalNode", "node1700")}) == [False, False, False, True]
    assert again({key: device for key, device in devices.items() if key != "node1699"}) == [False, False, False, True]
    assert again({key: device for key, device in devices.items() if key != "node0000"}) == [True] * 4
    assert again({}) == []
    more = {f"x{number}": Obj("PhysicalNode", f"x{number}") for number in range(500)}
    assert again(devices | more) == [False, False, False, True, True]
