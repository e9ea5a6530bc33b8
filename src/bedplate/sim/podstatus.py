"""The status of a simulated pod, as a kubelet would report it. Pure: in go the pod and its place, out comes the status.

A pod runs from the moment it is bound; one that belongs to a Job has done its work at once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bedplate.api import core
from bedplate.core.clock import rfc3339

__all__ = ["started"]

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_FALSE_AT_THE_END = ("Ready", "ContainersReady")


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
