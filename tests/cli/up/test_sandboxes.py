"""The machines of `bedplate up`: real agents in folders, whose kubelets and power decide what their nodes are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

from tests.waiting import until

from bedplate.cli.up import uphead
from bedplate.cli.up.sandboxes import Kubelet, Sandboxes, kubelet_of
from bedplate.cli.up.site import RUNNING
from bedplate.core import errors


def test_a_kubelet_is_known_by_its_process_and_its_last_flag() -> None:
    assert kubelet_of("17 --max-pods=20 --node-ip=10.0.0.1\n") == Kubelet(17, 20)
    assert kubelet_of("17 --max-pods=20 --max-pods=30") == Kubelet(17, 30)
    assert kubelet_of("17") == Kubelet(17, 0)
    assert kubelet_of("17 --max-pods=many") == Kubelet(17, 0)
    assert kubelet_of("-") is None and kubelet_of("") is None


class Cloud:
    """Machines that are on or off."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[SimpleNamespace], None]] = []
        self.states = {"node001": RUNNING}

    def start(self, name: str) -> None:
        self._set(name, RUNNING)

    def stop(self, name: str) -> None:
        self._set(name, "Error")

    def _set(self, name: str, state: str) -> None:
        if name not in self.states:
            raise errors.NotFound(name)
        self.states[name] = state
        for listener in self.listeners:
            listener(SimpleNamespace(machine=SimpleNamespace(name=name, state=state)))


class Site:
    """What the machines tell a site."""

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.machines = {"node001": object()}
        self.runs: dict[str, bool] = {}
        self.pods: dict[str, int] = {}

    def state(self, name: str) -> str:
        return self.cloud.states.get(name, "")

    def kubelet(self, name: str, *, runs: bool) -> None:
        self.runs[name] = runs

    async def resize(self, name: str, pods: int) -> None:
        self.pods[name] = pods


@contextlib.asynccontextmanager
async def running(tmp_path: Path, site: Site) -> AsyncIterator[uphead.UpHead]:
    machines = Sandboxes(tmp_path / "machines", site)  # type: ignore[arg-type]
    async with uphead.serving(tmp_path / "head", nodes=1, controller=machines.switch_on) as head:
        living = asyncio.create_task(machines.run(head.url, head.authority, head.client))
        try:
            yield head
        finally:
            living.cancel()
            await asyncio.wait({living})
            assert living.cancelled(), living.exception()


async def test_agents_make_their_machines_what_the_head_says_and_go_with_their_power(tmp_path: Path) -> None:
    site, root = Site(), tmp_path / "machines/node001"
    async with running(tmp_path, site) as head:
        await until(lambda: site.runs.get("node001") and site.pods.get("node001") == 110)
        told = (root / "run/kubelet").read_text().split()
        assert told[1] == "--max-pods=110"
        assert (root / "etc/kubernetes/kubelet.env").read_text().startswith("KUBELET_EXTRA_ARGS=--max-pods=110")

        async def is_settled() -> bool:
            states = {state.node: state for state in await head.client.nodes()}
            return all(state.state == "UP" and state.applied and not state.pending for state in states.values())

        await until(is_settled, "the head node and the machine hold their states")
        assert len(await head.client.nodes()) == 2

        # Somebody edits a file on the machine.
        (root / "etc/kubernetes/kubelet.env").write_text("KUBELET_EXTRA_ARGS=--max-pods=1\n")
        texts: Callable[[], list[str]] = lambda: [line for _, line in head.picture().notices]  # noqa: E731
        await until(lambda: any("kubelet.env was restored: it was changed by hand" in text for text in texts()))
        await until(lambda: site.pods["node001"] == 110 and _pid(root) != told[0])

        await head.client.ask_errand(["node001"], "off")
        await until(lambda: site.cloud.states["node001"] == "Error" and not site.runs["node001"])
        (state,) = await head.client.nodes(["node001"])
        assert state.state == "DOWN"
        (done,) = await head.client.ask_errand(["node001"], "on")
        assert done.state == "done"
        await until(lambda: site.runs["node001"])
        pid = _pid(root)
        # The cloud takes the power away, without asking anybody.
        site.cloud.stop("node001")
        await until(lambda: not site.runs["node001"])
        assert not os.path.exists(f"/proc/{pid}")
        site.cloud.start("node001")
        await until(lambda: site.runs["node001"])
    assert not os.path.exists(f"/proc/{_pid(root)}"), "nothing outlives the program"


def _pid(root: Path) -> str:
    return (root / "run/kubelet").read_text().split()[0]


async def test_machines_keep_their_certificates_and_a_machine_that_is_not_there_cannot_be_switched_on(
    tmp_path: Path,
) -> None:
    site = Site()
    pair = tmp_path / "machines/node001/etc/bedplate/agent.pem"
    async with running(tmp_path, site):
        await until(pair.exists)
        await until(lambda: site.runs.get("node001"))
    first = pair.read_bytes()
    site.runs.clear()
    async with running(tmp_path, site):
        await until(lambda: site.runs.get("node001"))
        assert pair.read_bytes() == first
    assert await Sandboxes(tmp_path, site).switch_on("nobody") == "there is no machine nobody in the cloud"  # type: ignore[arg-type]
