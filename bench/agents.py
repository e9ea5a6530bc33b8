"""What agents cost a head, and how fast a change is on all of them.

1,000 agents, then 10,000, on one head, in other processes: the agent's own loop on the real protocol (a certificate
each, long polls, reports), with nodes that have no disk (`sim/nodeagents`). At rest: processor time of the head over
two minutes, in which every agent has told that it lives, has polled again and has reported its checks; its memory. A
changed file: from the commit until the last node has written it. Beside ansible-playbook: 20 agents as 20 processes,
each with a folder as its root, and the same change on 20 folders with local connections and as many forks. What those
20 agents cost at rest, a machine each: the memory of the largest, and the processor time of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bedplate.agent import settings
from bedplate.agent.services.supervisor import holder
from bedplate.client import HeadClient
from bedplate.core import errors, logging, openfiles
from bedplate.head.access import NODES
from bedplate.head.folder import datafolder, pki
from bedplate.head.objects import Obj
from bedplate.head.policy import Identity
from bedplate.head.session import Edit
from bedplate.lab import binaries, processes
from bench import headload, report, servers

__all__ = ["certify", "run", "running"]

PATH = "/etc/bench.conf"
OVERLAY = "changed"
PER_PROCESS = 2500
DEADLINE_S = 900.0
# A head has a connection for each agent, for a while a second one for its report, and some files of its own.
FILES_PER_AGENT = 1.5
OTHER_FILES = 500
ANSIBLE = "ansible-core==2.18.6"
PLAYBOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: the file
      ansible.builtin.copy:
        dest: "{{ root }}/etc/bench.conf"
        content: "{{ text }}\\n"
        mode: "0644"
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    few: int = 1000
    many: int = 10_000
    sandboxes: int = 20
    changes: int = 3
    idle_s: float = 125.0


QUICK = Sizes(few=6, many=12, sandboxes=2, changes=1, idle_s=0.5)


@dataclass(frozen=True, slots=True)
class Found:
    """Figures of one size."""

    nodes: int
    idle_share: float
    rss_mb: float
    change_s: float
    head_s: float


@dataclass(frozen=True, slots=True)
class Resting:
    """What one agent costs its machine: % of a core, and memory."""

    share: float
    rss_mb: float


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    logging.configure(logging.LogOptions(is_quiet=True))
    asked = QUICK if is_quick else Sizes()
    # Both the head and the processes with the agents inherit it.
    limit = openfiles.raise_limit(int(asked.many * FILES_PER_AGENT) + OTHER_FILES)
    sizes = within(asked, limit)
    topic = report.Topic("agents", f"{sizes.few:,} and {sizes.many:,} agents on one head", f"{sizes.few:,} agents")
    if sizes != asked:
        topic.notes.append(f"not {asked.many:,} agents: a process may have {limit:,} open files here (ulimit -n)")
    few = await _measure(folder / f"head-{sizes.few}", sizes.few, sizes, tell)
    many = await _measure(folder / f"head-{sizes.many}", sizes.many, sizes, tell)
    name = "processor time of the head at rest, % of a core"
    topic.rows += [
        report.Row(f"{name}, {few.nodes:,} agents", few.idle_share, None, "%", limit=20.0, is_less_better=True),
        report.Row(f"{name}, {many.nodes:,} agents", many.idle_share, few.idle_share, "%", is_less_better=True),
        report.Row("memory of the head", many.rss_mb, few.rss_mb, "MB", is_less_better=True),
        report.Row(f"a changed file on {few.nodes:,} nodes", few.change_s, None, "s", limit=5.0, is_less_better=True),
        report.Row(f"a changed file on {many.nodes:,} nodes", many.change_s, few.change_s, "s", is_less_better=True),
        report.Row("processor time of the head for it", many.head_s, few.head_s, "s", is_less_better=True),
    ]
    topic.notes.append("where the second column has a figure and no goal, it is ours at the smaller size")
    await _sandboxes(topic, folder, sizes, is_quick, tell)
    return topic


def within(sizes: Sizes, limit: int) -> Sizes:
    """As many agents as a process that may have so many open files can serve."""
    most = int((limit - OTHER_FILES) / FILES_PER_AGENT)
    if most < sizes.few:
        raise errors.Unavailable(
            f"{sizes.few:,} agents need {int(sizes.few * FILES_PER_AGENT) + OTHER_FILES:,} open files for the head,"
            f" and the limit is {limit:,}",
            hint="raise it with ulimit -n",
        )
    return dataclasses.replace(sizes, many=min(sizes.many, most))


async def _measure(data: pathlib.Path, count: int, sizes: Sizes, tell: Callable[[str], None]) -> Found:
    tell(f"{count:,} nodes: filling a data folder, a certificate each")
    await headload.fill(data, count)
    await _overlay(data)
    certificates = data.with_name(f"{data.name}-certificates")
    await asyncio.to_thread(certify, data, certificates, [headload.node(number) for number in range(count)])
    async with headload.serving(data) as daemon, daemon.client() as client:
        tell(f"{count:,} agents: starting")
        async with _agents(daemon, certificates, count) as agents:
            tell(f"{count:,} agents: at rest for {sizes.idle_s:.0f} s")
            before, begin = servers.cpu_s(daemon.pid), time.monotonic()
            await asyncio.sleep(sizes.idle_s)
            idle = (servers.cpu_s(daemon.pid) - before) / (time.monotonic() - begin)
            rss = servers.rss_mb(daemon.pid)
            tell(f"{count:,} agents: {sizes.changes} changes of a file")
            spans, head_s = [], []
            for number in range(sizes.changes):
                before, begin = servers.cpu_s(daemon.pid), time.monotonic()
                await _change(client, f"text {number}")
                spans.append(max([await agent.applied(f"text {number}") for agent in agents]) - begin)
                # Reports of it follow.
                await asyncio.sleep(min(sizes.idle_s, 10.0))
                head_s.append(servers.cpu_s(daemon.pid) - before)
    return Found(count, 100 * idle, rss, sorted(spans)[len(spans) // 2], sorted(head_s)[len(head_s) // 2])


async def _overlay(data: pathlib.Path) -> None:
    """An overlay over all categories with the file that changes."""
    everybody = tuple(f"c{number}" for number in range(headload.CATEGORIES))
    async with datafolder.open_head(data) as opened:
        file = Obj("Customization", "file", {"filename": PATH, "content": "first\n"})
        children = {"customizations": {"file": file}}
        overlay = Obj("ConfigurationOverlay", OVERLAY, {"categories": everybody}, children=children)
        edit = Edit("configurationoverlay", OVERLAY, None, overlay)
        await opened.head.commit_as(Identity.local("bench"), [edit], "the file")


async def _change(client: HeadClient, text: str) -> None:
    overlay = await client.get("configurationoverlay", OVERLAY)
    children = {"customizations": {"file": {"values": {"filename": PATH, "content": f"{text}\n"}}}}
    await client.put(
        "configurationoverlay", OVERLAY, overlay.values, type=overlay.type, children=children, base=overlay.revision
    )


def certify(data: pathlib.Path, folder: pathlib.Path, names: Sequence[str]) -> None:
    """A certificate for each node, all for one key: what the head checks of them is the same."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    csr, authority, now = request.public_bytes(serialization.Encoding.PEM), pki.Authority.load(data), datetime.now(UTC)
    for name in names:
        (folder / f"{name}.pem").write_bytes(authority.certify(csr, name, NODES, now) + private)


