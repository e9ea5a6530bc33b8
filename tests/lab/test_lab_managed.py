"""A managed lab: a head, three bare nodes with agents, and roles that become real programs on them.

The tests follow one another: each leaves the nodes as it found them, which the last ones prove.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.deploy.conftest import load_tool
from tests.waiting import wait_until

import bedplate

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

NODES = ("node001", "node002", "node003")
CERTS = "/cm/local/apps/etcd/current/etc/certs"
# Everything of a node but what is the kernel's, the agent's own and what lasts until the next start.
_TREE = """
import hashlib, json, os, stat
own = ("/proc", "/sys", "/dev", "/run", "/tmp", "/usr", "/opt", "/var/lib/bedplate-agent", "/var/log/bedplate-agent")
found = {}
mounts = {line.split()[4] for line in open("/proc/self/mountinfo")} - {"/", "/etc"}
for parent, folders, names in os.walk("/", followlinks=False):
    paths = {name: os.path.join(parent, name) for name in folders}
    folders[:] = [name for name, path in paths.items() if path not in own and path not in mounts]
    for name in (*folders, *names):
        path = os.path.join(parent, name)
        about = os.lstat(path)
        if stat.S_ISREG(about.st_mode):
            content = hashlib.sha256(open(path, "rb").read()).hexdigest()
        else:
            content = os.readlink(path) if stat.S_ISLNK(about.st_mode) else ""
        found[path] = [oct(about.st_mode), about.st_uid, about.st_gid, content]
