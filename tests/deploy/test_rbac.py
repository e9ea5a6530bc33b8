"""The rights that the charts give: all that a manager needs, and nothing that would let it do harm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.conftest import CHARTS, ROOT, Program, chart_folder, documents, of_kind, unique
from tests.waiting import until

from bedplate.api.resources import SUBJECT_ACCESS_REVIEWS
from bedplate.kube import Client

# (verb, group/resource[/subresource], namespace, name)
Right = tuple[str, str, str, str]
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
LEASES = "coordination.k8s.io/leases"
# What verbs are tried on, all of them on each.
TARGETS = [
    *((what, "", "n1") for what in ("/nodes", "/nodes/status", "/nodes/proxy", "/persistentvolumes")),
    *((what, "some", "s1") for what in ("/services", "/services/status", "discovery.k8s.io/endpointslices")),
    *((what, "some", "e1") for what in ("/events", "events.k8s.io/events", "/endpoints", "/configmaps")),
    *((what, "some", "p1") for what in ("/pods", "/pods/exec", "/secrets", "/serviceaccounts", LEASES)),
    ("/events", "kube-system", "e1"),
    *(("/namespaces", "", name) for name in ("kube-system", "default")),
    *((LEASES, "kube-system", name) for name in ("LEASE", "kube-scheduler")),
    (LEASES, "kube-node-lease", ""),
    *(("/configmaps", "kube-system", name) for name in ("extension-apiserver-authentication", "kubeadm-config")),
    *((what, "kube-system", "x") for what in ("/secrets", "/serviceaccounts")),
    *(("/serviceaccounts/token", "kube-system", f"{name}-controller") for name in ("node", "service", "route")),
    ("/serviceaccounts/token", "kube-system", "clusterrole-aggregation-controller"),
    ("/serviceaccounts/token", "some", "node-controller"),
    *((f"rbac.authorization.k8s.io/{what}", "", "r") for what in ("clusterroles", "clusterrolebindings")),
    ("authentication.k8s.io/tokenreviews", "", ""),
    ("authorization.k8s.io/subjectaccessreviews", "", ""),
]
# Verbs that exist for some resources alone.
SPECIAL: list[Right] = [
    ("impersonate", "/users", "", "system:admin"),
    *((verb, "rbac.authorization.k8s.io/clusterroles", "", "r") for verb in ("escalate", "bind")),
]


def needed(chart: str, *, has_accounts: bool, lease: str) -> set[Right]:
    """What a manager asks the API server for; see test_recorded_rights.py for where this comes from."""
    has_load_balancers = chart != "nvidia-bmm"
    rights: set[Right] = {
        *((verb, "/nodes", "", "n1") for verb in ("list", "watch")),
        ("get", "/namespaces", "", "kube-system"),
        *(("create", LEASES, "kube-system", name) for name in (lease, "kube-scheduler")),
        *((verb, LEASES, "kube-system", lease) for verb in ("get", "update")),
        ("create", "/events", "kube-system", "e1"),
        # The two that Kubernetes itself has for those who let the API server judge their callers.
        *(
            (verb, "/configmaps", "kube-system", "extension-apiserver-authentication")
            for verb in ("get", "list", "watch")
        ),
        ("create", "authentication.k8s.io/tokenreviews", "", ""),
        ("create", "authorization.k8s.io/subjectaccessreviews", "", ""),
    }
    if has_load_balancers:
        rights |= {(verb, "/services", "some", "s1") for verb in ("list", "watch")}
        rights |= {(verb, "discovery.k8s.io/endpointslices", "some", "s1") for verb in ("list", "watch")}
    if has_accounts:
        names = ("node", "service") if has_load_balancers else ("node",)
        rights |= {("create", "/serviceaccounts/token", "kube-system", f"{name}-controller") for name in names}
        return rights | {("create", "/serviceaccounts", "kube-system", "x")}
    rights |= {(verb, "/nodes", "", "n1") for verb in ("get", "patch", "delete")} | {
        ("patch", "/nodes/status", "", "n1")
    }
    rights |= {("patch", "/services/status", "some", "s1")} if has_load_balancers else set()
    return rights | {
        (verb, "/events", where, "e1") for verb in ("create", "patch") for where in ("some", "kube-system")
    }


class Installed:
    """A chart's account and rights, in the cluster under names of their own."""

    def __init__(self, user: str, lease: str, rights: set[Right]) -> None:
        self.user, self.lease, self.rights = user, lease, rights


