"""kubelet: flags of static pods, and what makes a node part of its cluster (behaviours 120, 122)."""

from __future__ import annotations

import copy
import os
import pathlib
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from tests import programs, servers
from tests.head.render import rooms

from bedplate.api.desired import Flag
from bedplate.core import errors
from bedplate.head.desired import desired
from bedplate.head.explain import explain
from bedplate.head.objects import Secret
from bedplate.head.render import RENDERERS, kubelet, rendered_file
from bedplate.head.schema.tables import list_table
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.serving import issuing

OPTIONS = (*rooms.KUBELET, "options")


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def test_item_120_options_become_flags_on_all_control_plane_nodes(session: Session) -> None:
    before = session.tree
    session.add_indexed(OPTIONS, ["kube-apiserver.yaml", "", "oidc-client-id", "runai"])
    session.add_indexed(OPTIONS, ["/etc/kubernetes/manifests/kube-scheduler.yaml", "kube-scheduler", "profiling"])
    for node in rooms.MASTERS:
        flags = desired(session.tree, node).flags
        assert [(flag.manifest, flag.container, flag.argument) for flag in flags] == [
            ("kube-apiserver.yaml", "kube-apiserver", "--oidc-client-id=runai"),
            ("kube-scheduler.yaml", "kube-scheduler", "--profiling"),
        ]
    assert not desired(session.tree, "node004").flags
    actions = rooms.planned(before, session)
    name = "kube-apiserver.yaml:kube-apiserver:oidc-client-id"
    assert [action.node for action in actions if action.kind == "flag" and action.name == name] == list(rooms.MASTERS)


def test_item_120_the_list_has_four_columns(session: Session) -> None:
    session.add_indexed(OPTIONS, ["kube-apiserver.yaml", "kube-apiserver", "oidc-client-id", "runai"])
    headers, (block,) = list_table(session.submode(OPTIONS), session.children(OPTIONS))
    assert headers[1:] == ["Filename", "Container", "Key", "Value"]
    assert [column[0] for column in block.columns[1:]] == [
        "kube-apiserver.yaml",
        "kube-apiserver",
        "oidc-client-id",
        "runai",
    ]


def test_item_120_a_cleared_option_is_taken_out_of_manifest_and_patches(session: Session) -> None:
    path = session.add_indexed(OPTIONS, ["kube-apiserver.yaml", "", "oidc-client-id", "runai"])
    before = session.tree
    session.remove(path)
    actions = rooms.planned(before, session)
    assert rooms.verbs(actions, "node001", "flag", "kube-apiserver.yaml:kube-apiserver:oidc-client-id") == ["remove"]
    assert rooms.verbs(actions, "node001", "file", f"{kubelet.PATCHES}/kube-apiserver0+json.json") == ["remove"]


def with_flags(pod: dict[str, Any], flags: Iterable[Flag]) -> dict[str, Any]:
    """The pod after an agent has applied the flags: a flag that is present keeps its place and gets the value."""
    result = copy.deepcopy(pod)
    commands = {container["name"]: container["command"] for container in result["spec"]["containers"]}
    for flag in flags:
        command = commands[flag.container]
        places = [place for place, word in enumerate(command) if word.partition("=")[0] == f"--{flag.key}"]
        for place in reversed(places):
            del command[place]
        command.insert(places[0] if places else len(command), flag.argument)
    return result


@pytest.mark.external
def test_item_120_kubeadm_writes_the_flags_and_applying_them_again_changes_nothing(
    session: Session, tmp_path: pathlib.Path
) -> None:
    session.add_indexed(OPTIONS, ["kube-apiserver.yaml", "", "oidc-username-prefix", "it's: -"])
    session.add_indexed(OPTIONS, ["kube-apiserver.yaml", "", "profiling"])
    kubeadm = programs.built("kubeadm")
    state = desired(session.tree, "node001")
    patches = tmp_path / "patches"
    patches.mkdir()
    for file in state.files:
        if file.path.startswith(kubelet.PATCHES):
            (patches / pathlib.PurePath(file.path).name).write_text(file.content)

    def pod_of_kubeadm() -> dict[str, Any]:
        subprocess.run(
            [
                *(kubeadm, "init", "phase", "control-plane", "apiserver", "--dry-run", "--patches", patches),
                *("--apiserver-advertise-address", "10.141.0.1", "--kubernetes-version", servers.KUBERNETES),
                *("--cert-dir", tmp_path / "pki"),
            ],
            env={**os.environ, "KUBEADM_INIT_DRYRUN_DIR": str(tmp_path)},
            check=True,
            capture_output=True,
            timeout=120,
        )
        pod: dict[str, Any] = yaml.safe_load((tmp_path / "kube-apiserver.yaml").read_text())
        return pod

    pod = pod_of_kubeadm()
    command = pod["spec"]["containers"][0]["command"]
    assert command[-2:] == ["--oidc-username-prefix=it's: -", "--profiling"]
    assert with_flags(pod, state.flags) == pod, "the agent changes what kubeadm wrote"
    assert pod_of_kubeadm() == pod, "kubeadm changes what it wrote"


