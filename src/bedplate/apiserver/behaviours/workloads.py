"""Deployments, ReplicaSets and their like: the selector fits the template and never changes.

In: writes of workload kinds. Out: problems in Kubernetes' words; a status that clients cannot set through the main
resource.
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver import hooks, selectors, status

__all__ = ["NodeBehaviour", "PlainStatus", "WorkloadBehaviour", "container_problems", "mirror_account"]


def mirror_account(spec: dict[str, Any]) -> None:
    """A pod's service account has two names, the older of which is kept equal to the newer."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def container_problems(spec: dict[str, Any], where: str) -> list[status.FieldProblem]:
    """What every container of a pod or template must have."""
    if not spec.get("containers"):
        return [status.FieldProblem.required(f"{where}.containers")]
    problems: list[status.FieldProblem] = []
    names: set[str] = set()
    for index, container in enumerate(spec["containers"]):
        name, place = container.get("name", ""), f"{where}.containers[{index}]"
        if not name:
            problems.append(status.FieldProblem.required(f"{place}.name"))
        elif name in names:
            problems.append(status.FieldProblem.duplicate(f"{place}.name", name))
        names.add(name)
        if not container.get("image"):
            problems.append(status.FieldProblem.required(f"{place}.image"))
    return problems


class PlainStatus(hooks.Behaviour):
    """A kind that starts with a given status."""

    def __init__(self, initial: dict[str, Any], *, create_on_update: bool = False) -> None:
        self._initial = initial
        self.create_on_update = create_on_update

    def prepare_create(self, write: hooks.Write) -> None:
        write.object["status"] = dict(self._initial)


class WorkloadBehaviour(hooks.Behaviour):
    """A kind with `spec.selector` and `spec.template`."""

    def __init__(self, initial_status: dict[str, Any]) -> None:
        self._initial_status = initial_status

    def default(self, resource: Any, obj: hooks.Object) -> None:
        spec = obj.get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
        if isinstance(template, dict) and isinstance(template.get("spec"), dict):
            mirror_account(template["spec"])

    def prepare_create(self, write: hooks.Write) -> None:
        write.object["status"] = dict(self._initial_status)

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        template = spec.get("template") or {}
        selector, labels = spec.get("selector"), (template.get("metadata") or {}).get("labels") or {}
        problems: list[status.FieldProblem] = []
        if not selector:
            problems.append(status.FieldProblem.required("spec.selector"))
        elif not selectors.of_label_selector(selector)(labels):
            detail = "`selector` does not match template `labels`"
            problems.append(status.FieldProblem.invalid("spec.template.metadata.labels", labels, detail))
        if int(spec.get("replicas") or 0) < 0:
            detail = "must be greater than or equal to 0"
            problems.append(status.FieldProblem.invalid("spec.replicas", spec["replicas"], detail))
        problems += container_problems(template.get("spec") or {}, "spec.template.spec")
        if write.old is not None and (write.old.get("spec") or {}).get("selector") != selector:
            problems.append(status.FieldProblem.invalid("spec.selector", selector, "field is immutable"))
        return problems


class NodeBehaviour(hooks.Behaviour):
    """Nodes: provider ID and pod ranges are set once."""

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec, old = write.object.get("spec") or {}, (write.old or {}).get("spec") or {}
        problems = []
        if old.get("providerID") and spec.get("providerID") != old["providerID"]:
            detail = 'node updates may not change providerID except from "" to valid'
            problems.append(status.FieldProblem.forbidden("spec.providerID", detail))
        if old.get("podCIDRs") and spec.get("podCIDRs") != old["podCIDRs"]:
            detail = 'node updates may not change podCIDR except from "" to valid'
            problems.append(status.FieldProblem.forbidden("spec.podCIDRs", detail))
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(spec.get("taints") or ()):
            key = (taint.get("key", ""), taint.get("effect", ""))
            if key in seen:
                problems.append(status.FieldProblem.duplicate(f"spec.taints[{index}]", taint))
            seen.add(key)
        return problems

    def default(self, resource: Any, obj: hooks.Object) -> None:
        spec = obj.get("spec")
        if isinstance(spec, dict) and spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]