class _Load:
    """A process with many agents."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child

    async def said(self, word: str) -> list[str]:
        assert self.child.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            line = (await self.child.stdout.readline()).decode().split()
        if line[:1] != [word]:
            raise errors.Unavailable(f"the agents said {' '.join(line) or 'nothing'} instead of {word}")
        return line[1:]

    async def applied(self, text: str) -> float:
        """When its last node had the text."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{text}\n".encode())
        return float((await self.said("applied"))[0])


@contextlib.asynccontextmanager
async def _agents(daemon: headload.Daemon, certificates: pathlib.Path, count: int) -> AsyncIterator[list[_Load]]:
    """So many agents in as many processes as hold them, once each node holds its state."""
    loads: list[_Load] = []
    try:
        for first in range(0, count, PER_PROCESS):
            words = (daemon.url, str(daemon.data / "ca.crt"), str(certificates), str(first))
            command = [sys.executable, "-m", "bench.agentload", *words, str(min(PER_PROCESS, count - first)), PATH]
            loads.append(
                _Load(
                    await asyncio.create_subprocess_exec(
                        *command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        preexec_fn=processes.die_with_parent(os.getpid()),
                    )
                )
            )
            await loads[-1].said("settled")
        yield loads
    finally:
        for load in loads:
            with contextlib.suppress(ProcessLookupError):
                load.child.kill()
            await load.child.wait()


