"""What the doctor looks for is in the shipped roles: after `kubectl apply` no right is reported as missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cli.doctor.ipam_facts import LEASE, Names, accounts_of
from bedplate.cli.doctor.reading import Permission, needed

ROOT = Path(__file__).parents[3]
# (group, resource, name, namespace) to verbs; empty: any.
Rights = set[tuple[str, str, str, str, str]]
HOME = "kube-system"


def shipped(files: Iterable[Path], account: str = "") -> Rights:
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return {
        (verb, group, resource, name, HOME if role["kind"] == "Role" else "")
        for role in objects
        if role["kind"] in ("Role", "ClusterRole") and role["metadata"]["name"].endswith(account)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def lacking(rows: Iterable[Permission], rights: Rights, lease: str) -> list[Permission]:
    def is_given(row: Permission) -> bool:
        asked: dict[str, Any] = row.attributes(lease)
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        return any(
            (asked["verb"], asked["group"], resource, name, namespace) in rights
            for name in {asked["name"], ""}
            for namespace in {asked["namespace"], ""}
        )

    return [row for row in rows if not is_given(row)]


@pytest.mark.parametrize(
    ("files", "lease", "has_accounts", "has_load_balancers"),
    [
        ("deploy/rbac/*role.yaml", "nvidia-bmm-cloud-controller-manager", True, False),
        ("manifests/oxide-*.yaml", "cloud-controller-manager", False, True),
        ("manifests/cloudlycke-*.yaml", "cloud-controller-manager", True, True),
    ],
)
def test_the_managers_roles_hold_what_the_doctor_looks_for(
    files: str, lease: str, has_accounts: bool, has_load_balancers: bool
) -> None:
    rights = shipped(ROOT.glob(files), "cloud-controller-manager")

    def missing(*, has_accounts: bool) -> list[Permission]:
        rows = needed(has_accounts=has_accounts, has_load_balancers=has_load_balancers)
        # Reviews come from Kubernetes' own role, which is bound beside.
        return [row for row in lacking(rows, rights, lease) if not row.resource.endswith("reviews")]

    assert missing(has_accounts=has_accounts) == []
    assert missing(has_accounts=not has_accounts) != []


def test_the_roles_of_address_management_hold_what_the_doctor_looks_for() -> None:
    folder = ROOT / "deploy" / "manifests"
    for account, place in zip(accounts_of(Names()), ("controller", "node"), strict=True):
        assert lacking(account.needed, shipped((folder / place).glob("*role.yaml")), LEASE) == []