@pytest.fixture(params=["accounts of their own", "one account"])
def has_accounts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "accounts of their own")


@pytest.fixture(params=CHARTS)
def installed(
    request: pytest.FixtureRequest, kubectl: Program, helm: Program, namespace: str, has_accounts: bool
) -> Iterator[Installed]:
    release = unique("rights")
    settings = [
        "serviceAccount.name=account",
        f"useServiceAccountCredentials={str(has_accounts).lower()}",
        f"leaderElection.resourceName={release}",
    ]
    if request.param == "nvidia-bmm":
        settings.append("rbac.name=")
    chosen = ["--set", ",".join(settings), "-n", namespace]
    text = helm("template", release, chart_folder(request.param), *chosen)
    objects = [each for each in text.split("\n---\n") if "kind: Deployment" not in each]
    manifest = "\n---\n".join(objects)
    assert of_kind(documents(manifest), "ServiceAccount")["metadata"]["namespace"] == namespace
    kubectl("apply", "-f", "-", stdin=manifest)
    rights = needed(request.param, has_accounts=has_accounts, lease=release)
    yield Installed(f"system:serviceaccount:{namespace}:account", release, rights)
    kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=manifest)


async def is_allowed(client: Client, user: str, verb: str, what: str, namespace: str, name: str) -> bool:
    group, _, resource = what.partition("/")
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]
    asked = {"user": user, "groups": groups, "resourceAttributes": attributes | {"subresource": subresource}}
    answer = await client.create(SUBJECT_ACCESS_REVIEWS.raw(), {"spec": asked})
    return bool(answer["status"]["allowed"])


async def test_the_shipped_role_allows_what_the_manager_does_and_nothing_else(
    client: Client, installed: Installed
) -> None:
    async def granted(rights: Iterable[Right]) -> set[Right]:
        slots = asyncio.Semaphore(8)

        async def ask(right: Right) -> bool:
            async with slots:
                return await is_allowed(client, installed.user, *right)

        asked = list(rights)
        answers = await asyncio.gather(*map(ask, asked))
        return {right for right, is_granted in zip(asked, answers, strict=True) if is_granted}

    async def are_granted() -> bool:
        return await granted(installed.rights) == installed.rights

    # An API server learns of new roles by a watch, so their effect may come a little later.
    await until(are_granted, "the manager has its rights", step_s=0.2)
    tried = {
        (verb, what, namespace, name.replace("LEASE", installed.lease))
        for what, namespace, name in TARGETS
        for verb in VERBS
    }
    assert installed.rights <= tried
    assert await granted(tried | set(SPECIAL)) == installed.rights


def test_the_manager_of_two_clouds_has_the_rights_for_both(kubectl_program: Path, tmp_path: Path) -> None:
    kubectl = Program(kubectl_program, tmp_path)
    both = _rules(documents(kubectl("kustomize", ROOT / "deploy" / "overlays" / "mixed")))
    cloudlycke = _rules(documents((ROOT / "manifests" / "cloudlycke-ccm.yaml").read_text()))
    lease = {("get leases", "cloud-controller-manager"), ("update leases", "cloud-controller-manager")}
    own = {(verb, f"nvidia-bmm-{name}") for verb, name in lease}
    assert both - own == cloudlycke - lease and own <= both


def _rules(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Resources of a manager's roles, each with the name it is limited to, and verbs with them."""
    roles = [
        one for one in objects if one["kind"] in ("Role", "ClusterRole") and "agent" not in one["metadata"]["name"]
    ]
    return {
        (f"{verb} {resource}", name)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }
