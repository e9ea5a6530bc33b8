"""The ways around the rules, each tried with the user's own credentials on a real API server with its controllers.

Each attack is refused with a message that names the rule, and the same thing without its forbidden part is admitted.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests import programs, servers
from tests.operators.permissions import podtable
from tests.operators.permissions.test_admission_live import volume
from tests.operators.permissions.worlds import CLAIMS, STORAGE_CLASSES, World, world_on
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.permissions import ROLE_BINDINGS, ROLES_REF
from bedplate.api.resources import DEPLOYMENTS, EVENTS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, RawObject, custom
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.operators.permissions import policies

pytestmark = pytest.mark.real
REPLICA_SETS = custom("apps", "v1", "replicasets", "ReplicaSet", True)
POD_TEMPLATES = custom("", "v1", "podtemplates", "PodTemplate", True)
CONTROLLERS = custom("", "v1", "replicationcontrollers", "ReplicationController", True)
STATEFUL_SETS = custom("apps", "v1", "statefulsets", "StatefulSet", True)
JOBS = custom("batch", "v1", "jobs", "Job", True)
DAEMON_SETS = custom("apps", "v1", "daemonsets", "DaemonSet", True)
WORKLOADS = {ref.kind: ref for ref in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, CONTROLLERS, JOBS)}
MAKERS = tuple(f"{name}-controller" for name in ("daemonset", "job", "replicationcontroller", "statefulset"))
"""Controllers of the cluster that make pods for these, besides those that every server of the tests has."""


@pytest.fixture(scope="module")
def cluster() -> Any:
    with programs.own_server("real", controllers=MAKERS) as running:
        yield running


@pytest.fixture
async def world(cluster: servers.Server) -> Any:
    async with world_on(cluster) as made:
        yield made


def root(**context: Any) -> RawObject:
    return podtable.open_pod(runAsUser=0, **context)


def volumes(pod: RawObject, *sources: RawObject) -> RawObject:
    changed = copy.deepcopy(pod)
    changed["spec"]["volumes"] = [{"name": f"v{index}", **source} for index, source in enumerate(sources)]
    return changed


def host(path: str, **more: Any) -> RawObject:
    return {"hostPath": {"path": path, **more}}


def first(pod: RawObject, **fields: Any) -> RawObject:
    changed = copy.deepcopy(pod)
    changed["spec"]["containers"][0].update(fields)
    return changed


def beginning(**context: Any) -> RawObject:
    pod = podtable.open_pod()
    pod["spec"]["initContainers"] = [{"name": "first", "image": "x", "securityContext": context}]
    return pod


OWN, FOREIGN = host("/home/john"), host("/home/jane")
MOUNT = [{"name": "v0", "mountPath": "/m", "subPath": "data"}]
PLAIN = podtable.open_pod()
PODS_TRIED: dict[str, tuple[RawObject, str, RawObject]] = {
    "the path of somebody else": (volumes(PLAIN, FOREIGN), "limit-hostpath-vols", volumes(PLAIN, OWN)),
    "a prefix": (volumes(PLAIN, host("/home/johnny")), "limit-hostpath-vols", volumes(PLAIN, OWN)),
    "the root": (volumes(PLAIN, host("/")), "limit-hostpath-vols", volumes(PLAIN, OWN)),
    "a subPath below a foreign path": (
        first(volumes(PLAIN, host("/home")), volumeMounts=[{"name": "v0", "mountPath": "/m", "subPath": "jane"}]),
        "limit-hostpath-vols",
        first(volumes(PLAIN, OWN), volumeMounts=MOUNT),
    ),
    "the second of two volumes": (volumes(PLAIN, OWN, host("/etc")), "limit-hostpath-vols", volumes(PLAIN, OWN)),
    "a link that root would follow": (
        volumes(PLAIN, host("/home/john/link/new", type="DirectoryOrCreate")),
        "limit-hostpath-vols",
        volumes(PLAIN, host("/home/john/link", type="Directory")),
    ),
    "root with the own path": (volumes(root(), OWN), "drop-privs-w-hostpath", volumes(PLAIN, OWN)),
    "root in one container": (
        first(volumes(PLAIN, OWN), securityContext={"runAsUser": 0}),
        "drop-privs-w-hostpath-containers",
        volumes(PLAIN, OWN),
    ),
    "root in an init container": (beginning(runAsUser=0), "drop-privs-w-hostpath-initcontainers", beginning()),
    "the group of root": (podtable.open_pod(runAsGroup=0), "drop-privs-w-hostpath", PLAIN),
    "a group by supplementalGroups": (podtable.open_pod(supplementalGroups=[0]), "drop-privs-w-hostpath", PLAIN),
    "a group by fsGroup": (podtable.open_pod(fsGroup=0), "drop-privs-w-hostpath", PLAIN),
    "groups of the image": (
        volumes(podtable.open_pod(supplementalGroupsPolicy="Merge"), OWN),
        "drop-privs-w-hostpath",
        volumes(PLAIN, OWN),
    ),
    "a privileged container": (first(PLAIN, securityContext={"privileged": True}), "limit-privileges", PLAIN),
    "a privileged init container": (beginning(privileged=True), "limit-privileges", beginning()),
    "escalation": (first(PLAIN, securityContext={"allowPrivilegeEscalation": True}), "limit-privileges", PLAIN),
    "hostPID": ({**PLAIN, "spec": {**PLAIN["spec"], "hostPID": True}}, "pod-security-baseline", PLAIN),
    "hostIPC": ({**PLAIN, "spec": {**PLAIN["spec"], "hostIPC": True}}, "pod-security-baseline", PLAIN),
    "hostNetwork": ({**PLAIN, "spec": {**PLAIN["spec"], "hostNetwork": True}}, "pod-security-baseline", PLAIN),
    "a port of the node": (
        first(PLAIN, ports=[{"containerPort": 8080, "hostPort": 8080}]),
        "limit-host-ports",
        first(PLAIN, ports=[{"containerPort": 8080}]),
    ),
    "an unmasked proc": (
        {**PLAIN, "spec": {**first(PLAIN, securityContext={"procMount": "Unmasked"})["spec"], "hostUsers": False}},
        "pod-security-baseline",
        PLAIN,
    ),
    "git on the node": (
        volumes(PLAIN, {"gitRepo": {"repository": "https://git.example.com/hooks"}}),
        "limit-volumes",
        volumes(PLAIN, {"emptyDir": {}}),
    ),
    "a capability": (
        first(PLAIN, securityContext={"capabilities": {"add": ["SYS_PTRACE"]}}),
        "pod-security-baseline",
        PLAIN,
    ),
    "a sysctl": (
        podtable.open_pod(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
        "pod-security-baseline",
        PLAIN,
    ),
}


@pytest.mark.parametrize("attack", PODS_TRIED)
async def test_a_pod_is_refused_and_admitted_without_its_forbidden_part(world: World, attack: str) -> None:
    bad, rule, good = PODS_TRIED[attack]
    async with world.manager():
        release = await world.made("john")
        place = f"{world.user('john')}-restricted"
        async with world.client_of("john") as john:
            with pytest.raises(kube_errors.Forbidden, match=f"{release}-{rule}"):
                await world.create(john, bad, place)
            stored = await world.create(john, good, place)
        assert stored["spec"]["securityContext"]["runAsUser"] == 1000


async def test_dots_are_refused_whoever_is_first(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        async with world.client_of("john") as john:
            with pytest.raises((kube_errors.Forbidden, kube_errors.Invalid)):
                await world.create(john, volumes(PLAIN, host("/home/john/../jane")), place)


async def test_a_system_priority_class_is_refused(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        pod = {**PLAIN, "spec": {**PLAIN["spec"], "priorityClassName": "system-node-critical"}}
        async with world.client_of("john") as john:
            with pytest.raises(kube_errors.Forbidden):
                await world.create(john, pod, place)


def workload(ref: Any, template: RawObject) -> RawObject:
    labels = {"app": "attack"}
    pod = {"metadata": {"labels": labels}, "spec": template["spec"]}
    if ref is POD_TEMPLATES:
        return {"metadata": {"name": "attack"}, "template": pod}
    if ref is JOBS:
        return {"metadata": {"name": "attack"}, "spec": {"template": _never_again(pod)}}
    selector = labels if ref is CONTROLLERS else {"matchLabels": labels}
    spec = {"selector": selector, "template": pod, **({} if ref is DAEMON_SETS else {"replicas": 1})}
    return {"metadata": {"name": "attack"}, "spec": {**spec, **({"serviceName": "x"} if ref is STATEFUL_SETS else {})}}


def _never_again(pod: RawObject) -> RawObject:
    return {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}}


@contextlib.asynccontextmanager
async def a_node(world: World) -> AsyncIterator[None]:
    """A DaemonSet has pods where there are nodes."""
    await world.client.create(NODES, {"metadata": {"name": world.id}})
    yield
    await world.client.delete(NODES, world.id)


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_workload_makes_no_pod_that_its_user_could_not(world: World, kind: str) -> None:
    """The controller that makes the pod is not the user: the rules follow the namespace."""
    ref = WORKLOADS[kind]
    async with world.manager(), a_node(world):
        release = await world.made("john")
        place = f"{world.user('john')}-restricted"
        async with world.client_of("john") as john:
            await john.create(ref, workload(ref, volumes(root(), FOREIGN)), place)

            async def is_refused() -> bool:
                found = await world.client.list(EVENTS, place)
                return any(f"{release}-limit-hostpath-vols" in each.message for each in found.items)

            await until(is_refused, "the controller is refused")
            assert (await world.client.list(PODS, place)).items == []
            await john.delete(ref, "attack", place)
            await john.create(ref, workload(ref, PLAIN) | {"metadata": {"name": "good"}}, place)

            async def runs() -> bool:
                found = await world.client.list(PODS.raw(), place)
                return any(each["spec"]["securityContext"].get("runAsUser") == 1000 for each in found.items)

            await until(runs, "the good workload has its pod")


async def test_a_workload_does_not_wait_for_the_end_of_the_rules(world: World, tmp_path: Path) -> None:
    """Its controller tries again and again; the namespace is one that stays when its user goes. The manager has no
    rights but its own."""
    place = f"dev-{world.id}"
    await world.client.create(NAMESPACES, {"metadata": {"name": place}})
    async with world.manager(kubeconfig=str(await world.own_account(tmp_path))):
        release = await world.made("john", place)
        async with world.client_of("john", place) as john:
            await john.create(DEPLOYMENTS, workload(DEPLOYMENTS, volumes(root(), host("/"))), place)
            await john.create(DEPLOYMENTS, workload(DEPLOYMENTS, PLAIN) | {"metadata": {"name": "good"}}, place)
        await world.client.delete(permissions.USERS, release, permissions.NAMESPACE)
        held = await world.refused(release, "Deployment attack (spec.volumes[0].hostPath.path")
        assert held.status.ready.reason == permissions.LEFT_BEHIND
        assert "good" not in held.status.ready.message
        assert not await world.exists(ROLE_BINDINGS, f"{world.user('john')}-restricted", place)
        with pytest.raises(kube_errors.Forbidden, match=f"{release}-limit-hostpath-vols"):
            await world.create(world.client, volumes(root(), host("/")), place)
        await world.client.delete(DEPLOYMENTS, "attack", place)
        await world.gone(permissions.USERS, release, permissions.NAMESPACE)
        assert permissions.LABEL_POD_RULES not in (await world.client.get(NAMESPACES, place)).metadata.labels
        running = (await world.client.list(PODS.raw(), place)).items
        assert not any("hostPath" in volume for each in running for volume in each["spec"].get("volumes", ()))


async def test_a_bare_template_gives_nothing(world: World) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        async with world.client_of("john") as john:
            try:
                await john.create(POD_TEMPLATES, workload(POD_TEMPLATES, volumes(root(), FOREIGN)), place)
            except kube_errors.Forbidden:
                return
            assert (await world.client.list(PODS, place)).items == []


async def debug(client: Client, name: str, place: str, container: RawObject) -> RawObject:
    """What `kubectl debug` does."""
    body = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "x", **container}]}}
    return await client.patch(PODS.raw(), name, body, place, subresource="ephemeralcontainers")


async def may_debug(world: World, place: str) -> None:
    """The right that the ClusterRole edit lacks."""
    rule = {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch", "update"]}
    await world.client.create(ROLES_REF.raw(), {"metadata": {"name": "debug"}, "rules": [rule]}, place)
    binding = {
        "metadata": {"name": "debug"},
        "subjects": [{"kind": "ServiceAccount", "name": world.user("john"), "namespace": place}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "debug"},
    }
    await world.client.create(ROLE_BINDINGS.raw(), binding, place)


async def test_a_debugger_gains_nothing(world: World) -> None:
    async with world.manager():
        release = await world.made("john")
        place = f"{world.user('john')}-restricted"
        await may_debug(world, place)
        async with world.client_of("john") as john:
            pod = await world.create(john, PLAIN, place)
            name = pod["metadata"]["name"]
            for context, rule in (
                ({"privileged": True}, "limit-privileges"),
                ({"runAsUser": 0}, "drop-privs-w-hostpath-ephemeralcontainers"),
                ({"capabilities": {"add": ["SYS_ADMIN"]}}, "pod-security-baseline"),
            ):
                # Rights take a moment to reach the API server's own cache.
                async def is_named(context: Any = context, rule: str = rule) -> bool:
                    with pytest.raises(kube_errors.Forbidden) as refusal:
                        await debug(john, name, place, {"securityContext": context})
                    return f"{release}-{rule}" in str(refusal.value)

                await until(is_named, f"{rule} refuses the debugger")
                with pytest.raises(kube_errors.Forbidden, match=f"{release}-{rule}"):
                    await debug(john, name, place, {"securityContext": context})
            debugged = await debug(john, name, place, {})
            own = debugged["spec"]["ephemeralContainers"][0]["securityContext"]
            assert own["allowPrivilegeEscalation"] is False


def asked_for(name: str, class_: str, volume_name: str = "") -> RawObject:
    """A claim."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class_}
    return {"metadata": {"name": name}, "spec": {**spec, **({"volumeName": volume_name} if volume_name else {})}}


