"""What a cluster costs from one command, beside plain kubeadm: three nodes made and removed, one node added.

Two labs on this machine, one after the other. In the first, `cm-kubernetes-setup` deploys a cluster of three bare
nodes, adds a fourth, takes it out, adds it again beside 500 simulated Nodes, and removes the cluster; the time is that
of the whole program, packages, certificates, etcd and proxies included. In the second a script does by hand what makes
a cluster of bare nodes: it copies the programs, starts containerd, runs `kubeadm init` and `join`, which pull the
images, waits for the same conditions, and takes all of it away after `kubeadm reset`. Its times are those of its
commands on the nodes. Two rows compare parts: from kubeadm init, and from kubeadm join, to nodes that are Ready. Of
them kubeadm has a third time, on nodes where everything is prepared and all images are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from bedplate.core import errors
from bedplate.lab import binaries, managed, packages
from bedplate.lab.nodes import INSIDE
from bench import report

__all__ = ["run", "seconds", "span"]

SIMULATED, FEW = 500, 5
_EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "three-nodes.yaml"
_ACCEPTED = "SystemVerification,Swap,NumCPU,Mem"
_NOW = "date +%s.%N"
_TIMES = re.compile(r"^(?:began|ended) (\d+\.\d+)$", re.MULTILINE)
_ADDED = "node004"
_PROGRAMS = "/var/lib/containerd/programs"
"""A folder of the node's own."""
_IMAGES = "ctr -n k8s.io images"
# All but that of sandboxes, which no pull of kubeadm brings.
_FORGET = f"{_IMAGES} ls -q | grep -v pause | xargs -r {_IMAGES} rm --sync"
# Nodes of such a lab see each other's processes.
_CLEAR = f"""
own() {{
    for id in $(pgrep -x containerd); do
        [ "$(readlink /proc/$id/ns/mnt)" != "$(readlink /proc/$$/ns/mnt)" ] || echo $id
    done
}}
kill $(own); while [ -n "$(own)" ]; do sleep 0.05; done; rm -rf {_PROGRAMS}"""
_PREPARE = f"""
mkdir -p {_PROGRAMS}
for name in containerd containerd-shim-runc-v2 ctr runc kubeadm kubelet kubectl; do
    cp -L "$(command -v $name)" {_PROGRAMS} || exit 1
done
setsid containerd --config /etc/containerd/config.toml > /var/log/containerd-by-hand.log 2>&1 < /dev/null &
until ctr version > /dev/null 2>&1; do sleep 0.05; done; true"""


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    topic = report.Topic("setup", "a cluster of three nodes from one command", "plain kubeadm")
    if os.geteuid():
        topic.notes.append("the labs need root and were left out")
        return topic
    binaries.ensure((*packages.TAKEN, *managed.IMAGED), progress=tell)
    many = FEW if is_quick else SIMULATED
    load = os.getloadavg()[0]
    tell("a managed lab with four bare nodes")
    async with _lab(folder, "m", "--managed", "--nodes", "4") as lab:
        own = await _ours(lab, many, tell)
    tell("a lab with four nodes, by plain kubeadm")
    async with _lab(folder, "k", "--control-plane", "kubeadm", "--nodes", "4") as lab:
        peer = await _plain(lab, many, tell)
    names = {
        "deploy": "deployment of 3 bare nodes, all Ready",
        "init": "its part from kubeadm init on",
        "remove": "removal of the cluster",
        "add": "one bare node added to 3, Ready",
        "join": "its part from kubeadm join on",
        "add many": f"one bare node added to 3 and {many} simulated ones, Ready",
        "leave": "one node taken out, drained, bare again",
    }
    for key, name in names.items():
        topic.rows.append(report.Row(name, own[key], peer[key], "s", goal=1.0, is_less_better=True))
    topic.rows += [
        report.Row(
            "from kubeadm init on, kubeadm without pulls", own["init"], peer["prepared"], "s", is_less_better=True
        ),
        report.Row(
            "from kubeadm join on, kubeadm without pulls", own["join"], peer["prepared join"], "s", is_less_better=True
        ),
        report.Row("deployment of 3 nodes, seconds", own["deploy"], None, "s", limit=90.0, is_less_better=True),
        report.Row("removal of the cluster, seconds", own["remove"], None, "s", limit=15.0, is_less_better=True),
        report.Row(
            f"one node more beside {many}, second column beside none",
            own["add many"],
            own["add"],
            "s",
            goal=0.67,
            is_less_better=True,
        ),
    ]
    topic.notes.append(
        "ours is the whole program; the other one a script's commands on the nodes, from copies of programs to the wait"
        " until nodes are Ready, without etcd of its own, proxies and health checks; one turn each, "
        f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    )
    return topic


