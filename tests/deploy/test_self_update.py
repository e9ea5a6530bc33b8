"""The agent replaces itself: archives of three versions as `tools/packages.py` builds them, on a real agent process.

The machine is a sandbox folder whose agent was unpacked from its archive and is kept by its own supervisor. Versions
differ in their sources alone: the next one in its number, the broken one in a module that `--version` does not import.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests import programs
from tests.deploy.conftest import ROOT, VERSION, load_tool
from tests.head.folder.serving import serving
from tests.waiting import DEADLINE_S, until

from bedplate.agent.placement import HOME
from bedplate.agent.services.supervisor import holder
from bedplate.client import HeadClient
from bedplate.head.agentarchives import ARCHIVES, Archives
from bedplate.head.folder import administration, creation
from bedplate.head.folder.datafolder import Folder

pytestmark = pytest.mark.external
packages = load_tool("packages")
NEXT, BROKEN = "99.1.0", "99.2.0"
BREAKAGE = 'raise RuntimeError("this version is broken")\n'
# The supervisor waits longer after each end of a service; a test need not.
DROP_IN = "[Service]\nRestartSec=0.1\n"
PATIENCE_S = 2 * DEADLINE_S


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An archive for each version."""
    folder = tmp_path_factory.mktemp("archives")
    made = {}
    for version in (VERSION, NEXT, BROKEN):
        sources = folder / version
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        about = sources / "bedplate/__init__.py"
        about.write_text(about.read_text().replace(f'"{VERSION}"', f'"{version}"'))
        if version == BROKEN:
            with (sources / "bedplate/agent/loop.py").open("a") as stream:
                stream.write(BREAKAGE)
        made[version] = folder / f"bedplate-agent-{version}-linux-{packages.architecture()}.tar.gz"
        scratch = folder / f"{version}.scratch"
        scratch.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packages, "SOURCES", sources)
            packages.archive(packages.tree(scratch, version), made[version])
        shutil.rmtree(scratch)
    return made


