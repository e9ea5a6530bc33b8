"""Roles become real programs on the nodes of a managed lab, serve, change, and go without a trace.

The tests of one role follow one another. Each changes one node; what else runs there is left alone, which is what the
ids of its processes say.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.lab.test_lab_managed import Site
from tests.waiting import wait_until

from bedplate.core import errors
from bedplate.lab import binaries, debian, packages
from bedplate.serving import issuing

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

NODES = ("node001", "node002")
NGINX = "/etc/nginx/nginx.conf"
DROPINS = "/cm/local/apps/containerd/var/etc/conf.d"
# Both nodes get addresses outside of the site's networks: from there only what is open comes in.
OUTSIDE = {"node001": "198.51.100.1", "node002": "198.51.100.2"}
_BALANCED = Path(__file__).with_name("balanced.py").read_text()
# Says that it is apache2, and has a port.
_WEB_SERVER = """
import ctypes, socket, sys
ctypes.CDLL(None).prctl(15, b"apache2", 0, 0, 0)
server = socket.create_server(("0.0.0.0", 443))
print("listening", flush=True)
sys.stdin.read()
"""


class Lab(NamedTuple):
    """The lab with its nodes before any role, this machine before the lab, and why there is no dockerd."""

    site: Site
    bare: dict[str, Any]
    machine: Any
    no_docker: str


@pytest.fixture(scope="module")
def lab(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[Lab]:
    binaries.ensure(packages.TAKEN, progress=print)
    try:
        debian.ensure(print)
        no_docker = ""
    except errors.BedplateError as err:
        no_docker = str(err)
    made = new_lab("r")
    before = look(made.name, made.state)
    site = Site(made, made.ok("up", "--managed", "--nodes", "2").strip())
    yield Lab(site, {node: site.tree(node) for node in NODES}, before, no_docker)
    made.run("down")


@pytest.fixture
def site(lab: Lab) -> Site:
    return lab.site


@pytest.fixture
def bare(lab: Lab) -> dict[str, Any]:
    return lab.bare


def pid_of(site: Site, node: str, program: str) -> int:
    """The oldest process of a program on a node; 0 when there is none."""
    found = site.lab.run("exec", node, "--", "pgrep", "-o", "-x", program).stdout.strip()
    return int(found or 0)


class Talk:
    """A program on a node that answers each line with one."""

    def __init__(self, site: Site, node: str, *words: str, code: str = _BALANCED) -> None:
        self._process = site.start(node, sys.executable, "-c", code, *words)

    def hears(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.says()

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> str:
        """Close its input: what it says last."""
        try:
            return self._process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


class Backends(NamedTuple):
    """API servers and an ingress on three addresses of a node that nothing is on, and whom clients trust."""

    api: list[str]
    ingress: list[str]
    authority: str
    servers: Talk


@pytest.fixture(scope="module")
def backends(lab: Lab) -> Iterator[Backends]:
    prefix = json.loads(lab.site.lab.ok("status", "-o", "json"))["subnet"].rsplit(".", 1)[0]
    hosts = [f"{prefix}.{number}" for number in (231, 232, 233)]
    lines = "; ".join(f"ip address add {host}/24 dev eth0" for host in hosts)
    lab.site.on("node002", "sh", "-c", lines)
    now, life = datetime.now(UTC), timedelta(days=1)
    authority = issuing.Authority.create("lab", now, life)
    pair = authority.issue("kubernetes", now, life, uses={issuing.Use.SERVER}, hosts=["localhost"])
    api, ingress = [f"{host}:6443" for host in hosts], [f"{host}:30443" for host in hosts]
    servers = Talk(lab.site, "node002", "serve")
    given = {"tls": (pair.certificate + pair.key).decode(), "places": [*api, *ingress]}
    try:
        assert servers.hears(json.dumps(given)) == "serving"
        yield Backends(api, ingress, authority.pair.certificate.decode(), servers)
    finally:
        servers.end()
        lab.site.tries("node002", "sh", "-c", lines.replace(" add ", " delete "))


def asked(site: Site, backends: Backends, port: int, count: int = 9) -> set[str]:
    """Who answers on a port of the node with the proxy; somebody must."""
    clients = Talk(site, "node001", "ask")
    given = json.dumps({"ca": backends.authority, "url": f"https://localhost:{port}"})
    assert clients.hears(f"{given}\n")
    wait_until(lambda: sum(json.loads(clients.hears(""))["answers"].values()) >= count, "answers", step_s=0.1)
    found = set(json.loads(clients.hears(""))["answers"])
    clients.end()
    return found


def has_listener(site: Site, port: int) -> bool:
    return f":{port} " in site.on("node001", "ss", "-Hltn")


# Kubernetes::ApiServerProxy


def test_item_94_the_proxy_keeps_answering_while_api_servers_are_stopped_one_after_another(
    site: Site, backends: Backends
) -> None:
    devices = [
        line
        for number, place in enumerate(backends.api, start=1)
        for line in (f"add physicalnode api{number}", f"set ip {place.split(':')[0]}", "set network internalnet",
                     "set category default", "roles", "assign kubelet", "set kubernetescluster x",
                     "set controlplane yes", "device")
    ]  # fmt: skip
    site.cmsh("kubernetes", "add x", "device", *devices, "device use node001", "roles",
              "assign kubernetes::apiserverproxy", "set kubernetescluster x", "/", "commit --wait")  # fmt: skip
    first, second, third = backends.api
    clients = Talk(site, "node001", "ask")
    before = json.loads(clients.hears(json.dumps({"ca": backends.authority, "url": "https://localhost:10443"}) + "\n"))

    def all_answered_by(*places: str) -> bool:
        """Whether each of these answered thirty times since the last question that was answered with yes. And no client
        is still at the request that it began before that: two servers may have died under it."""
        now = json.loads(clients.hears(""))
        is_slow = any(count < then + 2 for count, then in zip(now["rounds"], before["rounds"], strict=True))
        answers, former = now["answers"], before["answers"]
        if is_slow or any(answers.get(place, 0) < former.get(place, 0) + 30 for place in places):
            return False
        before.update(now)
        return True

    wait_until(lambda: all_answered_by(*backends.api), "all answer", step_s=0.2)
    backends.servers.hears(f"stop {first}")
    wait_until(lambda: all_answered_by(second, third), "the others answer", step_s=0.2)
    backends.servers.hears(f"stop {second}")
    wait_until(lambda: all_answered_by(third), "the last one answers", step_s=0.2)
    backends.servers.hears(f"start {first}")
    backends.servers.hears(f"start {second}")
    wait_until(lambda: all_answered_by(first, second), "those that are back answer", step_s=0.2)
    backends.servers.hears(f"stop {third}")
    wait_until(lambda: all_answered_by(first, second), "the others answer", step_s=0.2)
    backends.servers.hears(f"start {third}")
    told = json.loads(clients.end())
    print(told, before)
    assert told["failed"] == []


def test_item_131_a_broken_proxy_configuration_is_never_loaded(site: Site, backends: Backends) -> None:
    before, pid = site.on("node001", "cat", NGINX), pid_of(site, "node001", "nginx")
    said = site.cmsh(
        "kubernetes use x", "set external yes", "set kubernetesapiserver https://api..invalid:6443",
        "commit --wait", code=1,
    )  # fmt: skip
    assert "node001: failed" in said
    assert "host not found in upstream" in said
    assert site.on("node001", "cat", NGINX) == before
    assert pid_of(site, "node001", "nginx") == pid
    assert asked(site, backends, 10443) <= set(backends.api)
    events = site.cmsh("events -d '|' node001")
    assert "|warning|node001|File /etc/nginx/nginx.conf could not be tested: nginx refuses it" in events
    site.cmsh("kubernetes use x", "set external no", "clear kubernetesapiserver", "commit --wait")
    # It is what it was before, so that nobody waits for its report, which says that nothing fails any more.
    wait_until(lambda: site.status("node001")["Failures"] == "", "the failure is forgotten", step_s=0.2)


def test_item_129_port_443_in_use_is_told_with_service_and_file_and_item_128_opens_once_it_is_free(
    site: Site, backends: Backends
) -> None:
    site.on(
        "node001", "sh", "-c", "mkdir -p /etc/apache2; printf 'Listen 80\\nListen 443\\n' > /etc/apache2/ports.conf"
    )
    web_server = Talk(site, "node001", code=_WEB_SERVER)
    try:
        assert web_server.says() == "listening"
        said = site.cmsh(
            "kubernetes use x", "set -e ingress_proxy_backend_port 30443", "set -e ingress_proxy_listen_port 443",
            "set -e ingress_proxy_enable true", "commit --wait", code=1,
        )  # fmt: skip
        assert "port 443 is in use by apache2: /etc/apache2/ports.conf, line 2, says 'Listen 443'" in said
        assert "listen 443;" not in site.on("node001", "cat", NGINX)
        assert asked(site, backends, 10443) <= set(backends.api)
    finally:
        web_server.end()
        site.on("node001", "sh", "-c", "rm /etc/apache2/ports.conf; rmdir --ignore-fail-on-non-empty /etc/apache2")
    pid = pid_of(site, "node001", "nginx")
    # It would be tried again by itself, half a minute later; a commit does not wait for that.
    site.cmsh("kubernetes use x", "set kubernetesapiserverproxyport 10444", "commit --wait")
    wait_until(lambda: has_listener(site, 443), "nginx has the port", step_s=0.2)
    assert asked(site, backends, 443) == set(backends.ingress)
    assert asked(site, backends, 10444) == set(backends.api)
    assert "|node001|Service nginx was reloaded" in site.cmsh("events -d '|' node001")
    site.cmsh("kubernetes use x", "set -e ingress_proxy_enable false", "commit --wait")
    wait_until(lambda: not has_listener(site, 443), "nginx has left the port", step_s=0.2)
    assert pid_of(site, "node001", "nginx") == pid


def test_item_94_without_nginx_the_agents_own_balancer_takes_its_file(
    site: Site, bare: dict[str, Any], backends: Backends
) -> None:
    packages_, aside = site.folder / "packages", site.folder / "packages-aside"
    theirs = [path for path in packages_.iterdir() if path.name == "nginx" or path.name.startswith("nginx.")]
    assert theirs, "the lab has a package of nginx"
    roles = ("device use node001", "roles")
    aside.mkdir()
    try:
        site.cmsh(*roles, "unassign kubernetes::apiserverproxy", "/", "commit --wait")
        for path in theirs:
            path.rename(aside / path.name)
        site.cmsh(*roles, "assign kubernetes::apiserverproxy", "set kubernetescluster x", "/", "commit --wait")
        assert pid_of(site, "node001", "nginx") == 0
        assert asked(site, backends, 10444) == set(backends.api)
        first, *others = backends.api
        backends.servers.hears(f"stop {first}")
        assert asked(site, backends, 10444) == set(others)
        backends.servers.hears(f"start {first}")
        said = site.on("node001", "bedplate-agent", "check", "ManagedServicesOk", "-o", "json")
        assert "the agent's own balancer, in the place of nginx" in said
        site.cmsh(*roles, "unassign kubernetes::apiserverproxy", "/", "commit --wait")
        assert not has_listener(site, 10444)
        assert site.changes("node001", bare) == {}
    finally:
        for path in aside.iterdir():
            path.rename(packages_ / path.name)
    site.cmsh(*roles, "assign kubernetes::apiserverproxy", "set kubernetescluster x", "/", "commit --wait")
    assert pid_of(site, "node001", "nginx") and asked(site, backends, 10444) == set(backends.api)


def test_without_the_proxy_the_node_is_what_it_was(site: Site, bare: dict[str, Any]) -> None:
    site.cmsh("device use node001", "roles", "unassign kubernetes::apiserverproxy", "device", "remove api1",
              "remove api2", "remove api3", "kubernetes", "remove x", "/", "commit --wait")  # fmt: skip
    assert pid_of(site, "node001", "nginx") == 0
    assert site.changes("node001", bare) == {}


# firewall


def test_item_127_packets_prove_what_the_firewall_lets_in_and_item_132_where_it_sends_them(
    site: Site, bare: dict[str, Any]
) -> None:
    for node, address in OUTSIDE.items():
        site.on(node, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    server = site.start("node002", sys.executable, "-m", "http.server", "10443")
    inside = site.on("node002", "sh", "-c", "getent hosts node002").split()[0]

    def is_open(address: str, port: int = 10443) -> bool:
        code = f"import socket; socket.create_connection(('{address}', {port}), 1)"
        return site.tries("node001", sys.executable, "-c", code) == 0

    use = ("device use node002", "roles", "use firewall")
    try:
        wait_until(lambda: is_open(OUTSIDE["node002"]), "the server listens", step_s=0.2)
        site.cmsh("device use node002", "roles", "assign firewall", "set backend nftables", "/", "commit --wait")
        assert not is_open(OUTSIDE["node002"])
        assert is_open(inside)
        site.on("node002", "nft", "add", "table", "ip", "theirs")
        said = site.cmsh(*use, "openports", "add ACCEPT net 10443 tcp fw", "/", "commit --wait")
        assert "ok." in said
        assert is_open(OUTSIDE["node002"])
        assert not is_open(OUTSIDE["node002"], 31443)
        site.cmsh(*use, "openports", f"add DNAT net 31443 tcp nat:{inside}:10443", "/", "commit --wait")
        assert is_open(OUTSIDE["node002"], 31443)
        # What somebody took away comes back, and what others have in the kernel is theirs.
        site.on("node002", "nft", "delete", "table", "inet", "bedplate")
        wait_until(lambda: "bedplate" in site.on("node002", "nft", "list", "tables"), "the table is back", step_s=0.5)
        assert "table ip theirs" in site.on("node002", "nft", "list", "tables")
        site.cmsh("device use node002", "roles", "unassign firewall", "/", "commit --wait")
        assert is_open(OUTSIDE["node002"])
        assert not is_open(OUTSIDE["node002"], 31443)
    finally:
        site.tries("node002", "pkill", "-f", "http.server")
        server.communicate(timeout=20)
    assert site.changes("node002", bare) == {}


# generic::containerd and kubelet


def test_item_123_a_real_containerd_reads_drop_ins_with_their_mode_and_owner(site: Site, tmp_path: Path) -> None:
    (tmp_path / "level.toml").write_text('[debug]\n  level = "$LEVEL"\n')
    site.cmsh(
        "device use node002", "roles", "assign generic::containerd", "configurations", "add level",
        f"set filename {DROPINS}/level.toml", f"set content {tmp_path / 'level.toml'}", "set filemask 0640",
        "set groupname adm", "..", "..", "environments", "add LEVEL", "set value debug", "/", "commit --wait",
    )  # fmt: skip
    assert "Server:" in site.on("node002", "ctr", "version")
    conf = site.on("node002", "cat", "/cm/local/apps/containerd/var/etc/config.toml")
    assert f'imports = ["{DROPINS}/*.toml"]' in conf
    assert site.on("node002", "stat", "-c", "%a %U:%G", f"{DROPINS}/level.toml") == "640 root:adm\n"
    assert "level=debug" in site.on("node002", "cat", "/var/log/bedplate-agent/containerd.log")
    pid = pid_of(site, "node002", "containerd")
    use = ("device use node002", "roles", "use generic::containerd")
    site.cmsh(*use, "environments", "use LEVEL", "set value info", "/", "commit --wait")
    assert 'level = "info"' in site.on("node002", "cat", f"{DROPINS}/level.toml")
    assert pid_of(site, "node002", "containerd") not in (0, pid)
    site.cmsh(*use, "configurations", "remove level", "/", "commit --wait")
    assert site.tries("node002", "test", "-e", f"{DROPINS}/level.toml") != 0
    assert "Server:" in site.on("node002", "ctr", "version")


def test_a_real_kubelet_runs_with_the_roles_settings_and_is_restarted_alone(site: Site) -> None:
    containerd = pid_of(site, "node002", "containerd")
    code = (
        "import json, ssl, urllib.request; link = urllib.request.urlopen('https://127.0.0.1:10250/configz',"
        " context=ssl._create_unverified_context()); print(json.load(link)['kubeletconfig']['maxPods'])"
    )
    site.cmsh("kubernetes", "add y", "device use node002", "roles", "assign kubelet", "set kubernetescluster y",
              "set maxpods 30", "/", "commit --wait")  # fmt: skip
    assert site.on("node002", sys.executable, "-c", code) == "30\n"
    kubelet = pid_of(site, "node002", "kubelet")
    site.cmsh("device use node002", "roles", "use kubelet", "set maxpods 50", "/", "commit --wait")
    assert site.on("node002", sys.executable, "-c", code) == "50\n"
    assert pid_of(site, "node002", "kubelet") not in (0, kubelet)
    site.cmsh("device use node002", "roles", "unassign kubelet", "kubernetes", "remove y", "/", "commit --wait")
    assert pid_of(site, "node002", "kubelet") == 0
    assert site.tries("node002", "test", "-e", "/usr/bin/kubelet") != 0
    assert pid_of(site, "node002", "containerd") == containerd


def test_without_containerd_the_node_is_what_it_was(site: Site, bare: dict[str, Any]) -> None:
    site.cmsh("device use node002", "roles", "unassign generic::containerd", "/", "commit --wait")
    assert pid_of(site, "node002", "containerd") == 0
    assert site.changes("node002", bare) == {}


# Docker::Host


def test_a_real_dockerd_answers_is_restarted_by_a_change_and_goes_without_a_trace(lab: Lab) -> None:
    if lab.no_docker:
        pytest.skip(f"there is no dockerd here: {lab.no_docker}")
    site = lab.site
    site.cmsh("device use node001", "roles", "assign docker::host", "/", "commit --wait")
    about = json.loads(site.on("node001", "docker", "info", "--format", "{{json .}}"))
    assert (about["Driver"], about["DockerRootDir"], about["Debug"]) == ("overlay2", "/var/lib/docker", False)
    pid = pid_of(site, "node001", "dockerd")
    site.cmsh("device use node001", "roles", "use docker::host", "set debug yes", "/", "commit --wait")
    assert json.loads(site.on("node001", "docker", "info", "--format", "{{json .Debug}}")) is True
    assert pid_of(site, "node001", "dockerd") not in (0, pid)
    site.cmsh("device use node001", "roles", "unassign docker::host", "/", "commit --wait")
    assert pid_of(site, "node001", "dockerd") == pid_of(site, "node001", "containerd") == 0
    assert site.changes("node001", lab.bare) == {}


def test_nothing_is_left_of_it(lab: Lab, look: Callable[..., Any]) -> None:
    lab.site.lab.ok("down")
    assert look(lab.site.lab.name, lab.site.lab.state).more_than(lab.machine) == {}
