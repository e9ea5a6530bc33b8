"""What every role gives, compared with files that people have read. `BEDPLATE_UPDATE_GOLDEN=1` rewrites them."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import pytest
from tests.head.render import rooms

from bedplate.head.desired import desired
from bedplate.head.session import Session

GOLDEN = pathlib.Path(__file__).parent / "golden"


def nothing(session: Session) -> None:
    pass


def secured_etcd(session: Session) -> None:
    for parameter, path in [
        ("ca", "/etc/etcd/ca.crt"),
        ("membercertificate", "/etc/etcd/member.crt"),
        ("membercertificatekey", "/etc/etcd/member.key"),
    ]:
        session.set(("etcd", "kube-default"), parameter, path)


def ingress(session: Session) -> None:
    session.set_extra(rooms.CLUSTER, "ingress_proxy_enable", "true")
    session.set_extra(rooms.CLUSTER, "ingress_proxy_listen_port", "443")
    session.set_extra(rooms.CLUSTER, "ingress_proxy_backend_port", "30443")


def options(session: Session) -> None:
    for words in (
        ("kube-apiserver.yaml", "", "oidc-client-id", "runai"),
        ("kube-apiserver.yaml", "kube-apiserver", "profiling", ""),
        ("kube-scheduler.yaml", "", "v", "4"),
    ):
        session.add_indexed((*rooms.KUBELET, "options"), words)
    session.set(rooms.KUBELET, "maxpods", "250")


def nftables(session: Session) -> None:
    session.set(rooms.FIREWALL, "backend", "nftables")
    place = (*rooms.FIREWALL, "open_ports")
    session.add_indexed(place, ["ACCEPT", "net", "22", "tcp", "fw"])
    session.add_indexed(place, ["DNAT", "net", "31443", "tcp", "nat:10.141.0.1:30443"])
    path = session.add_indexed(place, ["DROP", "net", "1000-2000", "udp", "fw"])
    session.set(path, "address", "192.0.2.0/24")
    session.add_indexed(place, ["REJECT", "nat", "25", "tcp", "net"])
    session.add_indexed(place, ["ACCEPT", "internalnet", "8081", "tcp", "fw"])
    session.add_indexed(place, ["ACCEPT", "elsewhere", "8081", "tcp", "fw"])


def all_of_docker(session: Session) -> None:
    for parameter, text in {
        "spool": "/data/docker",
        "enableselinux": "no",
        "defaultulimits": "nofile=1024:2048,nproc=512",
        "debug": "yes",
        "loglevel": "debug",
        "bridgeip": "192.168.5.1/24",
        "mtu": "9000",
        "apisockets": "unix:///var/run/docker.sock,tcp://0.0.0.0:2376",
        "iptables": "no",
        "usernamespaceremap": "remap:remap",
        "insecureregistries": "registry.local:5000",
        "enabletls": "yes",
        "verifytls": "yes",
        "tlsca": "/etc/docker/ca.pem",
        "tlscertificate": "/etc/docker/cert.pem",
        "tlskey": "/etc/docker/key.pem",
        "containerdsocket": "/run/containerd/containerd.sock",
        "runtime": "nvidia",
        "options": "--live-restore,log-driver=journald",
    }.items():
        session.set(rooms.DOCKER, parameter, text)
    backend = session.add((*rooms.DOCKER, "storage_backends"), "mylargebackend", "overlay2")
    session.set(backend, "options", "overlay2.size=10G")


def devicemapper(session: Session) -> None:
    backend = session.add((*rooms.DOCKER, "storage_backends"), "pool", "devicemapper")
    session.set(backend, "pooldevice", "/dev/mapper/thin-pool")


ALL = ("/",)
CASES: dict[str, tuple[str, Callable[[Session], None], tuple[str, ...]]] = {
    "control-plane": ("node001", nothing, ALL),
    "worker": ("node004", nothing, ALL),
    "etcd-with-authority": ("node001", secured_etcd, ("/cm/local/apps/etcd/",)),
    "kubelet-options": ("node002", options, ("/etc/kubernetes/",)),
    "head-with-shorewall": ("basecm10", nothing, ("/etc/shorewall/",)),
    "head-with-nftables": ("basecm10", nftables, ("/etc/nftables.conf",)),
    "head-with-ingress": ("basecm10", ingress, ("/etc/nginx/",)),
    "docker-with-defaults": ("node006", nothing, ALL),
    "docker-with-everything": ("node006", all_of_docker, ALL),
    "docker-with-devicemapper": ("node006", devicemapper, ("/etc/docker/",)),
    "node-without-roles": ("node007", nothing, ALL),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_node_is_rendered_as_it_was_read(case: str) -> None:
    node, stage, only = CASES[case]
    session = Session(rooms.full())
    stage(session)
    found = rooms.described(desired(session.tree, node), only)
    golden = GOLDEN / f"{case}.txt"
    if os.environ.get("BEDPLATE_UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == set(CASES)
