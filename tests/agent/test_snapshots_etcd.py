"""Snapshots of real etcd, and their restore on one and on three members."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.agent.test_care import Line
from tests.store import etcd_cluster
from tests.waiting import until

from bedplate.agent.apply import Effects
from bedplate.agent.files import Root
from bedplate.agent.services import Status
from bedplate.agent.snapshots import Data, Told
from bedplate.agent.state import State
from bedplate.head.clusters.snapshots import check

pytestmark = pytest.mark.external


class Member:
    """A member of etcd on this machine, and the services of its node."""

    def __init__(self, folder: Path, name: str, ports: Mapping[str, tuple[int, int]], bin_: Path) -> None:
        self.folder, self.name, self.bin = folder, name, bin_
        self.client, self.peer = ports[name]
        self.child: subprocess.Popen[bytes] | None = None
        self.peers = ",".join(f"{each}=http://127.0.0.1:{peer}" for each, (_, peer) in ports.items())
        etc = folder / "cm/local/apps/etcd/current/etc"
        etc.mkdir(parents=True)
        (etc / "cm-etcd.conf").write_text(
            f"ETCD_NAME={name}\nETCD_DATA_DIR=/var/lib/etcd\nETCD_INITIAL_CLUSTER_TOKEN=token\n"
        )
        clients = ",".join(f"{each}=http://127.0.0.1:{client}" for each, (client, _) in ports.items())
        (etc / "cm-etcd-members.conf").write_text(f"ETCD_INITIAL_CLUSTER={self.peers}\nCM_ETCD_CLIENTS={clients}\n")
        (folder / "state").mkdir()

    def data(self, line: Line) -> Data:
        effects = Effects(
            Root(str(self.folder), is_privileged=False),
            State(str(self.folder / "state")),
            self,
            None,  # type: ignore[arg-type]
        )
        return Data(effects, line, which=lambda name: str(self.bin / name))

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        if self.child is None:
            own, other = f"http://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
            self.child = subprocess.Popen(
                [
                    self.bin / "etcd", f"--name={self.name}", f"--data-dir={self.folder}/var/lib/etcd",
                    f"--listen-client-urls={own}", f"--advertise-client-urls={own}", f"--listen-peer-urls={other}",
                    f"--initial-advertise-peer-urls={other}", f"--initial-cluster={self.peers}",
                    "--initial-cluster-token=token", "--unsafe-no-fsync",
                ],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return None

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        if self.child is not None:
            self.child.terminate()
            await asyncio.to_thread(self.child.wait)
            self.child = None
        return None

    async def status(self, names: Any) -> Mapping[str, Status]:
        return {}

    def ctl(self, *words: str) -> str:
        line = [self.bin / "etcdctl", f"--endpoints=http://127.0.0.1:{self.client}", *words]
        result = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        return result.stdout if result.returncode == 0 else ""

    def is_healthy(self) -> bool:
        return "true" in self.ctl("endpoint", "health", "-w", "json")


@pytest.fixture
def members(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Member]]:
    names = [f"m{number}" for number in range(request.param)]
    free = iter(etcd_cluster.free_ports(2 * len(names)))
    ports = {name: (next(free), next(free)) for name in names}
    bin_ = programs.built("etcd", etcd_cluster.VERSION).parent
    for name in ("etcdctl", "etcdutl"):
        programs.built(name, etcd_cluster.VERSION)
    made = [Member(tmp_path / name, name, ports, bin_) for name in names]
    yield made
    for member in made:
        if member.child is not None:
            member.child.kill()
            member.child.wait()


@pytest.mark.parametrize("members", [1, 3], indirect=True)
async def test_item_181_a_restore_brings_back_what_was_there_on_all_members(members: list[Member]) -> None:
    first = members[0]
    for member in members:
        await member.start("etcd")
    await until(first.is_healthy, "etcd is healthy")
    first.ctl("put", "before", "1")
    line = Line()
    told = await first.data(line).give("1")
    assert told.startswith("revision 2, 1 keys"), told
    about, _, whole = line.got.partition(b"\n")
    file = first.folder / "file.db"
    file.write_bytes(whole)
    assert check(file).sha256 == json.loads(about)["sha256"], "the head's own check agrees with etcd's"
    first.ctl("put", "after", "1")
    line.given = json.dumps({**json.loads(about), "restore": "one"}).encode() + b"\n" + whole
    for member in members:
        assert "unpacked revision 2" in await member.data(line).fetch("1")
    assert first.ctl("get", "after"), "the members run on meanwhile"
    await asyncio.gather(*(member.data(line).replace() for member in members))
    await until(first.is_healthy, "etcd is healthy with the restored data")
    assert first.ctl("get", "before") and not first.ctl("get", "after")
    revision = json.loads(first.ctl("get", "before", "-w", "json"))["header"]["revision"]
    assert revision > 1_000_000_000, "whoever watches is told to list again"
    first.ctl("put", "later", "1")
    for member in members:
        await until(member.is_healthy, f"{member.name} is healthy")
        assert member.ctl("get", "later")
    await asyncio.gather(*(member.data(line).put_back() for member in members))
    await until(first.is_healthy, "etcd is healthy with its former data")
    assert first.ctl("get", "after") and not first.ctl("get", "later")


@pytest.mark.parametrize("members", [1], indirect=True)
async def test_item_181_a_damaged_snapshot_is_refused_by_etcdutl_too(members: list[Member]) -> None:
    (member,) = members
    await member.start("etcd")
    await until(member.is_healthy, "etcd is healthy")
    member.ctl("put", "before", "1")
    line = Line()
    await member.data(line).give("1")
    _, _, whole = line.got.partition(b"\n")
    bad = bytes(byte ^ 1 for byte in whole[:-32]) + whole[-32:]
    about = {"size": len(bad), "sha256": hashlib.sha256(bad).hexdigest(), "restore": "one"}
    line.given = json.dumps(about).encode() + b"\n" + bad
    with pytest.raises(Told):
        await member.data(line).fetch("1")
    assert member.ctl("get", "before") and not (member.folder / "var/lib/etcd/restore").exists()
