"""A real ipykernel behind the sidecar and a real jupyter_client before it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.operators.jupyter import peers
from tests.operators.jupyter.sidecar.conftest import Running, Start
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.external
CLIENT = Path(__file__).with_name("clients.py")


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's own Jupyter, and nothing left in their home."""
    own = {name: str(folder / name.lower()) for name in ("HOME", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    return {"PATH": os.environ.get("PATH", os.defpath), **own}


@contextlib.asynccontextmanager
async def kernel(folder: Path, path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real kernel, which writes its connection file, or uses the one that is there."""
    log = (folder / "kernel.log").open("ab")
    # Its other completer takes half a minute to think about the first word.
    words = ("-m", "ipykernel_launcher", "-f", str(path), "--IPCompleter.use_jedi=False")
    process = await asyncio.create_subprocess_exec(
        str(peers.python()), *words, stdout=log, stderr=log, env=environment(folder)
    )
    try:
        yield process
    finally:
        log.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Client:
    """A real client in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, *words: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        if words:
            self._process.stdin.write(" ".join(words).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), DEADLINE_S)
        assert line, "the client ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.asynccontextmanager
async def client(folder: Path, running: Running) -> AsyncIterator[Client]:
    """A client of the sidecar's ports, with the kernel's own key."""
    content = json.loads(running.path.read_text())
    content |= {f"{name}_port": port for name, port in running.sidecar.ports.items()}
    given = folder / "outside.json"
    given.write_text(json.dumps(content))
    process = await asyncio.create_subprocess_exec(
        str(peers.python()),
        str(CLIENT),
        str(given),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(folder),
    )
    try:
        opened = Client(process)
        assert (await opened.do())["ready"]
        yield opened
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_client_executes_interrupts_completes_and_answers(start: Start, tmp_path: Path) -> None:
    async with start() as running, kernel(tmp_path, running.path):
        await asyncio.wait_for(running.sidecar.is_serving.wait(), DEADLINE_S)
        async with client(tmp_path, running) as outside:
            assert (await outside.do("execute", "6 * 7"))["output"] == "42"
            assert (await outside.do("execute", "print(input('name? '))"))["output"] == "typed\n"
            assert (await outside.do("execute", "1 / 0"))["ename"] == "ZeroDivisionError"
            loop = "import time\\nprint('began', flush=True)\\nwhile True: time.sleep(0.01)"
            assert await outside.do("interrupt", loop) == {"status": "error", "ename": "KeyboardInterrupt"}
            assert "import" in (await outside.do("complete", "impor"))["matches"]
            big = await outside.do("execute", "print('x' * 2_000_000)")
            assert (big["status"], big["length"]) == ("ok", 2_000_001)


async def test_two_clients_share_a_kernel_and_each_gets_its_own_answers(start: Start, tmp_path: Path) -> None:
    async with start() as running, kernel(tmp_path, running.path):
        await asyncio.wait_for(running.sidecar.is_serving.wait(), DEADLINE_S)
        async with client(tmp_path, running) as one, client(tmp_path, running) as two:
            await one.do("execute", "x = 5")
            answers = await asyncio.gather(
                one.do("execute", "print('one', x, input('? '))"), two.do("execute", "print('two', x)")
            )
            assert [answer["output"] for answer in answers] == ["one 5 typed\n", "two 5\n"]


async def test_a_kernel_that_is_started_again_serves_the_same_client(start: Start, tmp_path: Path) -> None:
    async with start() as running, kernel(tmp_path, running.path) as first:
        await asyncio.wait_for(running.sidecar.is_serving.wait(), DEADLINE_S)
        async with client(tmp_path, running) as outside:
            await outside.do("execute", "x = 1")
            content = running.path.read_text()
            assert (await outside.do("shutdown"))["status"] == "ok"
            await asyncio.wait_for(first.wait(), DEADLINE_S)
            # The file of a kernel that ended is removed by it; the next one is to have the same key.
            running.path.write_text(content)
            async with kernel(tmp_path, running.path):
                assert (await outside.do("wait"))["ready"]
                assert (await outside.do("execute", "print('x' in dir())"))["output"] == "False\n"
