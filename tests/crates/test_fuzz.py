"""Whatever stands on standard input and in the environment: one well-formed document, no crash.

Where the original's plugin is to be had, both get the same input, and answer alike: the same request to the daemon, the
same exit, and the same code where the original's means something.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests import programs
from tests.crates.fakedaemon import FakeDaemon, fake_daemon
from tests.ipam.cni import calls
from tests.ipam.cni.calls import Answer

TIMEOUT_S = 120.0
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or ""
WORDS = [
    "name", "cniVersion", "ipam", "type", "poolName", "poolType", "forcePoolName", "daemonSocket", "confDir", "logFile",
    "daemonCallTimeoutSeconds", "logLevel", "deviceID", "runtimeConfig", "ips", "args", "cni", "poolNames",
    "allocateDefaultGateway", "allocateIPWithIndex", "cni.dev/valid-attachments", "containerID", "ifname", "NAME",
    "IPAM", "poolname", "Args", "\u017f", "prevResult",
]  # fmt: skip
TEXTS = [
    "", "net", "a,b", "a,b,c", ",", "ippool", "CIDRPool", "other", "0.1.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "9.9.9",
    "banana", "1.1", "10.0.0.7", "10.0.0.7/24", "fd00::1", "::ffff:1.2.3.4", "nonsense", "a/b", "info", "debug",
    "é\u2028",
]  # fmt: skip
COMMANDS = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "FOO", ""]
ARGS = [
    "", "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n", "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;K8S_POD_UID=u;X=y",
    "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;IP=10.0.0.9/8", "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;IP=x", "X=y", ";", "=",
    "K8S_POD_NAME=a=b", "IgnoreUnknown=maybe", "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;IgnoreUnknown=TRUE;é=ü",
]  # fmt: skip

leaves = st.one_of(
    st.sampled_from(TEXTS),
    st.text(max_size=8).filter(lambda text: "\0" not in text),
    st.booleans(),
    st.none(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)),
    max_leaves=12,
)
BASE: dict[str, Any] = {
    "cniVersion": "1.1.0",
    "name": "net",
    "type": "macvlan",
    "ipam": {
        "type": "nv-ipam",
        "confDir": "/conf",
        "daemonSocket": "unix:///daemon.sock",
        # Ours looks so long for a daemon that is not there.
        "daemonCallTimeoutSeconds": 1,
        "logFile": "/cni.log",
    },
}


@st.composite
def configs(draw: st.DrawFn) -> bytes:
    """A valid configuration with some parts replaced, added, doubled; or with bytes changed; or anything."""
    config = json.loads(json.dumps(BASE))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.sampled_from([config, config["ipam"]] if isinstance(config.get("ipam"), dict) else [config]))
        place[draw(st.sampled_from(WORDS))] = draw(values)
    text = json.dumps(config, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 3)) == 0:
        text = text[:-1] + f", {json.dumps(draw(st.sampled_from(WORDS)))}: {json.dumps(draw(values))}}}"
    raw = bytearray(text.encode(errors="replace"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2, 5]))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return draw(st.one_of(st.just(bytes(raw)), st.just(bytes(raw)), st.just(bytes(raw)), st.binary(max_size=40)))


names = st.one_of(st.sampled_from(["c1", "net1", "", "a/b", "a" * 16, ".", "x y", "é"]), st.text(max_size=6)).map(
    lambda text: text.replace("\0", "").encode(errors="replace").decode()
)


def mostly(usual: str, odd: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Something odd in one of ten examples, so that most calls get as far as the daemon."""
    return st.integers(0, 9).flatmap(lambda number: odd if number == 9 else st.just(usual))


environments = st.fixed_dictionaries(
    {
        "CNI_COMMAND": st.sampled_from([*COMMANDS[:3] * 4, *COMMANDS]),
        "CNI_CONTAINERID": mostly("c1", names),
        "CNI_NETNS": mostly("/netns", names),
        "CNI_IFNAME": mostly("net1", names),
        "CNI_PATH": mostly("/bin", st.just("")),
        "CNI_ARGS": st.integers(0, 3).flatmap(lambda number: st.sampled_from(ARGS[1:3] if number else ARGS)),
        "CNI_NETNS_OVERRIDE": st.sampled_from(["", "1", "true", "x"]),
    }
)