# Ours


async def _ours(lab: _Lab, many: int, tell: Callable[[str], None]) -> dict[str, float]:
    data = lab.folder / "head"
    times = {}

    async def setup(*words: str) -> float:
        state = ["--state", str(lab.folder / "setup"), "--log-file", str(lab.folder / "setup.log")]
        command = [sys.executable, "-m", "bedplate.apps.kubernetessetup", "--data", str(data), *state]
        begin = time.monotonic()
        await _finish([*command, *words, "--on-error-action", "abort"], lab.environ)
        return time.monotonic() - begin

    tell("cm-kubernetes-setup -c examples/three-nodes.yaml")
    times["deploy"] = await setup("-c", str(_EXAMPLE))
    journal = lab.folder / "setup" / "default" / "journal.json"
    times["init"] = span(json.loads(journal.read_text()), "Initialize Control Plane", "Wait For Nodes")
    lab.kubeconfig = data / "kubernetes" / "default.kubeconfig"
    tell(f"--add-nodes {_ADDED}")
    times["add"] = await setup("--add-nodes", _ADDED)
    times["join"] = span(json.loads(journal.read_text()), "Join Nodes", "Join Nodes")
    tell(f"--remove-nodes {_ADDED}")
    times["leave"] = await setup("--remove-nodes", _ADDED)
    await lab.simulate(many)
    tell(f"--add-nodes {_ADDED}, beside {many} simulated nodes")
    times["add many"] = await setup("--add-nodes", _ADDED)
    await setup("--remove-nodes", _ADDED)
    tell("--remove")
    times["remove"] = await setup("--remove", "--yes-i-really-mean-it")
    return times


# Plain kubeadm


async def _plain(lab: _Lab, many: int, tell: Callable[[str], None]) -> dict[str, float]:
    every = first, *others, last = [f"node-{number}" for number in range(1, 5)]
    three = first, *others
    times = {}
    # The lab has made its cluster once: kubeadm's files are there.
    await asyncio.gather(*(lab.reset(node) for node in every))
    tell("programs, containerd, kubeadm init, kubeadm join, on bare nodes")
    programs_s = max(await asyncio.gather(*(lab.prepare(node) for node in three)))
    times["init"] = await _deployed(lab, first, others)
    times["deploy"] = programs_s + times["init"]
    tell("one bare node more")
    programs_s = await lab.prepare(last)
    times["join"] = await lab.join(last)
    times["add"] = programs_s + times["join"]
    times["leave"] = await lab.leave(last)
    await lab.simulate(many)
    tell(f"one bare node more, beside {many} simulated nodes")
    times["add many"] = await lab.prepare(last) + await lab.join(last)
    await lab.leave(last)
    tell("kubeadm reset")
    times["remove"] = max(await asyncio.gather(*(lab.reset(node) for node in three)))
    tell("kubeadm init, kubeadm join, on prepared nodes")
    await asyncio.gather(*(lab.prepare(node) for node in every))
    await asyncio.gather(*(lab.load_images(node) for node in every))
    times["prepared"] = await _deployed(lab, first, others)
    times["prepared join"] = await lab.join(last)
    return times


async def _deployed(lab: _Lab, first: str, others: Sequence[str]) -> float:
    """How long kubeadm takes until all are Ready."""
    spent = await lab.timed(first, lab.kubeadm("init", "--config=/etc/kubernetes/init.yaml"))
    await lab.fetch_kubeconfig(first)
    join = lab.kubeadm("join", "--config=/etc/kubernetes/join.yaml")
    spent += max(await asyncio.gather(*(lab.timed(node, join) for node in others)))
    return spent + await lab.until_ready([first, *others])


def span(journal: Mapping[str, Any], first: str, last: str) -> float:
    """The seconds from the beginning of a stage to the end of another one, as the journal of a run has them."""
    moments = {
        stage["name"]: [datetime.datetime.fromisoformat(stage[key]) for key in ("began", "ended")]
        for stage in journal["stages"]
        if stage["ended"]
    }
    return (moments[last][1] - moments[first][0]).total_seconds()