print(json.dumps(found))
"""


class Site:
    """The lab with its head."""

    def __init__(self, lab: Any, shell: str) -> None:
        self.lab = lab
        self.shell = shell
        self.data = Path(shell.split()[-1])
        self.folder = self.data.parent

    def cmsh(self, *lines: str, code: int = 0) -> str:
        """What a shell with these commands printed; it must end with that code."""
        command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(self.data), "-c", "; ".join(lines)]
        result = subprocess.run(command, env=self.lab.environ, capture_output=True, text=True, timeout=240, check=False)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    def on(self, node: str, *command: str) -> str:
        output: str = self.lab.ok("exec", node, "--", *command)
        return output

    def start(self, node: str, *command: str) -> subprocess.Popen[str]:
        """A command that goes on while others run."""
        line = self.lab.command("exec", "--name", self.lab.name, node, "--", *command)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line, env=self.lab.environ, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def tries(self, node: str, *command: str) -> int:
        code: int = self.lab.run("exec", node, "--", *command).returncode
        return code

    def tree(self, node: str) -> dict[str, Any]:
        """Every file of a node; of `/usr` and `/opt`, which are this machine's, what differs from it."""
        found: dict[str, Any] = json.loads(self.on(node, sys.executable, "-c", _TREE))
        for name in ("usr", "opt"):
            upper = self.folder / "nodes" / node / name
            found[f"/{name}"] = sorted(str(path.relative_to(upper)) for path in upper.rglob("*"))
        return found

    def changes(self, node: str, before: dict[str, Any]) -> dict[str, Any]:
        """What is not as it was, with what it is now."""
        was, now = before[node], self.tree(node)
        return {path: now.get(path) for path in {*was, *now} if was.get(path) != now.get(path)}

    def committing(self, *lines: str) -> subprocess.Popen[str]:
        """A shell with these commands, while others go on; it has said something about its commit."""
        command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(self.data), "-c", "; ".join(lines)]
        shell = subprocess.Popen(
            command, env=self.lab.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        assert shell.stdout is not None
        assert shell.stdout.readline().startswith("revision "), shell.communicate()
        return shell

    def kill_head(self) -> None:
        """kill -9; the lab starts it again."""
        words = f"\0head\0serve\0--data\0{self.data}\0".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if words in command and command.startswith(sys.executable.encode()):
                    os.kill(int(folder.name), signal.SIGKILL)
                    return
        raise AssertionError("there is no head")

    def status(self, node: str) -> dict[str, str]:
        """The row of a node in `device status`."""
        header, row = self.cmsh(f"device status -d '|' {node}").splitlines()[:2]
        return dict(zip(header.split("|"), row.split("|"), strict=True))

    def etcdctl(self, node: str, *words: str) -> Any:
        """etcdctl on a member, with its certificates."""
        tls = [f"--cacert={CERTS}/ca.crt", f"--cert={CERTS}/member.crt", f"--key={CERTS}/member.key"]
        return json.loads(
            self.on(node, "etcdctl", f"--endpoints=https://{node}:5001", *tls, *words, "-w", "json").splitlines()[-1]
        )

    def members(self, node: str) -> set[str]:
        listed = self.etcdctl(node, "member", "list")["members"]
        return {member.get("name", "?") for member in listed}

    def is_healthy(self, node: str, count: int) -> bool:
        return [member["health"] for member in self.health(node)] == [True] * count

    def health(self, node: str) -> list[dict[str, Any]]:
        """What etcdctl says of every member."""
        result = self.lab.run(
            "exec", node, "--", "etcdctl", f"--endpoints=https://{node}:5001", f"--cacert={CERTS}/ca.crt",
            f"--cert={CERTS}/member.crt", f"--key={CERTS}/member.key", "endpoint", "health", "--cluster", "-w", "json",
        )  # fmt: skip
        return json.loads(result.stdout.splitlines()[-1]) if result.stdout.strip() else []


@pytest.fixture(scope="module")
def ground(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[tuple[Site, Any]]:
    lab = new_lab("m")
    before = look(lab.name, lab.state)
    site = Site(lab, lab.ok("up", "--managed", "--nodes", "3").strip())
    yield site, before
    lab.run("down")


@pytest.fixture(scope="module")
def site(ground: tuple[Site, Any]) -> Site:
    return ground[0]


@pytest.fixture(scope="module")
def bare(site: Site) -> dict[str, Any]:
    """The nodes before any role."""
    return {node: site.tree(node) for node in NODES}


def test_nodes_are_enrolled_and_the_printed_line_opens_a_shell(site: Site, bare: dict[str, Any]) -> None:
    assert site.shell.startswith("cmsh --data ")
    status = json.loads(site.lab.ok("status", "-o", "json"))
    assert {node["name"]: node["condition"] for node in status["nodes"]} == dict.fromkeys(NODES, "UP")
    assert all(node["programs"] == ["bedplate-agent"] for node in status["nodes"])
    assert site.on("node002", "hostname").strip() == "node002"
    # Processes of its own, files of its own, no keys of others.
    assert len(site.on("node002", "ls", "/proc").split()) < 150
    assert site.on("node002", "readlink", "/proc/1/ns/pid") != f"{Path('/proc/self/ns/pid').readlink()}\n"
    assert site.tries("node002", "test", "-e", str(site.data)) != 0
    assert site.tries("node002", "test", "-e", "/usr/sbin/nginx") != 0
    assert not Path("/cm").exists()
    assert {site.status(node)["Status"] for node in NODES} == {"UP"}


def test_what_cannot_be_is_refused_with_its_remedy(site: Site) -> None:
    again = site.lab.run("up", "--managed")
    assert again.returncode != 0
    assert f"lab '{site.lab.name}' is up" in again.stderr
    assert f"bedplate lab down --name {site.lab.name}" in again.stderr
    subnet = json.loads(site.lab.ok("status", "-o", "json"))["subnet"]
    other = [*site.lab.command("up", "--managed", "--name", f"{site.lab.name}x", "--subnet", subnet)]
    refused = subprocess.run(other, env=site.lab.environ, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert f"overlaps {subnet}, which is in use" in refused.stderr
    assert "it has no Kubernetes" in site.lab.run("kubectl", "--", "get", "nodes").stderr


def test_item_88_one_command_makes_a_healthy_etcd_of_three_members_with_tls(site: Site, bare: dict[str, Any]) -> None:
    said = site.cmsh(
        "etcd", "add kube-x", "set authority generate",
        "configurationoverlay", "add kube-x-etcd", "set nodes node001..node003",
        "roles", "assign etcd::host", "set etcdcluster kube-x", "/", "commit --wait",
    )  # fmt: skip
    assert "failed" not in said
    assert site.is_healthy("node001", 3)
    assert site.members("node001") == set(NODES)
    # Who has no certificate is not answered.
    assert site.tries("node001", "etcdctl", "--endpoints=https://node002:5001", f"--cacert={CERTS}/ca.crt",
                      "--command-timeout=2s", "member", "list") != 0  # fmt: skip


def test_a_killed_etcd_and_a_killed_agent_come_back(site: Site) -> None:
    site.etcdctl("node001", "put", "colour", "blue")
    site.on("node002", "pkill", "-9", "-x", "etcd")
    site.on("node003", "pkill", "-9", "-f", "bedplate.apps.agent run")
    wait_until(lambda: site.is_healthy("node001", 3), "etcd is healthy", step_s=0.5)
    wait_until(lambda: site.tries("node003", "pgrep", "-f", "bedplate.apps.agent run") == 0, "the agent is back")
    assert site.etcdctl("node002", "get", "colour")["count"] == 1


def test_a_member_that_lost_its_data_is_replaced(site: Site) -> None:
    before = {member["name"]: member["ID"] for member in site.etcdctl("node001", "member", "list")["members"]}
    site.on("node002", "sh", "-c", "rm -rf /var/lib/etcd/member; pkill -9 -x etcd")

    def is_replaced() -> bool:
        members = {member.get("name"): member["ID"] for member in site.etcdctl("node001", "member", "list")["members"]}
        return members.keys() == before.keys() and members["node002"] != before["node002"]

    wait_until(is_replaced, "another member of the same name", step_s=0.5)
    wait_until(lambda: site.is_healthy("node001", 3), "etcd is healthy", step_s=0.5)
    assert site.etcdctl("node002", "get", "colour")["count"] == 1


def test_item_89_the_data_of_etcd_survives_a_restart_of_its_node_which_is_not_wiped(site: Site) -> None:
    before = {member["name"]: member["ID"] for member in site.etcdctl("node001", "member", "list")["members"]}
    site.lab.ok("stop-node", "node002")
    site.lab.ok("start-node", "node002")
    wait_until(lambda: site.is_healthy("node001", 3), "etcd is healthy", step_s=0.5)
    after = {member["name"]: member["ID"] for member in site.etcdctl("node001", "member", "list")["members"]}
    assert after == before, "it is the same member, with its own data"
    assert site.etcdctl("node002", "get", "colour")["count"] == 1
    said = site.cmsh("device use node002", "imageupdate -w --full", code=1)
    assert "confirm it by name: --confirm node002" in said
    wait_until(lambda: site.status("node002")["Status"] == "UP", "its agent reports again", step_s=0.5)


def test_item_216_members_leave_and_come_in_the_right_order_though_the_head_is_killed_meanwhile(site: Site) -> None:
    site.cmsh("configurationoverlay use kube-x-etcd", "set nodes node001..node002", "commit --wait")
    assert site.members("node001") == {"node001", "node002"}
    assert site.tries("node003", "pgrep", "-x", "etcd") != 0
    assert site.tries("node003", "test", "-e", "/usr/bin/etcd") != 0
    shell = site.committing("configurationoverlay use kube-x-etcd", "set nodes node001..node003", "commit --wait")
    site.kill_head()
    said = shell.communicate(timeout=120)[0]
    assert shell.returncode == 0, said
    assert said.splitlines()[-1].endswith("applied on 3 of 3 nodes")
    assert site.is_healthy("node003", 3)
    assert site.etcdctl("node003", "get", "colour")["count"] == 1


def test_a_cut_link_and_a_stopped_agent_are_reported_and_what_was_missed_is_made_up_for(
    site: Site, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    note.write_text("hello")
    site.on("node003", "ip", "link", "set", "eth0", "down")
    site.on("node002", "pkill", "-STOP", "-f", "bedplate.apps.agent run")
    try:
        wait_until(lambda: not site.is_healthy("node001", 3), "the loss is seen", step_s=0.2)
        said = site.cmsh(
            "configurationoverlay use kube-x-etcd", "customizations", "add note", "set filename /etc/note",
            f"set content {note}", "..", "..", "commit --wait", code=1,
        )  # fmt: skip
        assert "node002: DOWN" in said and "node003: DOWN" in said
        assert site.on("node001", "cat", "/etc/note") == "hello"
        told = site.cmsh("device status")
        assert "1 UP, 2 DOWN" in told
        assert "node002, node003 stopped reporting: see that the machine runs" in told
        # What runs on a node does so without its agent.
        assert {member["health"] for member in site.health("node001")} == {True, False}
        assert site.etcdctl("node001", "get", "colour")["count"] == 1
    finally:
        site.on("node003", "ip", "link", "set", "eth0", "up")
        site.on("node002", "pkill", "-CONT", "-f", "bedplate.apps.agent run")
    for node in ("node002", "node003"):
        wait_until(lambda node=node: site.tries(node, "test", "-e", "/etc/note") == 0, "the change arrives", step_s=0.5)
    wait_until(lambda: "3 UP, 0 DOWN" in site.cmsh("device status"), "both report again", step_s=0.5)
    wait_until(lambda: site.is_healthy("node001", 3), "etcd is healthy", step_s=0.5)


def test_a_full_disk_is_reported_with_its_remedy_and_heals(site: Site) -> None:
    site.on("node003", "sh", "-c", "mkdir -p /srv/small && mount -t tmpfs -o size=16k tmpfs /srv/small"
            " && dd if=/dev/zero of=/srv/small/fill bs=1k count=64 2>/dev/null; true")  # fmt: skip
    try:
        said = site.cmsh(
            "configurationoverlay use kube-x-etcd", "customizations", "use note", "set filename /srv/small/note",
            "..", "..", "commit --wait", code=1,
        )  # fmt: skip
        assert "node003: failed" in said
        assert "no space left on device; free space" in site.status("node003")["Failures"]
        site.on("node003", "rm", "/srv/small/fill")
        # It would be tried again by itself, half a minute later; a commit does not wait for that.
        site.cmsh("configurationoverlay use kube-x-etcd", "customizations", "use note", "set filemask 0600", "..", "..",
                  "commit --wait")  # fmt: skip
        assert site.on("node003", "cat", "/srv/small/note") == "hello"
        assert not site.status("node003")["Failures"]
    finally:
        site.cmsh("configurationoverlay use kube-x-etcd", "customizations", "remove note", "..", "commit --wait")
        site.on("node003", "sh", "-c", "umount /srv/small && rmdir /srv/small")


def test_without_the_role_nodes_are_what_they_were_byte_for_byte(site: Site, bare: dict[str, Any]) -> None:
    site.cmsh("configurationoverlay", "remove kube-x-etcd", "etcd", "remove kube-x", "/", "commit --wait")
    assert [node for node in NODES if site.tries(node, "pgrep", "-x", "etcd") == 0] == []
    for node in NODES:
        assert site.changes(node, bare) == {}


def test_items_124_125_a_real_containerd_reads_its_drop_ins_and_goes_without_a_trace(
    site: Site, bare: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "cri.toml").write_text('[debug]\n  level = "$LEVEL"\n')
    site.cmsh(
        "device use node002", "roles", "assign generic::containerd", "set services containerd", "configurations",
        "add level", "set filename /cm/local/apps/containerd/var/etc/conf.d/level.toml",
        f"set content {tmp_path / 'cri.toml'}", "set serviceactiononwrite RESTART", "..", "..", "environments",
        "add LEVEL", "set value debug", "/", "commit --wait",
    )  # fmt: skip
    assert "Server:" in site.on("node002", "ctr", "version")
    assert 'level = "debug"' in site.on("node002", "cat", "/cm/local/apps/containerd/var/etc/conf.d/level.toml")
    assert "level=debug" in site.on("node002", "cat", "/var/log/bedplate-agent/containerd.log")
    # Where the drop-in cannot be written its service is stopped, and started once it can.
    dropin = "/cm/local/apps/containerd/var/etc/conf.d/level.toml"
    config = ("device use node002", "roles", "use generic::containerd", "configurations", "use level")
    site.on("node002", "sh", "-c", f"rm {dropin} && mkdir {dropin}")
    said = site.cmsh(*config, "set servicestoponfailure yes", "..", "..", "environments", "use LEVEL", "set value info",
                     "/", "commit --wait", code=1)  # fmt: skip
    assert f"{dropin} could not be written" in said
    assert site.tries("node002", "pgrep", "-x", "containerd") != 0
    site.on("node002", "rmdir", dropin)
    site.cmsh(*config, "set filemask 0640", "commit --wait")
    assert site.on("node002", "stat", "-c", "%a", dropin).strip() == "640"
    assert site.tries("node002", "pgrep", "-x", "containerd") == 0
    # What is disabled is left to people; what they make of it stays until it is managed again.
    site.cmsh(*config, "set disabled yes", "commit --wait")
    site.on("node002", "sh", "-c", f"echo '# by hand' > {dropin}")
    site.cmsh(*config, "..", "..", "environments", "use LEVEL", "set value warn", "/", "commit --wait")
    assert site.on("node002", "cat", dropin) == "# by hand\n"
    site.on("node002", "rm", dropin)
    site.cmsh(*config, "set disabled no", "commit --wait")
    assert 'level = "warn"' in site.on("node002", "cat", dropin)
    site.cmsh("device use node002", "roles", "unassign generic::containerd", "commit --wait")
    assert site.tries("node002", "pgrep", "-x", "containerd") != 0
    assert site.changes("node002", bare) == {}


def test_a_node_that_was_switched_off_comes_back_as_it_was(site: Site) -> None:
    site.lab.ok("stop-node", "node001")
    assert site.tries("node001", "true") != 0
    site.lab.ok("start-node", "node001")
    assert site.status("node001")["Status"] == "UP"


class Kind(NamedTuple):
    """Packages of one manager: how they are built, what makes a machine one of its own, and its commands."""

    build: str
    prepare: str
    install: str
    remove: str
    rest: str


# Debian's rpm asks for a confirmation, and knows none of the packages that are there.
_RPM = "rpm --force-debian --nodeps --dbpath /var/lib/rpm"
DEB = Kind(
    "debian",
    "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates; touch /var/lib/dpkg/status",
    "dpkg --force-confold --install /root/agent.package",
    "dpkg --purge bedplate-agent",
    "rm -r /var/lib/dpkg /var/log/dpkg.log",
)
RPM = Kind(
    "redhat",
    "mkdir -p /var/lib/rpm",
    f"{_RPM} --install /root/agent.package",
    # What rpm leaves to people goes as the guide says.
    f"{_RPM} --erase bedplate-agent; rm -rf /etc/bedplate /var/lib/bedplate-agent",
    "rm -r /var/lib/rpm",
)


@pytest.mark.parametrize(("node", "kind"), [("node003", DEB), ("node002", RPM)], ids=["deb", "rpm"])
def test_a_package_takes_a_node_over_and_goes_without_a_trace(
    site: Site, bare: dict[str, Any], tmp_path: Path, node: str, kind: Kind
) -> None:
    """With the interpreter that it brings; the state and the certificate are those of the agent before it."""
    packages = load_tool("packages")
    getattr(packages, kind.build)(packages.tree(tmp_path), tmp_path / "agent.package")
    shutil.copy(tmp_path / "agent.package", site.folder / "nodes" / node / "root/root/agent.package")
    site.on(node, "mv", "/usr/local/bin/bedplate-agent", "/root")
    site.on(node, "pkill", "-f", "bedplate.apps.agent run")
    wait_until(lambda: site.tries(node, "pgrep", "-f", "bedplate.apps.agent run") != 0, "the agent has ended")
    site.on(node, "sh", "-ec", f"{kind.prepare}; {kind.install}")
    # A node that has been without its agent for a while counts as down, and no commit waits for one.
    site.cmsh(
        "configurationoverlay", "add greeting", f"set nodes {node}", "customizations", "add motd",
        "set filename /etc/motd", f"set content {_file(tmp_path, 'welcome')}", "/", "commit",
    )  # fmt: skip
    wait_until(lambda: site.tries(node, "grep", "-qx", "welcome", "/etc/motd") == 0, "its agent writes the file")
    assert site.on(node, "pgrep", "-af", "/opt/bedplate-agent/.*apps.agent run")
    assert site.status(node)["Agent"] == bedplate.__version__
    site.cmsh("configurationoverlay", "remove greeting", "commit --wait")
    site.on(node, "sh", "-ec", kind.remove)
    assert site.tries(node, "pgrep", "-f", "apps.agent run") != 0
    site.on(node, "sh", "-ec", f"mv /root/bedplate-agent /usr/local/bin; rm /root/agent.package; {kind.rest}")
    # The certificate of the lab's own agent went with the purge. Folders of this machine that were written to stay in
    # the layer above it.
    left = site.changes(node, bare)
    usr = set(left.pop("/usr", ())) - set(bare[node]["/usr"])
    assert [name for name in usr if not (site.folder / "nodes" / node / "usr" / name).is_dir()] == []
    assert {path for path, now in left.items() if now is not None} == set(), left
    assert all(path.startswith("/etc/bedplate") for path in left), left


def _file(folder: Path, text: str) -> Path:
    (folder / "file").write_text(f"{text}\n")
    return folder / "file"


def test_nothing_is_left_of_it(ground: tuple[Site, Any], look: Callable[..., Any]) -> None:
    site, before = ground
    site.lab.ok("down")
    assert look(site.lab.name, site.lab.state).more_than(before) == {}


def test_nothing_is_left_of_a_start_that_failed(new_lab: Callable[..., Any], look: Callable[..., Any]) -> None:
    lab = new_lab("f")
    before = look(lab.name, lab.state)
    failed = lab.run("up", "--managed", "--timeout", "1")
    assert failed.returncode != 0
    assert f"lab '{lab.name}' could not be created and was removed" in failed.stderr
    assert "all its logs are in" in failed.stderr
    assert look(lab.name, lab.state).more_than(before) == {}


def test_nothing_is_left_of_a_start_that_was_killed(new_lab: Callable[..., Any], look: Callable[..., Any]) -> None:
    lab = new_lab("k")
    before = look(lab.name, lab.state)
    starting = lab.start("--managed", "--nodes", "2")
    assert starting.stderr is not None
    for line in starting.stderr:
        if "starting the head" in line:
            break
    starting.kill()
    starting.communicate()
    wait_until(lambda: look(lab.name, lab.state).more_than(before) == {}, "nothing is left", step_s=0.5)
