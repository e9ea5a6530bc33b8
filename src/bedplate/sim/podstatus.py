"""The status of a simulated pod, as a kubelet would report it, and the address it has of its own.

In: the pod and its place; which pods have which address already. Out: the status; an address from the machine's range.
A pod runs from the moment it is bound; one that belongs to a Job has done its work at once. What an earlier run gave
away is learnt from the pods themselves.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime
from typing import Any

from bedplate.api import core
from bedplate.core import errors
from bedplate.core.clock import rfc3339

__all__ = ["Addresses", "started"]

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_FALSE_AT_THE_END = ("Ready", "ContainersReady")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# The first two addresses of a range are the network's and the machine's own.
_FIRST = 2


def started(pod: core.Pod, host_address: str, address: str, now: datetime) -> dict[str, Any]:
    """The status of a pod that runs, or of one that is meant to end, and has."""
    ends = any(owner.kind == "Job" for owner in pod.metadata.owner_references)
    moment = rfc3339(now)
    conditions = [
        {
            "type": kind,
            "status": "False" if ends and kind in _FALSE_AT_THE_END else "True",
            "lastTransitionTime": moment,
        }
        for kind in _CONDITIONS
    ]
    status = {
        "phase": "Succeeded" if ends else "Running",
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": moment,
        "conditions": conditions,
        "containerStatuses": [
            _container(container, moment, ends=ends, is_ready=not ends) for container in pod.spec.containers or ()
        ],
    }
    if pod.spec.init_containers:
        # One that restarts always is a sidecar: it runs as long as the pod does.
        status["initContainerStatuses"] = [
            _container(container, moment, ends=ends or container.restart_policy != "Always", is_ready=True)
            for container in pod.spec.init_containers
        ]
    return status


def _container(container: core.Container, moment: str, *, ends: bool, is_ready: bool) -> dict[str, Any]:
    over = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_ready,
        "started": not ends,
        "restartCount": 0,
        "state": over if ends else {"running": {"startedAt": moment}},
    }


class Addresses:
    """Who has which address. Keys are those of pods (`namespace/name`)."""

    def __init__(self) -> None:
        self._by_key: dict[str, str] = {}
        self._taken: set[str] = set()

    def learn(self, key: str, address: str) -> None:
        """A pod has this address: it was given in an earlier run, or just now."""
        if self._by_key.get(key) != address:
            self.free(key)
            self._by_key[key] = address
            self._taken.add(address)

    def take(self, key: str, network: Network) -> str:
        """The pod's address: the one it has, or the lowest in the range that no other pod has."""
        known = self._by_key.get(key)
        if known is not None and ipaddress.ip_address(known) in network:
            return known
        for number in range(_FIRST, network.num_addresses - 1):
            address = str(network[number])
            if address not in self._taken:
                self.learn(key, address)
                return address
        raise errors.Unavailable(f"no address in {network} is free for pod {key}")

    def free(self, key: str) -> None:
        """The pod is gone or has ended: its address may be given to another."""
        address = self._by_key.pop(key, None)
        if address is not None:
            self._taken.discard(address)
