"""Pods: what admission adds, what may change, binding and eviction.

In: writes of Pod objects and the `binding`, `eviction` and `ephemeralcontainers` subresources. Out: a pod as the
scheduler and a kubelet expect to find it. Pods are run by kubelets, real or simulated; nothing here does.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from bedplate.apiserver import hooks, parts, selectors, status
from bedplate.apiserver.behaviours import workloads
from bedplate.core import clock as clocks

__all__ = ["BindingBehaviour", "PodBehaviour"]

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
EVICTION_ATTEMPTS = 20
MUTABLE_SPEC = frozenset({"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"})


class PodBehaviour(hooks.Behaviour):
    """What a Pod does beyond being stored."""

    has_graceful_deletion = True

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    @property
    def subresources(self) -> dict[str, hooks.SubresourceHandler]:
        return {"binding": self.bind, "eviction": self._evict, "ephemeralcontainers": self._ephemeral}

    def prepare_create(self, write: hooks.Write) -> None:
        pod = write.object
        spec = pod.setdefault("spec", {})
        pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if not isinstance(spec.get("containers"), list):
            return
        self._account(write, spec)
        self._priority(write, spec)
        _tolerate_failing_nodes(spec)

    def _account(self, write: hooks.Write, spec: dict[str, Any]) -> None:
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = write.services.client.get("", "serviceaccounts", write.namespace, name)
        if account is None:
            missing = f'serviceaccount "{name}" not found'
            why = f"error looking up service account {write.namespace}/{name}: {missing}"
            raise status.forbidden(write.resource, write.name, why)
        if "imagePullSecrets" not in spec and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        automount = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
        if automount is not False:
            self._mount_token(spec)

    def _mount_token(self, spec: dict[str, Any]) -> None:
        volume = "kube-api-access-" + "".join(self._rng.choice(_SUFFIX) for _ in range(5))
        is_mounted = False
        for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
            mounts = container.setdefault("volumeMounts", [])
            if all(mount.get("mountPath") != TOKEN_PATH for mount in mounts):
                mounts.append({"name": volume, "readOnly": True, "mountPath": TOKEN_PATH})
                is_mounted = True
        if is_mounted:
            spec.setdefault("volumes", []).append({"name": volume, "projected": _token_projection()})

    def _priority(self, write: hooks.Write, spec: dict[str, Any]) -> None:
        name, value, policy = spec.get("priorityClassName", ""), 0, "PreemptLowerPriority"
        classes = (
            write.services.client.list("scheduling.k8s.io", "priorityclasses") if name or "priority" not in spec else []
        )
        chosen = next(
            (
                priority_class
                for priority_class in classes
                if (priority_class["metadata"]["name"] == name if name else priority_class.get("globalDefault"))
            ),
            None,
        )
        if name and chosen is None:
            raise status.forbidden(write.resource, write.name, f"no PriorityClass with name {name} was found")
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
            value, policy = chosen["value"], chosen.get("preemptionPolicy", policy)
        spec.setdefault("priority", value)
        spec.setdefault("preemptionPolicy", policy)

    def prepare_update(self, write: hooks.Write) -> None:
        if not write.subresource and write.old is not None:
            write.object["status"] = write.old.get("status", {})

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        if write.old is None:
            return _creation_problems(spec)
        old = write.old.get("spec") or {}
        if write.subresource or _fixed_part(spec) == _fixed_part(old):
            return []
        detail = (
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        return [status.FieldProblem.forbidden("spec", detail)]

    def grace_seconds(self, obj: hooks.Object, asked: int | None) -> int:
        spec = obj.get("spec") or {}
        # Nobody runs a pod that has no node, or one that has ended: there is nothing to wait for.
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        return max(int(grace), 0)

    async def bind(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        """Give the pod its node, once."""
        body = call.body or {}
        target = parts.mapping(body, "target")
        if target.get("kind") not in (None, "", "Node") or not parts.text(target, "name"):
            problem = status.FieldProblem.required("target.name")
            raise status.invalid(call.resource, call.name, [problem])
        pod = call.existing()
        why = ""
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {call.name} is being deleted, cannot be assigned to a host"
        elif pod["spec"].get("nodeName"):
            why = f'pod {call.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {call.name} has non-empty .spec.schedulingGates"
        if why:
            raise status.conflict(call.resource, call.name, why)
        pod["spec"]["nodeName"] = target["name"]
        moment = clocks.rfc3339(call.services.clock.now())
        conditions = [
            condition for condition in pod["status"].get("conditions") or [] if condition["type"] != "PodScheduled"
        ]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
        pod["status"]["conditions"] = [*conditions, scheduled]
        annotations = (body.get("metadata") or {}).get("annotations") or {}
        if annotations:
            pod["metadata"]["annotations"] = (pod["metadata"].get("annotations") or {}) | annotations
        if not call.dry_run:
            await call.services.client.acting_as(call.user, "scheduler").update("", "pods", pod, subresource="binding")
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    async def _evict(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        from bedplate.apiserver.verbs import delete

        client = call.services.client
        pod = call.existing()
        is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending")
        options = delete.read_options(parts.mapping(call.body, "deleteOptions"), {})
        is_dry = call.dry_run or bool(options.get("dryRun"))
        if not is_over and not pod["metadata"].get("deletionTimestamp"):
            await self._within_budget(call, pod, is_dry=is_dry)
        if not is_dry:
            await client.delete("", "pods", call.namespace, call.name, options)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    async def _within_budget(self, call: hooks.Call, pod: hooks.Object, *, is_dry: bool) -> None:
        """Take from the pod's budget, if it has one; again when others take from it at the same time."""
        for attempt in range(EVICTION_ATTEMPTS):
            budgets = call.services.client.list("policy", "poddisruptionbudgets", call.namespace)
            covering = [budget for budget in budgets if _covers(budget, pod)]
            if len(covering) > 1:
                why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                raise status.StatusError(500, "InternalError", why)
            if not covering or _may_go_unhealthy(covering[0], pod):
                return
            try:
                await self._spend(call, covering[0], pod, is_dry=is_dry)
            except status.StatusError as err:
                if err.code != 409 or attempt + 1 == EVICTION_ATTEMPTS:
                    raise
            else:
                return

    async def _spend(self, call: hooks.Call, budget: hooks.Object, pod: hooks.Object, *, is_dry: bool) -> None:
        """Take one allowed disruption of the budget, or refuse with 429."""
        name = budget["metadata"]["name"]
        state = budget.get("status") or {}
        allowed = int(state.get("disruptionsAllowed", 0))
        if allowed <= 0 or state.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            needed, healthy = state.get("desiredHealthy", 0), state.get("currentHealthy", 0)
            cause = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently",
            }
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise status.StatusError(429, "TooManyRequests", text, details={"causes": [cause]})
        if not is_dry:
            moment = clocks.rfc3339(call.services.clock.now())
            disrupted = (state.get("disruptedPods") or {}) | {pod["metadata"]["name"]: moment}
            budget["status"] = state | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
            await call.services.client.update("policy", "poddisruptionbudgets", budget, subresource="status")

    async def _ephemeral(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        pod = call.existing()
        if call.verb == "get":
            return 200, pod
        if call.verb not in ("update", "patch") or call.body is None:
            raise status.method_not_supported(call.resource, call.verb)
        pod["spec"]["ephemeralContainers"] = (call.body.get("spec") or {}).get("ephemeralContainers") or []
        client = call.services.client.acting_as(call.user, "ephemeralcontainers")
        return 200, await client.update("", "pods", pod, subresource="ephemeralcontainers")


class BindingBehaviour(hooks.Behaviour):
    """The older way to bind: POST to `bindings` with the pod's name in the metadata."""

    def __init__(self, pods: PodBehaviour) -> None:
        self._pods = pods

    @property
    def call(self) -> hooks.SubresourceHandler:
        return self._bind

    async def _bind(self, call: hooks.Call) -> tuple[int, hooks.Object]:
        name = ((call.body or {}).get("metadata") or {}).get("name", "")
        target = call.services.client.resource("", "pods")
        return await self._pods.bind(dataclasses.replace(call, name=name, resource=target))


def qos_class(spec: dict[str, Any]) -> str:
    """BestEffort, Burstable or Guaranteed, from requests and limits of cpu and memory."""
    requested = limited = False
    equal = True
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            requested = requested or name in requests or name in limits
            limited = limited or name in limits
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                equal = False
    if not requested:
        return "BestEffort"
    return "Guaranteed" if equal and limited else "Burstable"


def _token_projection() -> dict[str, Any]:
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}
    return {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
            {"downwardAPI": {"items": [field]}},
        ],
    }


