"""`bedplate can` beside a real API server: the same answer about random users, pods, verbs and namespaces.

The server is asked with dry-run creates in the user's name and with SubjectAccessReviews. A failure prints the seed;
`BEDPLATE_TEST_SEED` gives it back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.setup.people.managed import Place, managed_cluster
from tests.setup.people.worlds import People, World

from bedplate.api import permissions
from bedplate.api.resources import NAMESPACES, PODS, SUBJECT_ACCESS_REVIEWS, RawObject
from bedplate.apiserver.access.subjects import Attributes
from bedplate.cli.can import answer, objects
from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.kube.config import Impersonation
from bedplate.setup.people.request import Action

pytestmark = pytest.mark.real

PODS_ASKED, RIGHTS_ASKED = 400, 400
STORAGE_CLASSES = permissions.STORAGE_CLASSES.raw()
HOME = "/home/user"
USERS = {
    "plain": {},
    "viewer": {"role": "view"},
    "leader": {"role": "admin", "user_paths": f"{HOME},/scratch"},
    "anyone": {"allow_all_uids": True},
    "operator": {"operators": "spark-operator"},
    "boss": {"role": "cluster-admin"},
}
NAMES = ("default", "base", "strict", "shared", "absent", *(f"{user}-restricted" for user in USERS if user != "boss"))
CLAIMS = ("outside", "inside", "made", "open", "later", "unseen")
PATHS = (HOME, f"{HOME}/data", f"{HOME}2", "/scratch/x", "/etc", "/", "/home")
RESOURCES = (
    ("", "pods", ""),
    ("", "pods", "log"),
    ("", "secrets", ""),
    ("", "nodes", ""),
    ("", "namespaces", ""),
    ("apps", "deployments", ""),
    ("batch", "jobs", "status"),
    ("rbac.authorization.k8s.io", "rolebindings", ""),
    ("sparkoperator.k8s.io", "sparkapplications", ""),
    ("charts.brightcomputing.com", permissions.USERS.plural, ""),
)
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate")


@asynccontextmanager
async def world_of(place: Place) -> AsyncIterator[World]:
    async with Client(config.load(place.server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        yield World(place.server, client, People(place.folder, tuple(USERS)), place.ca)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Users of every kind, and namespaces with and without rules."""

    async def prepare(running: Place) -> None:
        async with world_of(running) as world:
            await furnish(world)

    with managed_cluster("real", tmp_path_factory.mktemp("can")) as running:
        asyncio.run(prepare(running))
        yield running


@pytest.fixture
async def world(place: Place) -> AsyncIterator[World]:
    async with world_of(place) as opened:
        yield opened


async def furnish(world: World) -> None:
    levels: dict[str, dict[str, str]] = {"base": {}, "strict": {}, "shared": {}}
    levels["base"]["pod-security.kubernetes.io/enforce"] = "baseline"
    levels["strict"]["pod-security.kubernetes.io/enforce"] = "restricted"
    for name, labels in levels.items():
        await world.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    for user, settings in USERS.items():
        ids = {"runas_uid": "1000", "runas_gids": "1000,2000", "user_paths": HOME}
        await world.run(Action.ADD, user, **{**ids, **settings})
    for user in ("plain", "leader"):
        await world.run(Action.MODIFY, user, namespace="shared", add_to_namespace=True)
    # Hand-made rights beside ours.
    for namespace in ("default", "base", "strict"):
        await world.client.create(
            permissions.ROLE_BINDINGS.raw(),
            {
                "metadata": {"name": "hand-made"},
                "roleRef": {"apiGroup": permissions._RBAC, "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"apiGroup": permissions._RBAC, "kind": "User", "name": "anyone"}],
            },
            namespace,
        )
    await _claims(world.client)


async def _claims(client: Client) -> None:
    """Claims on a path of the node, on one of the user's, on what a provisioner made, and on nothing yet."""
    kinds = {"outside": "/etc", "inside": f"{HOME}/claim", "made": "/var/made"}
    for name, path in kinds.items():
        annotations = {permissions.ANNOTATION_PROVISIONED_BY: "test"} if name == "made" else {}
        await client.create(
            permissions.PERSISTENT_VOLUMES.raw(),
            {
                "metadata": {"name": name, "annotations": annotations},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": path},
                    "storageClassName": "",
                },
            },
        )
    await client.create(STORAGE_CLASSES, {"metadata": {"name": "disk"}, "provisioner": "disk.example.com"})
    for namespace in ("plain-restricted", "anyone-restricted", "default"):
        for name in (*kinds, "open", "later"):
            spec = _template(storageClassName="disk" if name == "later" else "")
            if name in kinds:
                spec["volumeName"] = name
            try:
                await client.create(permissions.CLAIMS.raw(), {"metadata": {"name": name}, "spec": spec}, namespace)
            except errors.Denied:
                assert name == "outside" and namespace != "default"


