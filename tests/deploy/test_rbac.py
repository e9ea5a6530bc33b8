"""The rights that the charts give: all that a manager needs, and nothing that would let it do harm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.deploy.conftest import CHARTS, Program, chart_folder, documents, of_kind, unique
from tests.waiting import until

from bedplate.api.resources import SUBJECT_ACCESS_REVIEWS
from bedplate.kube import Client

# (verb, group/resource[/subresource], namespace, name): what the manager asks the API server for.
NEEDED = [
    *((verb, "/nodes", "", "n1") for verb in ("get", "list", "watch", "patch", "update", "delete")),
    *((verb, "/nodes/status", "", "n1") for verb in ("patch", "update")),
    *((verb, "/services", "some", "s1") for verb in ("get", "list", "watch")),
    *((verb, "/services/status", "some", "s1") for verb in ("patch", "update")),
    *((verb, "discovery.k8s.io/endpointslices", "some", "") for verb in ("get", "list", "watch")),
    *((verb, "/events", "some", "e1") for verb in ("create", "patch", "update")),
    *((verb, "events.k8s.io/events", "some", "e1") for verb in ("create", "patch", "update")),
    ("get", "/namespaces", "", "kube-system"),
    ("create", "coordination.k8s.io/leases", "kube-system", ""),
    *((verb, "coordination.k8s.io/leases", "kube-system", "LEASE") for verb in ("get", "update")),
    *((verb, "/configmaps", "kube-system", "extension-apiserver-authentication") for verb in ("get", "list", "watch")),
    ("create", "authentication.k8s.io/tokenreviews", "", ""),
    ("create", "authorization.k8s.io/subjectaccessreviews", "", ""),
]
WITH_ACCOUNTS = [
    ("create", "/serviceaccounts", "kube-system", ""),
    ("create", "/serviceaccounts/token", "kube-system", "node-controller"),
    ("create", "/serviceaccounts/token", "kube-system", "service-controller"),
    ("create", "/serviceaccounts/token", "kube-system", "route-controller"),
]
REFUSED = [
    *(
        (verb, "/secrets", "kube-system", "x")
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete")
    ),
    *((verb, "/pods", "some", "p1") for verb in ("list", "create", "delete")),
    ("create", "/pods/exec", "some", "p1"),
    ("create", "/nodes", "", ""),
    ("get", "/nodes/proxy", "", "n1"),
    *((verb, "/services", "some", "s1") for verb in ("create", "update", "patch", "delete")),
    *((verb, "/configmaps", "kube-system", "kubeadm-config") for verb in ("get", "update", "patch", "delete")),
    *((verb, "/configmaps", "some", "c1") for verb in ("get", "list", "create")),
    *((verb, "coordination.k8s.io/leases", "kube-system", "kube-scheduler") for verb in ("get", "update", "patch")),
    ("delete", "coordination.k8s.io/leases", "kube-system", "LEASE"),
    ("create", "coordination.k8s.io/leases", "kube-node-lease", ""),
    ("get", "/namespaces", "", "default"),
    ("list", "/namespaces", "", ""),
    ("create", "/serviceaccounts/token", "kube-system", "clusterrole-aggregation-controller"),
    ("create", "/serviceaccounts/token", "some", "node-controller"),
    ("create", "/serviceaccounts", "some", ""),
    ("impersonate", "/users", "", "system:admin"),
    *((verb, "rbac.authorization.k8s.io/clusterroles", "", "r") for verb in ("create", "update", "escalate", "bind")),
    ("create", "rbac.authorization.k8s.io/clusterrolebindings", "", ""),
    ("update", "/persistentvolumes", "", "pv"),
    ("update", "/endpoints", "some", "s1"),
]


class Installed:
    """A chart's account and rights, in the cluster under names of their own."""

    def __init__(self, user: str, lease: str) -> None:
        self.user, self.lease = user, lease


@pytest.fixture(params=CHARTS)
def installed(request: pytest.FixtureRequest, kubectl: Program, helm: Program, namespace: str) -> Iterator[Installed]:
    release = unique("rights")
    settings = [
        "serviceAccount.name=account",
        "useServiceAccountCredentials=true",
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
    yield Installed(f"system:serviceaccount:{namespace}:account", release)
    kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=manifest)


async def is_allowed(client: Client, user: str, verb: str, what: str, namespace: str, name: str) -> bool:
    group, _, resource = what.partition("/")
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]
    asked = {"user": user, "groups": groups, "resourceAttributes": attributes | {"subresource": subresource}}
    answer = await client.create(SUBJECT_ACCESS_REVIEWS.raw(), {"spec": asked})
    return bool(answer["status"]["allowed"])


async def test_the_shipped_role_allows_what_the_manager_does_and_refuses_what_would_do_harm(
    client: Client, installed: Installed
) -> None:
    async def found(rights: list[tuple[str, str, str, str]]) -> dict[tuple[str, ...], bool]:
        named = [(*right[:3], right[3].replace("LEASE", installed.lease)) for right in rights]
        return {right: await is_allowed(client, installed.user, *right) for right in named}

    async def are_granted() -> bool:
        return all((await found(NEEDED + WITH_ACCOUNTS)).values())

    # An API server learns of new roles by a watch, so their effect may come a little later.
    await until(are_granted, "the manager has its rights", step_s=0.2)
    refused = await found(REFUSED)
    assert [right for right, is_granted in refused.items() if is_granted] == []


async def test_without_accounts_of_their_own_controllers_need_no_tokens(
    client: Client, kubectl: Program, helm: Program, namespace: str
) -> None:
    release = unique("rights")
    text = helm("template", release, chart_folder("oxide"), "-n", namespace)
    manifest = "\n---\n".join(each for each in text.split("\n---\n") if "kind: Deployment" not in each)
    kubectl("apply", "-f", "-", stdin=manifest)
    try:
        user = f"system:serviceaccount:{namespace}:{release}-oxide-cloud-controller-manager"
        await until(lambda: is_allowed(client, user, "patch", "/nodes", "", "n1"), "the role counts", step_s=0.2)
        for right in WITH_ACCOUNTS:
            assert not await is_allowed(client, user, *right)
    finally:
        kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=manifest)
