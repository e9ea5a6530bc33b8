"""What a kernel needs next.

In: a CMJupyterKernel, its pod and whether it has its Service, as far as the caches know. Out: one step, and the status
to show. Pure; `controller.py` carries steps out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.api import meta
from bedplate.api.resources import PODS
from bedplate.operators.jupyter import names, objects
from bedplate.operators.jupyter.kernel import Kernel

__all__ = ["POD_VIEWS", "End", "Keep", "Look", "Make", "PodView", "Refuse", "Step", "plan", "status"]

REFUSED, PENDING, RUNNING = "Refused", "Pending", "Running"


class _Terminated(meta.Model, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _Waiting(meta.Model, frozen=True):
    reason: str = ""
    message: str = ""


class _State(meta.Model, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class ContainerView(meta.Model, frozen=True):
    """What is read of a container's status."""

    name: str = ""
    ready: bool = False
    state: _State = _State()


class _PodStatus(meta.Model, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = meta.field("podIP")
    container_statuses: tuple[ContainerView, ...] = ()
    init_container_statuses: tuple[ContainerView, ...] = ()
    conditions: tuple[meta.Condition, ...] = ()


class PodView(meta.Object, frozen=True):
    """What is read of a kernel's pod."""

    status: _PodStatus = _PodStatus()

    @property
    def owner(self) -> meta.OwnerReference | None:
        """The kernel's resource."""
        return self.metadata.controller


POD_VIEWS = PODS.with_model(PodView)


@dataclass(frozen=True, slots=True)
class Make:
    """Create these kinds, in this order."""

    kinds: tuple[str, ...] = ("Service", "ConfigMap", "Secret", "Pod")


@dataclass(frozen=True, slots=True)
class End:
    """The kernel is over: gather what its containers wrote, and remove everything."""

    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """The pod that was made is not in the cache: ask the server whether it is gone."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing is made."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do but to show the state."""

    note: str = field(default="")


Step = Make | End | Look | Refuse | Keep


def plan(kernel: Kernel, pod: PodView | None, has_service: bool) -> Step:
    """The next step of a kernel that is not being deleted."""
    if pod is None:
        if kernel.status.pod_name:
            return Look()
        problems = objects.problems(kernel)
        return Refuse(tuple(problems)) if problems else Make()
    if why := ended(pod):
        return End(why)
    if pod.metadata.is_deleting:
        return Keep("the pod is being deleted")
    if not has_service:
        return Make(("Service",))
    made_of = pod.metadata.annotation(names.ANNOTATION_SPEC)
    if made_of != kernel.spec.checksum:
        return Keep("the spec changed after the pod was made: delete the resource and create it again")
    return Keep()


def ended(pod: PodView) -> str:
    """Why this kernel is over; empty while it is not.

    It is when its sidecar stopped, which is how the sidecar says that the gateway is gone, or when all else stopped.
    """
    states = ((container.name, container.state.terminated) for container in pod.status.container_statuses)
    stopped = {name: state for name, state in states if state is not None}
    sidecar = stopped.get(names.SIDECAR)
    if sidecar is not None:
        return f"container {_stopped(names.SIDECAR, sidecar)}"
    containers = [container.name for container in pod.status.container_statuses]
    others = [name for name in containers if name != names.SIDECAR]
    if others and all(name in stopped for name in others):
        return f"container {', '.join(_stopped(name, state) for name, state in stopped.items())}"
    if pod.status.phase in ("Failed", "Succeeded"):
        return f"pod {pod.status.phase}: {pod.status.reason or 'no reason given'}"
    return ""


def _stopped(name: str, state: _Terminated) -> str:
    """How a container ended. The runtime's own words matter where the program never ran: there is no log of it."""
    told = f": {state.reason}: {state.message.strip()}" if state.message.strip() else ""
    return f"{name} stopped with exit code {state.exit_code}{told}"


def status(kernel: Kernel, pod: PodView | None, problems: Sequence[str] = (), note: str = "") -> dict[str, Any]:
    """The status to show, without the time of its last change."""
    name = objects.name_of(kernel)
    phase, ready, reason, message = _state(pod, problems)
    shown: dict[str, Any] = {"phase": phase, "observedGeneration": kernel.metadata.generation}
    if pod is not None:
        shown |= {"podName": pod.name, "serviceName": name, "configMapName": name, "secretName": name}
        if pod.status.pod_ip:
            shown["address"] = pod.status.pod_ip
    text = "; ".join(filter(None, (message, note)))
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": text}
    return shown | {"conditions": [condition | {"observedGeneration": kernel.metadata.generation}]}


def _state(pod: PodView | None, problems: Sequence[str]) -> tuple[str, str, str, str]:
    if problems:
        return REFUSED, "False", "Refused", "; ".join(problems)
    if pod is None:
        return PENDING, "False", "Pending", "the pod is not created yet"
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if pod.status.phase == "Running" and all(container.ready for container in pod.status.container_statuses):
        return RUNNING, "True", "Running", ""
    blocked = [
        f"container {container.name} waits: {waiting.reason} {waiting.message}".rstrip()
        for container in containers
        if (waiting := container.state.waiting) is not None
    ]
    unscheduled = [
        condition.message
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    ]
    return PENDING, "False", "Pending", "; ".join([*unscheduled, *blocked]) or "the pod is starting"