TEMPLATES: tuple[RawObject, ...] = (
    {"storageClassName": "disk"},
    {"storageClassName": "absent"},
    {"storageClassName": ""},
    {"storageClassName": "disk", "volumeName": "inside"},
)


def _template(**more: Any) -> RawObject:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **more}


def random_pod(rng: random.Random) -> RawObject:
    """A pod that is valid, with some of the things that rules are about."""

    def sometimes(values: RawObject, share: float = 0.12) -> RawObject:
        return {key: rng.choice(value) for key, value in values.items() if rng.random() < share}

    spec: RawObject = sometimes(
        {
            "hostNetwork": [True],
            "hostPID": [True, False],
            "hostIPC": [True],
            "priorityClassName": ["system-node-critical", "absent-class"],
            "serviceAccountName": ["default", "absent-account"],
            "priority": [0, 7],
            "preemptionPolicy": ["Never", "PreemptLowerPriority"],
            "runtimeClassName": ["absent-runtime"],
            "hostUsers": [False, True],
            "nodeName": ["node-1"],
            "tolerations": [[{"operator": "Exists"}]],
            "shareProcessNamespace": [True],
            "schedulingGates": [[{"name": "example.com/wait"}]],
        },
        0.06,
    )
    if spec.get("hostUsers") is False:
        # An API server refuses both together.
        spec = {key: value for key, value in spec.items() if key not in ("hostNetwork", "hostPID", "hostIPC")}
    if "schedulingGates" in spec:
        spec.pop("nodeName", None)
    context = sometimes(
        {
            "runAsUser": [0, 7, 1000],
            "runAsGroup": [7, 1000, 2000],
            "fsGroup": [7, 1000],
            "supplementalGroups": [[2000], [7], [1000, 2000]],
            "supplementalGroupsPolicy": ["Strict", "Merge"],
            "runAsNonRoot": [True],
            "seccompProfile": [{"type": "RuntimeDefault"}, {"type": "Unconfined"}],
            "seLinuxOptions": [{"type": "container_t"}, {"type": "spc_t"}, {"user": "root"}],
            "sysctls": [[{"name": "net.ipv4.tcp_syncookies", "value": "1"}], [{"name": "kernel.msgmax", "value": "1"}]],
        }
    )
    if context:
        spec["securityContext"] = context
    spec["containers"] = [random_container(rng, f"c{index}", sometimes) for index in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        spec["initContainers"] = [random_container(rng, "init", sometimes)]
    sources: list[RawObject] = [
        *({"hostPath": {"path": path}} for path in PATHS),
        {"hostPath": {"path": HOME, "type": "DirectoryOrCreate"}},
        {"emptyDir": {}},
        {"configMap": {"name": "x"}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        *({"persistentVolumeClaim": {"claimName": name}} for name in CLAIMS),
        {"nfs": {"server": "10.0.0.1", "path": "/"}},
        {"image": {"reference": "busybox"}},
        {"csi": {"driver": "disk.example.com", "volumeAttributes": {"path": "/etc"}}},
        *({"ephemeral": {"volumeClaimTemplate": {"spec": _template(**more)}}} for more in TEMPLATES),
    ]
    chosen = rng.sample(sources, rng.choice((0, 0, 1, 1, 2)))
    spec["volumes"] = [{"name": f"v{index}", **source} for index, source in enumerate(chosen)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "random"}, "spec": spec}


def random_container(rng: random.Random, name: str, sometimes: Any) -> RawObject:
    context = sometimes(
        {
            "runAsUser": [0, 1000, 7],
            "runAsGroup": [1000, 7],
            "runAsNonRoot": [True, False],
            "allowPrivilegeEscalation": [True, False],
            "privileged": [True, False],
            "capabilities": [{"add": ["NET_ADMIN"]}, {"add": ["CHOWN"]}, {"drop": ["ALL"]}],
            "seccompProfile": [{"type": "RuntimeDefault"}, {"type": "Unconfined"}],
            "appArmorProfile": [{"type": "Unconfined"}, {"type": "RuntimeDefault"}],
        }
    )
    if rng.random() < 0.3:
        # All that the standard `restricted` asks for, or random pods would never pass it.
        context |= {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
        context |= {"seccompProfile": {"type": "RuntimeDefault"}}
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        del context["privileged"]
    ports = [{"containerPort": 8080, **({"hostPort": 8080} if rng.random() < 0.2 else {})}] if name == "c0" else []
    probe = {"tcpSocket": {"port": 8080, **({"host": "10.0.0.1"} if rng.random() < 0.3 else {})}}
    extra = {"livenessProbe": probe} if rng.random() < 0.2 and name != "init" else {}
    return {"name": name, "image": "busybox", "ports": ports, "securityContext": context, **extra}


async def live(client: Client, pod: RawObject, namespace: str) -> tuple[bool, str]:
    """The server's own answer."""
    try:
        await client.create(PODS, pod, namespace, dry_run=True)
    except (errors.Denied, errors.NotFound) as err:
        return False, str(err)
    return True, ""


async def test_the_answer_about_a_pod_is_the_servers(world: World, rng: random.Random) -> None:
    known = await objects.from_cluster(world.client)
    policy = answer.policy_of(known)
    counts = {True: 0, False: 0}
    for user in USERS:
        person = replace(world.client.config, impersonate=Impersonation(user, groups=("system:authenticated",)))
        async with Client(person) as client:
            for _ in range(PODS_ASKED // len(USERS)):
                namespace = rng.choice((rng.choice(NAMES), f"{user}-restricted" if user != "boss" else "shared"))
                pod = random_pod(rng)
                ours = answer.may_run(answer.user_of(user), pod, known, namespace, policy)
                theirs, reason = await live(client, pod, namespace)
                assert ours.is_yes is theirs, (user, namespace, pod, ours.reasons, reason)
                counts[theirs] += 1
    # Both answers must occur, or the comparison says little.
    assert min(counts.values()) >= PODS_ASKED // 20, counts


async def test_the_answer_about_a_right_is_the_servers(world: World, rng: random.Random) -> None:
    known = await objects.from_cluster(world.client)
    policy = answer.policy_of(known)
    for _ in range(RIGHTS_ASKED):
        user, verb, namespace = rng.choice((*USERS, "nobody")), rng.choice(VERBS), rng.choice(NAMES)
        group, resource, subresource = rng.choice(RESOURCES)
        wish = Attributes(verb, group, "v1", resource, subresource, namespace)
        about = {
            "verb": verb,
            "group": group,
            "version": "v1",
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
        }
        question = {"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": about}}
        theirs = (await world.client.create(SUBJECT_ACCESS_REVIEWS, question)).status.allowed
        assert policy.decide(answer.user_of(user), wish).allowed is theirs, (user, wish)
