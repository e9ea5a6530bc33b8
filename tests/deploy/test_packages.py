"""The agent's packages: what is in them, and that they install, run and go away on a machine without Python."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import shutil
import stat
import struct
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import programs
from tests.deploy.conftest import ROOT, VERSION, load_tool
from tests.head.folder.serving import serving
from tests.waiting import until

from bedplate.cli import overssh
from bedplate.client import HeadClient
from bedplate.head.daemon import Daemon
from bedplate.head.folder import administration, creation
from bedplate.head.folder.datafolder import Folder

packages = load_tool("packages")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: dpkg installs into a root of its own")
BUSYBOX = Path("/bin/busybox")
TOOLS = ("sh", "cat", "rm", "rmdir", "readlink", "mkdir")


# What goes in


def test_the_agent_brings_no_part_and_no_dependency_of_the_head() -> None:
    modules = packages.modules()
    parts = {name.split(".")[1] for name in modules if "." in name}
    assert parts == {"agent", "api", "apps", "cli", "client", "core"}
    assert not {"bedplate.cli.agents", "bedplate.cli.overssh"} & set(modules)
    assert packages.dependencies(modules.values()) == ["cffi", "click", "cryptography", "msgspec", "pycparser"]


def test_every_module_of_the_agent_is_packed() -> None:
    packed, agent = set(packages.modules().values()), ROOT / "src/bedplate/agent"
    # Sandboxes of `bedplate up` alone have services without keepers.
    assert set(agent.rglob("*.py")) - packed == {agent / "services/children.py"}


def test_an_archive_of_members_is_as_ar_writes_it() -> None:
    made = packages.ar({"debian-binary": b"2.0\n", "odd": b"abc"})
    assert made.startswith(b"!<arch>\ndebian-binary   315532800   0     0     100644  4         `\n2.0\nodd ")
    assert made.endswith(b"`\nabc\n") and len(made) % 2 == 0


def test_a_debian_package_says_what_it_holds(tmp_path: Path) -> None:
    layer = {f"{VERSION}/bin/bedplate-agent": packages.Entry(0o755, content=b"#!/bin/sh\n")}
    target = tmp_path / "agent.deb"
    packages.debian(layer, target, VERSION)
    parts = members(target.read_bytes())
    control, files = texts(parts["control.tar.gz"]), texts(parts["data.tar.gz"])
    assert parts["debian-binary"] == b"2.0\n"
    assert f"\nVersion: {VERSION}\n" in control["control"].decode()
    assert control["conffiles"] == b"/etc/bedplate/agent.toml\n"
    assert set(control) == {"control", "md5sums", "conffiles", "postinst", "prerm", "postrm"}
    sums = dict(line.split("  ")[::-1] for line in control["md5sums"].decode().splitlines())
    # A settings file is the administrator's: its sum is not dpkg's business.
    assert set(sums) == set(files) - {"etc/bedplate/agent.toml"}
    assert all(hashlib.md5(files[name]).hexdigest() == digest for name, digest in sums.items())


def members(content: bytes) -> dict[str, bytes]:
    found, place = {}, 8
    while place < len(content):
        name, size = content[place : place + 16].decode().strip(), int(content[place + 48 : place + 58])
        found[name] = content[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    return found


def texts(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = {member.name: opened.extractfile(member) for member in opened if member.isfile()}
        return {name: stream.read() for name, stream in found.items() if stream is not None}


# For real


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    built: list[Path] = packages.build(tmp_path_factory.mktemp("packages"))
    return built


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A root with a shell and a few tools that need no libraries: no Python, not even a C library."""
    if not BUSYBOX.exists():
        pytest.skip("busybox is not installed (make setup)")
    root = tmp_path / "machine"
    for name in ("bin", "etc", "opt", "proc", "dev", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    for name in TOOLS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    yield root


def dpkg(root: Path, *words: str | Path) -> None:
    command = [str(programs.on_path("dpkg")), f"--root={root}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def found(root: Path) -> set[str]:
    """Every file and folder but those that dpkg keeps its own knowledge in."""
    names = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    return {name for name in names if not name.startswith(("var/lib/dpkg", "proc/", "dev/"))}


def inside(root: Path, *words: str) -> list[str]:
    """A command as the machine's own: in its root, with /proc and /dev, which are gone when it ends."""
    script = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(root), *words]


@pytest.mark.external
def test_the_archive_runs_from_anywhere_with_its_own_libraries(built: list[Path], tmp_path: Path) -> None:
    home = tmp_path / "some where"
    home.mkdir()
    subprocess.run([programs.on_path("tar"), "-xzf", built[0], "-C", home], check=True, timeout=120)
    assert [path.name for path in home.iterdir()] == [VERSION]
    program = home / VERSION / "bin/bedplate-agent"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True, env={})
    assert done.stdout == f"bedplate-agent, version {VERSION}\n"
    code = "import sys, bedplate, ssl; print(sys.executable, bedplate.__file__, open('/proc/self/maps').read())"
    python = home / VERSION / "bin/python3"
    said = subprocess.run(
        [python, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert said.startswith(f"{python} {home}/{VERSION}/lib/")
    libraries = {line.split(None, 5)[5] for line in said.splitlines() if ".so" in line}
    assert libraries and all(name.startswith(str(home)) for name in libraries)
    assert not [path for path in home.rglob("*") if path.name in ("aiohttp", "uvloop", "jinja2", "head")]
    for name in ("bedplate", "libc6") if shutil.which("dpkg-query") else ("bedplate",):
        assert (home / VERSION / f"share/doc/{name}/copyright").is_file(), name


@pytest.mark.external
def test_a_second_build_gives_the_same_bytes(built: list[Path], tmp_path: Path) -> None:
    again = packages.build(tmp_path)
    assert [path.name for path in again] == [path.name for path in built]
    assert [hashlib.sha256(path.read_bytes()).digest() for path in again] == [
        hashlib.sha256(path.read_bytes()).digest() for path in built
    ]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[tuple[Folder, Daemon, HeadClient]]:
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=1)
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:
        yield folder, daemon, admin


@pytest.mark.external
@pytest.mark.root
@needs_root
async def test_dpkg_installs_it_it_enrols_and_applies_a_state_and_goes_away(
    built: list[Path], machine: Path, site: tuple[Folder, Daemon, HeadClient]
) -> None:
    folder, daemon, admin = site
    before = found(machine)
    await asyncio.to_thread(dpkg, machine, "--install", built[1])
    assert not list(machine.rglob("libc.so*"))[1:], "the package's own is the only C library"
    done = await asyncio.to_thread(
        subprocess.run,
        inside(machine, "/usr/bin/bedplate-agent", "--version"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"bedplate-agent, version {VERSION}\n"
    _, token = await administration.create_token(folder, "node001", kind="enrol", name="", days=0)
    enrol = inside(machine, "/usr/bin/bedplate-agent", "enrol", "--url", daemon.url)
    await asyncio.to_thread(subprocess.run, enrol, input=f"{token}\n", text=True, check=True, capture_output=True)
    motd = {"motd": {"type": "Customization", "values": {"filename": "/etc/motd", "content": "welcome\n"}}}
    await admin.create("configurationoverlay", "greeting", {"nodes": ["node001"]}, children={"customizations": motd})
    agent = await asyncio.create_subprocess_exec(*inside(machine, "/usr/bin/bedplate-agent", "run"))
    try:

        async def has_applied() -> bool:
            (state,) = await admin.nodes(["node001"])
            return state.state == "UP" and not state.pending and not state.failures

        await until(has_applied, "the node has applied its state")
        assert (machine / "etc/motd").read_text() == "welcome\n"
    finally:
        agent.terminate()
        assert await agent.wait() == 0
    # A version that no package brought goes with the others.
    (machine / "opt/bedplate-agent/9.9.9").mkdir()
    await asyncio.to_thread(dpkg, machine, "--remove", "bedplate-agent")
    kept = {"etc/bedplate/agent.toml", "etc/bedplate/agent.pem", "etc/bedplate/ca.crt", "etc/bedplate", "etc/motd"}
    left = found(machine) - before
    assert {name for name in left if not name.startswith("var/")} == kept
    assert all(name.startswith(("var/lib/bedplate-agent", "var/log")) for name in left if name.startswith("var/"))
    await asyncio.to_thread(dpkg, machine, "--purge", "bedplate-agent")
    assert found(machine) - before <= {"etc/motd", "var/log"}


# RPM


def headers(content: bytes) -> tuple[dict[int, object], dict[int, object], bytes]:
    """The signature, the header and the payload of an RPM, read by the format's own rules."""

    def header(place: int) -> tuple[dict[int, object], int]:
        assert content[place : place + 8] == b"\x8e\xad\xe8\x01\0\0\0\0"
        entries, size = struct.unpack(">II", content[place + 8 : place + 16])
        store, found = place + 16 + 16 * entries, dict[int, object]()
        for number in range(entries):
            at = place + 16 + 16 * number
            tag, kind, offset, count = struct.unpack(">IIII", content[at : at + 16])
            data = content[store + offset : store + size]
            if kind in (6, 8, 9):
                texts = [text.decode() for text in data.split(b"\0")[:count]]
                found[tag] = texts[0] if kind == 6 else texts
            elif kind in (3, 4):
                assert offset % (2 if kind == 3 else 4) == 0
                word = "H" if kind == 3 else "I"
                found[tag] = list(struct.unpack(f">{count}{word}", data[: count * (2 if kind == 3 else 4)]))
            else:
                found[tag] = data[:count]
        return found, store + size

    assert content[:4] == b"\xed\xab\xee\xdb"
    signature, end = header(96)
    start = end + -end % 8
    described, payload = header(start)
    assert signature[1004] == hashlib.md5(content[start:]).digest()
    assert signature[273] == hashlib.sha256(content[start:payload]).hexdigest()
    assert signature[1000] == [len(content) - start]
    return signature, described, content[payload:]


def test_an_rpm_says_what_it_holds(tmp_path: Path) -> None:
    layer = {f"{VERSION}/bin/bedplate-agent": packages.Entry(0o755, content=b"#!/bin/sh\n")}
    target = tmp_path / "agent.rpm"
    packages.redhat(layer, target, VERSION)
    _, described, packed = headers(target.read_bytes())
    assert (described[1000], described[1001], described[1002]) == ("bedplate-agent", VERSION, "1")
    folders, bases, indexes = described[1118], described[1117], described[1116]
    assert isinstance(folders, list) and isinstance(bases, list) and isinstance(indexes, list)
    names = [folders[index] + base for index, base in zip(indexes, bases, strict=True)]
    assert "/etc/bedplate/agent.toml" in names and "/opt/bedplate-agent/current" in names
    assert "/opt" not in names and "/etc" not in names and "/opt/bedplate-agent" in names
    flags = described[1037]
    assert isinstance(flags, list)
    assert [name for name, flag in zip(names, flags, strict=True) if flag] == ["/etc/bedplate/agent.toml"]
    payload = gzip.decompress(packed)
    assert described[5092] == [hashlib.sha256(packed).hexdigest()]
    assert payload.startswith(b"070701") and b"TRAILER!!!" in payload
    # Scripts of rpm are told a number where those of dpkg are told a word.
    for tag, word in ((1024, "configure"), (1025, "remove"), (1026, "remove")):
        assert f"set -- {word}\n#!/bin/sh\n" in str(described[tag])


@pytest.fixture
def rpm_machine(machine: Path) -> Path:
    """A machine whose package manager is rpm, with the folders that belong to no package but the first."""
    shutil.rmtree(machine / "var/lib/dpkg")
    for name in ("usr/bin", "usr/lib/systemd/system", "usr/share/doc"):
        (machine / name).mkdir(parents=True)
    for name in ("mv", "sleep"):
        (machine / "bin" / name).symlink_to("busybox")
    return machine


def rpm(*words: str | Path) -> str:
    done = subprocess.run(
        [str(programs.on_path("rpm")), *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.external
def test_rpm_reads_and_verifies_the_package(built: list[Path]) -> None:
    said = rpm("-qip", built[2])
    assert f"Version     : {VERSION}\n" in said and "Summary     : node agent of the Bedplate cluster manager\n" in said
    assert "digests OK" in rpm("-Kv", built[2]) or "digests OK" in rpm("-K", built[2])
    assert f"/opt/bedplate-agent/{VERSION}/bin/bedplate-agent\n" in rpm("-qlp", built[2])


@pytest.mark.external
@pytest.mark.root
@needs_root
def test_rpm_installs_it_and_removes_it(built: list[Path], rpm_machine: Path) -> None:
    before = found(rpm_machine)
    where = ("--root", rpm_machine, "--dbpath", "/var/lib/rpm")
    rpm("--install", "--nodeps", *where, built[2])
    done = subprocess.run(
        inside(rpm_machine, "/usr/bin/bedplate-agent", "--version"), capture_output=True, text=True, check=True
    )
    assert done.stdout == f"bedplate-agent, version {VERSION}\n"
    assert rpm("-V", "--nodeps", *where, "bedplate-agent") == ""
    refused = subprocess.run(
        inside(rpm_machine, "/usr/bin/bedplate-agent", "remove"), capture_output=True, text=True, check=False
    )
    assert refused.returncode and "rpm --erase bedplate-agent" in refused.stderr
    rpm("--erase", *where, "bedplate-agent")
    assert {name for name in found(rpm_machine) - before if not name.startswith("var/")} == set()


# Over ssh, to a machine whose package manager is rpm

ENTER = """\
#!/bin/sh
# Stands in for ssh: its options and the destination are left out, and the script is run on the machine.
while [ "$1" != -- ]; do shift; done
shift 2
exec unshare --mount sh -ec '
for name in usr etc var opt; do
    mount -t overlay overlay -o "lowerdir=/$name,upperdir=$0/$name,workdir=$0/work/$name" "$0/root/$name"
done
mount -t proc proc "$0/root/proc"
mount --rbind /dev "$0/root/dev"
exec chroot "$0/root" sh -c "$1"
' {folder} "$1"
"""
RPM = """\
#!/bin/sh
# rpm of Debian asks for a confirmation, and knows none of the packages that are there.
exec /usr/bin/rpm --force-debian --nodeps "$@"
"""


@pytest.fixture
def redhat(tmp_path: Path) -> tuple[Path, overssh.Machine]:
    """This machine as one that has rpm and no dpkg: what is written goes to a folder, of which the machine's files are
    the lower layer."""
    programs.on_path("rpm")
    folder = tmp_path / "redhat"
    for name in ("usr", "etc", "var", "opt"):
        for place in (folder / name, folder / "work" / name, folder / "root" / name):
            place.mkdir(parents=True)
    for name in ("proc", "dev", "tmp", "run", "root"):
        (folder / "root" / name).mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / "root" / name).symlink_to(f"usr/{name}")
    enter = folder / "ssh"
    enter.write_text(ENTER.format(folder=folder))
    enter.chmod(0o755)
    (folder / "usr/local/bin").mkdir(parents=True)
    (folder / "usr/local/bin/rpm").write_text(RPM)
    (folder / "usr/local/bin/rpm").chmod(0o755)
    (folder / "usr/bin").mkdir()
    # A character device of number 0 is what an upper layer has in place of a file that was removed.
    os.mknod(folder / "usr/bin/dpkg", 0o600 | stat.S_IFCHR, os.makedev(0, 0))
    return folder, overssh.Machine(overssh.Host("node001", "node001"), overssh.Ssh((str(enter),)))


def written(folder: Path) -> set[str]:
    """Files of the upper layers, but for what rpm and the C library know of them."""
    paths = [path for name in ("usr", "etc", "var", "opt") for path in (folder / name).rglob("*") if path.is_file()]
    names = {path.relative_to(folder).as_posix() for path in paths}
    return {name for name in names if not name.startswith(("var/lib/rpm", "etc/ld.so"))}


@pytest.mark.external
@pytest.mark.root
@needs_root
async def test_a_machine_with_rpm_gets_the_rpm_over_ssh_enrols_and_loses_all_of_it(
    built: list[Path], redhat: tuple[Path, overssh.Machine], site: tuple[Folder, Daemon, HeadClient]
) -> None:
    (place, machine), (folder, daemon, _) = redhat, site
    before = written(place)
    facts = await machine.probe()
    assert (facts.managers, facts.packager, facts.version) == (("rpm",), "", "")
    plan = overssh.plan(machine.host, facts, [overssh.Package.read(path) for path in built], [daemon.url])
    assert plan.package is not None and plan.package.path == built[2]
    await machine.copy(plan.package)
    _, token = await administration.create_token(folder, "node001", kind="enrol", name="", days=0)
    assert await machine.enrol([daemon.url], token, timeout_s=120) == "node001"
    facts = await machine.probe()
    assert (facts.packager, facts.version, facts.node, facts.is_enrolled) == ("rpm", VERSION, "node001", True)
    assert overssh.plan(machine.host, facts, [overssh.Package.read(built[2])], [daemon.url]).text == "nothing"
    await machine.copy(plan.package)
    await machine.remove(purge=False)
    facts = await machine.probe()
    assert (facts.packager, facts.version, facts.is_enrolled) == ("", "", True), "a removal keeps who it is"
    await machine.copy(plan.package)
    await machine.probe()
    await machine.remove(purge=True)
    assert written(place) == before
    assert (await machine.probe()).is_enrolled is False
