"""What the doctor says about the cluster's side: rights, account, lease. An error is neither good nor absent."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

from bedplate.api import coordination, core
from bedplate.cli.doctor.cluster_checks import check_cluster
from bedplate.cli.doctor.facts import ClusterFacts, Names
from bedplate.cli.doctor.reading import Permission, needed
from bedplate.cli.doctor.report import exit_code
from bedplate.cloud.doctor import Finding

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NAMES = Names("system:cloud-controller-manager", "cloud-controller-manager", "kube-system", "cloud-controller-manager")
BINDING = {
    "roleRef": {"name": NAMES.role},
    "subjects": [{"kind": "ServiceAccount", "namespace": NAMES.namespace, "name": NAMES.account}],
}
NEEDED = needed(has_accounts=False, has_load_balancers=True)
WELL = ClusterFacts(
    NAMES,
    NOW,
    version="v1.35.4",
    account=core.ServiceAccount(),
    role={"rules": []},
    binding=BINDING,
    lease=coordination.Lease(
        spec=coordination.LeaseSpec(
            holder_identity="head_1", lease_duration_seconds=15, renew_time=NOW - timedelta(seconds=3)
        )
    ),
    rights=dict.fromkeys(NEEDED, True),
)


def wrong(facts: ClusterFacts) -> list[Finding]:
    return [finding for finding in check_cluster(facts) if finding.level != "ok"]


def test_a_cluster_in_order_has_no_findings_and_exit_code_0() -> None:
    assert wrong(WELL) == []
    assert exit_code(check_cluster(WELL)) == 0


def test_a_missing_right_names_the_verb_and_the_command_that_shows_it() -> None:
    row = Permission("patch", "nodes", subresource="status")
    (finding,) = wrong(dataclasses.replace(WELL, rights={**WELL.rights, row: False}))
    assert finding.level == "problem"
    assert "may not patch nodes/status" in finding.message
    assert f"kubectl auth can-i patch nodes --subresource=status --as={NAMES.user}" in finding.fix


def test_missing_role_binding_and_account_are_findings_with_a_command_each() -> None:
    found = wrong(dataclasses.replace(WELL, role=None, binding=None, account=None))
    assert {finding.about.split()[0] for finding in found} == {"ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    assert all(finding.level == "problem" and "kubectl" in finding.fix for finding in found)
    assert exit_code(found) == 1


def test_rights_that_are_missing_with_their_role_are_one_finding_with_the_command_of_that_provider() -> None:
    names = dataclasses.replace(NAMES, manifests="manifests/oxide-cloud-controller-manager.yaml")
    found = wrong(dataclasses.replace(WELL, names=names, binding=None, rights=dict.fromkeys(NEEDED, False)))
    binding, rights = found
    assert "ClusterRoleBinding" in binding.about
    assert "  get, list, watch, patch, delete nodes" in rights.message.splitlines()
    assert rights.fix == "kubectl apply -f manifests/oxide-cloud-controller-manager.yaml"
    assert "deploy/rbac" not in binding.fix


def test_a_binding_for_another_account_and_one_to_cluster_admin_are_told() -> None:
    stranger = {"roleRef": {"name": "cluster-admin"}, "subjects": [{"kind": "User", "name": "x"}]}
    problem, note = wrong(dataclasses.replace(WELL, binding=stranger))
    assert problem.level == "problem" and "does not name the service account" in problem.message
    assert note.level == "note" and "cluster-admin" in note.message


def test_what_could_not_be_read_is_unknown_and_gives_exit_code_2() -> None:
    refused = TimeoutError("no answer")
    assert exit_code(wrong(dataclasses.replace(WELL, version=refused))) == 2
    found = wrong(dataclasses.replace(WELL, account=refused, lease=refused, role=refused))
    assert {finding.level for finding in found} == {"unknown"}
    assert exit_code(found) == 2
    assert exit_code([*found, *wrong(dataclasses.replace(WELL, account=None))]) == 1


def test_a_review_that_failed_is_unknown_although_the_others_are_granted() -> None:
    rights = {**WELL.rights, NEEDED[0]: PermissionError("impersonation is not allowed")}
    (finding,) = wrong(dataclasses.replace(WELL, rights=rights))
    assert finding.level == "unknown" and "impersonate" in finding.fix


def test_a_lease_that_is_missing_unheld_or_expired_is_told_apart() -> None:
    def lease(**spec: object) -> ClusterFacts:
        return dataclasses.replace(WELL, lease=coordination.Lease(spec=coordination.LeaseSpec(**spec)))  # type: ignore[arg-type]

    assert "does not exist" in wrong(dataclasses.replace(WELL, lease=None))[0].message
    assert "has no holder" in wrong(lease(holder_identity=""))[0].message
    late = lease(holder_identity="a", lease_duration_seconds=15, renew_time=NOW - timedelta(seconds=16))
    assert "has expired: a renewed it 16 s ago" in wrong(late)[0].message
