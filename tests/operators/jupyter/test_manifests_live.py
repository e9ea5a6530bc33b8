"""What is installed: accepted by a server as it is, and enough for all that the operator does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from tests.ipam.controller.test_rights_live import OWN_BINDINGS, OWN_ROLES, account
from tests.operators.jupyter.worlds import World
from tests.waiting import until

from bedplate.api import meta, permissions
from bedplate.api.resources import custom
from bedplate.cli.jupyter import jupyter
from bedplate.kube.options import PatchType
from bedplate.operators.jupyter import manifests
from bedplate.operators.jupyter.kernel import KERNELS
from bedplate.operators.permissions import grants

PLURALS = {
    "Namespace": ("namespaces", False),
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "ServiceAccount": ("serviceaccounts", True),
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "Role": ("roles", True),
    "RoleBinding": ("rolebindings", True),
    "Deployment": ("deployments", True),
}


def printed(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(jupyter, ["manifests", *words])
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def test_the_deployment_is_as_the_manual_shows_it() -> None:
    deployment = printed("--image", "my/image:7")[-1]
    assert deployment["metadata"]["namespace"] == "cm-jupyter-kernel-operator-system"
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"] == {"control-plane": "controller-manager"}
    (container,) = template["spec"]["containers"]
    assert (container["name"], container["image"]) == ("manager", "my/image:7")
    assert "--sidecar-image=my/image:7" in container["args"]


async def test_a_server_accepts_everything_and_a_second_time_changes_nothing(world: World) -> None:
    versions: list[list[str]] = [[], []]
    for versions_of_round in versions:
        for document in printed():
            plural, namespaced = PLURALS[document["kind"]]
            group, _, version = document["apiVersion"].rpartition("/")
            ref = custom(group, version, plural, document["kind"], namespaced)
            namespace = document["metadata"].get("namespace")
            # A dry run: what a cluster has once must not disturb other tests. The namespace of the rest is this one.
            own = {**document, "metadata": {**document["metadata"]}}
            if namespaced:
                own["metadata"]["namespace"] = namespace = world.namespace
            made = await world.client.patch(
                ref,
                document["metadata"]["name"],
                own,
                namespace,
                type=PatchType.APPLY,
                field_manager="test",
                force=True,
                dry_run=True,
                field_validation="Strict",
            )
            versions_of_round.append(str(made.get("spec") or made.get("rules") or made.get("roleRef")))
    assert versions[0] == versions[1]


async def test_the_rights_are_enough_for_a_kernels_whole_life(world: World, tmp_path: Path) -> None:
    async with (
        account(world, tmp_path, manifests.rules(), manifests.namespace_rules()) as kubeconfig,  # type: ignore[arg-type]
        world.operator(kubeconfig=str(kubeconfig)),
    ):
        await world.create("a", create_connection_file=True)
        made = await world.made("a")
        await world.runs(made["Pod"])
        await world.condition("a", "True")
        await world.stops(made["Pod"], "cmjksidecar")
        await until(lambda: world.is_gone("a"), "the resource is removed")
        await until(world.is_empty, "nothing is left")
        assert {"Created", "Stopped"} <= set(await until(lambda: _both(world)))


def test_the_permission_manager_grants_what_the_operator_needs() -> None:
    """One list for administrators who bind it by hand, one for grants: they must not differ."""
    granted = grants.OPERATOR[permissions.JUPYTER_KERNELS.kind].operator_rules
    assert granted == manifests.namespace_rules()


def test_nothing_can_be_made_or_deleted_in_the_whole_cluster() -> None:
    acting = {"create", "delete", "deletecollection", "update"}
    assert [rule for rule in manifests.rules() if acting & set(rule["verbs"]) and rule["resources"] != ["events"]] == []
    bound = [
        document["roleRef"]["name"]
        for document in printed()
        if document["kind"] in ("ClusterRoleBinding", "RoleBinding")
    ]
    assert "cm-jupyter-kernel-operator-namespace-role" not in bound


async def test_without_a_grant_the_operator_makes_nothing_and_with_one_it_goes_on(world: World, tmp_path: Path) -> None:
    async with (
        account(world, tmp_path, manifests.rules(), []) as kubeconfig,  # type: ignore[arg-type]
        world.operator(kubeconfig=str(kubeconfig)),
    ):
        await world.create("a", create_connection_file=True)

        async def message() -> str:
            kernel = await world.client.get(KERNELS, "a", world.namespace)
            ready = meta.find_condition(kernel.status.conditions, "Ready")
            return ready.message if ready is not None else ""

        text = await until(message, "the kernel is refused")
        assert f"was not admitted to the namespace {world.namespace}" in text
        assert await world.is_empty()
        role = {"metadata": {"name": "granted"}, "rules": manifests.namespace_rules()}
        await world.client.create(OWN_ROLES, role, world.namespace)
        binding = {
            "metadata": {"name": "granted"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "granted"},
            "subjects": [{"kind": "ServiceAccount", "name": f"ipam-{world.id}", "namespace": world.namespace}],
        }
        await world.client.create(OWN_BINDINGS, binding, world.namespace)
        await world.made("a")


async def _both(world: World) -> list[str]:
    told = await world.events("a")
    return told if {"Created", "Stopped"} <= set(told) else []