class Node:
    """A machine that runs the agent of an archive, and the head that it belongs to."""

    def __init__(self, root: Path, folder: Folder, admin: HeadClient) -> None:
        self.root, self.admin = root, admin
        self.archives = Archives(folder.file(ARCHIVES))
        self.home = root / HOME.lstrip("/")

    @property
    def current(self) -> str:
        return os.readlink(self.home / "current")

    @property
    def pid(self) -> int:
        """The agent that runs; 0 between two of them."""
        return holder(str(self.root / "var/lib/bedplate-agent/lock"))

    @property
    def runs(self) -> str:
        """The version whose interpreter the agent runs on, by what the kernel says."""
        try:
            program = os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return ""
        return Path(program).relative_to(self.home).parts[0]

    @property
    def log(self) -> str:
        return (self.root / "var/log/bedplate-agent/bedplate-agent.log").read_text()

    def left(self) -> set[str]:
        return {path.name for path in self.home.iterdir()}

    async def call(self, verb: str, *words: str, stdin: str = "") -> None:
        command = [str(self.home / "current/bin/bedplate-agent"), verb, "--root", str(self.root), *words]
        done = await asyncio.to_thread(
            subprocess.run, command, input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    async def ask(self, version: str, archive: Path) -> None:
        """Let the head say which version this node is to run."""
        added = await asyncio.to_thread(self.archives.add, archive)
        values = {"agent_version": version, "agent_archives": [f"{added.architecture}={added.digest}"]}
        await self.admin.patch("device", "node001", values)

    async def is_told(self, question: Callable[[str, bool, str], bool], what: str) -> None:
        """Wait until the head knows something of the node: its version, whether it waits for something, failures."""

        async def look() -> bool:
            (state,) = await self.admin.nodes(["node001"])
            failures = " ".join(map(str, state.failures))
            return state.state == "UP" and question(state.version, bool(state.pending), failures)

        await until(look, what, deadline_s=PATIENCE_S, describe=lambda: self.log[-2000:])


@pytest.fixture
async def node(tmp_path: Path, archives: dict[str, Path]) -> AsyncIterator[Node]:
    folder: Folder = await creation.make(tmp_path / "site", name="basecm10", nodes=1)
    root = tmp_path / "machine"
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:
        node = Node(root, folder, admin)
        node.home.mkdir(parents=True)
        subprocess.run([programs.on_path("tar"), "-xzf", archives[VERSION], "-C", node.home], check=True, timeout=120)
        (node.home / "current").symlink_to(VERSION)
        await node.call("setup")
        drop_in = root / "etc/systemd/system/bedplate-agent.service.d/quick.conf"
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(DROP_IN)
        _, token = await administration.create_token(folder, "node001", kind="enrol", name="", days=0)
        await node.call("enrol", "--url", daemon.url, stdin=f"{token}\n")
        try:
            await node.call("start")
            await node.is_told(lambda version, _, __: version == VERSION, "the first version reports")
            yield node
        finally:
            await node.call("stop")
    assert node.pid == 0


async def test_an_agent_runs_the_version_that_its_head_names_and_the_one_before_again(
    node: Node, archives: dict[str, Path]
) -> None:
    assert node.runs == VERSION
    await node.ask(NEXT, archives[NEXT])
    await node.is_told(lambda version, is_pending, _: version == NEXT and not is_pending, "the next version reports")
    assert node.runs == node.current == NEXT
    # The version before is kept, and nothing beside the two, once the agent knows that its report arrived.
    await until(lambda: node.left() == {VERSION, NEXT, "current"}, "the trial is over", describe=node.left)
    await node.ask(VERSION, archives[VERSION])
    await node.is_told(lambda version, is_pending, _: version == VERSION and not is_pending, "the first one is back")
    assert node.runs == node.current == VERSION


async def test_a_broken_version_gives_way_to_the_one_before_which_tells_why(
    node: Node, archives: dict[str, Path]
) -> None:
    await node.ask(BROKEN, archives[BROKEN])
    why = f"{BROKEN} did not report to the head after 3 starts; {VERSION} runs again"
    await node.is_told(lambda version, is_pending, failures: why in failures and is_pending, "it is told why")
    assert node.runs == node.current == VERSION and not (node.home / ".trial").exists()
    assert node.log.count("RuntimeError: this version is broken") == 3
    # What a person sets next is followed.
    await node.ask(NEXT, archives[NEXT])
    await node.is_told(lambda version, is_pending, _: version == NEXT and not is_pending, "a good version reports")
    assert node.runs == NEXT


async def test_an_agent_that_is_killed_at_several_points_of_its_replacement_ends_as_the_next_version(
    node: Node, archives: dict[str, Path]
) -> None:
    """Killed while the archive arrives, while it is unpacked, and on its first start: each time the keeper starts one
    that is whole, which goes on."""
    side, trial = node.home / ".update", node.home / ".trial"
    points: dict[str, Callable[[], bool]] = {
        "arriving": side.exists,
        "unpacking": lambda: (side / "tree" / NEXT).exists(),
        "on trial": trial.exists,
    }
    killed: list[str] = []

    async def kill_at(point: str, is_reached: Callable[[], bool]) -> None:
        pid = await until(lambda: node.pid if is_reached() else 0, point, step_s=0.002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(point)
        await until(lambda: node.pid not in (0, pid), "the keeper starts it again")

    async def kill() -> None:
        for point, is_reached in points.items():
            while point not in killed:
                await kill_at(point, is_reached)

    killing = asyncio.create_task(kill())
    await node.ask(NEXT, archives[NEXT])
    await killing
    assert killed == list(points)
    await node.is_told(lambda version, is_pending, _: version == NEXT and not is_pending, "the next version reports")
    assert node.runs == node.current == NEXT
    await until(lambda: node.left() == {VERSION, NEXT, "current"}, "the trial is over", describe=node.left)
