"""Judges what was read of the cluster: rights, service account, lease, API server. Pure.

In: `ClusterFacts`. Out: findings, a good one too, so that people see what was looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bedplate.cli.doctor.facts import ClusterFacts, subjects_of
from bedplate.cli.doctor.reading import Permission
from bedplate.cloud.doctor import Finding, fine, note, problem, unknown
from bedplate.cloud.manager import deployed

__all__ = ["check_cluster"]


def check_cluster(facts: ClusterFacts) -> list[Finding]:
    """All checks that need no cloud."""
    if isinstance(facts.version, Exception):
        return list(_api(facts))
    # A manager outside the cluster has no account in it.
    objects = [*_account(facts), *_role(facts)] if facts.names.account else []
    return [*_api(facts), *objects, *_rights(facts), *_lease(facts)]


def _api(facts: ClusterFacts) -> Iterator[Finding]:
    if isinstance(facts.version, Exception):
        fix = "check the kubeconfig and the network to the API server; then: kubectl version"
        yield unknown("kubernetes-api", "API server", facts.version, fix)
    else:
        yield fine("kubernetes-api", "API server", f"answers, version {facts.version}")


def _account(facts: ClusterFacts) -> Iterator[Finding]:
    about = f"ServiceAccount {facts.names.namespace}/{facts.names.account}"
    if isinstance(facts.account, Exception):
        yield unknown("rbac", about, facts.account)
    elif facts.account is None:
        create = f"kubectl create serviceaccount -n {facts.names.namespace} {facts.names.account}"
        fix = f"{create}   # or: {facts.names.remedy}"
        yield problem("rbac", about, "does not exist: the manager's pods cannot start", fix)
    else:
        yield fine("rbac", about, "exists")


def _role(facts: ClusterFacts) -> Iterator[Finding]:
    binding = facts.names.binding or facts.names.role
    for kind, name, item in (
        ("ClusterRole", facts.names.role, facts.role),
        ("ClusterRoleBinding", binding, facts.binding),
    ):
        about = f"{kind} {name}"
        if isinstance(item, Exception):
            yield unknown("rbac", about, item)
        elif item is None:
            fix = f"{facts.names.remedy}; kubectl get {kind.lower()} {name}"
            yield problem("rbac", about, "does not exist", fix)
        else:
            yield fine("rbac", about, "exists")
    if isinstance(facts.binding, Mapping):
        yield from _subject(facts, facts.binding)
    if isinstance(facts.role, Mapping) and _is_everything(facts.role):
        text = "allows everything: a bug in the manager, or a stolen token, could do anything to the cluster"
        yield note("rbac", f"ClusterRole {facts.names.role}", text, facts.names.remedy)


def _subject(facts: ClusterFacts, binding: Mapping[str, Any]) -> Iterator[Finding]:
    name = facts.names.binding or facts.names.role
    about = f"ClusterRoleBinding {name}"
    if ("ServiceAccount", facts.names.namespace, facts.names.account) not in subjects_of(binding):
        fix = (
            f"kubectl create clusterrolebinding {name} --clusterrole={facts.names.role}"
            f" --serviceaccount={facts.names.namespace}:{facts.names.account}"
        )
        text = f"does not name the service account {facts.names.namespace}/{facts.names.account}"
        yield problem("rbac", about, text, f"kubectl delete clusterrolebinding {name}; {fix}")
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
        yield problem("rbac", facts.names.user, f"may not {_deeds(things)}", f"{facts.names.remedy}; {seen}")
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
    about = f"Lease {facts.names.lease_namespace}/{facts.names.lease}"
    if not facts.names.elects:
        yield fine("leader", "manager", "runs with --leader-elect=false, without a Lease")
        return
    if isinstance(facts.lease, Exception):
        yield unknown("leader", about, facts.lease)
        return
    fix = "start the manager, or see why its pods do not run: kubectl get pods -A | grep cloud-controller-manager"
    if facts.lease is None:
        yield _without_lease(facts, about, fix)
        return
    spec = facts.lease.spec
    if not spec.holder_identity:
        yield problem("leader", about, "has no holder: no manager runs", fix)
        return
    age = facts.now - spec.renew_time if spec.renew_time is not None else None
    if not deployed.is_held(facts.lease, facts.now):
        ago = "never" if age is None else f"{age.total_seconds():.0f} s ago"
        text = f"{spec.holder_identity} renewed it {ago}; it is valid for {spec.lease_duration_seconds or 15} s"
        yield problem("leader", about, f"has expired: {text}", fix)
    else:
        yield fine("leader", about, f"{spec.holder_identity} leads")


def _without_lease(facts: ClusterFacts, about: str, fix: str) -> Finding:
    """Nobody holds the Lease of this name; somebody may hold another."""
    fresh = [lease for lease in facts.leases if deployed.is_held(lease, facts.now)]
    if not fresh:
        return problem("leader", about, "does not exist: no manager has led under this name", fix)
    text = f"does not exist; {deployed.leaders(fresh)}"
    fix = f"if that is this manager, add --lease-name={fresh[0].name}"
    return (problem if facts.names.is_lease_given else note)("leader", about, text, fix)
