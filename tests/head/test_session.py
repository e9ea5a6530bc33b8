"""Staged edits: stars, indexes, lists, extras, clones, and what a commit takes."""

from __future__ import annotations

import pytest
from tests.head import sites

from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj, Secret
from bedplate.head.schema import tables
from bedplate.head.schema.entity import Path
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.head.validate import problems

DEFAULT = ("category", "default")
DOCKER = (*DEFAULT, "roles", "Docker::Host")
PORTS = ("device", "basecm10", "roles", "firewall", "open_ports")


def port(key: str, number: str, description: str = "") -> Obj:
    values = {"port": number} | ({"description": description} if description else {})
    return Obj("OpenPort", key, values)


@pytest.fixture
def session() -> Session:
    firewall = Obj(
        "FirewallRole", "firewall", children={"open_ports": {"0": port("0", "30080"), "1": port("1", "30443")}}
    )
    return Session(
        Tree(
            SCHEMA,
            [
                ("category", Obj("Category", "default")),
                ("device", Obj("HeadNode", "basecm10", children={"roles": {"firewall": firewall}})),
                ("device", Obj("PhysicalNode", "node001", {"category": "default"})),
                ("kubernetes", Obj("KubeCluster", "default", {"trusted_domains": ("a.example", "master")})),
            ],
        )
    )


def test_item_004_stars_stand_on_changed_levels_alone(session: Session) -> None:
    path = session.add((*DEFAULT, "roles"), "docker::host")
    assert path == DOCKER
    for changed in [("category",), DEFAULT, (*DEFAULT, "roles"), DOCKER]:
        assert session.is_changed(changed), changed
    for same in [("device",), ("device", "node001"), (*DEFAULT, "services")]:
        assert not session.is_changed(same), same


def test_item_005_a_submode_without_a_change_has_no_star(session: Session) -> None:
    group = session.add(("kubernetes", "default", "app_groups"), "amd")
    assert session.is_changed((*group[:-1],))
    assert session.is_changed(group)
    assert not session.is_changed((*group, "applications"))


def test_item_006_after_a_commit_no_star_is_left(session: Session) -> None:
    session.set(DEFAULT, "notes", "x")
    edits = session.edits()
    head = Tree(SCHEMA, session.tree.objects())
    session.follow(head, edits)
    assert not session.is_changed(("category",))
    assert session.edits() == []


def test_a_value_set_back_leaves_no_star(session: Session) -> None:
    session.set(DEFAULT, "notes", "x")
    session.clear(DEFAULT, "notes")
    assert not session.is_changed(("category",))
    assert session.edits() == []


def test_defaults_are_not_stored(session: Session) -> None:
    session.add((*DEFAULT, "roles"), "docker::host")
    session.set(DOCKER, "mtu", "1500")
    session.set(DOCKER, "mtu", "0")
    session.set(DOCKER, "loglevel", "INFO")
    assert session.tree.get(DOCKER).values == {}


def test_item_016_append_keeps_what_is_there_and_adds_nothing_twice(session: Session) -> None:
    cluster = ("kubernetes", "default")
    session.append(cluster, "trusteddomains", "master,localhost")
    assert session.tree.get(cluster).values["trusted_domains"] == ("a.example", "master", "localhost")
    session.remove_from(cluster, "trusteddomains", "master")
    assert session.tree.get(cluster).values["trusted_domains"] == ("a.example", "localhost")
    with pytest.raises(errors.NotFound, match="trusteddomains: 'master'"):
        session.remove_from(cluster, "trusteddomains", "master")


def test_item_017_adding_a_name_that_exists_is_refused(session: Session) -> None:
    with pytest.raises(errors.AlreadyExists, match="default"):
        session.add(("category",), "default")


def test_item_018_a_typed_add_makes_that_type(session: Session) -> None:
    session.add((*DEFAULT, "roles"), "docker::host")
    path = session.add((*DOCKER, "storage_backends"), "mylargebackend", "overlay2")
    assert session.tree.get(path).type == "overlay2"
    with pytest.raises(errors.Invalid, match="zfs") as caught:
        session.add((*DOCKER, "storage_backends"), "x", "zfs")
    assert "aufs, devicemapper, overlay2" in caught.value.hint


def test_item_020_indexes_stay_until_the_commit_and_are_counted_anew_after_it(session: Session) -> None:
    session.remove((*PORTS, "0"))
    session.remove((*PORTS, "1"))
    new = session.add_indexed(PORTS, ["ACCEPT", "net", "443", "tcp", "fw"])
    assert new == (*PORTS, "2")
    assert list(session.children(PORTS)) == ["2"]
    session.remove(new)
    assert session.add_indexed(PORTS, ["ACCEPT", "net", "10443", "tcp", "fw"]) == (*PORTS, "3")
    (edit,) = session.edits()
    assert edit.new is not None
    rows = edit.new.children["roles"]["firewall"].children["open_ports"]
    assert {key: row.values["port"] for key, row in rows.items()} == {"0": "10443"}
    session.follow(Tree(SCHEMA, [("device", edit.new), *session.tree.objects()][:1]), [edit])
    assert session.add_indexed(PORTS, ["ACCEPT", "net", "80"]) == (*PORTS, "1")


