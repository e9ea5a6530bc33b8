"""Etcd::Host: options of etcd in cm-etcd.conf (behaviours 118, 119), read by a real etcd."""

from __future__ import annotations

import contextlib
import os
import pathlib
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest
from cryptography import x509
from tests import programs, servers
from tests.head.render import rooms

from bedplate.core import errors
from bedplate.head.desired import desired
from bedplate.head.render import etcd
from bedplate.head.session import Session
from bedplate.head.tree import Tree
from bedplate.lab import credentials
from bedplate.serving import issuing

ROLE = ("configurationoverlay", "kube-default-etcd", "roles", "Etcd::Host")
CLUSTER = ("etcd", "kube-default")


def conf(tree: Tree, node: str = "node001", path: str = etcd.CONF) -> dict[str, str]:
    lines = rooms.file_of(tree, node, path).content.splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def test_item_118_defaults_match_the_table_and_hostname_is_the_nodes() -> None:
    assert conf(rooms.full()) == {
        "ETCD_NAME": "node001",
        "ETCD_DATA_DIR": "/var/lib/etcd",
        "ETCD_ADVERTISE_CLIENT_URLS": "http://node001:5001",
        "ETCD_INITIAL_ADVERTISE_PEER_URLS": "http://node001:5002",
        "ETCD_LISTEN_CLIENT_URLS": "http://10.141.0.1:5001,http://127.0.0.1:2379",
        "ETCD_LISTEN_PEER_URLS": "http://10.141.0.1:5002",
        "ETCD_SNAPSHOT_COUNT": "5000",
        "ETCD_INITIAL_CLUSTER_TOKEN": "kube-default",
        "ETCD_INITIAL_CLUSTER_STATE": "new",
        "ETCD_ELECTION_TIMEOUT": "1000",
        "ETCD_HEARTBEAT_INTERVAL": "100",
    }


@pytest.mark.parametrize(
    ("where", "parameter", "text", "option"),
    [
        (ROLE, "membername", "m-$hostname", "ETCD_NAME=m-node001"),
        (ROLE, "spool", "/data/etcd", "ETCD_DATA_DIR=/data/etcd"),
        (ROLE, "snapshotcount", "7", "ETCD_SNAPSHOT_COUNT=7"),
        (ROLE, "debug", "yes", "ETCD_LOG_LEVEL=debug"),
        (ROLE, "debug", "yes", "ETCD_DEBUG=true"),
        (ROLE, "options", "--quota-backend-bytes=8589934592", "ETCD_QUOTA_BACKEND_BYTES=8589934592"),
        (ROLE, "options", "pre-vote", "ETCD_PRE_VOTE=true"),
        (ROLE, "advertiseclienturls", "http://${hostname}.x:1", "ETCD_ADVERTISE_CLIENT_URLS=http://node001.x:1"),
        (CLUSTER, "electiontimeout", "5000", "ETCD_ELECTION_TIMEOUT=5000"),
        (CLUSTER, "heartbeatinterval", "500", "ETCD_HEARTBEAT_INTERVAL=500"),
        (CLUSTER, "clientca", "/client.ca", "ETCD_TRUSTED_CA_FILE=/client.ca"),
        (CLUSTER, "clientcertificate", "/client.crt", "ETCD_CERT_FILE=/client.crt"),
        (CLUSTER, "clientcertificatekey", "/client.key", "ETCD_KEY_FILE=/client.key"),
        (CLUSTER, "ca", "/ca", "ETCD_PEER_TRUSTED_CA_FILE=/ca"),
    ],
)
def test_item_118_each_row_has_its_option(
    session: Session, where: tuple[str, ...], parameter: str, text: str, option: str
) -> None:
    session.set(where, parameter, text)
    assert option in rooms.file_of(session.tree, "node001", etcd.CONF).content.splitlines()


def test_item_118_with_an_authority_default_urls_become_https_and_written_ones_stay(session: Session) -> None:
    session.set(CLUSTER, "ca", "/ca")
    session.set(ROLE, "advertiseclienturls", "http://$hostname:7001")
    found = conf(session.tree)
    assert found["ETCD_LISTEN_CLIENT_URLS"] == "https://10.141.0.1:5001,https://127.0.0.1:2379"
    assert found["ETCD_ADVERTISE_CLIENT_URLS"] == "http://node001:7001"
    assert conf(session.tree, path=etcd.MEMBERS)["ETCD_INITIAL_CLUSTER"].startswith("node001=https://node001:5002,")


