"""The controller of kernels: carries out what `plan` decides.

In: caches of kernels, of their pods and Services. Out: objects created and deleted, statuses, Events. An object without
its kernel is removed once the server itself says that the kernel is gone, so that a cluster without the garbage
collector is left clean as well; Secret and ConfigMap are known by their name, which the Service's tells.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from bedplate.api import identity, meta
from bedplate.api.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES, ResourceRef
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.operators.jupyter import containerlogs, names, objects, plan
from bedplate.operators.jupyter.kernel import KERNELS, Kernel
from bedplate.operators.jupyter.plan import POD_VIEWS, End, Keep, Look, Make, PodView, Refuse
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result
from bedplate.runtime.events import NORMAL, WARNING, EventRecorder, reference

__all__ = ["KernelController", "kernel_key"]

log = logging.get_logger("jupyter.kernels")
WORKERS = 4
_KINDS: dict[str, ResourceRef[Any]] = {
    "Service": SERVICES.raw(),
    "ConfigMap": CONFIG_MAPS.partial(),
    "Secret": SECRETS.partial(),
    "Pod": PODS.raw(),
}
# The Service last: while it is there, an interrupted removal is seen and finished.
_REMOVAL = ("Pod", "Secret", "ConfigMap", "Service")


def kernel_key(obj: Any) -> Iterable[str]:
    """The key of the kernel that owns an object."""
    owner = obj.metadata.controller
    if owner is not None and owner.kind == names.KIND:
        yield f"{obj.namespace}/{owner.name}"


def _owner_keys(change: Change[Any]) -> Iterable[str]:
    for obj in (change.old, change.new):
        if obj is not None:
            yield from kernel_key(obj)


class KernelController:
    """Makes kernels' objects, shows their state, and ends them."""

    def __init__(
        self,
        client: Client,
        kernels: Cache[Kernel],
        pods: Cache[PodView],
        services: Cache[meta.PartialObject],
        sidecar: objects.Sidecar,
        recorder: EventRecorder,
        *,
        time: clock.Clock,
        registry: CollectorRegistry,
        make_key: Callable[[], str] = lambda: secrets.token_hex(32),
    ) -> None:
        self._client = client
        self._kernels = kernels
        self._pods = pods
        self._services = services
        self._sidecar = sidecar
        self._recorder = recorder
        self._time = time
        self._make_key = make_key
        self.controller = Controller("kernels", self.reconcile, workers=WORKERS, time=time, registry=registry)
        self.controller.watches(kernels).watches(pods, _owner_keys).watches(services, _owner_keys)

    async def reconcile(self, key: str) -> Result | None:
        """Bring one kernel a step further."""
        kernel = self._kernels.get(key)
        await self._remove_orphans(key, kernel.metadata.uid if kernel is not None else "")
        if kernel is None or kernel.metadata.is_deleting:
            return None
        pod = self._own(self._pods, key, kernel)
        step = plan.plan(kernel, pod, self._own(self._services, key, kernel) is not None)
        match step:
            case Make():
                await self._make(kernel, pod, step.kinds)
            case Refuse():
                await self._refuse(kernel, step.problems)
            case Look():
                await self._look(kernel)
            case End():
                assert pod is not None, "a kernel without a pod is not over"
                await self._end(kernel, pod, step.why)
            case Keep():
                await self._show(kernel, plan.status(kernel, pod, note=step.note))
        return None

    def _own(self, cache: Cache[Any], key: str, kernel: Kernel) -> Any:
        mine = (obj for obj in cache.by_index("kernel", key) if _owner_uid(obj) == kernel.metadata.uid)
        return next(mine, None)

    # Making

    async def _make(self, kernel: Kernel, pod: PodView | None, kinds: Iterable[str]) -> None:
        bodies = objects.objects(kernel, self._sidecar, self._make_key())
        try:
            for kind in kinds:
                # A name that exists is ours, for it ends in the kernel's UID: an earlier attempt, or a cache that is
                # behind.
                with contextlib.suppress(kube_errors.AlreadyExists):
                    await self._client.create(
                        _KINDS[kind], bodies[kind], kernel.namespace, field_manager=names.OPERATOR
                    )
                    log.info("kernel.created", kind=kind, kernel=identity.key_of(kernel), name=objects.name_of(kernel))
        except (errors.Invalid, errors.Denied) as err:
            await self._refuse(kernel, [_explained(err, kernel.namespace)])
            raise
        if "Pod" in kinds:
            pod = await self._client.get(POD_VIEWS, objects.name_of(kernel), kernel.namespace)
            self._tell(kernel, NORMAL, "Created", f"created pod {pod.name} with its sidecar")
            await self._show(kernel, plan.status(kernel, pod))

    async def _refuse(self, kernel: Kernel, problems: Iterable[str]) -> None:
        told = list(problems)
        if await self._show(kernel, plan.status(kernel, None, told)):
            self._tell(kernel, WARNING, "Refused", "; ".join(told))
            log.warning("kernel.refused", kernel=identity.key_of(kernel), problems="; ".join(told))

    # Ending

    async def _look(self, kernel: Kernel) -> None:
        """A pod that somebody deleted takes its kernel's state along: the resource goes, too."""
        try:
            await self._client.get(POD_VIEWS, kernel.status.pod_name, kernel.namespace)
        except kube_errors.NotFound:
            await self._remove(kernel, f"pod {kernel.status.pod_name} was deleted")

    async def _end(self, kernel: Kernel, pod: PodView, why: str) -> None:
        await containerlogs.gather(self._client, pod)
        await self._remove(kernel, why)

    async def _remove(self, kernel: Kernel, why: str) -> None:
        self._tell(kernel, NORMAL, "Stopped", why)
        await self._delete_objects(kernel.namespace, objects.name_of(kernel))
        with contextlib.suppress(kube_errors.NotFound, kube_errors.Conflict):
            await self._client.delete(KERNELS, kernel.name, kernel.namespace, uid=kernel.metadata.uid)
        log.info("kernel.removed", kernel=identity.key_of(kernel), why=why)

    async def _remove_orphans(self, key: str, uid: str) -> None:
        """Objects whose kernel is gone, or was replaced by one of the same name."""
        dependents = [*self._pods.by_index("kernel", key), *self._services.by_index("kernel", key)]
        orphans = {obj.name: obj for obj in dependents if _owner_uid(obj) != uid and not obj.metadata.is_deleting}
        for obj in orphans.values():
            if await self._is_gone(key, _owner_uid(obj)):
                await self._delete_objects(obj.namespace, obj.name)
                log.info("kernel.objects_removed", kernel=key, name=obj.name)

    async def _is_gone(self, key: str, uid: str) -> bool:
        """Whether the server says that there is no kernel of this UID; the cache may be behind."""
        namespace, name = identity.split_key(key)
        try:
            return (await self._client.get(KERNELS, name, namespace)).metadata.uid != uid
        except kube_errors.NotFound:
            return True

    async def _delete_objects(self, namespace: str, name: str) -> None:
        for kind in _REMOVAL:
            with contextlib.suppress(kube_errors.NotFound):
                await self._client.delete(_KINDS[kind], name, namespace)

    # Telling

    async def _show(self, kernel: Kernel, status: dict[str, Any]) -> bool:
        """Write the status where it differs; whether it did."""
        (condition,) = status["conditions"]
        before = meta.find_condition(kernel.status.conditions, "Ready")
        if before is not None and not _differs(kernel, status, before):
            return False
        now = self._time.now()
        is_same = before is not None and before.status == condition["status"] and before.last_transition_time
        since = before.last_transition_time if before is not None and is_same else None
        condition["lastTransitionTime"] = clock.rfc3339(since or now)
        with contextlib.suppress(kube_errors.NotFound):
            await self._client.patch(
                KERNELS,
                kernel.name,
                {"status": status},
                kernel.namespace,
                subresource="status",
                field_manager=names.OPERATOR,
            )
        return True

    def _tell(self, kernel: Kernel, kind: str, reason: str, message: str) -> None:
        self._recorder.event(reference(KERNELS, kernel), kind, reason, message)


def _explained(err: errors.BedplateError, namespace: str) -> str:
    """Why the server refused an object; RBAC's answer does not say what to do."""
    if isinstance(err, errors.Denied) and "cannot create resource" in str(err):
        return (
            f"the operator was not admitted to the namespace {namespace}: cm-kubernetes-setup --modify-user USER"
            f" --namespace {namespace} --operators cm-jupyter-kernel-operator ({err})"
        )
    return str(err)


def _owner_uid(obj: Any) -> str:
    owner = obj.metadata.controller
    return owner.uid if owner is not None else ""


def _differs(kernel: Kernel, status: dict[str, Any], before: meta.Condition) -> bool:
    (condition,) = status["conditions"]
    seen = kernel.status
    return (seen.phase, seen.pod_name, seen.address, seen.observed_generation) != (
        status["phase"],
        status.get("podName", ""),
        status.get("address", ""),
        status["observedGeneration"],
    ) or (before.status, before.reason, before.message) != (
        condition["status"],
        condition["reason"],
        condition["message"],
    )