def test_decision_56_the_list_of_an_index_has_the_star(session: Session) -> None:
    session.add_indexed(PORTS, ["ACCEPT", "net", "443"])
    assert session.is_changed(PORTS)
    assert session.is_changed(PORTS[:-1])


def test_item_021_extras_are_set_and_taken_away(session: Session) -> None:
    path = ("kubernetes", "default")
    session.set_extra(path, "ingress_proxy_enable", "true")
    assert session.tree.get(path).extras == {"ingress_proxy_enable": "true"}
    session.set_extra(path, "ingress_proxy_enable", None)
    assert not session.is_changed(path)
    with pytest.raises(errors.NotFound, match="nothing"):
        session.set_extra(path, "nothing", None)


def test_item_024_role_names_match_without_regard_to_case(session: Session) -> None:
    session.add((*DEFAULT, "roles"), "kubernetes::apiserverproxy")
    assert session.find((*DEFAULT, "roles"), "KUBERNETES::apiserverproxy")[-1] == "Kubernetes::ApiServerProxy"
    with pytest.raises(errors.AlreadyExists):
        session.add((*DEFAULT, "roles"), "Kubernetes::ApiServerProxy")
    with pytest.raises(errors.Invalid, match="no role 'nonsense'"):
        session.add((*DEFAULT, "roles"), "nonsense")


@pytest.mark.parametrize(
    ("path", "parameter", "text", "words"),
    [
        (DOCKER, "iptables", "perhaps", "iptables: 'perhaps' is neither yes nor no"),
        (("kubernetes", "default"), "kubernetesapiserverproxyport", "70000", "kubernetesapiserverproxyport: 70000"),
        ((*PORTS, "0"), "address", "10.0.0.1/8", "address: '10.0.0.1/8' is not a network"),
        ((*PORTS, "0"), "port", "70000", "port: '70000' must be a port"),
        (DOCKER, "loglevel", "loud", "loglevel: 'loud' is not one of fatal, error, warn, info, debug"),
        (DOCKER, "usernamespaceremap", "a:b:c", "usernamespaceremap: 'a:b:c' is not UID"),
        (("device", "node001"), "ip", "10.1.1", "ip: '10.1.1' is not an IP address"),
    ],
)
def test_item_038_invalid_values_are_refused_with_the_parameter_named(
    session: Session, path: tuple[str, ...], parameter: str, text: str, words: str
) -> None:
    session.add((*DEFAULT, "roles"), "docker::host")
    with pytest.raises(errors.Invalid) as caught:
        session.set(path, parameter, text)
    assert words in str(caught.value)


def test_a_name_with_another_number_of_zeros_is_meant_before_one_that_looks_more_alike() -> None:
    tree = Tree(SCHEMA, [("device", Obj("PhysicalNode", name)) for name in ("node0002", "node1002", "node0020")])
    for typed in ("node002", "node2", "NODE00002"):
        with pytest.raises(errors.NotFound) as refused:
            Session(tree).find(("device",), typed)
        assert refused.value.hint == "did you mean node0002?", typed


def test_item_035_unknown_things_are_named_with_a_hint(session: Session) -> None:
    with pytest.raises(errors.NotFound, match="node01") as caught:
        session.find(("device",), "node01")
    assert "node001" in caught.value.hint
    with pytest.raises(errors.NotFound, match="nots") as wrong:
        session.set(DEFAULT, "nots", "x")
    assert "notes" in wrong.value.hint
    with pytest.raises(errors.NotFound, match="no mode 'nonsense'"):
        session.submode(("nonsense",))


def test_item_061_the_remap_warns_of_the_kernel_option(session: Session) -> None:
    session.add((*DEFAULT, "roles"), "docker::host")
    for text in ["1000", "1000:1000", "dockremap", "dockremap:dockremap"]:
        assert "user_namespace.enable=1" in session.set(DOCKER, "usernamespaceremap", text)


def test_a_clone_leaves_secrets_and_unique_values_behind(session: Session) -> None:
    node = ("device", "node001")
    session.set(node, "mac", "00:11:22:33:44:55")
    session.set(node, "notes", "rack 3")
    clone = session.clone(node, "node002")
    assert session.tree.get(clone).values == {"category": "default", "notes": "rack 3"}
    session.set(("kubernetes", "default"), "kubecakey", "hush")
    other = session.clone(("kubernetes", "default"), "other")
    assert session.tree.get(other).values == {"trusted_domains": ("a.example", "master")}


def test_rows_that_cannot_be_set_say_so(session: Session) -> None:
    for parameter in ["name", "roles"]:
        with pytest.raises(errors.Invalid):
            session.set(DEFAULT, parameter, "x")