def test_item_119_a_members_certificate_beats_the_clusters(session: Session) -> None:
    session.set(CLUSTER, "membercertificate", "/cluster.crt")
    session.set(CLUSTER, "membercertificatekey", "/cluster.key")
    assert conf(session.tree)["ETCD_PEER_CERT_FILE"] == "/cluster.crt"
    session.set(ROLE, "membercertificate", "/member.crt")
    found = conf(session.tree)
    assert (found["ETCD_PEER_CERT_FILE"], found["ETCD_PEER_KEY_FILE"]) == ("/member.crt", "/cluster.key")


def test_a_new_member_is_told_to_all_and_restarts_nobody(session: Session) -> None:
    before = session.tree
    session.append(("configurationoverlay", "kube-default-etcd"), "nodes", "node004")
    actions = rooms.planned(before, session)
    assert rooms.verbs(actions, "node001", "file", etcd.MEMBERS) == ["change"]
    assert rooms.verbs(actions, "node001", "service", "etcd") == ["reload"]
    assert rooms.verbs(actions, "node004", "service", "etcd") == ["add"]


def test_members_are_told_where_the_others_answer(session: Session) -> None:
    session.set(ROLE, "advertiseclienturls", "http://$hostname:7001,http://$hostname:7002")
    found = conf(session.tree, path=etcd.MEMBERS)["CM_ETCD_CLIENTS"]
    assert found == "node001=http://node001:7001,node002=http://node002:7001,node003=http://node003:7001"


def test_an_authority_of_its_own_gives_every_member_its_certificates(session: Session) -> None:
    session.set(CLUSTER, "authority", "generate")
    folder = "/cm/local/apps/etcd/current/etc/certs"
    files = {node: {file.path: file for file in desired(session.tree, node).files} for node in ("node001", "node002")}
    found = conf(session.tree)
    assert found["ETCD_PEER_TRUSTED_CA_FILE"] == found["ETCD_TRUSTED_CA_FILE"] == f"{folder}/ca.crt"
    assert found["ETCD_CERT_FILE"] == found["ETCD_PEER_CERT_FILE"] == f"{folder}/member.crt"
    assert found["ETCD_LISTEN_CLIENT_URLS"] == "https://10.141.0.1:5001,https://127.0.0.1:2379"
    one, two = files.values()
    key = one[f"{folder}/member.key"]
    assert (key.mode, key.secret, key.action) == ("0600", True, "RESTART")
    assert one[f"{folder}/ca.crt"] == two[f"{folder}/ca.crt"]
    assert key.content != two[f"{folder}/member.key"].content
    certificate = x509.load_pem_x509_certificate(one[f"{folder}/member.crt"].content.encode())
    assert issuing.hosts_of(certificate) == {"node001", "10.141.0.1", "localhost", "127.0.0.1"}
    authority = x509.load_pem_x509_certificate(one[f"{folder}/ca.crt"].content.encode())
    certificate.verify_directly_issued_by(authority)


def test_certificates_are_the_same_whoever_renders_them_and_others_after_another_seed(session: Session) -> None:
    session.set(CLUSTER, "authority", "generate")
    first = desired(session.tree, "node001")
    etcd._certified.cache_clear()
    again = Session(session.tree)
    again.set(ROLE, "snapshotcount", "7")
    path = "/cm/local/apps/etcd/current/etc/certs/member.crt"
    assert rooms.file_of(again.tree, "node001", path).content == rooms.file_of(session.tree, "node001", path).content
    again.set(CLUSTER, "authority", "generate")
    assert desired(again.tree, "node001").files != first.files
    assert rooms.file_of(again.tree, "node001", path).content != rooms.file_of(session.tree, "node001", path).content


def test_a_named_authority_beats_the_clusters_own_and_it_is_told(session: Session) -> None:
    session.set(CLUSTER, "authority", "generate")
    session.set(CLUSTER, "ca", "/ca")
    state = desired(session.tree, "node001")
    assert not [file for file in state.files if "/certs/" in file.path]
    assert "etcd cluster kube-default: CA names an authority, so the cluster's own one is not used" in state.warnings


