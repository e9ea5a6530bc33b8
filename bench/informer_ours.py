"""Our side of the informer's measurement, a process of its own: fill a cache with all nodes, report as JSON.

    python -m bench.informer_ours KUBECONFIG [lean | raw]

`lean` takes the model our controllers use (`api.core.Node`), `raw` keeps whole objects as dictionaries.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import pathlib
import sys
import time
from typing import Any

import uvloop

from bedplate.api.resources import NODES
from bedplate.kube import client as clients
from bedplate.kube import config
from bedplate.runtime import cache, reflector

TIMEOUT_S = 300


def memory(field: str) -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


async def measure(kubeconfig: str, mode: str) -> dict[str, float]:
    begin = time.perf_counter()
    settings = config.load(kubeconfig=kubeconfig)
    ref: Any = NODES if mode == "lean" else NODES.with_model(dict)
    async with clients.Client(settings) as client:
        nodes: cache.Cache[Any] = cache.Cache()
        running = asyncio.create_task(reflector.Reflector(client, ref, nodes).run())
        async with asyncio.timeout(TIMEOUT_S):
            await nodes.synced.wait()
        took = time.perf_counter() - begin
        peak = memory("VmHWM")
        await asyncio.sleep(0.5)
        gc.collect()
        steady = memory("VmRSS")
        ctypes.CDLL(None).malloc_trim(0)
        least = memory("VmRSS")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return {"seconds": took, "objects": len(nodes), "rss_bytes": steady, "least_bytes": least, "peak_bytes": peak}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "lean"))))
