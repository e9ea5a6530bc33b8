"""More networks for simulated pods: addresses of IPPools and CIDRPools, each node's kept in a real ledger.

In: pods with the annotation `k8s.v1.cni.cncf.io/networks` (names separated by commas), the pools, a folder. Out: the
annotation network-status, as Multus would write it, and reservations on the disk that are freed when a pod is gone. A
name stands for the IPPool of that name, else for the CIDRPool: as `nv-ipam` takes a network's name for its pool's. No
CNI plugin and no daemon take part; the ledger, which chooses and keeps addresses, is the daemon's own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from bedplate.api import core, names
from bedplate.api.identity import key_of
from bedplate.api.resources import PODS
from bedplate.cli import clusterview
from bedplate.cli.ipam import build_views
from bedplate.cli.ipam.holders import NETWORK_STATUS
from bedplate.core import clock, errors, logging
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.ledger import Ledger
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Owner, Reservation, Wanted
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS, CIDRPool, IPPool, cidrpool_key
from bedplate.runtime.cache import Change
from bedplate.runtime.controller import Controller, Result
from bedplate.runtime.manager import Manager

__all__ = ["NETWORKS", "PodNetworks", "networks_of"]

log = logging.get_logger("up.podnets")
NETWORKS = "k8s.v1.cni.cncf.io/networks"
STORE = "store"


@dataclasses.dataclass(frozen=True, slots=True)
class _Attachment:
    """What a pod asks for: a network, and the interface it shall have."""

    network: str
    interface: str


def networks_of(pod: core.Pod) -> list[_Attachment]:
    """The networks that the pod's annotation names, as `name`, `namespace/name` or either with `@interface`."""
    parts = [part.strip() for part in pod.metadata.annotation(NETWORKS).split(",") if part.strip()]
    networks = []
    for number, part in enumerate(parts, start=1):
        name, _, interface = part.partition("@")
        networks.append(_Attachment(name.rpartition("/")[2], interface or f"net{number}"))
    return networks


