"""What would run in a namespace once rules are gone that the rules refuse.

In: the workloads of the namespace, its rules now and those that will be left. Out: the workloads that must go first,
each with the reason. Pure. A Deployment whose pods are refused is tried again and again by its controller: left behind,
it would get its pods as soon as nobody refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from bedplate.api.resources import DEPLOYMENTS, RawObject, ResourceRef, custom
from bedplate.core import clock
from bedplate.operators.permissions import decision, pods, refusals, volumes
from bedplate.operators.permissions.decision import Claims
from bedplate.operators.permissions.refusals import Refusal
from bedplate.operators.permissions.rules import NamespaceRules
from bedplate.operators.permissions.volumes import Claim

__all__ = ["WORKLOADS", "dangers"]

TEMPLATE = ("spec", "template")
WORKLOADS: dict[ResourceRef[RawObject], tuple[str, ...]] = {
    DEPLOYMENTS.raw(): TEMPLATE,
    custom("apps", "v1", "daemonsets", "DaemonSet", True): TEMPLATE,
    custom("apps", "v1", "replicasets", "ReplicaSet", True): TEMPLATE,
    custom("apps", "v1", "statefulsets", "StatefulSet", True): TEMPLATE,
    custom("batch", "v1", "cronjobs", "CronJob", True): ("spec", "jobTemplate", *TEMPLATE),
    custom("batch", "v1", "jobs", "Job", True): TEMPLATE,
    custom("", "v1", "replicationcontrollers", "ReplicationController", True): TEMPLATE,
}
"""Where each kind has the template of its pods."""


def dangers(
    ref: ResourceRef[RawObject],
    workloads: Iterable[RawObject],
    before: NamespaceRules,
    after: NamespaceRules,
    since: datetime | None,
    find: Callable[[RawObject], Claims],
) -> Iterator[str]:
    """Of the workloads that were made or changed since a moment: `Kind name: reason`. `find` gives what is known of the
    claims of a pod."""
    for each in workloads:
        if not _is_since(each, since):
            continue
        pod: Any = each
        for part in WORKLOADS[ref]:
            pod = pods.mapped(pods.mapped(pod).get(part))
        reason = _danger(pod, before, after, _claims(pod, find(pod)))
        if reason is not None:
            yield f"{ref.kind} {pods.mapped(each.get('metadata')).get('name', '')} ({reason.field}: {reason.message})"


def _is_since(workload: RawObject, since: datetime | None) -> bool:
    """Whether somebody made or changed it since. Who did is not asked: clients choose the name under which they
    write."""
    metadata = pods.mapped(workload.get("metadata"))
    written = [each for each in pods.listed(metadata.get("managedFields")) if not each.get("subresource")]
    if since is None or not written:
        # Whoever may write an object may also wipe out who wrote it.
        return True
    times = [metadata.get("creationTimestamp"), *(each.get("time") for each in written)]
    return any(not text or clock.parse_rfc3339(text) >= since for text in times)


def _claims(pod: Mapping[str, Any], known: Claims) -> Claims:
    """A claim that is not there is none of a path: whoever makes it later was not refused by these rules."""
    names = (volumes.name_of(pod, volume) for _, volume in pods.volumes(pod))
    return {name: known.get(name, Claim()) for name in names}


def _danger(pod: Mapping[str, Any], before: NamespaceRules, after: NamespaceRules, claims: Claims) -> Refusal | None:
    """The reason that would not hold any more. A pod without a path of its node may then be whoever it likes, as in any
    namespace."""
    if after.sets:
        refused = decision.decide(before, pod, claims=claims).refusals
        return refused[0] if refused and decision.decide(after, pod, claims=claims).is_admitted else None
    has_host = decision.has_host_path(pod, claims)
    for reason in decision.check(before, pod, claims):
        if has_host or not _is_about_identity(reason):
            return reason
    return None


def _is_about_identity(reason: Refusal) -> bool:
    return f"-{refusals.IDENTITY}" in reason.rule or reason.field.endswith(".allowPrivilegeEscalation")
