"""What kubeadm reads on nodes of a cluster that the head sets up."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from tests.head.render import rooms

from bedplate.api.desired import File
from bedplate.head.desired import desired
from bedplate.head.objects import Secret
from bedplate.head.render import kubeadm
from bedplate.head.tree import Tree
from bedplate.serving import issuing

_CA = issuing.Authority.create("kubernetes", datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=3650)).pair
_RANGES = {f"node00{number}": ipaddress.IPv4Network(f"172.29.{number}.0/24") for number in range(1, 6)}


@pytest.fixture(scope="module")
def tree() -> Tree:
    """The site of `rooms`, with what a deployment adds to its cluster."""
    before = rooms.full()
    cluster, ensemble = before.get(("kubernetes", "default")), before.get(("etcd", "kube-default"))
    for name, value in {
        "kube_ca_cert": Secret(_CA.certificate.decode()),
        "kube_ca_key": Secret(_CA.key.decode()),
        "kubeadm_cert_key": Secret("ab" * 32),
        "kubeadm_init_file": "kind: ClusterConfiguration\n",
        "version": "1.35.4",
    }.items():
        cluster = cluster.with_value(name, value)
    cluster = cluster.with_extra(kubeadm.POD_RANGES, kubeadm.pod_ranges_text(_RANGES))
    ensemble = ensemble.with_value("authority", Secret(f"2026-01-01.{'cd' * 32}"))
    return before.with_objects([("kubernetes", "default", cluster), ("etcd", "kube-default", ensemble)])


def files(tree: Tree, node: str) -> dict[str, File]:
    return {file.path: file for file in desired(tree, node).files}


def test_control_plane_nodes_can_begin_and_join_and_workers_join(tree: Tree) -> None:
    first, worker = files(tree, "node001"), files(tree, "node004")
    init, cluster = yaml.safe_load_all(first[kubeadm.INIT].content)
    assert init["kind"] == "InitConfiguration" and cluster["kind"] == "ClusterConfiguration"
    assert init["localAPIEndpoint"] == {"advertiseAddress": "10.141.0.1", "bindPort": 6443}
    assert init["skipPhases"] == ["addon/coredns"]
    assert kubeadm.INIT not in worker
    plane, plain = json.loads(first[kubeadm.JOIN].content), json.loads(worker[kubeadm.JOIN].content)
    assert "controlPlane" in plane and "controlPlane" not in plain
    discovery = plain["discovery"]
    token = kubeadm.bootstrap_token("ab" * 32, "default")
    assert discovery["tlsBootstrapToken"] == init["bootstrapTokens"][0]["token"] == token
    assert discovery["file"] == {"kubeConfigPath": kubeadm.DISCOVERY}
    for node in (first, worker):
        known = yaml.safe_load(node[kubeadm.DISCOVERY].content)
        (cluster,) = known["clusters"]
        assert cluster["cluster"]["server"] == "https://127.0.0.1:10443"
        assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == _CA.certificate
        # What kubeadm takes without a user: a cluster without a name, and no context.
        assert cluster["name"] == "" and not {"users", "contexts", "current-context"} & set(known)


@pytest.mark.parametrize(("version", "pulls"), [("1.30.9", {}), ("1.31.0", {"imagePullSerial": False})])
def test_kubeadm_pulls_images_at_once_where_it_can(tree: Tree, version: str, pulls: dict[str, bool]) -> None:
    cluster = tree.get(("kubernetes", "default")).with_value("version", version)
    found = files(tree.with_objects([("kubernetes", "default", cluster)]), "node001")
    for registration in (
        next(yaml.safe_load_all(found[kubeadm.INIT].content))["nodeRegistration"],
        json.loads(found[kubeadm.JOIN].content)["nodeRegistration"],
    ):
        assert {name: value for name, value in registration.items() if name == "imagePullSerial"} == pulls


def test_item_91_secrets_are_the_nodes_own_and_reach_control_plane_nodes_alone(tree: Tree) -> None:
    for node in ("node001", "node004"):
        for path, file in files(tree, node).items():
            is_secret = path in (kubeadm.INIT, kubeadm.JOIN) or path.endswith(".key")
            if path.startswith("/etc/kubernetes/") and is_secret:
                assert file.secret and file.mode == "0600", path
    keys = {path.rpartition("/")[2] for path in files(tree, "node004") if path.endswith(".key")}
    assert keys == set()


def test_what_api_servers_share_is_the_same_on_all_and_differs_between_clusters(tree: Tree) -> None:
    folder = kubeadm.folder_of("default")
    names = ("sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "apiserver-etcd-client.key", "etcd-ca.crt")
    for name in names:
        contents = {files(tree, node)[f"{folder}/{name}"].content for node in rooms.MASTERS}
        assert len(contents) == 1, name
    assert kubeadm.bootstrap_token("ab" * 32, "default") != kubeadm.bootstrap_token("ab" * 32, "other")


def test_item_96_each_node_has_its_bridge_and_routes_to_the_others(tree: Tree) -> None:
    own = files(tree, "node004")
    plugins = json.loads(own["/etc/cni/net.d/10-bedplate.conflist"].content)["plugins"]
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "172.29.4.0/24"}]]
    script = own["/etc/kubernetes/pod-network.sh"].content
    assert "172.29.1.0/24 via 10.141.0.1\n" in script
    assert "172.29.4.0/24" not in script
    # Nodes see who asks; to any other machine of the internal network, the head too, a pod is its node.
    (inside,) = re.findall(r"daddr != \{ (.*) \} masquerade", script)
    assert inside.split(", ") == ["172.29.0.0/16", *(f"10.141.0.{number}" for number in range(1, len(_RANGES) + 1))]
    assert "nftables" in desired(tree, "node004").packages


def test_a_cluster_that_others_set_up_gets_nothing() -> None:
    assert kubeadm.JOIN not in files(rooms.full(), "node004")
    assert "nftables" not in desired(rooms.full(), "node004").packages


def test_ranges_are_read_as_they_were_written_and_nonsense_is_passed_over() -> None:
    cluster = rooms.full().get(("kubernetes", "default"))
    assert kubeadm.pod_ranges(cluster.with_extra(kubeadm.POD_RANGES, kubeadm.pod_ranges_text(_RANGES))) == _RANGES
    assert kubeadm.pod_ranges(cluster.with_extra(kubeadm.POD_RANGES, "a=1 b =, node001=10.0.0.0/33")) == {}


@pytest.mark.parametrize(("version", "form"), [("1.30.2", "v1beta3"), ("v1.31.0", "v1beta4"), ("", "v1beta4")])
def test_the_form_of_the_configuration_follows_from_the_release(version: str, form: str) -> None:
    assert kubeadm.api_version(version) == f"kubeadm.k8s.io/{form}"