async def paths_and_disks(world: World) -> tuple[str, str]:
    """A volume on a path of the user, and a class whose claims are on no path of a node."""
    own = await volume(world, "own", {"hostPath": {"path": "/home/john/data"}})
    class_ = f"dynamic-{world.id}"
    await world.client.create(STORAGE_CLASSES, {"metadata": {"name": class_}, "provisioner": "example.com/disk"})
    return own, class_


async def test_a_claim_becomes_no_path_of_the_node_under_a_pod_of_root_that_waits(world: World) -> None:
    """Nothing protects the claim of a pod without a node: it can be deleted, and another one take its name."""
    async with world.manager():
        release = await world.made("john", allow_all_uids=True)
        place = f"{world.user('john')}-restricted"
        own, class_ = await paths_and_disks(world)
        waiting = volumes(root(), {"persistentVolumeClaim": {"claimName": "data"}})
        waiting["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        async with world.client_of("john") as john:
            await john.create(CLAIMS, asked_for("data", class_), place)

            async def is_created() -> Any:
                # The claim takes a moment to reach the webhook; until then it may be anything.
                with contextlib.suppress(kube_errors.Forbidden):
                    return await world.create(john, waiting, place)

            stored = await until(is_created, "root has a claim on no path of a node")
            await john.delete(CLAIMS, "data", place)
            # As the controller that protects claims does when no pod with a node has it.
            await world.client.patch(CLAIMS, "data", {"metadata": {"finalizers": None}}, place)
            await world.gone(CLAIMS, "data", place)
            with pytest.raises(kube_errors.Forbidden, match=f"{release}-limit-hostpath-vols: metadata.name"):
                await john.create(CLAIMS, asked_for("data", "", own), place)
            # Later, or by a volume that is bound to it, the pod itself is the reason.
            await john.create(CLAIMS, asked_for("data", ""), place)
            with pytest.raises(kube_errors.Forbidden, match=f"{release}-|a moment ago"):
                await world.client.patch(CLAIMS, "data", {"spec": {"volumeName": own}}, place)
            await john.delete(PODS, stored["metadata"]["name"], place)
            assert (await john.create(CLAIMS, asked_for("other", "", own), place))["spec"]["volumeName"] == own


async def test_a_pod_from_before_gets_no_path_of_the_node_by_a_claim(world: World) -> None:
    place = f"old-{world.id}"
    await world.client.create(NAMESPACES, {"metadata": {"name": place}})
    account = {"metadata": {"name": "default", "namespace": place}}
    with contextlib.suppress(kube_errors.AlreadyExists):
        await world.client.create(SERVICE_ACCOUNTS.raw(), account)
    own, class_ = await paths_and_disks(world)
    template = {"spec": asked_for("", class_)["spec"]}
    named = volumes(root(), {"persistentVolumeClaim": {"claimName": "data"}})
    owning = volumes(root(), {"ephemeral": {"volumeClaimTemplate": template}})
    await world.create(world.client, named, place)
    stored = await world.create(world.client, owning, place)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": stored["metadata"]["name"], "uid": stored["metadata"]["uid"]}
    reserved = asked_for(f"{owner['name']}-v0", "", own)
    await world.client.create(CLAIMS, reserved, place)
    async with world.manager():
        release = await world.made("john", place, allow_all_uids=True)
        async with world.client_of("john", place) as john:
            refusal = f"{release}-drop-privs-w-hostpath.*would use the path"
            with pytest.raises(kube_errors.Forbidden, match=refusal):
                await john.create(CLAIMS, asked_for("data", "", own), place)
            with pytest.raises(kube_errors.Forbidden, match=refusal):
                await john.patch(
                    CLAIMS, reserved["metadata"]["name"], {"metadata": {"ownerReferences": [owner]}}, place
                )
            await john.patch(CLAIMS, reserved["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}}, place)


async def test_a_user_cannot_lift_the_rules(world: World) -> None:
    """Neither the namespace, nor the custom resource, nor the policy, nor a second binding is in a user's hands."""
    async with world.manager():
        release = await world.made("john", role="admin")
        await world.made("jane")
        user, place = world.user("john"), f"{world.user('john')}-restricted"
        binding = {
            "metadata": {"name": "second"},
            "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": place}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        }
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        unmarked = {"metadata": {"labels": {permissions.LABEL_POD_RULES: None}}}
        async with world.client_of("john") as john:
            attempts = (
                john.patch(NAMESPACES.raw(), place, unmarked),
                john.patch(permissions.USERS.raw(), release, {"spec": {"uid": 0}}, permissions.NAMESPACE),
                john.delete(policies.BINDINGS, policies.NAME),
                john.create(ROLE_BINDINGS.raw(), binding, place),
                john.create(ROLES_REF.raw(), {"metadata": {"name": "all"}, "rules": [rule]}, place),
                john.list(PODS, f"{world.user('jane')}-restricted"),
                john.list(PODS),
                world.create(john, PLAIN, "kube-system"),
            )
            for attempt in attempts:
                with pytest.raises(kube_errors.Forbidden):
                    await attempt
            assert (await john.list(NODES)).items == []


async def test_the_token_of_a_pod_opens_no_other_namespace(world: World) -> None:
    """A projected token is one of an account of the namespace, and those have no rights elsewhere."""
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        token = {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "x"}}]}}
        async with world.client_of("john") as john:
            pod = volumes(PLAIN, token)
            pod["spec"]["serviceAccountName"] = world.user("john")
            stored = await world.create(john, pod, place)
            assert stored["spec"]["serviceAccountName"] == world.user("john")
            with pytest.raises(kube_errors.Forbidden):
                await john.list(PODS, "kube-system")
            with pytest.raises(kube_errors.Forbidden):
                await john.list(CLAIMS)


async def test_a_second_user_of_a_namespace_lifts_nothing(world: World) -> None:
    async with world.manager():
        place = f"team-{world.id}"
        first_release = await world.made("john", place)
        second = {"uid": 0, "gids": [0], "user_paths": ["/"], "allow_all_uids": True, "allowPrivileged": True}
        await world.made("jane", place, **second)
        async with world.client_of("jane", place) as jane:
            for bad in (volumes(root(), host("/etc")), first(PLAIN, securityContext={"privileged": True})):
                with pytest.raises(kube_errors.Forbidden, match=f"{first_release}|{place}|limit"):
                    await world.create(jane, bad, place)
