"""The client that writes through the proxy of a cluster once a second, in a process of its own.

    python -m tests.lab.writing KUBECONFIG RESULT

ends when its standard input does, and leaves in RESULT what it wrote and each retry with its error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bedplate.core.clock import SystemClock
from bedplate.kube import Client, config
from bedplate.setup.rehearsal.writing import Writer


async def write(file: Path, result: Path) -> None:
    """Until nobody listens any more."""
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with Client(config.load(file, environ={})) as client:
        writer = Writer(client, SystemClock())

        def tell() -> None:
            result.write_text(json.dumps({"written": writer.written, "retries": writer.retries}))

        await writer.write(ended.done, tell)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), Path(sys.argv[2])))