def _tolerate_failing_nodes(spec: dict[str, Any]) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            toleration.get("key") in (key, None) and toleration.get("effect") in ("NoExecute", None, "")
            for toleration in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _fixed_part(spec: dict[str, Any]) -> dict[str, Any]:
    fixed = {key: value for key, value in spec.items() if key not in MUTABLE_SPEC and value not in (None, [], {}, "")}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [
                {key: value for key, value in container.items() if key != "image"} for container in fixed[group]
            ]
    return fixed


def _creation_problems(spec: dict[str, Any]) -> list[status.FieldProblem]:
    problems = workloads.container_problems(spec, "spec")
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        allowed = ("Always", "OnFailure", "Never")
        problems.append(status.FieldProblem.not_supported("spec.restartPolicy", spec.get("restartPolicy", ""), allowed))
    return problems


def _may_go_unhealthy(budget: hooks.Object, pod: hooks.Object) -> bool:
    """Whether a pod that is not ready may go without being counted: always, or while the budget is kept by others."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    state = budget.get("status") or {}
    needed = int(state.get("desiredHealthy", 0))
    return needed > 0 and int(state.get("currentHealthy", 0)) >= needed


def _covers(budget: hooks.Object, pod: hooks.Object) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and selectors.of_label_selector(selector)(pod["metadata"].get("labels") or {})
