"""Admission on a real and on the embedded API server: the table by policy and webhook, each alone and both; what is
set; what is never hindered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest
from tests.operators.permissions import podtable
from tests.operators.permissions.podtable import Case
from tests.operators.permissions.worlds import CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, World
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.operators.permissions import decision, policies
from bedplate.operators.permissions.decision import decide


async def answer_to(world: World, client: Client, pod: Any, namespace: str) -> str:
    """Why a pod is refused; empty when it is admitted."""
    try:
        await world.create(client, pod, namespace, dry_run=True)
    except kube_errors.Forbidden as err:
        return str(err)
    except kube_errors.BadRequest as err:
        # So Kyverno refuses; a pod that cannot be one has no webhook to name.
        if "admission webhook" not in str(err):
            raise
        return str(err)
    return ""


@contextlib.asynccontextmanager
async def users_of_the_table(world: World) -> AsyncIterator[dict[str, str]]:
    """Each user of the table, ready; the namespaces."""
    places = {}
    for name, spec in podtable.USERS.items():
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in spec.items()}
        await world.made(name, **fields)
        places[name] = f"{world.user(name)}-restricted"
    yield places


async def in_force(world: World, places: dict[str, str]) -> None:
    """Wait until whatever guards the namespaces does so."""

    async def is_guarded() -> bool:
        bad = podtable.mounting("/etc")
        answers = [await answer_to(world, world.client, bad, place) for place in places.values()]
        return all(answers)

    await until(is_guarded, "the rules are in force")


async def compare(
    world: World, places: dict[str, str], *, is_changed: bool, but: Collection[str] = frozenset()
) -> None:
    """Every pod of the table (`but` those): is it judged as the pure function does, naming the same rule?"""
    wrong = []

    async def one(case: Case) -> None:
        rules = podtable.rules(case.user)
        refusals = decide(rules, case.pod).refusals if is_changed else tuple(decision.check(rules, case.pod))
        answer = await answer_to(world, world.client, case.pod, places[case.user])
        is_named = not refusals or any(_short(each.rule, rules) in answer for each in refusals)
        if bool(refusals) != bool(answer) or not is_named:
            wrong.append((case.user, case.name, refusals, answer))

    await asyncio.gather(*(one(case) for case in podtable.cases() if case.name not in but))
    assert not wrong


def _short(rule: str, rules: Any) -> str:
    """The rule without the name of the release, and without the kind of container."""
    return rule.removeprefix(rules.sets[0].release + "-").removesuffix("-containers").removesuffix("-initcontainers")


async def test_the_webhook_alone_judges_every_pod_as_the_function_does(world: World) -> None:
    async with world.manager(admission_policies="off"):
        for ref in (policies.BINDINGS, policies.POLICIES):
            with contextlib.suppress(kube_errors.NotFound):
                await world.client.delete(ref, policies.NAME)
        async with users_of_the_table(world) as places:
            await in_force(world, places)
            for place in places.values():
                namespace = await world.client.get(NAMESPACES.partial(), place)
                assert namespace.metadata.label(permissions.LABEL_POD_RULES) == permissions.BY_WEBHOOK
            await compare(world, places, is_changed=True)


async def test_policy_and_webhook_together_judge_every_pod_as_the_function_does(world: World) -> None:
    async with world.manager(), users_of_the_table(world) as places:
        await in_force(world, places)
        await compare(world, places, is_changed=True)


async def test_an_admitted_pod_is_stored_as_the_function_says(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        async with world.client_of("john") as john:
            stored = await world.create(john, podtable.open_pod(), place)
        wanted = decide(podtable.rules("john"), podtable.open_pod()).pod["spec"]
        assert stored["spec"]["securityContext"] == wanted["securityContext"]
        own = stored["spec"]["containers"][0]["securityContext"]
        assert own == wanted["containers"][0]["securityContext"]


async def test_the_garbage_of_a_pod_can_always_be_removed(world: World) -> None:
    """Deletes, status writes and the removal of finalizers pass, also of a pod from before the rules."""
    place = f"old-{world.id}"
    await world.client.create(NAMESPACES, {"metadata": {"name": place}})
    account = {"metadata": {"name": "default", "namespace": place}}
    with contextlib.suppress(kube_errors.AlreadyExists):
        await world.client.create(SERVICE_ACCOUNTS.raw(), account)
    bad = podtable.mounting("/etc", podtable.whole(runAsUser=0))
    bad["metadata"] = {"finalizers": ["example.com/mine"]}
    stored = await world.create(world.client, bad, place)
    name = stored["metadata"]["name"]
    async with world.manager():
        await world.made("john", place)
        await world.client.patch(PODS.raw(), name, {"status": {"phase": "Running"}}, place, subresource="status")
        await world.client.delete(PODS, name, place, grace_period_s=0)
        await world.client.patch(PODS.raw(), name, {"metadata": {"finalizers": None}}, place)
        await world.gone(PODS, name, place)


async def test_nobody_else_is_asked_about_while_the_webhook_is_down(world: World) -> None:
    async with world.manager():
        await world.made("john")
    place, free = f"{world.user('john')}-restricted", f"free-{world.id}"
    await world.client.create(NAMESPACES, {"metadata": {"name": free}})
    for other in (free, "kube-system"):
        assert await created_in(world, other)
    with pytest.raises(kube_errors.ApiError):
        await world.create(world.client, podtable.complete(), place)
    async with world.manager():
        assert await until(lambda: created_in(world, place), "pods are admitted again")


async def test_a_namespace_of_the_cluster_is_not_hindered_by_a_label_that_somebody_put_on_it(world: World) -> None:
    marked = {"metadata": {"labels": {permissions.LABEL_POD_RULES: permissions.BY_POLICY}}}
    async with world.manager():
        await world.made("john")
        await in_force(world, {"john": f"{world.user('john')}-restricted"})
        free = f"free-{world.id}"
        await world.client.create(NAMESPACES, {"metadata": {"name": free, **marked["metadata"]}})
        await world.client.patch(NAMESPACES.raw(), "kube-system", marked)

        async def is_hindered() -> bool:
            return not await created_in(world, free)

        await until(is_hindered, "the label hinders where it may")
        assert await created_in(world, "kube-system")


async def created_in(world: World, namespace: str) -> bool:
    account = {"metadata": {"name": "default", "namespace": namespace}}
    with contextlib.suppress(kube_errors.AlreadyExists):
        await world.client.create(SERVICE_ACCOUNTS.raw(), account)
    try:
        await world.create(world.client, podtable.complete(), namespace)
    except kube_errors.ApiError:
        return False
    return True


async def volume(world: World, name: str, source: Any, **metadata: Any) -> str:
    """A volume of the cluster."""
    made = f"{name}-{world.id}"
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
    if "local" in source:
        spec["nodeAffinity"] = affinity
    await world.client.create(PERSISTENT_VOLUMES, {"metadata": {"name": made, **metadata}, "spec": spec})
    return made


async def claim(world: World, client: Client, namespace: str, volume_name: str, class_: str | None = "") -> Any:
    """Claim a volume by name."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": volume_name,
        "storageClassName": class_,
    }
    body = {"metadata": {"generateName": "claim-"}, "spec": spec}
    return await client.create(CLAIMS, body, namespace)