class PodNetworks:
    """The ledgers of all simulated nodes. One is opened when its node's first pod asks for a network."""

    def __init__(self, manager: Manager, folder: Path, *, time: clock.Clock | None = None) -> None:
        self.ippools = manager.cache(IPPOOLS, namespace=names.NAMESPACE_SYSTEM)
        self.cidrpools = manager.cache(CIDRPOOLS, namespace=names.NAMESPACE_SYSTEM)
        self.used: Counter[str] = Counter()
        """Reservations by the key of their pool."""
        self._pods = manager.cache(PODS)
        self._folder = folder
        self._time = time if time is not None else clock.SystemClock()
        self._ledgers: dict[str, Ledger] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._homes: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, tuple[str, clusterview.Pool]] = {}
        self.controller = Controller("simulated-networks", self._reconcile, workers=4)
        self.controller.watches(self._pods, self._left)
        manager.add(self.controller)
        manager.serve(self._run)

    def pools(self) -> list[clusterview.Pool]:
        """Every pool at this moment: IPPools first, by name."""
        ippools = sorted(self.ippools, key=lambda pool: pool.name)
        cidrpools = sorted(self.cidrpools, key=lambda pool: pool.name)
        return [*map(self._pool, ippools), *map(self._pool, cidrpools)]

    def _pool(self, pool: IPPool | CIDRPool) -> clusterview.Pool:
        """One pool; its allocations are counted again only when it has changed."""
        key = pool.name if isinstance(pool, IPPool) else cidrpool_key(pool.name)
        version = pool.metadata.resource_version
        if key not in self._seen or self._seen[key][0] != version:
            view = build_views.view_of(pool)
            counts = clusterview.Pool(view.name, view.network_text, len(view.blocks), view.free, 0, view.usable)
            self._seen[key] = (version, counts)
        return dataclasses.replace(self._seen[key][1], used=self.used[key])

    async def attach(self, pod: core.Pod) -> Mapping[str, str]:
        """Addresses for every network that the pod asks for; the same ones when it asks again."""
        attachments = networks_of(pod)
        if not attachments:
            return {}
        ledger = await self._ledger(pod.spec.node_name)
        self._homes[key_of(pod)] = (pod.spec.node_name, pod.metadata.uid)
        entries = []
        for attachment in attachments:
            config = self._config(attachment.network, pod.spec.node_name)
            reservation = ledger.find(config.key, pod.metadata.uid, attachment.interface)
            given = reservation if reservation is not None else await self._allocate(ledger, pod, attachment, config)
            entry = {"name": f"{names.NAMESPACE_SYSTEM}/{attachment.network}", "interface": attachment.interface}
            entries.append({**entry, "ips": [given.address], "dns": {}})
        return {NETWORK_STATUS: json.dumps(entries)}

    async def _allocate(
        self, ledger: Ledger, pod: core.Pod, attachment: _Attachment, config: PoolConfig
    ) -> Reservation:
        meta = pod.metadata
        owner = Owner(meta.uid, attachment.interface, meta.uid, meta.name, meta.namespace)
        (given,) = await ledger.allocate(owner, [Wanted(config)])
        self.used[config.key] += 1
        return given

    def _config(self, network: str, node: str) -> PoolConfig:
        """What the node has of the pool of that name."""
        key = f"{names.NAMESPACE_SYSTEM}/{network}"
        ippool, cidrpool = self.ippools.get(key), self.cidrpools.get(key)
        if ippool is not None:
            for allocation in ippool.status.allocations:
                if allocation.node_name == node:
                    return poolconfig.ippool_config(network, ippool.spec, allocation)
        elif cidrpool is not None:
            for entry in cidrpool.status.allocations:
                if entry.node_name == node:
                    return poolconfig.cidrpool_config(network, cidrpool.spec, entry)
        else:
            raise errors.Unavailable(f"there is no pool {network} in {names.NAMESPACE_SYSTEM}")
        raise errors.Unavailable(f"node {node} has no block of pool {network} yet")

    async def _ledger(self, node: str) -> Ledger:
        async with self._opening.setdefault(node, asyncio.Lock()):
            if node not in self._ledgers:
                folder = self._folder / node
                folder.mkdir(parents=True, exist_ok=True)
                ledger = await Ledger.open(folder / STORE, clock=self._time)
                self._ledgers[node] = ledger
                for reservation in ledger.reservations():
                    self.used[reservation.pool] += 1
                    self._homes[f"{reservation.pod_namespace}/{reservation.pod_name}"] = (node, reservation.pod_uid)
            return self._ledgers[node]

    # Freeing

    def _left(self, change: Change[core.Pod]) -> list[str]:
        is_over = change.new is None or change.new.is_finished
        return [change.key] if is_over and change.key in self._homes else []

    async def _reconcile(self, key: str) -> Result | None:
        """Free what the pod had, unless it is still there; another pod of its name has another UID."""
        home = self._homes.get(key)
        if home is None:
            return None
        node, uid = home
        pod = self._pods.get(key)
        if pod is not None and pod.metadata.uid == uid and not pod.is_finished:
            return None
        await self._free(node, uid)
        if self._homes.get(key) == home:
            del self._homes[key]
        return None

    async def _free(self, node: str, uid: str) -> None:
        ledger = await self._ledger(node)
        dead = [reservation for reservation in ledger.reservations() if reservation.pod_uid == uid]
        for reservation in dead:
            freed = await ledger.release(reservation.container_id, reservation.interface_name, [reservation.pool])
            self.used[reservation.pool] -= freed

    # Running

    async def _run(self) -> None:
        """Open the ledgers of an earlier run, free what belongs to pods that are gone; close all in the end."""
        try:
            await self._pods.synced.wait()
            for node in self._known():
                await self._ledger(node)
                # One after the other, so that nodes that join now need not wait.
                await self._time.sleep(0.01)
            for key in list(self._homes):
                self.controller.queue.add(key)
            await asyncio.Event().wait()
        finally:
            for ledger in self._ledgers.values():
                await ledger.close()

    def _known(self) -> Iterator[str]:
        return (place.parent.name for place in sorted(self._folder.glob(f"*/{STORE}")))
