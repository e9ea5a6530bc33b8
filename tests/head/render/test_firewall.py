"""firewall: open ports as shorewall's rules and as nftables (behaviours 127, 132), with a real nft and real packets."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from tests import programs
from tests.head.render import rooms

from bedplate.api.desired import merged
from bedplate.api.steps import notice, steps
from bedplate.head.desired import desired
from bedplate.head.render import firewall
from bedplate.head.session import Session
from bedplate.head.tree import Tree

PORTS = (*rooms.FIREWALL, "open_ports")
HEAD = "basecm10"
PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def shorewall(tree: Tree) -> list[list[str]]:
    lines = rooms.file_of(tree, HEAD, firewall.SHOREWALL).content.splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def nft(tree: Tree) -> str:
    return rooms.file_of(tree, HEAD, firewall.NFTABLES).content


def opened(session: Session, *words: str, address: str = "") -> None:
    path = session.add_indexed(PORTS, words)
    if address:
        session.set(path, "address", address)


def test_item_127_an_opened_port_rewrites_the_rules_and_restarts_shorewall(session: Session) -> None:
    before = session.tree
    opened(session, "ACCEPT", "net", "10443", "tcp", "fw")
    assert shorewall(session.tree) == [
        ["ACCEPT", "net", "fw", "tcp", "30080"],
        ["ACCEPT", "net", "fw", "tcp", "30443"],
        ["ACCEPT", "net", "fw", "tcp", "10443"],
    ]
    assert rooms.verbs(rooms.planned(before, session), HEAD, "service", "shorewall") == ["restart"]
    done = steps(desired(before, HEAD), desired(session.tree, HEAD))
    assert [text for step in done if (text := notice(step))] == ["Service shorewall was restarted"]


def test_item_132_dnat_to_a_compute_node_is_rendered(session: Session) -> None:
    opened(session, "DNAT", "net", "30443", "tcp", "nat:10.141.0.1:30443")
    assert shorewall(session.tree)[-1] == ["DNAT", "net", "nat:10.141.0.1:30443", "tcp", "30443"]
    session.set(rooms.FIREWALL, "backend", "nftables")
    assert "ip saddr != @nat4 tcp dport 30443 dnat ip to 10.141.0.1:30443" in nft(session.tree)


def test_sources_ranges_and_descriptions_are_written_as_shorewall_wants_them(session: Session) -> None:
    opened(session, "DROP", "net", "1000-2000", "udp", "fw", address="192.0.2.0/24")
    path = session.add_indexed(PORTS, ["ACCEPT", "net", "22", "tcp", "fw"])
    session.set(path, "description", "first line\nACCEPT net fw")
    assert shorewall(session.tree)[2:] == [
        ["DROP", "net:192.0.2.0/24", "fw", "udp", "1000:2000"],
        ["ACCEPT", "net", "fw", "tcp", "22"],
    ]


def test_what_the_site_wrote_into_the_rules_file_stays(session: Session) -> None:
    file = rooms.file_of(session.tree, HEAD, firewall.SHOREWALL)
    assert file.block
    present = merged("SSH(ACCEPT) net fw\n", file.content)
    assert present.startswith("SSH(ACCEPT) net fw\n")
    assert merged(present, None) == "SSH(ACCEPT) net fw\n"


def test_the_back_end_decides_about_the_service(session: Session) -> None:
    before = session.tree
    session.set(rooms.FIREWALL, "backend", "nftables")
    actions = rooms.planned(before, session)
    assert rooms.verbs(actions, HEAD, "service", "shorewall") == ["remove"]
    assert rooms.verbs(actions, HEAD, "service", "nftables") == ["add"]
    assert rooms.verbs(actions, HEAD, "file", firewall.SHOREWALL) == ["remove"]


def test_a_closed_ssh_port_is_warned_about(session: Session) -> None:
    session.set(rooms.FIREWALL, "backend", "nftables")
    assert any("SSH" in warning for warning in desired(session.tree, HEAD).warnings)
    opened(session, "ACCEPT", "net", "20-30", "tcp", "fw")
    assert not desired(session.tree, HEAD).warnings


def every_kind(session: Session) -> Tree:
    session.set(rooms.FIREWALL, "backend", "nftables")
    opened(session, "ACCEPT", "net", "22", "tcp", "fw")
    opened(session, "DROP", "net", "1000:2000", "udp", "fw", address="2001:db8::/32")
    opened(session, "REJECT", "all", "25", "tcp", "net")
    opened(session, "ACCEPT", "net", "443", "tcp", "nat:10.141.0.4")
    opened(session, "DROP", "fw", "25", "tcp", "net")
    opened(session, "ACCEPT", "internalnet", "8081", "sctp", "all")
    opened(session, "DNAT", "net", "30443", "tcp", "nat:10.141.0.1:30443")
    opened(session, "DNAT", "all", "8000-8010", "tcp", "nat:10.141.0.2")
    path = session.add_indexed(PORTS, ["DROP", "net", "", "icmp", "fw"])
    session.set(path, "description", 'no "ping"\\')
    return session.tree


def loaded(text: str) -> str:
    """What nft lists after it has loaded a file, in a network namespace of its own."""
    program = programs.on_path("nft")
    alone = ["unshare", "-n" if os.geteuid() == 0 else "-rn"]
    if subprocess.run([*alone, "true"], capture_output=True, timeout=120).returncode:
        pytest.skip("no network namespace may be made here")
    script = f"{program} -f - && {program} list ruleset"
    done = subprocess.run([*alone, "sh", "-c", script], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.external
def test_a_real_nft_loads_the_table_twice_and_shows_the_rules(session: Session) -> None:
    text = nft(every_kind(session))
    shown = loaded(text + text)
    assert shown.count("table inet bedplate {") == 1
    assert "tcp dport 30080 accept comment \"Kubernetes 'default' Ingress HTTP\"" in shown
    assert "dnat ip to 10.141.0.1:30443" in shown


@pytest.mark.external
def test_tables_of_others_survive(session: Session) -> None:
    shown = loaded("table ip kube-proxy {\n chain c {\n }\n}\n" + nft(every_kind(session)))
    assert "table ip kube-proxy" in shown


@pytest.mark.root
@pytest.mark.external
def test_item_127_packets_find_ports_open_and_closed_as_rendered(session: Session) -> None:
    for name in ("nft", "ip", "nsenter", "unshare"):
        programs.on_path(name)
    if os.geteuid() != 0:
        pytest.skip("packets need root")
    session.set(rooms.FIREWALL, "backend", "nftables")
    opened(session, "ACCEPT", "net", "22", "tcp", "fw", address="192.0.2.2/32")
    opened(session, "ACCEPT", "net", "23", "tcp", "fw", address="198.51.100.0/24")
    opened(session, "REJECT", "nat", "9000", "tcp", "fw")
    opened(session, "DNAT", "net", "31443", "tcp", "nat:10.141.255.254:30080")
    outside, inside, long_s, short_s = "192.0.2.2", "10.141.0.9", 60, 2
    wanted = {
        (outside, 30080, long_s): "open",
        (outside, 22, long_s): "open",
        (outside, 31443, long_s): "open",
        (outside, 23, short_s): "TimeoutError",
        (outside, 9999, short_s): "TimeoutError",
        (inside, 9999, long_s): "open",
        (inside, 9000, long_s): "ConnectionRefusedError",
    }
    asked = {
        "table": nft(session.tree),
        "listen": [22, 23, 9000, 9999, 30080],
        "probes": [list(probe) for probe in wanted],
    }
    done = subprocess.run(
        ["unshare", "-n", sys.executable, pathlib.Path(__file__).with_name("packets.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=600,
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("no network namespace may be made here")
    assert done.returncode == 0, done.stderr
    assert dict(zip(wanted, json.loads(done.stdout), strict=True)) == wanted