def test_item_122_an_unknown_manifest_is_refused(session: Session) -> None:
    with pytest.raises(errors.Invalid, match="filename"):
        session.add_indexed(OPTIONS, ["kube-proxy.yaml", "", "v", "4"])


def test_a_node_is_labelled_by_what_it_is_for_and_tainted_when_it_runs_no_pods(session: Session) -> None:
    def found(node: str) -> tuple[list[str], list[str]]:
        state = desired(session.tree, node)
        roles = [name.partition("/")[2] for name in state.labels if name.startswith("node-role")]
        return roles, [taint.text for taint in state.taints]

    taint = "node-role.kubernetes.io/control-plane:NoSchedule"
    assert found("node001") == (["control-plane", "master"], [taint])
    assert found("node004") == (["worker"], [])
    session.set(rooms.KUBELET, "worker", "yes")
    assert found("node001") == (["control-plane", "master", "worker"], [])
    session.set(("configurationoverlay", rooms.MASTER), "allheadnodes", "yes")
    assert found("basecm10") == (["control-plane", "master", "worker"], [taint])


def test_max_pods_restarts_the_kubelet(session: Session) -> None:
    before = session.tree
    session.set(rooms.KUBELET, "maxpods", "250")
    assert "--max-pods=250" in rooms.file_of(session.tree, "node001", kubelet.ENVIRONMENT).content
    assert rooms.verbs(rooms.planned(before, session), "node001", "service", "kubelet") == ["restart"]


def test_the_clusters_key_is_on_control_planes_alone_and_shown_to_nobody(session: Session) -> None:
    before = session.tree
    session.set(rooms.CLUSTER, "kubecakey", "another key")
    path = "/etc/kubernetes/pki/default/ca.key"
    assert rooms.file_of(session.tree, "node001", path).content == "another key"
    assert all(file.path != path for file in desired(session.tree, "node004").files)
    assert rendered_file(session.tree, "node001", path).content == "*****"
    told = [
        *map(repr, explain(session.tree, "node001", "", RENDERERS)),
        *map(repr, rooms.planned(before, session)),
        repr(desired(session.tree, "node001").masked()),
    ]
    assert any(path in line for line in told)
    assert not any("another key" in line for line in told)
    assert rooms.verbs(rooms.planned(before, session), "node001", "file", path) == ["change"]
    ((fact, _),) = explain(session.tree, "node001", path, RENDERERS)
    assert fact.value == "0600 secret"


def test_a_role_without_a_cluster_is_warned_about(session: Session) -> None:
    session.clear(rooms.KUBELET, "kubernetescluster")
    assert any("no Kubernetes cluster is set" in warning for warning in desired(session.tree, "node001").warnings)


def authority(kind: str) -> tuple[Secret, Secret]:
    """The certificate and the key of a cluster's authority."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    if kind == "ecdsa":
        pair = issuing.Authority.create("kubernetes", now, timedelta(days=3650)).pair
        return Secret(pair.certificate.decode()), Secret(pair.key.decode())
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    return Secret(certificate.public_bytes(pem).decode()), Secret(private.decode())


def names_in(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_item_155_trusted_domains_are_in_the_certificate_and_a_change_issues_it_anew(kind: str) -> None:
    tree = rooms.full()
    cluster = tree.get(("kubernetes", "default"))
    certificate, key = authority(kind)
    values = {"kube_ca_cert": certificate, "kube_ca_key": key, "trusted_domains": ("kube.example.com", "master")}
    for field, value in values.items():
        cluster = cluster.with_value(field, value)
    tree = tree.with_object("kubernetes", "default", cluster)

    def issued(node: str, tree: Tree) -> x509.Certificate:
        files = {file.path.rpartition("/")[2]: file for file in desired(tree, node).files}
        made = x509.load_pem_x509_certificate(files["apiserver.crt"].content.encode())
        made.verify_directly_issued_by(x509.load_pem_x509_certificate(certificate.reveal().encode()))
        private = files["apiserver.key"]
        assert private.secret and private.mode == "0600"
        loaded = serialization.load_pem_private_key(private.content.encode(), None)
        assert loaded.public_key() == made.public_key()
        return made

    first = issued("node001", tree)
    assert {"kube.example.com", "master", "kubernetes.default.svc", "node001", "10.141.0.1", "127.0.0.1"} <= set(
        names_in(first)
    )
    kubelet._issued.cache_clear()
    assert issued("node001", tree) == first, "the same whichever head renders it"
    assert issued("node002", tree).public_key() != first.public_key()
    assert not any("apiserver" in file.path for file in desired(tree, "node004").files), "workers have none"
    other = tree.with_object(
        "kubernetes", "default", cluster.with_value("trusted_domains", ("new.example.com", "kube.example.com"))
    )
    second = issued("node001", other)
    assert "new.example.com" in names_in(second) and "master" not in names_in(second)
    assert second.serial_number != first.serial_number and second.public_key() == first.public_key()


def test_an_authority_that_is_none_is_told_and_nothing_is_issued(session: Session) -> None:
    told = [warning for warning in desired(session.tree, "node001").warnings if "gets no certificate" in warning]
    assert told == [
        "kubelet on node001: the API server gets no certificate: Kube CA Cert and Kube CA Key of default are not an "
        "authority with its RSA or ECDSA key"
    ]
