"""A client that writes through the proxy of a cluster once a second, and counts what it had to try again.

    python -m tests.lab.writing KUBECONFIG RESULT

ends when its standard input does, and leaves in RESULT what it wrote and each retry with its error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from bedplate.api.resources import CONFIG_MAPS
from bedplate.core import errors
from bedplate.kube import Client, config

_EVERY_S = 1.0
_PAUSE_S = 0.2


async def write(file: Path, result: Path) -> None:
    """Until nobody listens any more. The client sends no write twice by itself."""
    written: list[str] = []
    retries: list[str] = []
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    async with Client(config.load(file, environ={})) as client:
        while not ended.done():
            name = f"write-{len(written):05}"
            start_s = time.monotonic()
            while True:
                try:
                    async with asyncio.timeout(20):
                        await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")
                except errors.AlreadyExists:
                    break  # the answer was lost, the write was not
                except (errors.Unavailable, TimeoutError) as err:
                    retries.append(f"{time.strftime('%H:%M:%S')} {name}: {err}")
                    await asyncio.sleep(_PAUSE_S)
                    continue
                break
            written.append(name)
            result.write_text(json.dumps({"written": written, "retries": retries}))
            await asyncio.sleep(max(0.0, _EVERY_S - (time.monotonic() - start_s)))


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), Path(sys.argv[2])))
