"""Deployments, ReplicaSets and their like: the selector fits the template and never changes.

In: writes of workload kinds. Out: problems in Kubernetes' words; a status that clients cannot set through the main
resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from bedplate.apiserver import hooks, selectors, status

__all__ = [
    "BudgetBehaviour",
    "JobBehaviour",
    "NodeBehaviour",
    "PlainStatus",
    "WorkloadBehaviour",
    "container_problems",
    "mirror_account",
]

_PERCENT = re.compile(r"[0-9]{1,9}%\Z")


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


def portion_problems(holder: dict[str, Any], where: str, fields: Iterable[str]) -> list[status.FieldProblem]:
    """Numbers that may be given as percentages."""
    problems = []
    for field in fields:
        value = holder.get(field)
        if isinstance(value, str) and not _PERCENT.match(value):
            detail = (
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
                "regex used for validation is '[0-9]+%')"
            )
            problems.append(status.FieldProblem.invalid(f"{where}.{field}", value, detail))
        elif isinstance(value, int) and value < 0:
            detail = "must be greater than or equal to 0"
            problems.append(status.FieldProblem.invalid(f"{where}.{field}", value, detail))
    return problems


class PlainStatus(hooks.Behaviour):
    """A kind that starts with a given status."""

    def __init__(self, initial: dict[str, Any]) -> None:
        self._initial = initial

    def prepare_create(self, write: hooks.Write) -> None:
        write.object["status"] = dict(self._initial)


class BudgetBehaviour(PlainStatus):
    """A PodDisruptionBudget: a selector that can be used, and one of two numbers."""

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        problems = selectors.label_selector_problems(spec.get("selector") or {}, "spec.selector")
        problems += portion_problems(spec, "spec", ("minAvailable", "maxUnavailable"))
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            detail = "minAvailable and maxUnavailable cannot be both set"
            problems.append(status.FieldProblem.invalid("spec", spec, detail))
        return problems


class WorkloadBehaviour(PlainStatus):
    """A kind with `spec.selector` and `spec.template`."""

    def default(self, resource: Any, obj: hooks.Object) -> None:
        spec = obj.get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
        if isinstance(template, dict) and isinstance(template.get("spec"), dict):
            mirror_account(template["spec"])

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        template = spec.get("template") or {}
        selector, labels = spec.get("selector"), (template.get("metadata") or {}).get("labels") or {}
        problems: list[status.FieldProblem] = []
        unusable = selectors.label_selector_problems(selector or {}, "spec.selector")
        if not selector:
            problems.append(status.FieldProblem.required("spec.selector"))
        elif unusable:
            problems += unusable
        elif not selectors.of_label_selector(selector)(labels):
            detail = "`selector` does not match template `labels`"
            problems.append(status.FieldProblem.invalid("spec.template.metadata.labels", labels, detail))
        if int(spec.get("replicas") or 0) < 0:
            detail = "must be greater than or equal to 0"
            problems.append(status.FieldProblem.invalid("spec.replicas", spec["replicas"], detail))
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        problems += portion_problems(rolling, "spec.strategy.rollingUpdate", ("maxSurge", "maxUnavailable"))
        problems += container_problems(template.get("spec") or {}, "spec.template.spec")
        if write.old is not None and (write.old.get("spec") or {}).get("selector") != selector:
            problems.append(status.FieldProblem.invalid("spec.selector", selector, "field is immutable"))
        return problems


class JobBehaviour(hooks.Behaviour):
    """A Job finds its pods by its own uid, unless whoever creates it says how (`manualSelector`)."""

    def prepare_create(self, write: hooks.Write) -> None:
        spec, meta = write.object.get("spec"), write.object["metadata"]
        write.object["status"] = {}
        template = spec.get("template") if isinstance(spec, dict) else None
        if spec is None or not isinstance(template, dict) or spec.get("manualSelector"):
            return
        inner = template["metadata"] = template.get("metadata") or {}
        marks = {"controller-uid": meta["uid"], "job-name": meta.get("name", "")}
        marks |= {f"batch.kubernetes.io/{key}": value for key, value in marks.items()}
        inner["labels"] = (inner.get("labels") or {}) | marks
        chosen = spec.get("selector") or {}
        own = {"batch.kubernetes.io/controller-uid": meta["uid"]}
        spec["selector"] = chosen | {"matchLabels": (chosen.get("matchLabels") or {}) | own}

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        template = spec.get("template") or {}
        problems = selectors.label_selector_problems(spec.get("selector") or {}, "spec.selector")
        labels = (template.get("metadata") or {}).get("labels") or {}
        if not problems and not selectors.of_label_selector(spec.get("selector") or {})(labels):
            detail = "`selector` does not match template `labels`"
            problems.append(status.FieldProblem.invalid("spec.template.metadata.labels", labels, detail))
        if write.old is not None and (write.old.get("spec") or {}).get("selector") != spec.get("selector"):
            problems.append(status.FieldProblem.invalid("spec.selector", spec.get("selector"), "field is immutable"))
        return problems + container_problems(template.get("spec") or {}, "spec.template.spec")


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
