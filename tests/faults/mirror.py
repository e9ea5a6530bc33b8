"""A small controller to torment: every ConfigMap labelled `mirror=yes` gets an annotation equal to its `data.value`.

Used in the tests' own process, and as a program that takes part in leader election:

    python mirror.py KUBECONFIG NAMESPACE IDENTITY LOG

which appends a line `IDENTITY KEY VALUE` to LOG for each write, in the order in which the writes were acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bedplate.api.resources import CONFIG_MAPS
from bedplate.core import clock
from bedplate.kube import Client, config
from bedplate.runtime.cache import Cache
from bedplate.runtime.controller import Controller
from bedplate.runtime.leaderelection import Elector, FencedClient, Timing
from bedplate.runtime.manager import Manager

REF = CONFIG_MAPS.raw()
ANNOTATION = "mirrored"


def mirror(
    client: Client,
    cache: Cache[Any],
    told: Callable[[str, str], None] = lambda key, value: None,
    time: clock.Clock | None = None,
) -> Controller:
    async def reconcile(key: str) -> None:
        obj = cache.get(key)
        if obj is None:
            return
        wanted = (obj.get("data") or {}).get("value", "")
        if (obj["metadata"].get("annotations") or {}).get(ANNOTATION) == wanted:
            return
        namespace, _, name = key.partition("/")
        body = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"], "annotations": {ANNOTATION: wanted}}
        }
        await client.patch(REF, name, body, namespace, field_manager="mirror")
        told(key, wanted)

    return Controller("mirror", reconcile, workers=4, time=time or clock.SystemClock()).watches(cache)


async def main(kubeconfig: str, namespace: str, own: str, log: str) -> None:
    settings = config.load(kubeconfig).with_rate(-1, 1)
    timing = Timing(lease_s=4, renew_s=2.5, retry_s=0.5)

    def tell(key: str, value: str) -> None:
        with Path(log).open("a") as out:
            out.write(f"{own} {key} {value}\n")

    async with Client(settings) as plain:
        elector = Elector(plain, "mirror", namespace, own=own, timing=timing)
        async with FencedClient(settings, elector.guard) as fenced:
            manager = Manager(fenced, elector=elector)
            manager.add(mirror(fenced, manager.cache(REF, namespace=namespace, label_selector="mirror=yes"), tell))
            await manager.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
