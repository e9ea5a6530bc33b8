"""The controller on a real and on the embedded API server: what a custom resource becomes, and what is left of it."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from tests import servers
from tests.operators.permissions import podtable
from tests.operators.permissions.worlds import World, apply
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.permissions import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES_REF
from bedplate.api.resources import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import controller, manifests
from bedplate.program.webhookcertificates import MUTATING_CONFIGURATIONS


async def test_a_user_becomes_the_documented_objects_and_goes_with_them(world: World) -> None:
    async with world.manager():
        release = await world.made("john")
        user = world.user("john")
        place = f"{user}-restricted"
        assert await world.exists(CLUSTER_ROLES, f"{user}-nodes")
        assert await world.exists(CLUSTER_ROLE_BINDINGS, f"{user}-nodes")
        assert await world.exists(SERVICE_ACCOUNTS, user, place)
        assert await world.exists(ROLES_REF, f"{user}-restricted", place)
        binding = await world.client.get(ROLE_BINDINGS, f"{user}-restricted", place)
        assert (binding.role_ref.kind, binding.role_ref.name) == ("ClusterRole", "edit")
        assert {(each.kind, each.name) for each in binding.subjects or ()} == {
            ("User", user),
            ("ServiceAccount", user),
        }
        assert binding.metadata.label(permissions.LABEL_RELEASE) == release
        assert await world.exists(SECRETS, f"sh.helm.release.v1.{release}.v1", permissions.NAMESPACE)
        raw = await world.client.get(ROLE_BINDINGS.raw(), f"{user}-restricted", place)
        managers = {(each["manager"], each["operation"]) for each in raw["metadata"]["managedFields"]}
        assert managers == {("permissions-manager", "Apply")}
        await world.remove(release)
        assert not await world.exists(CLUSTER_ROLES, f"{user}-nodes")
        assert not await world.exists(CLUSTER_ROLE_BINDINGS, f"{user}-nodes")
        assert not await world.exists(SECRETS, f"sh.helm.release.v1.{release}.v1", permissions.NAMESPACE)
        await world.gone(NAMESPACES, place)


async def test_rules_are_written_before_the_binding(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        binding = await world.client.get(ROLE_BINDINGS, place, place)
        namespace = await world.client.get(NAMESPACES.partial(), place)
        assert permissions.LABEL_POD_RULES in namespace.metadata.labels
        assert int(namespace.metadata.resource_version) < int(binding.metadata.resource_version)


@pytest.mark.parametrize(
    ("name", "namespace", "text"),
    [
        ("john", "kube-system", "protected"),
        ("john", "cm-permissions", "protected"),
        ("", "somewhere", "user name is empty"),
    ],
)
async def test_what_cannot_be_made_says_why_and_makes_nothing(
    world: World, name: str, namespace: str, text: str
) -> None:
    async with world.manager():
        release = await world.add(name, namespace)
        found = await world.refused(release, text)
        assert found.status.objects == ()
        assert not await world.exists(SECRETS, f"sh.helm.release.v1.{release}.v1", permissions.NAMESPACE)
        if name:
            assert not await world.exists(CLUSTER_ROLES, f"{world.user(name)}-nodes")
        await world.remove(release)


async def test_an_absent_namespace_is_waited_for_when_it_may_not_be_created(world: World) -> None:
    async with world.manager():
        place = f"dev-{world.id}"
        release = await world.add("john", place, create_namespace=False)
        await world.refused(release, f"{place!r} does not exist")
        assert not await world.exists(CLUSTER_ROLES, f"{world.user('john')}-nodes")
        await world.client.create(NAMESPACES, {"metadata": {"name": place}})
        await world.ready(release)
        await world.remove(release)
        assert await world.exists(NAMESPACES, place)


async def test_a_namespace_from_before_survives_with_its_labels(world: World) -> None:
    place, labels = f"old-{world.id}", {"team": "blue", "app.kubernetes.io/managed-by": "Helm"}
    await world.client.create(NAMESPACES, {"metadata": {"name": place, "labels": labels, "annotations": {"a": "b"}}})
    account = {"metadata": {"name": world.user("john"), "namespace": place}}
    await world.client.create(SERVICE_ACCOUNTS.raw(), account)
    before = await world.client.get(NAMESPACES, place)
    async with world.manager():
        release = await world.made("john", place)
        during = await world.client.get(NAMESPACES, place)
        assert permissions.LABEL_POD_RULES in during.metadata.labels
        await world.remove(release)
        after = await world.client.get(NAMESPACES, place)
        assert after.metadata.labels == before.metadata.labels
        assert after.metadata.annotations == before.metadata.annotations
        assert await world.exists(SERVICE_ACCOUNTS, world.user("john"), place)
        assert not await world.exists(ROLE_BINDINGS, f"{world.user('john')}-restricted", place)


async def test_what_somebody_else_changes_is_repaired_and_told(world: World) -> None:
    async with world.manager():
        release = await world.made("john")
        user = world.user("john")
        place = f"{user}-restricted"
        stranger = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]
        change: Any = {"subjects": stranger}
        await world.client.patch(ROLE_BINDINGS.raw(), place, change, place)
        await world.told(release, "DriftRepaired", f"RoleBinding/{place}/{place}")
        binding = await world.client.get(ROLE_BINDINGS, place, place)
        assert {each.name for each in binding.subjects or ()} == {user}
        await world.client.delete(CLUSTER_ROLES, f"{user}-nodes")
        await world.told(release, "DriftRepaired", f"ClusterRole/{user}-nodes")
        assert await world.exists(CLUSTER_ROLES, f"{user}-nodes")
        unmarked = {"metadata": {"labels": {permissions.LABEL_POD_RULES: None}}}
        await world.client.patch(NAMESPACES.raw(), place, unmarked)
        await world.told(release, "DriftRepaired", f"Namespace/{place}")
        await world.client.patch(
            ROLES_REF.raw(), place, {"metadata": {"labels": None}, "rules": []}, place, field_manager="somebody"
        )
        await world.told(release, "DriftRepaired", f"Role/{place}/{place}")
        assert (await world.client.get(ROLES_REF, place, place)).rules


async def test_a_restart_without_a_change_writes_nothing(world: World) -> None:
    async with world.manager():
        first = await world.made("john")
        second = await world.made("jane", allow_all_uids=True)
        before = {**await world.versions(first), **await world.versions(second)}
    async with world.manager() as assembly:
        running = assembly.controller
        assert running is not None
        done = running.loop.queue

        async def has_looked() -> bool:
            total = assembly.registry.get_sample_value(
                "controller_runtime_reconcile_total", {"controller": "permissions", "result": "success"}
            )
            return (total or 0) >= 2 and len(done) == 0

        await until(has_looked, "both are looked at")
        assert {**await world.versions(first), **await world.versions(second)} == before
        assert await world.events(first, "DriftRepaired") == []


async def test_applying_the_manifests_again_changes_nothing(world: World) -> None:
    async with world.manager():
        before = await world.client.get(MUTATING_CONFIGURATIONS, manifests.MUTATING)
        assert before["webhooks"][0]["clientConfig"]["caBundle"]
        applied = [await apply(world.client, each) for each in manifests.objects(world.url)]
        again = [await apply(world.client, each) for each in manifests.objects(world.url)]
        assert [_version(each) for each in again] == [_version(each) for each in applied]
        after = await world.client.get(MUTATING_CONFIGURATIONS, manifests.MUTATING)
        assert _version(after) == _version(before)


def _version(obj: Any) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"]["name"], obj["metadata"]["resourceVersion"]


async def test_the_namespaces_are_not_written_by_a_second_apply(own_server: servers.Server) -> None:
    """A server that has them from the first apply, and from no other client."""
    async with Client(config.load(own_server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        for each in manifests.objects():
            if each["kind"] == "Namespace":
                # Another name: the server is shared by the tests of this module.
                name = f"{each['metadata']['name']}-{uuid.uuid4().hex[:6]}"
                labels = dict.fromkeys(each["metadata"].get("labels", {}), name)
                body = {**each, "metadata": {"name": name, **({"labels": labels} if labels else {})}}
                versions = [_version(await apply(client, body)) for _ in range(3)]
                assert versions == versions[:1] * 3


async def test_two_resources_of_one_user_share_what_has_the_users_name(world: World) -> None:
    async with world.manager():
        first = await world.made("john")
        second = await world.made("john", f"dev-{world.id}")
        user = world.user("john")
        await world.remove(first)
        assert await world.exists(CLUSTER_ROLES, f"{user}-nodes")
        await world.remove(second)
        assert not await world.exists(CLUSTER_ROLES, f"{user}-nodes")


async def test_the_rules_of_a_shared_namespace_are_those_of_all_who_remain(world: World) -> None:
    async with world.manager():
        place = f"team-{world.id}"
        first = await world.made("john", place)
        second = await world.made("jane", place, uid=1001, gids=[1001])

        async def rules() -> set[str]:
            found = await world.client.get(NAMESPACES.partial(), place)
            prefix = permissions.RULES_PREFIX
            return {key.removeprefix(prefix) for key in found.metadata.annotations if key.startswith(prefix)}

        async def are_left() -> bool:
            return await rules() == {second}

        assert await rules() == {first, second}
        await world.remove(first)
        await until(are_left, "only the second user's rules are left")
        assert await world.exists(ROLE_BINDINGS, f"{world.user('jane')}-restricted", place)
        await world.remove(second)
        await world.gone(NAMESPACES, place)


async def test_a_second_resource_for_the_same_user_and_namespace_waits_for_the_first(world: World) -> None:
    async with world.manager():
        first = await world.made("john")
        user = world.user("john")
        twin = {
            "metadata": {"name": f"zz-{first}"},
            "spec": {"username": user, "namespace": f"{user}-restricted", "allow_all_uids": True},
        }
        await world.client.create(permissions.USERS.raw(), twin, permissions.NAMESPACE)
        await world.refused(f"zz-{first}", f"{first} already gives")


async def test_two_resources_for_one_operator_do_not_undo_each_others_work(world: World) -> None:
    async with world.manager():
        await world.made("john")
        user = world.user("john")
        place = f"{user}-restricted"
        first = await world.add("john", place, ref=permissions.SPARKS)
        await world.ready(first, permissions.SPARKS)
        twin = {"metadata": {"name": f"zz-{first}"}, "spec": {"username": user, "namespace": place}}
        await world.client.create(permissions.SPARKS.raw(), twin, permissions.NAMESPACE)
        await world.refused(f"zz-{first}", f"{first} already gives", permissions.SPARKS)
        role = await world.client.get(ROLES_REF, f"{user}-spark", place)
        assert role.metadata.label(permissions.LABEL_RELEASE) == first
        await world.remove(first, permissions.SPARKS)
        await world.ready(f"zz-{first}", permissions.SPARKS)
        role = await world.client.get(ROLES_REF, f"{user}-spark", place)
        assert role.metadata.label(permissions.LABEL_RELEASE) == f"zz-{first}"
        assert await world.events(first, "DriftRepaired") == []


async def test_a_name_that_no_object_can_have_is_told(world: World) -> None:
    async with world.manager():
        user = world.user("john")
        for name, role in (("x" * 253, "edit"), ("y" * 253, "cluster-admin")):
            spec = {"username": user, "namespace": f"{user}-restricted", "role": role}
            await world.client.create(
                permissions.USERS.raw(), {"metadata": {"name": name}, "spec": spec}, permissions.NAMESPACE
            )
            assert (await world.refused(name, "is longer than 63")).status.objects == ()
            await world.remove(name)


async def test_another_role_replaces_the_binding_and_another_namespace_moves_it(world: World) -> None:
    async with world.manager():
        release = await world.made("john", role="view")
        user = world.user("john")
        place = f"{user}-restricted"
        await world.client.patch(permissions.USERS.raw(), release, {"spec": {"role": "admin"}}, permissions.NAMESPACE)

        async def is_admin() -> bool:
            try:
                found = await world.client.get(ROLE_BINDINGS, place, place)
            except kube_errors.NotFound:
                return False
            return found.role_ref.name == "admin"

        await until(is_admin, "the role is admin")
        moved = {"spec": {"namespace": f"other-{world.id}"}}
        await world.client.patch(permissions.USERS.raw(), release, moved, permissions.NAMESPACE)

        async def has_moved() -> bool:
            return await world.exists(ROLE_BINDINGS, place, f"other-{world.id}")

        await until(has_moved, "the binding has moved")
        await world.gone(NAMESPACES, place)


async def test_a_cluster_admin_needs_no_namespace(world: World) -> None:
    async with world.manager():
        release = await world.add("root", role="cluster-admin")
        found = await world.ready(release)
        user = world.user("root")
        assert await world.exists(CLUSTER_ROLE_BINDINGS, f"{user}-cluster-admin")
        assert not any(name.startswith("Namespace/") for name in found.status.objects)
        assert not await world.exists(NAMESPACES, f"{user}-restricted")
        await world.remove(release)
        assert not await world.exists(CLUSTER_ROLE_BINDINGS, f"{user}-cluster-admin")


@pytest.mark.parametrize(
    ("ref", "group", "plural"),
    [
        (permissions.JUPYTER_KERNELS, "apps.brightcomputing.com", "cmjupyterkernels"),
        (permissions.POSTGRESQLS, "acid.zalan.do", "postgresqls"),
        (permissions.SPARKS, "sparkoperator.k8s.io", "sparkapplications"),
    ],
    ids=["jupyter", "postgresql", "spark"],
)
async def test_an_operator_kind_grants_its_own_kinds_in_the_namespace(
    world: World, ref: Any, group: str, plural: str
) -> None:
    async with world.manager():
        await world.made("john")
        user = world.user("john")
        place = f"{user}-restricted"
        release = await world.add("john", place, ref=ref)
        found: Any = await world.ready(release, ref)
        (role,) = [name for name in found.status.objects if name.startswith("Role/") and not name.endswith("operator")]
        rules = (await world.client.get(ROLES_REF, role.rsplit("/", 1)[1], place)).rules or ()
        assert {each.api_groups for each in rules} == {(group,)}
        assert plural in rules[0].resources
        assert all(
            name.startswith((f"Role/{place}", f"RoleBinding/{place}", "Secret/")) for name in found.status.objects
        )
        await world.remove(release, ref)
        assert not await world.exists(ROLES_REF, role.rsplit("/", 1)[1], place)
        assert await world.exists(ROLE_BINDINGS, place, place)


async def test_what_somebody_else_made_is_not_taken_over(world: World) -> None:
    user = world.user("john")
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    await world.client.create(CLUSTER_ROLES.raw(), {"metadata": {"name": f"{user}-nodes"}, "rules": [rule]})
    async with world.manager():
        release = await world.add("john")
        await world.refused(release, f"ClusterRole/{user}-nodes exists")
        assert (await world.client.get(CLUSTER_ROLES, f"{user}-nodes")).rules[0].resources == ("secrets",)  # type: ignore[index]
        await world.remove(release)
        assert await world.exists(CLUSTER_ROLES, f"{user}-nodes")


async def test_without_a_webhook_configuration_nobody_gets_rights(world: World) -> None:
    async with world.manager():
        await world.client.delete(MUTATING_CONFIGURATIONS, manifests.MUTATING)
        # The manager must have heard of it.
        release = ""
        for number in range(20):
            release = await world.add(f"john{number}")
            ready = await asyncio.wait_for(_condition(world, release), 60)
            if ready.status == "False":
                break
        await world.refused(release, "webhook configuration is missing")
        await world.install()
        await world.ready(release)


async def _condition(world: World, release: str) -> Any:
    async def is_told() -> Any:
        return (await world.get(release)).status.ready

    return await until(is_told, f"{release} has a condition")


async def test_a_foreign_finalizer_and_labels_stay(world: World) -> None:
    async with world.manager():
        release = await world.made("john")
        change = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/mine"}]
        await world.client.patch(permissions.USERS.raw(), release, change, permissions.NAMESPACE, type=PatchType.JSON)
        await world.client.delete(permissions.USERS, release, permissions.NAMESPACE)
        await world.gone(ROLE_BINDINGS, f"{world.user('john')}-restricted", f"{world.user('john')}-restricted")

        async def is_left_alone() -> bool:
            return (await world.get(release)).metadata.finalizers == ("example.com/mine",)

        await until(is_left_alone, "only the foreign finalizer is left")
        await world.client.patch(
            permissions.USERS.raw(), release, {"metadata": {"finalizers": None}}, permissions.NAMESPACE
        )
        await world.gone(permissions.USERS, release, permissions.NAMESPACE)


async def own_binding(world: World, place: str) -> None:
    """John, who administers a namespace, gives himself a right there that the manager knows nothing of."""
    binding = {
        "metadata": {"name": "mine"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": world.user("john")}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
    }
    async with world.client_of("john", place) as john:
        await john.create(ROLE_BINDINGS.raw(), binding, place)


async def test_rules_hold_as_long_as_the_user_has_a_binding_of_their_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_RETRY_S", 0.3)
    place = f"old-{world.id}"
    before = await world.client.create(NAMESPACES, {"metadata": {"name": place}})
    async with world.manager():
        release = await world.made("john", place, role="admin")
        await own_binding(world, place)
        await world.client.delete(permissions.USERS, release, permissions.NAMESPACE)
        await world.refused(release, f"RoleBinding {place}/mine still gives")
        assert not await world.exists(ROLE_BINDINGS, f"{world.user('john')}-restricted", place)
        during = await world.client.get(NAMESPACES, place)
        assert permissions.LABEL_POD_RULES in during.metadata.labels
        with pytest.raises(kube_errors.Forbidden, match=f"{release}-limit-hostpath-vols"):
            await world.create(world.client, podtable.mounting("/etc"), place)
        await world.client.delete(ROLE_BINDINGS, "mine", place)
        await world.gone(permissions.USERS, release, permissions.NAMESPACE)
        after = await world.client.get(NAMESPACES, place)
        assert after.metadata.labels == before.metadata.labels


async def test_an_administrator_can_keep_a_binding_and_bindings_from_before_count_for_nothing(world: World) -> None:
    place, earlier = f"old-{world.id}", f"older-{world.id}"
    for name in (place, earlier):
        await world.client.create(NAMESPACES, {"metadata": {"name": name}})
    account = {"metadata": {"name": world.user("john"), "namespace": earlier}}
    await world.client.create(SERVICE_ACCOUNTS.raw(), account)
    subject = {"kind": "ServiceAccount", "name": world.user("john"), "namespace": earlier}
    body = {
        "metadata": {"name": "mine"},
        "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    }
    await world.client.create(ROLE_BINDINGS.raw(), body, earlier)
    # The API server dates objects to the second.
    await asyncio.sleep(1.1)
    async with world.manager():
        await world.remove(await world.made("john", earlier))
        release = await world.made("john", place, role="admin")
        await own_binding(world, place)
        kept = {"metadata": {"annotations": {permissions.ANNOTATION_KEEP_BINDINGS: "true"}}}
        await world.client.patch(permissions.USERS.raw(), release, kept, permissions.NAMESPACE)
        await world.remove(release)
        for name in (place, earlier):
            assert await world.exists(ROLE_BINDINGS, "mine", name)
            assert permissions.LABEL_POD_RULES not in (await world.client.get(NAMESPACES, name)).metadata.labels


async def test_a_namespace_that_was_deleted_by_hand_is_restored_and_told(world: World) -> None:
    async with world.manager():
        release = await world.made("john")
        place = f"{world.user('john')}-restricted"
        await world.client.delete(NAMESPACES, place)
        await world.told(release, "DriftRepaired", f"Namespace/{place}")
        await world.ready(release)
        assert await world.exists(ROLE_BINDINGS, place, place)
