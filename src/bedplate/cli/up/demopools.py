"""What `bedplate up` shows of address management: two pools, and pods that come and go like the tide.

In: a client of an empty or used cluster. Out: the custom resource definitions, an IPPool `rail`, a CIDRPool `storage`,
and a Deployment whose size rises and falls, so that the pools fill and empty. Changes that users made to them stay.
"""

from __future__ import annotations

import math
from typing import Any

from bedplate.api import names
from bedplate.api.resources import CRDS, DEPLOYMENTS, NAMESPACES, ResourceRef
from bedplate.cli.ipam import crds
from bedplate.core import clock, errors, logging
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors

__all__ = ["NAMESPACE", "Tide", "install"]

log = logging.get_logger("up.pools")
NAMESPACE, WORKLOAD = "demo", "trainers"
RAIL = {"subnet": "172.16.0.0/15", "perNodeBlockSize": 8, "gateway": "172.16.0.1"}
STORAGE = {"cidr": "172.20.0.0/15", "perNodeNetworkPrefix": 29, "gatewayIndex": 1}
PERIOD_S, STEP_S = 240.0, 3.0
LEAST, MOST = 1.0, 4.0
"""Pods for each node at low and at high tide."""
MOST_NODES = 30
"""More nodes do not bring more pods: this is to be looked at, not to keep a machine busy."""


async def install(client: Client) -> None:
    """The definitions and the two pools, unless they are there."""
    for definition in crds.documents():
        await _create(client, CRDS, definition)
    await _create(client, IPPOOLS, {"metadata": {"name": "rail"}, "spec": RAIL}, names.NAMESPACE_SYSTEM)
    await _create(client, CIDRPOOLS, {"metadata": {"name": "storage"}, "spec": STORAGE}, names.NAMESPACE_SYSTEM)


async def _create(client: Client, ref: ResourceRef[Any], body: dict[str, Any], namespace: str = "") -> None:
    try:
        await client.create(ref.raw(), body, namespace or None)
    except kube_errors.AlreadyExists:
        log.v(2).info("up.already_there", kind=ref.kind, name=body["metadata"]["name"])


class Tide:
    """Pods that come and go."""

    def __init__(self, client: Client, nodes: int, *, time: clock.Clock) -> None:
        self._client = client
        self._nodes = min(nodes, MOST_NODES)
        self._time = time

    def height(self, elapsed_s: float) -> int:
        """How many pods there shall be: low at first, then up and down."""
        share = (1 - math.cos(2 * math.pi * elapsed_s / PERIOD_S)) / 2
        return round(self._nodes * (LEAST + (MOST - LEAST) * share))

    async def run(self) -> None:
        """Until cancelled."""
        await _create(self._client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await _create(self._client, DEPLOYMENTS, _deployment(self.height(0)), NAMESPACE)
        started, last = self._time.monotonic(), -1
        while True:
            count = self.height(self._time.monotonic() - started)
            if count != last and await self._scale(count):
                last = count
            await self._time.sleep(STEP_S)

    async def _scale(self, count: int) -> bool:
        try:
            await self._client.patch(DEPLOYMENTS.raw(), WORKLOAD, {"spec": {"replicas": count}}, NAMESPACE)
        except errors.BedplateError as err:
            # A user may have deleted it: then it stays deleted.
            log.v(2).info("up.no_tide", error=str(err))
            return False
        return True


def _deployment(count: int) -> dict[str, Any]:
    labels = {"app": WORKLOAD}
    notes = {"k8s.v1.cni.cncf.io/networks": "rail, storage"}
    container = {"name": "trainer", "image": "trainer:simulated"}
    return {
        "metadata": {"name": WORKLOAD, "labels": labels},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": notes},
                "spec": {"containers": [container]},
            },
        },
    }