def seconds(printed: str) -> float:
    """What a command on a node says it took. Raises `Terminal`."""
    found = [float(text) for text in _TIMES.findall(printed)]
    if len(found) != 2:
        raise errors.Terminal(f"the command did not end as it should: {printed[-400:]}")
    return found[1] - found[0]


class _Lab:
    """A lab of this run."""

    def __init__(self, name: str, state: pathlib.Path) -> None:
        self.name = name
        self.folder = state / "bedplate" / "labs" / name
        self.environ = os.environ | {"XDG_STATE_HOME": str(state)}
        self.kubeconfig = self.folder / "kubeconfig"

    async def command(self, verb: str, *words: str) -> str:
        line = [sys.executable, "-m", "bedplate.apps.bedplate", "lab", verb, "--name", self.name, *words]
        return await _finish(line, self.environ)

    async def timed(self, node: str, script: str) -> float:
        """Run a script on a node; what it took there, without the way to the node."""
        path = f"PATH={_PROGRAMS}:{INSIDE}/nodes/{node}/bin:$PATH"
        whole = f'{path}; echo "began $({_NOW})"; {script} || exit 1; echo "ended $({_NOW})"'
        return seconds(await self.command("exec", node, "--", "sh", "-c", whole))

    def kubeadm(self, *words: str) -> str:
        accepted = "" if words[0] == "reset" else f" --ignore-preflight-errors={_ACCEPTED}"
        return f"kubeadm {' '.join(words)}{accepted}"

    async def prepare(self, node: str) -> float:
        """Copy the programs that packages bring, and start containerd."""
        return await self.timed(node, _PREPARE)

    async def load_images(self, node: str) -> None:
        """Have containerd pull what kubeadm would."""
        await self.timed(node, 'kubeadm config images pull --kubernetes-version="$(kubeadm version -o short)"')

    async def reset(self, node: str) -> float:
        """Run kubeadm reset, and take away what `prepare` brought. The images go as well, but not in the time of it."""
        spent = await self.timed(node, self.kubeadm("reset", "--force"))
        await self.timed(node, _FORGET)
        return spent + await self.timed(node, _CLEAR)

    async def join(self, node: str) -> float:
        """Make a node part of the cluster, until it is Ready."""
        spent = await self.timed(node, self.kubeadm("join", "--config=/etc/kubernetes/join.yaml"))
        return spent + await self.until_ready([node])

    async def leave(self, node: str) -> float:
        begin = time.monotonic()
        await self.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
        spent = time.monotonic() - begin + await self.reset(node)
        begin = time.monotonic()
        await self.kubectl("delete", "node", node)
        return spent + time.monotonic() - begin

    async def fetch_kubeconfig(self, node: str) -> None:
        text = await self.command("exec", node, "--", "cat", "/etc/kubernetes/admin.conf")
        self.kubeconfig = self.folder.parent / f"{self.name}.kubeconfig"
        self.kubeconfig.write_text(text)
        self.kubeconfig.chmod(0o600)

    async def kubectl(self, *words: str, stdin: str = "") -> str:
        program = str(binaries.ensure(("kubectl",))["kubectl"])
        return await _finish([program, f"--kubeconfig={self.kubeconfig}", *words], self.environ, stdin)

    async def until_ready(self, nodes: Sequence[str]) -> float:
        begin = time.monotonic()
        places = [f"node/{node}" for node in nodes]
        await self.kubectl("wait", "--for=create", *places, "--timeout=300s")
        await self.kubectl("wait", "--for=condition=Ready", *places, "--timeout=300s")
        return time.monotonic() - begin

    async def simulate(self, count: int) -> None:
        """Nodes without machines."""
        items = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"sim-{n:04d}"}} for n in range(count)]
        await self.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@contextlib.asynccontextmanager
async def _lab(folder: pathlib.Path, suffix: str, *words: str) -> AsyncIterator[_Lab]:
    lab = _Lab(f"bench{os.getpid() % 100000}{suffix}", folder / suffix)
    try:
        await lab.command("up", *words)
        yield lab
    finally:
        await lab.command("down")


async def _finish(command: Sequence[str], environ: dict[str, str], stdin: str = "") -> str:
    """Run a program to its end; what it printed. Raises `Terminal` with its last words."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=environ, cwd="/"
    )
    printed, _ = await child.communicate(stdin.encode())
    if child.returncode:
        raise errors.Terminal(f"{' '.join(command[:8])} failed: {printed.decode(errors='replace')[-600:]}")
    return printed.decode(errors="replace")
