"""Checklist G, items 147 to 153: the permission manager, on a real and on the embedded API server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests import servers
from tests.operators.permissions import podtable
from tests.operators.permissions.worlds import World, world_on

from bedplate.api import permissions
from bedplate.api.permissions import CLUSTER_ROLES, ROLE_BINDINGS, ROLES_REF
from bedplate.api.resources import NAMESPACES
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import kyverno
from bedplate.operators.permissions.objects import ClusterFacts, objects

DEFAULTS = {
    "username": "",
    "create_service_account": True,
    "role": "edit",
    "user_paths": [],
    "uid": -1,
    "gids": [-1],
    "namespace": "",
    "create_namespace": True,
    "allowPrivilegeEscalation": False,
    "allowPrivileged": False,
    "allow_all_uids": False,
    "psp_spec_override": {},
}


@pytest.fixture
async def world(own_server: servers.Server) -> AsyncIterator[World]:
    async with world_on(own_server) as made:
        yield made


async def test_item_147_the_kinds_are_served_with_their_defaults(world: World) -> None:
    empty = {"metadata": {"name": f"empty-{world.id}"}, "spec": {}}
    made = await world.client.create(permissions.USERS.raw(), empty, permissions.NAMESPACE)
    assert made["spec"] == DEFAULTS
    for ref in permissions.KINDS[1:]:
        with pytest.raises(kube_errors.Invalid):
            await world.client.create(ref.raw(), {"metadata": {"name": "x"}, "spec": {}}, permissions.NAMESPACE)


@pytest.mark.parametrize(
    "spec", [{"uid": "x"}, {"gids": 1}, {"user_paths": ["relative"]}, {"role": "root"}, {"create_namespace": "yes"}]
)
async def test_item_147_fields_of_the_wrong_type_are_rejected(world: World, spec: Any) -> None:
    with pytest.raises(kube_errors.Invalid):
        await world.client.create(
            permissions.USERS.raw(), {"metadata": {"name": f"bad-{world.id}"}, "spec": spec}, permissions.NAMESPACE
        )


async def test_item_148_an_applied_resource_gives_the_same_objects_and_takes_them_along(world: World) -> None:
    async with world.manager():
        created = await world.made("jane")
        user = world.user("john")
        name = f"{user}-abc1234"
        body = {"spec": {"username": user, "namespace": f"{user}-restricted", "uid": 1000, "gids": [1000, 100]}}
        await world.client.patch(
            permissions.USERS.raw(), name, body, permissions.NAMESPACE, type=PatchType.APPLY, field_manager="kubectl"
        )
        applied = await world.ready(name)
        other = (await world.get(created)).status.objects
        renamed = tuple(
            each.replace(world.user("jane"), user).replace(created.removeprefix(world.user("jane")), "-abc1234")
            for each in other
        )
        assert applied.status.objects == renamed
        await world.remove(name)
        assert not await world.exists(CLUSTER_ROLES, f"{user}-nodes")
        await world.gone(NAMESPACES, f"{user}-restricted")


async def test_item_149_an_absent_namespace_is_an_error_in_the_status(world: World) -> None:
    async with world.manager():
        release = await world.add("john", f"absent-{world.id}", create_namespace=False)
        found = await world.refused(release, "does not exist")
        assert found.status.objects == ()
        assert not await world.exists(CLUSTER_ROLES, f"{world.user('john')}-nodes")


async def test_item_150_a_grant_of_an_operator_holds_in_its_namespace_alone(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        release = await world.add("john", place, ref=permissions.SPARKS)
        found: Any = await world.ready(release, permissions.SPARKS)
        made = [each.split("/") for each in found.status.objects]
        assert {(parts[0], parts[1]) for parts in made} == {
            ("Role", place),
            ("RoleBinding", place),
            ("Secret", permissions.NAMESPACE),
        }
        user = world.user("john")
        role = await world.client.get(ROLES_REF, f"{user}-spark", place)
        assert {group for rule in role.rules or () for group in rule.api_groups} == {"sparkoperator.k8s.io"}
        binding = await world.client.get(ROLE_BINDINGS, f"{user}-spark", place)
        assert {each.name for each in binding.subjects or ()} == {user}


def test_item_151_exclusions_follow_the_features() -> None:
    def excluded(*features: str) -> list[str]:
        values = kyverno.policy_values(frozenset(features))["policyExclude"]["disallow-host-path"]
        return list(values["any"][0]["resources"]["namespaces"])

    assert excluded() == ["default", "*-restricted", "kube-system"]
    assert "gpu-operator" in excluded("gpu-operator")
    assert "prometheus" in excluded("prometheus")
    assert "local-path-storage" in excluded("local-path")


def test_item_152_high_availability_is_three_replicas() -> None:
    assert kyverno.engine_values(is_ha=True)["replicaCount"] == 3


def test_item_153_policies_have_the_name_of_the_user_and_the_suffix() -> None:
    resource = podtable.resource("john", "john-restricted")
    made = objects(resource, ClusterFacts(has_kyverno=True))
    found = [each["metadata"]["name"] for each in made if each["kind"] == "ClusterPolicy"]
    assert len(found) == 4
    assert all(re.match(r"john-[a-z0-9]{7}-(drop-privs-w-hostpath|limit-hostpath-vols)", name) for name in found)
