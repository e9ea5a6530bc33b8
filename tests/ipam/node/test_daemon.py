"""The daemon's own life: a part that ends by itself ends it, and not well."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bedplate.core import errors
from bedplate.ipam.node import daemon as daemons
from bedplate.ipam.node.daemon import Daemon
from bedplate.ipam.node.options import read
from bedplate.ipam.node.reservations import StoreFailed


class Part:
    """A server that notes its end, and a manager that does what it is told."""

    def __init__(self, outcome: Exception | None = None, *, lasts: bool = False) -> None:
        self.outcome, self.lasts = outcome, lasts
        self.order: list[str] = []

    async def run(self) -> None:
        try:
            if self.lasts:
                await asyncio.Event().wait()
            if self.outcome is not None:
                raise self.outcome
        finally:
            self.order.append("manager")

    async def stop(self, within_s: float) -> None:
        self.order.append("server")


def run(part: Part) -> Any:
    daemon = Daemon(read(["--node-name=n"]).options, {})
    return daemon._run_until_stopped(part, asyncio.ensure_future(part.run()))  # type: ignore[arg-type]


async def test_a_part_that_fails_ends_the_daemon_with_its_error() -> None:
    part = Part(errors.Unavailable("broken"))
    with pytest.raises(errors.Unavailable, match="broken"):
        await run(part)
    assert "server" in part.order


async def test_a_part_that_ends_ends_the_daemon_with_an_error() -> None:
    with pytest.raises(errors.Terminal, match="stopped unexpectedly"):
        await run(Part())


async def test_when_it_is_stopped_calls_end_before_everything_else() -> None:
    part = Part(lasts=True)
    task = asyncio.ensure_future(run(part))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert part.order == ["server", "manager"]


async def test_pools_are_asked_for_while_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    both, ended = asyncio.Event(), asyncio.Event()

    async def list_pools(self: object, ref: Any, *args: object, **kwargs: object) -> Any:
        if ref.plural != "pods":
            asked.append(ref.plural)
        if len(asked) == 2:
            both.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def open_store(*args: object, **kwargs: object) -> Any:
        async with asyncio.timeout(60):
            await both.wait()
        raise StoreFailed("in use")

    monkeypatch.setattr(daemons.ApiSource, "list", list_pools)
    monkeypatch.setattr(daemons.Ledger, "open", open_store)
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c"}}
    config = tmp_path / "config"
    config.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "c"}))
    words = ["--node-name=n", f"--kubeconfig={config}", f"--store-file={tmp_path}/store"]
    words += ["--cni-skip-nv-ipam-binary-copy", "--cni-skip-nv-ipam-config-creation"]
    with pytest.raises(StoreFailed, match="in use"):
        await Daemon(read(words).options, {}).run()
    assert sorted(asked) == ["cidrpools", "ippools"]
    assert ended.is_set(), "nothing runs on when the daemon ends"