def test_what_is_no_seed_is_refused(session: Session) -> None:
    with pytest.raises(errors.BedplateError, match="must be the word generate"):
        session.set(CLUSTER, "authority", "hunter2")


def test_members_restart_in_turn_and_hold_data() -> None:
    state = desired(rooms.full(), "node001")
    assert {service.name: service.serial for service in state.services}["etcd"] == "etcd:kube-default"
    assert state.data_node


def test_a_node_without_an_address_is_warned_about(session: Session) -> None:
    session.clear(("device", "node001"), "ip")
    assert any("listens on addresses only" in warning for warning in desired(session.tree, "node001").warnings)


# A real etcd


@contextlib.contextmanager
def running(tree: Tree, node: str, folder: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """etcd with the settings of a node in its environment, as its service has them."""
    program = programs.built("etcd", servers.ETCD)
    environment = {**os.environ, **conf(tree, node), **conf(tree, node, etcd.MEMBERS)}
    with (folder / f"{node}.log").open("wb") as log:
        process = subprocess.Popen([program], env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_healthy(url: str, process: subprocess.Popen[bytes], context: ssl.SSLContext | None = None) -> bool:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10, context=context) as answer:
            if b"true" in answer.read():
                return True
        time.sleep(0.1)
    return False


def place(session: Session, role: tuple[str, ...], scheme: str, spool: pathlib.Path) -> int:
    """Let the member of a role run here, on free ports; the port for clients."""
    client, peer = servers.free_port(), servers.free_port()
    for parameter, text in {
        "spool": str(spool),
        "listenclienturls": f"{scheme}://127.0.0.1:{client}",
        "advertiseclienturls": f"{scheme}://127.0.0.1:{client}",
        "listenpeerurls": f"{scheme}://127.0.0.1:{peer}",
        "advertisepeersurls": f"{scheme}://127.0.0.1:{peer}",
        "options": "--unsafe-no-fsync",
    }.items():
        session.set(role, parameter, text)
    return client


@pytest.mark.external
def test_a_real_etcd_starts_with_the_rendered_settings(session: Session, tmp_path: pathlib.Path) -> None:
    session.set(("configurationoverlay", "kube-default-etcd"), "nodes", "node001")
    client = place(session, ROLE, "http", tmp_path / "data")
    session.set(ROLE, "debug", "yes")
    with running(session.tree, "node001", tmp_path) as process:
        healthy = is_healthy(f"http://127.0.0.1:{client}/health", process)
        assert healthy, (tmp_path / "node001.log").read_text()[-3000:]
    log = (tmp_path / "node001.log").read_text()
    assert '"name":"node001"' in log
    assert '"level":"debug"' in log


@pytest.mark.external
def test_two_real_members_meet_with_the_rendered_certificates(session: Session, tmp_path: pathlib.Path) -> None:
    authority = credentials.Authority.open(tmp_path / "pki")
    member = authority.issue("member", "etcd", hosts=["127.0.0.1"])
    for parameter, path in [
        ("ca", tmp_path / "pki" / "ca.crt"),
        ("membercertificate", member.certificate),
        ("membercertificatekey", member.key),
    ]:
        session.set(CLUSTER, parameter, str(path))
    session.remove(("configurationoverlay", "kube-default-etcd"))
    ports = {}
    for node in ("node001", "node002"):
        role = session.add(("device", node, "roles"), "Etcd::Host")
        session.set(role, "etcdcluster", "kube-default")
        ports[node] = place(session, role, "https", tmp_path / node)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.crt"))
    known = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.crt"))
    known.load_cert_chain(member.certificate, member.key)
    with running(session.tree, "node001", tmp_path) as first, running(session.tree, "node002", tmp_path) as second:
        for node, process in (("node001", first), ("node002", second)):
            healthy = is_healthy(f"https://127.0.0.1:{ports[node]}/health", process, known)
            assert healthy, (tmp_path / f"{node}.log").read_text()[-3000:]
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|handshake|broken pipe"):
            urllib.request.urlopen(f"https://127.0.0.1:{ports['node001']}/health", timeout=60, context=trusting).read()
