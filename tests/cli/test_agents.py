"""`bedplate agent install` and `uninstall`: what is planned for a machine, and all of it over a stand-in for ssh."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import shlex
import socket
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests import programs
from tests.head.folder.serving import serving
from tests.waiting import wait_until

import bedplate
from bedplate.cli import agents, overssh
from bedplate.cli.overssh import Facts, Host, Package, Ssh, Trouble
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.daemon import Daemon
from bedplate.head.folder import administration, creation
from bedplate.head.folder.datafolder import Folder

HEAD = "https://head:8081"
ARCHIVE = Package(Path("a.tar.gz"), "0.8.0", "amd64", "", 60_000)
DEBIAN = Package(Path("a.deb"), "0.8.0", "amd64", "dpkg", 60_000)
RPM = Package(Path("a.rpm"), "0.8.0", "amd64", "rpm", 60_000)
MACHINE = Facts("amd64", "root", 1 << 20, has_tar=True, managers=("dpkg",))
ENROLLED = MACHINE._replace(version="0.8.0", is_enrolled=True, node="node001", urls=(HEAD,))
NODE = Host("node001", "node001")


# What is planned


def test_a_bare_machine_gets_everything_and_one_that_has_it_nothing() -> None:
    todo = overssh.plan(NODE, MACHINE, [ARCHIVE], [HEAD])
    assert todo == (ARCHIVE, True) and todo.text == "install 0.8.0, enrol, start"
    todo = overssh.plan(NODE, ENROLLED, [ARCHIVE], [f"{HEAD}/"])
    assert todo == (None, False) and todo.text == "nothing"
    assert overssh.plan(NODE, ENROLLED._replace(version="0.7.0"), [ARCHIVE], [HEAD]) == (ARCHIVE, False)
    assert overssh.plan(NODE, ENROLLED, [ARCHIVE], [HEAD], force=True) == (ARCHIVE, False)
    assert overssh.plan(NODE, ENROLLED, [ARCHIVE], [HEAD], replace=True) == (None, True)


@pytest.mark.parametrize(
    ("facts", "packages", "why"),
    [
        (MACHINE._replace(architecture="arm64"), [ARCHIVE], "wrong architecture: it is arm64"),
        (MACHINE._replace(rights="no"), [ARCHIVE], "no sudo"),
        (MACHINE._replace(free_kb=10_000), [ARCHIVE], "disk full: 9 MB are free"),
        (ENROLLED._replace(urls=("https://other:8081",)), [ARCHIVE], "already enrolled at another head: https://other"),
        (ENROLLED._replace(node="node007"), [ARCHIVE], "it is enrolled as node007, not as node001"),
        (MACHINE._replace(managers=()), [DEBIAN], "no dpkg"),
        (MACHINE, [RPM], "no rpm"),
        (MACHINE._replace(has_tar=False), [ARCHIVE], "no tar"),
    ],
)
def test_what_stands_in_the_way_is_told(facts: Facts, packages: list[Package], why: str) -> None:
    with pytest.raises(Trouble, match=why) as told:
        overssh.plan(NODE, facts, packages, [HEAD])
    assert told.value.hint


def test_a_machine_gets_the_package_of_its_kind() -> None:
    other = ARCHIVE._replace(architecture="arm64")
    both = [other, ARCHIVE, DEBIAN]
    assert overssh.choose(both, MACHINE) is DEBIAN
    assert overssh.choose(both, MACHINE._replace(managers=())) is ARCHIVE
    assert overssh.choose(both, MACHINE, is_sandbox=True) is ARCHIVE
    every, redhat = [*both, RPM], MACHINE._replace(managers=("rpm",), has_tar=False)
    assert overssh.choose(every, redhat) is RPM
    assert overssh.choose(every, MACHINE._replace(managers=("dpkg", "rpm"))) is DEBIAN, "Debian has rpm as a tool"
    assert overssh.choose(every, MACHINE._replace(managers=("dpkg", "rpm"), packager="rpm")) is RPM
    assert overssh.choose([ARCHIVE, RPM], MACHINE) is ARCHIVE
    assert overssh.choose(both, MACHINE._replace(architecture="arm64")) is other


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("node001", ("node001", "node001")),
        ("admin@node001.site.example", ("admin@node001.site.example", "node001")),
        ("node001=10.0.0.1", ("10.0.0.1", "node001")),
        ("node001=ssh://admin@10.0.0.1:2222", ("ssh://admin@10.0.0.1:2222", "node001")),
    ],
)
def test_a_destination_names_the_node(text: str, host: tuple[str, str]) -> None:
    assert Host.parse(text) == host


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "admin@10.0.0.1", "node001=", "-oProxyCommand=x", "node001=-oProxyCommand"]
)
def test_what_is_no_destination_or_names_no_node_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid):
        Host.parse(text)


def test_a_package_is_known_by_its_name(tmp_path: Path) -> None:
    archive = tmp_path / "bedplate-agent-0.8.0-rc1-linux-arm64.tar.gz"
    archive.write_bytes(gzip.compress(bytes(3 << 20)))
    assert Package.read(archive) == (archive, "0.8.0-rc1", "arm64", "", 3072)
    debian = tmp_path / "bedplate-agent_0.8.0_amd64.deb"
    debian.write_bytes(bytes(4096))
    assert Package.read(debian) == (debian, "0.8.0", "amd64", "dpkg", 16)
    redhat = tmp_path / "bedplate-agent-0.8.0~rc1-1.x86_64.rpm"
    redhat.write_bytes(bytes(4096))
    assert Package.read(redhat) == (redhat, "0.8.0-rc1", "amd64", "rpm", 16)
    with pytest.raises(errors.Invalid, match="not named like a package"):
        Package.read(tmp_path / "agent.tar.gz")


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("ssh: Could not resolve hostname node9: Name or service not known", "NODE=ADDRESS"),
        ("ssh: connect to host node9 port 22: Connection refused", "--port"),
        ("root@node9: Permission denied (publickey).", "ssh-copy-id"),
        ("Host key verification failed.", "ssh-keygen -R"),
        ("", "check that ssh reaches it"),
    ],
)
async def test_why_ssh_does_not_reach_a_machine_is_told_with_what_to_do(
    tmp_path: Path, complaint: str, hint: str
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho {shlex.quote(complaint)} >&2\nexit 255\n")
    ssh.chmod(0o755)
    with pytest.raises(Trouble, match=r"^unreachable: ") as told:
        await overssh.Machine(NODE, Ssh([str(ssh)])).probe()
    assert hint in told.value.hint


async def test_a_missing_ssh_and_one_that_does_not_answer_are_told(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="cannot be run"):
        await Ssh([str(tmp_path / "none")])("node001", "true")
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 60\n")
    ssh.chmod(0o755)
    with pytest.raises(Trouble, match=r"did not answer within 0.05 s"):
        await Ssh([str(ssh)])("node001", "true", timeout_s=0.05)


@pytest.mark.parametrize("before", ["", "Welcome {user}!\\n"])
async def test_a_login_shell_that_says_something_does_not_hide_what_the_agent_says(before: str) -> None:
    ssh = Ssh(["sh", "-c", f'printf \'{before}{{\\n  "node": "node7"\\n}}\\n\''])
    assert await overssh.Machine(NODE, ssh).enrol(["https://head"], "token", timeout_s=60.0) == "node7"


@pytest.mark.parametrize("output", ["", "Bye", '{\\n  "node": 7\\n}', "{\\n}", "{\\n"])
async def test_an_agent_that_does_not_say_which_node_it_is_is_told(output: str) -> None:
    ssh = Ssh(["sh", "-c", f"printf '{output}\\n'"])
    with pytest.raises(Trouble, match="its agent does not say which node it is"):
        await overssh.Machine(NODE, ssh).enrol(["https://head"], "token", timeout_s=60.0)


# All of it

# What follows the destination is run here; every word is written down, standard input is not.
SSH = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != -- ]; do shift; done
case "$2" in
gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
esac
eval "$3"
"""
# The agent of these sources, as its archive would start it.
PROGRAM = """#!/bin/sh
here=$(readlink -f "$0") && here=${{here%/bin/*}}
exec {python} -c 'import sys; sys.executable = sys.argv.pop(1); from bedplate.apps.agent import main; main()' \\
    "$here/bin/python3" "$@"
"""