@dataclass
class Cell:
    """A folder that a plugin takes for the whole file system (for root), with a daemon in it."""

    folder: Path
    daemon: FakeDaemon

    def copy(self, plugin: Path, program: Path) -> None:
        """Put a program in, with the libraries it wants."""
        wanted = subprocess.run(["ldd", plugin], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", wanted):
            target = self.folder / library[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
        shutil.copy(plugin, program)

    def run(self, plugin: Path, env: dict[str, str], stdin: bytes) -> Answer:
        # By their whole paths: both may be in a folder `bin`.
        inside = self.folder / "plugins" / str(plugin.parent).strip("/").replace("/", "_")
        inside.mkdir(parents=True, exist_ok=True)
        program = inside / "nv-ipam"
        if not program.exists():
            self.copy(plugin, program)
        self.daemon.calls.clear()
        given = {key: value for key, value in env.items() if value}
        command = [CHROOT, self.folder, f"/{program.relative_to(self.folder)}"]
        ran = subprocess.run(command, input=stdin, env=given, capture_output=True, timeout=TIMEOUT_S, check=False)
        return Answer(ran.returncode, ran.stdout, ran.stderr.decode(errors="replace"))


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    if os.geteuid() != 0 or not CHROOT:
        pytest.skip("needs root: what is fuzzed names files, so it gets a file system of its own")
    folder = tmp_path_factory.mktemp("cell")
    with fake_daemon(f"unix:{folder}/daemon.sock") as daemon:
        yield Cell(folder, daemon)


def check_whole(env: dict[str, str], answer: Answer) -> None:
    """No signal, no panic, and exactly what a runtime can read."""
    about = (env, answer)
    assert answer.exit in (0, 1), about
    assert "panicked" not in answer.stderr and "internal error in nv-ipam" not in answer.stdout.decode(), about
    if answer.exit == 1:
        assert answer.error["cniVersion"], about
    elif env["CNI_COMMAND"] in ("ADD", "VERSION"):
        assert re.fullmatch(r"[01]\.\d\.\d", answer.document["cniVersion"]), about
    else:
        assert answer.stdout == b"", about


FUZZ = settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
MORE = settings(FUZZ, max_examples=30_000)


def fuzz(cell: Cell, env: dict[str, str], stdin: bytes) -> None:
    check_whole(env, cell.run(programs.nv_ipam(), env, stdin))


@pytest.mark.root
@FUZZ
@given(env=environments, stdin=configs())
def test_anything_is_answered(cell: Cell, env: dict[str, str], stdin: bytes) -> None:
    fuzz(cell, env, stdin)


@pytest.mark.root
@pytest.mark.soak
@MORE
@given(env=environments, stdin=configs())
def test_anything_is_answered_for_long(cell: Cell, env: dict[str, str], stdin: bytes) -> None:
    fuzz(cell, env, stdin)


def compare(cell: Cell, env: dict[str, str], stdin: bytes) -> None:
    """Both plugins, one input."""
    theirs = cell.run(programs.original("nv-ipam"), env, stdin)
    their_calls = list(cell.daemon.calls)
    ours = cell.run(programs.nv_ipam(), env, stdin)
    about = (env, stdin, theirs, ours, their_calls, cell.daemon.calls)
    check_whole(env, ours)
    if theirs.exit == 2 or env["CNI_COMMAND"] in ("GC", "STATUS"):
        return  # It crashes where `args` has no `cni`, and does nothing for these two.
    if env["CNI_COMMAND"] == "DEL" and theirs.exit == 1 and theirs.documents[-1]["code"] == 999:
        return  # Ours sends what it has.
    assert ours.exit == theirs.exit, about
    assert cell.daemon.calls[: len(their_calls)] == their_calls, about
    if theirs.exit == 0:
        assert [calls.plain(each) for each in ours.documents] == [calls.plain(each) for each in theirs.documents], about
    else:
        code = theirs.documents[-1]["code"]
        assert ours.error["code"] in ({4, 7, 11, 999} if code == 999 else {code}), about


BROKEN_ARGS = BASE | {"args": {}}
USUAL = {
    "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/netns", "CNI_IFNAME": "net1", "CNI_PATH": "/bin",
    "CNI_ARGS": ARGS[1], "CNI_NETNS_OVERRIDE": "",
}  # fmt: skip


@pytest.mark.root
@FUZZ
@given(env=environments, stdin=configs())
@example(env=USUAL, stdin=json.dumps(BROKEN_ARGS).encode())
@example(env=USUAL, stdin=json.dumps(BASE).encode())
def test_the_original_answers_alike(cell: Cell, env: dict[str, str], stdin: bytes) -> None:
    programs.original("nv-ipam")
    compare(cell, env, stdin)


@pytest.mark.root
@pytest.mark.soak
@MORE
@given(env=environments, stdin=configs())
def test_the_original_answers_alike_for_long(cell: Cell, env: dict[str, str], stdin: bytes) -> None:
    programs.original("nv-ipam")
    compare(cell, env, stdin)
