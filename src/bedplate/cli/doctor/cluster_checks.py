"""Judges what was read of the cluster: rights, service account, lease, API server. Pure.

In: `ClusterFacts`. Out: findings, a good one too, so that people see what was looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bedplate.api import names
from bedplate.cli.doctor.facts import ClusterFacts
from bedplate.cli.doctor.reading import Permission
from bedplate.cloud.doctor import Finding, fine, note, problem, unknown

__all__ = ["check_cluster"]


def check_cluster(facts: ClusterFacts) -> list[Finding]:
    """All checks that need no cloud."""
    if isinstance(facts.version, Exception):
        return list(_api(facts))
    return [*_api(facts), *_account(facts), *_role(facts), *_rights(facts), *_lease(facts)]


def _api(facts: ClusterFacts) -> Iterator[Finding]:
    if isinstance(facts.version, Exception):
        fix = "check the kubeconfig (kubectl --kubeconfig=… version) and the network to the API server"
        yield unknown("kubernetes-api", "API server", facts.version, fix)
    else:
        yield fine("kubernetes-api", "API server", f"answers, version {facts.version}")


def _account(facts: ClusterFacts) -> Iterator[Finding]:
    about = f"ServiceAccount {facts.names.namespace}/{facts.names.account}"
    if isinstance(facts.account, Exception):
        yield unknown("rbac", about, facts.account)
    elif facts.account is None:
        create = f"kubectl create serviceaccount -n {facts.names.namespace} {facts.names.account}"
        fix = f"{create}   (or: {facts.names.remedy})"
        yield problem("rbac", about, "does not exist: the manager's pods cannot start", fix)
    else:
        yield fine("rbac", about, "exists")


def _role(facts: ClusterFacts) -> Iterator[Finding]:
    name = facts.names.role
    for kind, item in (("ClusterRole", facts.role), ("ClusterRoleBinding", facts.binding)):
        about = f"{kind} {name}"
        if isinstance(item, Exception):
            yield unknown("rbac", about, item)
        elif item is None:
            fix = f"{facts.names.remedy}   (then: kubectl get {kind.lower()} {name})"
            yield problem("rbac", about, "does not exist", fix)
        else:
            yield fine("rbac", about, "exists")
    if isinstance(facts.binding, Mapping):
        yield from _subject(facts, facts.binding)
    if isinstance(facts.role, Mapping) and _is_everything(facts.role):
        text = "allows everything: a bug in the manager, or a stolen token, could do anything to the cluster"
        yield note("rbac", f"ClusterRole {name}", text, facts.names.remedy)


def _subject(facts: ClusterFacts, binding: Mapping[str, Any]) -> Iterator[Finding]:
    about = f"ClusterRoleBinding {facts.names.role}"
    account = ("ServiceAccount", facts.names.namespace, facts.names.account)
    subjects = [
        (subject.get("kind"), subject.get("namespace"), subject.get("name"))
        for subject in binding.get("subjects") or ()
    ]
    if account not in subjects:
        fix = (
            f"kubectl create clusterrolebinding {facts.names.role} --clusterrole={facts.names.role}"
            f" --serviceaccount={facts.names.namespace}:{facts.names.account}"
        )
        text = f"does not name the service account {facts.names.namespace}/{facts.names.account}"
        yield problem("rbac", about, text, f"kubectl delete clusterrolebinding {facts.names.role}; {fix}")
    if (binding.get("roleRef") or {}).get("name") == "cluster-admin":
        text = "grants cluster-admin: a bug in the manager, or a stolen token, could do anything to the cluster"
        yield note("rbac", about, text, f"bind the shipped ClusterRole instead: {facts.names.remedy}")


def _is_everything(role: Mapping[str, Any]) -> bool:
    return any(
        "*" in (rule.get("verbs") or ()) and "*" in (rule.get("resources") or ()) for rule in role.get("rules") or ()
    )


def _rights(facts: ClusterFacts) -> Iterator[Finding]:
    missing = [row for row, allowed in facts.rights.items() if allowed is False]
    failed = next((answer for answer in facts.rights.values() if isinstance(answer, Exception)), None)
    if missing and (facts.role is None or facts.binding is None):
        # One cause, and one command that fixes it.
        text = "\n".join(["may not", *(f"  {_deeds(things)}" for things in _by_resource(missing))])
        yield problem("rbac", facts.names.user, text, facts.names.remedy)
        return
    for things in _by_resource(missing):
        first = things[0]
        resource = f"{first.resource}.{first.group}" if first.group else first.resource
        subresource = f" --subresource={first.subresource}" if first.subresource else ""
        place = f" -n {first.namespace}" if first.namespace else ""
        seen = f"kubectl auth can-i {first.verb} {resource}{subresource}{place} --as={facts.names.user}"
        yield problem("rbac", facts.names.user, f"may not {_deeds(things)}", f"{facts.names.remedy}   (then: {seen})")
    if failed is not None:
        fix = "run the doctor with credentials that may impersonate service accounts, or inside the manager's pod"
        yield unknown("rbac", facts.names.user, failed, fix)
    elif not missing and facts.rights:
        yield fine("rbac", facts.names.user, f"has all {len(facts.rights)} permissions the manager needs")


def _deeds(things: Sequence[Permission]) -> str:
    return f"{', '.join(row.verb for row in things)} {things[0].target}"


def _by_resource(rows: Iterable[Permission]) -> list[list[Permission]]:
    """Verbs on the same thing together."""
    permissions: dict[str, list[Permission]] = {}
    for row in rows:
        permissions.setdefault(row.target, []).append(row)
    return list(permissions.values())


def _lease(facts: ClusterFacts) -> Iterator[Finding]:
    about = f"Lease {names.NAMESPACE_SYSTEM}/{facts.names.lease}"
    if isinstance(facts.lease, Exception):
        yield unknown("leader", about, facts.lease)
        return
    fix = (
        f"kubectl get pods -n {names.NAMESPACE_SYSTEM} | grep cloud-controller-manager, then kubectl logs; "
        "--lease-name selects another Lease"
    )
    if facts.lease is None:
        yield problem("leader", about, "does not exist: no manager has ever led here", fix)
        return
    spec = facts.lease.spec
    if not spec.holder_identity:
        yield problem("leader", about, "has no holder: no manager runs", fix)
        return
    age = facts.now - spec.renew_time if spec.renew_time is not None else None
    limit = timedelta(seconds=spec.lease_duration_seconds or 15)
    if age is None or age > limit:
        ago = "never" if age is None else f"{age.total_seconds():.0f} s ago"
        text = f"{spec.holder_identity} renewed it {ago}; it is valid for {limit.total_seconds():.0f} s"
        yield problem("leader", about, f"has expired: {text}", fix)
    else:
        yield fine("leader", about, f"{spec.holder_identity} leads")
