"""Events and Leases: small records that a PUT may create, and what is checked on them.

In: writes of the two kinds. Out: problems in Kubernetes' words.
"""

from __future__ import annotations

from bedplate.apiserver import hooks, status

__all__ = ["EventBehaviour", "LeaseBehaviour"]


class EventBehaviour(hooks.Behaviour):
    """An Event lives in the namespace of what it is about; one about a cluster-wide object, in `default`."""

    create_on_update = True

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        name = "involvedObject" if "involvedObject" in write.object else "regarding"
        about = (write.object.get(name) or {}).get("namespace", "")
        if about == write.namespace or (not about and write.namespace in ("default", "kube-system")):
            return []
        detail = "does not match event.namespace"
        return [status.FieldProblem.invalid("involvedObject.namespace", about, detail)]


class LeaseBehaviour(hooks.Behaviour):
    """A Lease lasts some time and counts its holders upwards."""

    create_on_update = True

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        problems = []
        if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
            where = "spec.leaseDurationSeconds"
            problems.append(status.FieldProblem.invalid(where, spec["leaseDurationSeconds"], "must be greater than 0"))
        if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
            detail = "must be greater than or equal to 0"
            problems.append(status.FieldProblem.invalid("spec.leaseTransitions", spec["leaseTransitions"], detail))
        return problems