def test_a_scope_takes_its_own_edits_alone(session: Session) -> None:
    session.set(DEFAULT, "notes", "x")
    session.set(("device", "node001"), "notes", "y")
    assert [edit.mode for edit in session.edits(("device",))] == ["device"]
    assert [edit.mode for edit in session.edits((*DEFAULT, "roles"))] == ["category"]
    session.drop(DEFAULT)
    assert not session.is_changed(("category",))
    assert session.is_changed(("device",))
    session.drop()
    assert session.edits() == []


def test_what_is_staged_shows_no_secret(session: Session) -> None:
    session.set(("kubernetes", "default"), "kubecakey", "hush-hush")
    assert "hush" not in repr(session.staged())
    assert session.staged()[0].new == "*****"
    assert "hush" not in repr(session.edits())
    assert session.tree.get(("kubernetes", "default")).values["kube_ca_key"] == Secret("hush-hush")


def test_staged_edits_outlive_a_newer_tree_and_the_rest_follows_it(session: Session) -> None:
    session.set(DEFAULT, "notes", "mine")
    newer = session.tree.with_object("device", "node002", Obj("PhysicalNode", "node002"))
    newer = newer.with_object("category", "default", Obj("Category", "default", {"notes": "theirs"}, revision=7))
    session.follow(newer)
    assert session.tree.get(DEFAULT).values["notes"] == "mine"
    assert session.tree.find("device", "node002") is not None
    (edit,) = session.edits()
    assert edit.base == Obj("Category", "default")
    assert edit.base is not None
    assert edit.base.revision == 0


def test_an_extra_cannot_take_the_name_of_a_row(session: Session) -> None:
    with pytest.raises(errors.Invalid, match="Notes is a parameter"):
        session.set_extra(DEFAULT, "Notes", "x")
    session.set_extra(DEFAULT, "remark", "x")
    assert session.tree.get(DEFAULT).extras == {"remark": "x"}


def test_indexes_are_counted_from_the_heads_when_nothing_is_staged_any_more(session: Session) -> None:
    path = session.add_indexed(PORTS, ["ACCEPT", "net", "80", "tcp", "fw"])
    session.remove(path)
    assert not session.is_changed(("device", "basecm10"))
    assert session.add_indexed(PORTS, ["ACCEPT", "net", "81", "tcp", "fw"]) == path


def test_a_device_has_several_interfaces_and_a_bmc() -> None:
    session = Session(sites.manual())
    session.put(("network", "net"), Obj("Network", "net", {"base_address": "10.1.0.0"}))
    place = ("device", "node001", "interfaces")
    session.set(session.add(place, "eth1"), "network", "net")
    bmc = session.add(place, "ilo0", "bmc")
    session.set(bmc, "password", "secret")
    assert [obj.type for obj in session.children(place).values()] == ["PhysicalInterface", "BmcInterface"]
    assert tables.show_rows(session.schema, session.tree.get(bmc))[-1] == ("Password", "*****")
    for path, field, value in (
        ((*place, "eth1"), "ip", "10.1.0.7"),
        (bmc, "mac", "02-00-00-00-00-07"),
        (("device", "node002"), "mac", "02:00:00:00:00:08"),
    ):
        session.set(path, field, value)
    assert problems(session.tree, [("device", "node001"), ("device", "node002")]) == []


@pytest.mark.parametrize(
    ("path", "field", "value", "fault"),
    [
        (("device", "node001", "interfaces", "eth1"), "ip", "10.2.0.7", "ip: 10.2.0.7 is not an address of net"),
        (("device", "node001", "interfaces", "eth1"), "ip", "10.1.0.1", "eth1 has the same ip as the device itself"),
        (("device", "node002"), "ip", "10.1.0.7", "10.1.0.7 is already used by device[node001]"),
        (("device", "node002", "interfaces", "eth1"), "ip", "10.1.0.1", "10.1.0.1 is already used by device[node001]"),
        (("network", "net"), "baseaddress", "10.3.0.0", "10.1.0.7 is not an address of net"),
    ],
)
def test_addresses_of_interfaces_are_those_of_their_network_and_of_nobody_else(
    path: Path, field: str, value: str, fault: str
) -> None:
    session = Session(sites.manual())
    session.put(("network", "net"), Obj("Network", "net", {"base_address": "10.1.0.0"}))
    session.set(("device", "node001"), "ip", "10.1.0.1")
    for node in ("node001", "node002"):
        session.set(session.add(("device", node, "interfaces"), "eth1"), "network", "net")
    session.set(("device", "node001", "interfaces", "eth1"), "ip", "10.1.0.7")
    assert problems(session.tree, [("device", "node001"), ("device", "node002"), ("network", "net")]) == []
    session.set(path, field, value)
    (told,) = problems(session.tree, [(path[0], path[1])])
    assert fault in told
