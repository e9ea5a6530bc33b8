"""The rights that address management gets from its overlays: all that it needs, and nothing that would do harm."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.deploy.conftest import ROOT, Program, documents, unique
from tests.deploy.test_rbac import is_allowed
from tests.waiting import until

from bedplate.kube import Client

OURS = "nv-ipam.nvidia.com"
POOLS = ("ippools", "cidrpools")
LEASE, SECRET, WEBHOOK = (
    "dd1643cf.nvidia.com",
    "nv-ipam-webhook-server-cert",
    "nv-ipam-validating-webhook-configuration",
)
WEBHOOKS = "admissionregistration.k8s.io/validatingwebhookconfigurations"
# (verb, group/resource[/subresource], namespace, name); HOME is the namespace the overlay was given.
Right = tuple[str, str, str, str]
CONTROLLER: list[Right] = [
    *((verb, "/nodes", "", "") for verb in ("list", "watch")),
    ("list", "/pods", "", ""),
    *((verb, f"{OURS}/{pool}", "HOME", "") for pool in POOLS for verb in ("list", "watch", "patch")),
    *(("update", f"{OURS}/{pool}/status", "HOME", "p") for pool in POOLS),
    ("create", "coordination.k8s.io/leases", "HOME", ""),
    *((verb, "coordination.k8s.io/leases", "HOME", LEASE) for verb in ("get", "update")),
    *((verb, "/events", "HOME", "") for verb in ("create", "patch")),
]
CERTIFICATE: list[Right] = [
    *((verb, "/secrets", "HOME", SECRET) for verb in ("get", "update")),
    ("get", WEBHOOKS, "", WEBHOOK),
]
NODE: list[Right] = [
    *((verb, "/pods", "some", "p1") for verb in ("get", "list", "watch")),
    *((verb, f"{OURS}/{pool}", "HOME", "") for pool in POOLS for verb in ("list", "watch")),
    *((verb, "/events", "HOME", "") for verb in ("create", "patch")),
]
REFUSED: list[Right] = [
    # Pools and Leases of one namespace are served.
    *((verb, f"{OURS}/{pool}", "some", "") for pool in POOLS for verb in ("list", "watch", "patch")),
    ("create", "coordination.k8s.io/leases", "some", ""),
    *((verb, "/events", "some", "") for verb in ("create", "patch")),
    ("update", "coordination.k8s.io/leases", "some", LEASE),
    *((verb, "/secrets", "HOME", "other") for verb in ("get", "list", "watch", "update", "patch", "delete")),
    *((verb, "/secrets", "some", SECRET) for verb in ("get", "create", "update")),
    *((verb, "/pods", "some", "p1") for verb in ("create", "update", "patch", "delete")),
    ("create", "/pods/exec", "some", "p1"),
    *((verb, "/nodes", "", "n1") for verb in ("create", "update", "patch", "delete")),
    *((verb, "/configmaps", "HOME", "c1") for verb in ("get", "list", "create", "update", "patch", "delete")),
    *((verb, f"{OURS}/{pool}", "HOME", "p") for pool in POOLS for verb in ("create", "update", "delete")),
    *((verb, "coordination.k8s.io/leases", "HOME", "kube-scheduler") for verb in ("get", "update", "patch", "delete")),
    *((verb, WEBHOOKS, "", "other") for verb in ("get", "patch", "update", "create", "delete")),
    # Who may change a webhook's configuration can have every Secret that is written sent to itself.
    *((verb, WEBHOOKS, "", WEBHOOK) for verb in ("patch", "update", "delete")),
    ("create", WEBHOOKS, "", ""),
    ("create", "/secrets", "HOME", ""),
    ("impersonate", "/users", "", "system:admin"),
    ("create", "/serviceaccounts/token", "HOME", "controller"),
]


@pytest.fixture(params=["no-webhook", "self-signed"])
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def accounts(overlay: str, kubectl: Program, namespace: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The overlay's accounts and rights, under names of this test's own."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    path = tmp_path / "deploy" / "overlays" / overlay / "kustomization.yaml"
    prefix = unique("rights") + "-"
    text = path.read_text().replace("namePrefix: nv-ipam-", f"namePrefix: {prefix}")
    path.write_text(text.replace("namespace: kube-system", f"namespace: {namespace}"))
    objects = documents(kubectl("kustomize", path.parent))
    rights = [each for each in objects if "Role" in each["kind"] or each["kind"] == "ServiceAccount"]
    manifest = yaml.safe_dump_all(rights)
    kubectl("apply", "-f", "-", stdin=manifest)
    yield {name: f"system:serviceaccount:{namespace}:{prefix}{name}" for name in ("controller", "node")}
    kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=manifest)


async def test_each_program_may_do_what_it_does_and_no_harm(
    overlay: str, client: Client, accounts: dict[str, str], namespace: str
) -> None:
    async def found(user: str, rights: list[Right]) -> dict[Right, bool]:
        named = [(verb, what, where.replace("HOME", namespace), name) for verb, what, where, name in rights]
        return {right: await is_allowed(client, user, *right) for right in named}

    needed = {"controller": CONTROLLER + (CERTIFICATE if overlay == "self-signed" else []), "node": NODE}
    for program, user in accounts.items():

        async def are_granted(user: str = user, rights: list[Right] = needed[program]) -> bool:
            return all((await found(user, rights)).values())

        # An API server learns of new roles by a watch, so their effect may come a little later.
        await until(are_granted, f"the {program} has its rights", step_s=0.2)
    for program, user in accounts.items():
        more = [] if program == "controller" and overlay == "self-signed" else CERTIFICATE
        refused = await found(user, REFUSED + more)
        assert [right for right, is_granted in refused.items() if is_granted] == [], program