async def test_claims_on_paths_of_nodes_are_held_to_the_users_paths(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        etc = await volume(world, "etc", {"hostPath": {"path": "/etc"}})
        local = await volume(world, "local", {"local": {"path": "/mnt/disk"}})
        own = await volume(world, "own", {"hostPath": {"path": "/home/john/data"}})
        served = await volume(
            world,
            "served",
            {"hostPath": {"path": "/opt/local-path/x"}},
            annotations={permissions.ANNOTATION_PROVISIONED_BY: "rancher.io/local-path"},
        )
        async with world.client_of("john") as john:
            for name in (etc, local, "absent"):
                with pytest.raises(kube_errors.Forbidden, match="limit-hostpath-vols"):
                    await claim(world, john, place, name)
            for name in (own, served):
                assert (await claim(world, john, place, name))["spec"]["volumeName"] == name


async def test_a_claim_cannot_be_bound_to_a_foreign_path_later(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        etc = await volume(world, "etc", {"hostPath": {"path": "/etc"}})
        async with world.client_of("john") as john:
            made = await claim(world, john, place, "")
            name = made["metadata"]["name"]
            with pytest.raises(kube_errors.Forbidden, match="limit-hostpath-vols"):
                await world.client.patch(CLAIMS, name, {"spec": {"volumeName": etc}}, place)
            await john.patch(CLAIMS, name, {"metadata": {"labels": {"a": "b"}}}, place)
            await john.delete(CLAIMS, name, place)


async def test_a_claim_on_an_own_path_makes_the_pod_run_as_the_user(world: World) -> None:
    async with world.manager():
        await world.made("john", allow_all_uids=True)
        place = f"{world.user('john')}-restricted"
        own = await volume(world, "own", {"hostPath": {"path": "/home/john/data"}})
        class_ = f"dynamic-{world.id}"
        await world.client.create(STORAGE_CLASSES, {"metadata": {"name": class_}, "provisioner": "example.com/disk"})
        async with world.client_of("john") as john:
            bound = (await claim(world, john, place, own))["metadata"]["name"]
            dynamic = (await claim(world, john, place, "", class_))["metadata"]["name"]

            def using(name: str, **context: Any) -> Any:
                pod = podtable.open_pod(**context)
                pod["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": name}}]
                return pod

            with pytest.raises(kube_errors.Forbidden, match="drop-privs-w-hostpath"):
                await world.create(john, using(bound, runAsUser=0), place)
            stored = await world.create(john, using(bound), place)
            assert stored["spec"]["securityContext"]["runAsUser"] == 1000

            async def is_known() -> bool:
                return not await answer_to(world, john, using(dynamic, runAsUser=0), place)

            await until(is_known, "a claim of a class with a provisioner is free")
