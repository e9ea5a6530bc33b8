"""CNI calls as a runtime makes them, and the recorded ones with what must match.

In: a plugin's program, a daemon, the vectors of `tests/vectors/ipam`. Out: `Answer`s, and failed assertions where an
answer is not the recorded one. What differs on purpose depends on whose plugin and whose daemon it is: both are told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tests.ipam.controller.worlds import KINDS, World
from tests.ipam.node.daemons import NodeDaemon
from tests.waiting import wait_until

VECTORS = Path(__file__).parents[2] / "vectors" / "ipam"
OURS = Path(sys.executable).with_name("nv-ipam")
# The pools of the vectors whose status makes no sense: no daemon knows them.
UNKNOWABLE = {("IPPool", "badtext"), ("CIDRPool", "cbad")}
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one call."""

    exit: int
    stdout: bytes
    stderr: str

    @property
    def documents(self) -> list[Any]:
        """The JSON documents on standard output."""
        found, text, decoder = [], self.stdout.decode().strip(), json.JSONDecoder()
        while text:
            document, end = decoder.raw_decode(text)
            found.append(document)
            text = text[end:].strip()
        return found

    @property
    def document(self) -> Any:
        """The only one."""
        (document,) = self.documents
        return document

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a call that failed, which is whole."""
        assert self.exit == 1, self
        document: dict[str, Any] = self.document
        assert isinstance(document["code"], int) and document["msg"], self
        return document


def invoke(plugin: Path, env: Mapping[str, str], stdin: bytes, cwd: Path | None = None) -> Answer:
    """Run a plugin with this environment and nothing of ours but PATH."""
    # A variable's text may be no UTF-8.
    full = {os.fsencode(key): os.fsencode(value) for key, value in {"PATH": os.environ["PATH"], **env}.items()}
    ran = subprocess.run([plugin], input=stdin, env=full, capture_output=True, timeout=TIMEOUT_S, check=False, cwd=cwd)
    return Answer(ran.returncode, ran.stdout, ran.stderr.decode(errors="replace"))


@contextlib.contextmanager
def other_netns(folder: Path) -> Iterator[str]:
    """A network namespace other than ours: a real one for root, else a file that is none."""
    if os.geteuid() != 0:
        path = folder / "netns"
        path.touch()
        yield str(path)
        return
    name = f"bedplate-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
    try:
        yield f"/var/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Scene:
    """A plugin and a daemon with pools, in which recorded calls are played."""

    world: World
    daemon: NodeDaemon
    plugin: Path
    netns: str
    is_our_plugin: bool
    is_our_daemon: bool

    def filled(self, value: Any) -> Any:
        """A recorded text with the placeholders of this scene."""
        places = {
            "$OWN_NETNS": "/proc/self/ns/net",
            "$NETNS": self.netns,
            "$CONFDIR": str(self.daemon.conf_dir),
            "$CNI_PATH": str(self.plugin.parent),
            "$DIR": str(self.daemon.folder),
        }
        if isinstance(value, str):
            for place, text in places.items():
                value = value.replace(place, text)
            return value
        if isinstance(value, dict):
            return {key: self.filled(each) for key, each in value.items()}
        return [self.filled(each) for each in value] if isinstance(value, list) else value

    async def invoke(self, call: Mapping[str, Any]) -> Answer:
        """Make a recorded call."""
        raw = call.get("stdin_raw")
        stdin = self.filled(raw) if raw is not None else json.dumps(self.filled(call["stdin"]))
        return await asyncio.to_thread(invoke, self.plugin, self.filled(call["env"]), stdin.encode())

    async def make(self, pools: list[dict[str, Any]]) -> None:
        """The recorded pools, with their statuses."""
        for pool in pools:
            await self.world.pool(pool["kind"], pool["name"], pool["spec"])
            if pool["allocations"] is not None:
                await self.world.damage(pool["kind"], pool["name"], pool["allocations"])

    async def known(self, pools: list[dict[str, Any]]) -> None:
        """Wait until the daemon knows every pool that has a block for this node."""
        for pool in pools:
            has_block = any(one["nodeName"] == "node-1" for one in pool["allocations"] or ())
            if has_block and (pool["kind"], pool["name"]) not in UNKNOWABLE:
                await asyncio.to_thread(wait_until, lambda pool=pool: self.knows(pool), f"{pool['name']} is known")

    def knows(self, pool: Mapping[str, Any]) -> bool:
        """A request that no pool can grant is refused as unknown only where the pool is."""
        kind = 1 if pool["kind"] == "IPPool" else 2
        with self.daemon.caller() as caller:
            try:
                caller.allocate(pool["name"], kind=kind, container="probe", requested=("203.0.113.1",))
            except grpc.RpcError as err:
                return err.code() is not grpc.StatusCode.NOT_FOUND
        raise AssertionError("an address outside of every pool was given")

    async def act(self, action: Mapping[str, Any]) -> None:
        """Change a pool, and wait until the daemon has seen it."""
        kind, name = action["kind"], action["name"]
        if action["action"] == "set_status":
            await self.world.damage(kind, name, action["allocations"])
        elif action["action"] == "set_spec":
            await self.world.edit(kind, name, action["spec"])
        else:
            await self.world.client.delete(KINDS[kind], name, self.world.namespace)
        await asyncio.to_thread(wait_until, lambda: self.has_seen(action), f"the daemon has seen {action['note']}")

    def has_seen(self, action: Mapping[str, Any]) -> bool:
        """Whether the daemon knows the change."""
        if action["action"] == "set_status":
            return self.at_index(action["name"], 0).startswith(f"{action['allocations'][0]['startIP']}/")
        if action["action"] == "set_spec":
            # The new gateway is at this place, where nobody gets an address.
            return self.at_index(action["name"], 1) == "INVALID_ARGUMENT"
        return not self.knows(action)

    def at_index(self, pool: str, index: int) -> str:
        """Which address is at this place of the node's block, or why there is none; given back at once."""
        with self.daemon.caller() as caller:
            try:
                return caller.address(pool, container="probe", index=index)
            except grpc.RpcError as err:
                return str(err.code().name)
            finally:
                caller.deallocate(pool, container="probe")

    async def play(self, calls: list[dict[str, Any]]) -> int:
        """Make every call in turn and hold its answer against the recorded one; how many there were."""
        count = 0
        for call in calls:
            if "action" in call:
                await self.act(call)
                continue
            if "before" in call:
                assert call["before"] == "the daemon was stopped"
                await asyncio.to_thread(self.daemon.stop)
            self.judge(call, await self.invoke(call))
            count += 1
        return count

    def judge(self, call: Mapping[str, Any], answer: Answer) -> None:
        """Whether an answer is right, the marks of the recording considered."""
        about = (call["n"], call.get("note"), answer)
        mark = call.get("ours_differs", "")
        number = mark.split(":")[0]
        if number in ("W20", "W21", "W23") and self.is_our_daemon:
            self._judge_daemon(mark, number, answer)
        elif mark and self.is_our_plugin and number not in ("W20", "W21", "W23"):
            self._judge_plugin(call, mark, answer)
        else:
            assert answer.exit == call["exit"], about
            if call["exit"] == 1 and "stdout_documents" not in call:
                assert answer.error["code"] == call["stdout"]["code"] or mark.startswith(("W20", "W31")), about
            else:
                found, wanted = answer.documents, recorded_documents(call)
                for each in (*found, *wanted):
                    each.pop("msg", None)
                assert [plain(each) for each in found] == [plain(each) for each in wanted], about
        if self.is_our_plugin and answer.exit != 0:
            assert re.fullmatch(r"[01]\.\d\.\d", answer.error["cniVersion"]), about

    def _judge_daemon(self, mark: str, number: str, answer: Answer) -> None:
        if number == "W20":
            assert answer.exit == 0 and answer.document["ips"][0]["address"] == "10.47.0.1/24", answer
        elif "may refuse" not in mark:
            assert answer.error["code"] == (7 if self.is_our_plugin and number == "W23" else 999), answer

    def _judge_plugin(self, call: Mapping[str, Any], mark: str, answer: Answer) -> None:
        about = (call["n"], answer)
        if mark.startswith("W16: ours answers code 11"):
            assert answer.error["code"] == 11, about
        elif mark.startswith(("W16", "W31")):
            assert answer.error["code"] in (4, 7, 999), about
            if "grpc call failed" in call["stdout"]["msg"]:
                assert answer.error["details"].startswith("gRPC code "), about
            elif "command preparation failed" in call["stdout"]["msg"]:
                assert answer.error["code"] in ((4, 7) if "ARGS" in call["stdout"]["msg"] else (7,)), about
        elif mark.startswith("W17"):
            assert answer.exit == 0 and len(answer.document["ips"]) == 1, about
        elif mark.startswith("W18"):
            assert (answer.exit, answer.stdout) == (0, b""), about
        elif mark.startswith("no W number"):
            assert answer.error["code"] == 8, about
        elif "code 50" in mark:
            assert answer.error["code"] == 50, about
        elif call["command"] == "GC":
            assert (answer.exit, answer.stdout) == (0, b""), about


def recorded_documents(call: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What stood on standard output."""
    if "stdout_documents" in call:
        return [dict(each) for each in call["stdout_documents"]]
    return [dict(call["stdout"])] if call["stdout"] else []


def plain(value: Any) -> Any:
    """A result in which an absent list and an empty one are the same."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each not in ([], {}, None)}
    return [plain(each) for each in value] if isinstance(value, list) else value


def recorded() -> dict[str, Any]:
    """The recorded calls."""
    found: dict[str, Any] = json.loads((VECTORS / "cni.json").read_text())
    return found