def made_archive(folder: Path) -> Path:
    files = {
        "bin/bedplate-agent": PROGRAM.format(python=shlex.quote(sys.executable)),
        "bin/python3": f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n',
        "libexec/python3": "",
        "share/agent.toml": "drift = 1\n",
        "share/bedplate-agent.service": (
            "[Service]\nRestart=always\nKillMode=process\n"
            "ExecStart=/opt/bedplate-agent/current/bin/bedplate-agent run\n"
        ),
    }
    machine = overssh.MACHINES.get(os.uname().machine, os.uname().machine)
    target = folder / f"bedplate-agent-0.8.0-linux-{machine}.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"0.8.0/{name}")
            info.mode, info.size = 0o755, len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return target


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[tuple[Folder, Daemon, HeadClient]]:
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=2)
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:
        yield folder, daemon, admin


@pytest.mark.external
async def test_machines_get_the_agent_enrol_report_and_lose_it_again(
    tmp_path: Path, site: tuple[Folder, Daemon, HeadClient]
) -> None:
    folder, daemon, admin = site
    root, log, ssh, archive = tmp_path / "machine", tmp_path / "log", tmp_path / "ssh", made_archive(tmp_path)
    root.mkdir()
    ssh.write_text(SSH.format(log=shlex.quote(str(log))))
    ssh.chmod(0o755)
    head = ("--url", daemon.url, "--token-file", folder.file("admin.token"), "--cacert", folder.file("ca.crt"))
    how = ("--ssh", ssh, "--root", root, "-o", "json")

    async def call(verb: str, *words: object) -> tuple[Result, list[dict[str, str]]]:
        command = [str(word) for word in (verb, *words, *head, *how)]
        result = await asyncio.to_thread(CliRunner().invoke, agents.agent, command)
        assert result.exit_code in (0, 1) and result.stdout, (result.output, result.exception)
        return result, json.loads(result.stdout)

    package = ("--package", archive)
    result, (one,) = await call("install", "node001", "--dry-run", *package)
    assert (one["result"], one["text"]) == ("planned", "install 0.8.0, enrol, start")
    assert result.exit_code == 0 and list(root.iterdir()) == []
    try:
        result, (one, two) = await call("install", "node001", "node002=gone", *package)
        assert one == {"host": "node001", "node": "node001", "version": "0.8.0", "result": "installed", "text": ""}
        assert two["result"] == "failed" and "unreachable: ssh: connect to host gone" in two["text"]
        assert result.exit_code == 1
        (state,) = await admin.nodes(["node001"])
        assert state.state == "UP"
        # The token that was used is in no command line.
        tokens = await admin.tokens()
        assert [token.left for token in tokens if token.kind == "enrol"] == [0]
        assert "enrol" in log.read_text() and "bph_" not in log.read_text()
        result, (one,) = await call("install", "node001", *package)
        assert (one["result"], result.exit_code) == ("unchanged", 0)
        _, (one,) = await call("install", "node002=node001", *package)
        assert one["text"].startswith("it is enrolled as node001, not as node002")
        _, (one,) = await call("uninstall", "node001", "--dry-run")
        assert (one["result"], one["text"]) == ("planned", "remove 0.8.0")
    finally:
        result, (one,) = await call("uninstall", "node001", "--purge", "--revoke")
    assert (one["result"], one["node"], result.exit_code) == ("removed", "node001", 0)
    assert not [path for path in root.rglob("*") if not path.is_dir()]
    assert [item.subject for item in await admin.revocations() if item.kind == "node"] == ["node001"]
    _, (one,) = await call("uninstall", "node001")
    assert (one["result"], one["text"]) == ("unchanged", "there is no agent")


