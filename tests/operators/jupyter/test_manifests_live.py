"""What is installed: accepted by a server as it is, and enough for all that the operator does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from tests.ipam.controller.test_rights_live import account
from tests.operators.jupyter.worlds import World
from tests.waiting import until

from bedplate.api.resources import custom
from bedplate.cli.jupyter import jupyter
from bedplate.kube.options import PatchType
from bedplate.operators.jupyter import manifests

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
        account(world, tmp_path, manifests.rules(), []) as kubeconfig,  # type: ignore[arg-type]
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


async def _both(world: World) -> list[str]:
    told = await world.events("a")
    return told if {"Created", "Stopped"} <= set(told) else []