# Beside ansible-playbook


async def _sandboxes(
    topic: report.Topic, folder: pathlib.Path, sizes: Sizes, is_quick: bool, tell: Callable[[str], None]
) -> None:
    count = sizes.sandboxes
    tell(f"{count} sandboxes: agents")
    ours_s, resting = await _by_agents(folder / "head-sandboxes", folder / "sandboxes", sizes)
    theirs_s, why = None, ""
    try:
        program = await asyncio.to_thread(_ansible, is_quick, tell)
        tell(f"{count} sandboxes: ansible-playbook")
        theirs_s = await asyncio.to_thread(_by_ansible, program, folder / "ansible", sizes)
    except errors.BedplateError as err:
        why = str(err)
    name = "processor time of an agent at rest, % of a core"
    topic.rows += [
        report.Row(name, resting.share, None, "%", limit=0.1, is_less_better=True),
        report.Row("memory of an agent at rest", resting.rss_mb, None, "MB", limit=40.0, is_less_better=True),
    ]
    name = f"a changed file in {count} sandboxes, beside ansible-playbook"
    topic.rows.append(report.Row(name, ours_s, theirs_s, "s", goal=10.0, is_less_better=True))
    if why:
        topic.notes.append(f"ansible-playbook was left out: {why}")
    else:
        topic.notes.append(f"{ANSIBLE}: local connections, {count} forks, no facts, later runs; ours: a process each")