# With a real sshd

SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/allowed
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
"""
# As root sshd wants a user and a folder of its own, which a machine without its package does not have.
OWN = """\
set -e
mount --bind {folder}/passwd /etc/passwd
mkdir -p /run/sshd 2> /dev/null || mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
exec {sshd} -D -e -f {folder}/config
"""


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[str]:
    """A server on loopback that lets one key in, without root's or the user's own ssh settings: the command for ssh."""
    program, keygen = programs.on_path("sshd"), programs.on_path("ssh-keygen")
    ssh = programs.on_path("ssh")
    folder = tmp_path / "sshd"
    folder.mkdir()
    for name in ("host", "key", "other"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, timeout=60)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "config").write_text(SSHD.format(port=port, folder=folder))
    (folder / "allowed").write_text((folder / "key.pub").read_text())
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    command: list[str | Path] = [program, "-D", "-e", "-f", folder / "config"]
    if os.geteuid() == 0:
        users = Path("/etc/passwd").read_text()
        if "\nsshd:" not in users:
            users += "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        (folder / "passwd").write_text(users)
        command = ["unshare", "--mount", "sh", "-c", OWN.format(folder=shlex.quote(str(folder)), sshd=program)]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: b"Server listening" in (folder / "log").read_bytes() or child.poll() is not None)
        assert child.poll() is None, (folder / "log").read_text()
        options = ("IdentitiesOnly=yes", f"UserKnownHostsFile={folder}/known", "StrictHostKeyChecking=yes")
        yield shlex.join([str(ssh), "-F", "none", "-p", str(port), *(w for o in options for w in ("-o", o))])
    finally:
        child.terminate()
        child.wait()


@pytest.mark.external
async def test_a_machine_behind_a_real_sshd_gets_the_agent_and_loses_it_again(
    tmp_path: Path, site: tuple[Folder, Daemon, HeadClient], sshd: str
) -> None:
    folder, daemon, admin = site
    root, archive = tmp_path / "machine", made_archive(tmp_path)
    root.mkdir()
    head = ("--url", daemon.url, "--token-file", folder.file("admin.token"), "--cacert", folder.file("ca.crt"))

    async def call(verb: str, *words: object, key: str = "key") -> dict[str, str]:
        how = ("--ssh", sshd, "--identity", tmp_path / "sshd" / key, "--root", root, "-o", "json")
        command = [str(word) for word in (verb, "node001=127.0.0.1", *words, *head, *how)]
        result = await asyncio.to_thread(CliRunner().invoke, agents.agent, command)
        assert result.stdout, (result.output, result.exception)
        (one,) = json.loads(result.stdout)
        return dict(one)

    refused = await call("install", "--package", archive, key="other")
    assert refused["result"] == "failed" and "Permission denied" in refused["text"]
    assert "ssh-copy-id" in refused["text"] and list(root.iterdir()) == []
    try:
        installed = await call("install", "--package", archive)
        assert (installed["result"], installed["text"]) == ("installed", "")
        (state,) = await admin.nodes(["node001"])
        assert (state.state, state.version) == ("UP", bedplate.__version__)
        assert (await call("install", "--package", archive))["result"] == "unchanged"
    finally:
        removed = await call("uninstall", "--purge", "--revoke")
    assert removed["result"] == "removed"
    assert not [path for path in root.rglob("*") if not path.is_dir()]


async def test_a_machine_that_is_no_device_is_told_with_what_to_do(
    tmp_path: Path, site: tuple[Folder, Daemon, HeadClient]
) -> None:
    _, _, admin = site
    given = {"category": "", "wait": 1.0, "replace": False}
    with pytest.raises(Trouble, match="node099") as told:
        await agents._token(admin, "node099", given)
    assert "--category" in told.value.hint


async def test_at_most_so_many_machines_at_a_time() -> None:
    now, most = 0, 0

    async def piece() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    await overssh.at_once(3, [piece] * 10)
    assert most == 3