async def _by_agents(data: pathlib.Path, folder: pathlib.Path, sizes: Sizes) -> tuple[float, Resting]:
    count = sizes.sandboxes
    await headload.fill(data, count)
    await _overlay(data)
    certificates = data.with_name(f"{data.name}-certificates")
    names = [headload.node(number) for number in range(count)]
    certify(data, certificates, names)
    roots = [folder / name for name in names]
    async with headload.serving(data) as daemon, daemon.client() as client:
        for name, root in zip(names, roots, strict=True):
            place = settings.place(str(root))
            os.makedirs(os.path.dirname(place))
            settings.write(place, name, [daemon.url], str(data / "ca.crt"), str(certificates / f"{name}.pem"))
            _furnish(root, pathlib.Path(place))
        with running(roots) as children:
            await _until(roots, "first")
            spans = []
            for number in range(sizes.changes):
                await asyncio.sleep(min(sizes.idle_s, 2.0))
                begin = time.monotonic()
                await _change(client, f"text {number}")
                await _until(roots, f"text {number}")
                spans.append(time.monotonic() - begin)
            resting = await _at_rest([child.pid for child in children], sizes.idle_s)
    return sorted(spans)[len(spans) // 2], resting


async def _at_rest(pids: Sequence[int], idle_s: float) -> Resting:
    """What agents cost while nothing changes: once they have told what they did last."""
    await asyncio.sleep(min(idle_s, 10.0))
    before, begin = sum(map(servers.cpu_s, pids)), time.monotonic()
    await asyncio.sleep(idle_s)
    used, span_s = sum(map(servers.cpu_s, pids)) - before, time.monotonic() - begin
    return Resting(100 * used / span_s / len(pids), max(map(servers.rss_mb, pids)))


def _furnish(root: pathlib.Path, place: pathlib.Path) -> None:
    """Units for the services of the roles; what they run is nothing that costs anything."""
    place.write_text(place.read_text() + 'packages = "none"\nservices = "supervisor"\n')
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for name in ("containerd", "kubelet", "nginx", "etcd"):
        (units / f"{name}.service").write_text("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n")


@contextlib.contextmanager
def running(roots: Sequence[pathlib.Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The agents of sandboxes as a process each; their services end with them."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for root in roots:
            with (root / "log").open("ab") as log:
                command = [sys.executable, "-m", "bedplate.apps.agent", "run", "--root", str(root)]
                children.append(
                    subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=processes.die_with_parent(os.getpid()))
                )
        yield children
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait()
        for lock in (file for root in roots for file in root.glob("run/bedplate-agent/services/*/lock")):
            # Services outlive their agent, and must not outlive a benchmark.
            while pid := holder(str(lock)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                time.sleep(0.01)


async def _until(roots: Sequence[pathlib.Path], text: str) -> None:
    left, deadline = [root / PATH.lstrip("/") for root in roots], time.monotonic() + DEADLINE_S
    while left:
        left = [file for file in left if not file.exists() or file.read_text() != f"{text}\n"]
        if time.monotonic() > deadline:
            last = processes.tail(left[0].parents[1] / "log")
            raise errors.Unavailable(f"{len(left)} sandboxes did not get the file: {last}")
        await asyncio.sleep(0.005)


def _ansible(is_quick: bool, tell: Callable[[str], None]) -> pathlib.Path:
    """The program, installed once into a virtual environment of its own in the cache folder. Raises `Unavailable`."""
    folder = binaries.cache_folder(os.environ) / "peers" / ANSIBLE.replace("==", "-")
    program = folder / "bin/ansible-playbook"
    if os.access(program, os.X_OK):
        return program
    if is_quick:
        raise errors.Unavailable("it is not installed, and a quick run installs nothing")
    tell(f"installing {ANSIBLE}")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", ANSIBLE],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as err:
            raise errors.Unavailable(f"it cannot be installed: {err}") from err
        if done.returncode:
            last = "; ".join(done.stderr.strip().splitlines()[-2:])
            raise errors.Unavailable(f"it cannot be installed: {last or 'no reason given'}")
    return program


def _by_ansible(program: pathlib.Path, folder: pathlib.Path, sizes: Sizes) -> float:
    """The median time of a run that changes the file; one run before it makes what the first one has to make."""
    lines = []
    for number in range(sizes.sandboxes):
        root = folder / headload.node(number)
        (root / "etc").mkdir(parents=True)
        lines.append(f"{root.name} ansible_connection=local ansible_python_interpreter={sys.executable} root={root}")
    (folder / "inventory").write_text("\n".join(lines) + "\n")
    (folder / "play.yml").write_text(PLAYBOOK)
    spans = []
    for number in range(sizes.changes + 1):
        command = [str(program), "-i", str(folder / "inventory"), "-f", str(sizes.sandboxes), str(folder / "play.yml")]
        begin = time.monotonic()
        done = subprocess.run(
            [*command, "-e", f"text=text-{number}"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            cwd=folder,
            env={**os.environ, "ANSIBLE_HOME": str(folder / "home"), "HOME": str(folder)},
        )
        spans.append(time.monotonic() - begin)
        if done.returncode:
            raise errors.Unavailable(f"ansible-playbook failed: {done.stdout[-300:]}{done.stderr[-300:]}")
    changed = spans[1:]
    return sorted(changed)[len(changed) // 2]
