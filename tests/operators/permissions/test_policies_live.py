"""The policy of the API server by itself, the rights of roles, Helm, and an outage: on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests import programs, servers
from tests.operators.permissions import podtable
from tests.operators.permissions.test_admission_live import compare, in_force, users_of_the_table
from tests.operators.permissions.worlds import POLICY_REFS, World, world_on
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.resources import EVENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS, SUBJECT_ACCESS_REVIEWS
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import manifests, objects, policies
from bedplate.operators.permissions.objects import ClusterFacts
from bedplate.operators.permissions.rules import NamespaceRules
from bedplate.program.webhookcertificates import CONFIGURATIONS, MUTATING_CONFIGURATIONS

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster() -> Iterator[servers.Server]:
    with programs.own_server("real") as running:
        yield running


@pytest.fixture
async def world(cluster: servers.Server) -> AsyncIterator[World]:
    async with world_on(cluster) as made:
        yield made


async def without_webhooks(world: World) -> None:
    """The configurations stay, so that rights are given, but select nothing."""
    nothing = {"matchLabels": {"no": "namespace"}}
    for ref in (MUTATING_CONFIGURATIONS, CONFIGURATIONS):
        found = await world.client.get(ref, manifests.MUTATING)
        change = [
            {"op": "add", "path": f"/webhooks/{index}/namespaceSelector", "value": nothing}
            for index in range(len(found["webhooks"]))
        ]
        await world.client.patch(ref, manifests.MUTATING, change, type=PatchType.JSON)


async def test_the_policy_alone_judges_every_pod_as_the_function_does(world: World) -> None:
    async with world.manager():
        await without_webhooks(world)
        async with users_of_the_table(world) as places:
            await in_force(world, places)
            await compare(world, places, is_changed=False)


async def test_a_policy_that_somebody_removes_is_back_and_told(world: World) -> None:
    """The pods of users are held to the rules meanwhile: the webhook judges them, too."""
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        for ref in POLICY_REFS:
            await world.client.delete(ref, policies.NAME)
            with pytest.raises(kube_errors.Forbidden, match="limit-hostpath-vols"):
                await world.create(world.client, podtable.mounting("/etc"), place)

            async def is_told(kind: str = ref.kind) -> bool:
                found = await world.client.list(EVENTS, "default", field_selector=f"involvedObject.kind={kind}")
                told = [each for each in found.items if each.reason == "DriftRepaired"]
                return any(f"{kind}/{policies.NAME} was deleted" in each.message for each in told)

            await until(is_told, f"the {ref.kind} is restored")
            assert await world.client.get(ref, policies.NAME)


async def test_a_team_of_many_with_many_paths_is_not_too_much_for_the_policy(world: World) -> None:
    """An API server refuses a pod when its expressions cost too much."""
    place, paths = f"team-{world.id}", tuple(f"/project/{number}/shared" for number in range(10))
    team = [podtable.resource(f"user{number}", place, user_paths=paths) for number in range(40)]
    metadata = {
        "labels": {permissions.LABEL_POD_RULES: permissions.BY_POLICY},
        "annotations": NamespaceRules.of(team).annotations(),
    }
    good, bad = podtable.complete(), podtable.mounting("/etc")
    for number in range(20):
        good = podtable.mounting(f"{paths[-1]}/deep/below/{number}", good)
        good["spec"]["volumes"][-1]["name"] = f"v{number}"
    async with world.manager():
        await without_webhooks(world)
        await world.client.create(NAMESPACES, {"metadata": {"name": place, **metadata}})
        account = {"metadata": {"name": "default", "namespace": place}}
        with contextlib.suppress(kube_errors.AlreadyExists):
            await world.client.create(SERVICE_ACCOUNTS.raw(), account)
        await in_force(world, {"team": place})
        await world.create(world.client, good, place, dry_run=True)
        with pytest.raises(kube_errors.Forbidden, match="limit-hostpath-vols"):
            await world.create(world.client, bad, place, dry_run=True)


# What each role may do in the namespace, and beside it.
MATRIX = {
    "view": {"get pods": True, "create pods": False, "get secrets": False, "create rolebindings": False},
    "edit": {"get pods": True, "create pods": True, "get secrets": True, "create rolebindings": False},
    "admin": {"get pods": True, "create pods": True, "get secrets": True, "create rolebindings": True},
    "cluster-admin": {"get pods": True, "create pods": True, "get secrets": True, "create rolebindings": True},
}


async def may(world: World, user: str, what: str, namespace: str) -> bool:
    """`kubectl auth can-i`."""
    verb, resource = what.split()
    group = "rbac.authorization.k8s.io" if resource.startswith("role") else ""
    attributes = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
    body = {"spec": {"user": user, "resourceAttributes": attributes}}
    answer = await world.client.create(SUBJECT_ACCESS_REVIEWS.raw(), body)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("role", MATRIX)
async def test_a_role_gives_what_its_name_says_and_nothing_elsewhere(world: World, role: str) -> None:
    async with world.manager():
        await world.ready(await world.add("john", role=role))
        user, is_everywhere = world.user("john"), role == "cluster-admin"
        place = "default" if is_everywhere else f"{user}-restricted"

        async def is_so() -> bool:
            return {what: await may(world, user, what, place) for what in MATRIX[role]} == MATRIX[role]

        await until(is_so, f"the rights of {role}")
        assert await may(world, user, "list nodes", "")
        assert await may(world, user, "get pods", "kube-system") is is_everywhere
        assert await may(world, user, "delete nodes", "") is is_everywhere


async def test_helm_shows_the_manifest_of_a_user(world: World) -> None:
    helm = programs.built("helm", programs.HELM)
    async with world.manager():
        release = await world.made("john")
        command = [str(helm), "--kubeconfig", str(world.server.kubeconfig), "-n", permissions.NAMESPACE]
        done = await asyncio.to_thread(
            subprocess.run, [*command, "get", "manifest", release], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        shown = [each for each in yaml.safe_load_all(done.stdout) if each]
        resource = await world.get(release)
        named = msgspec.structs.replace(resource, kind=permissions.USERS.kind)
        assert shown == objects.objects(named, ClusterFacts(has_policies=True))
        listed = await asyncio.to_thread(
            subprocess.run, [*command, "list", "-q"], capture_output=True, text=True, check=False
        )
        assert release in listed.stdout.split()


@contextlib.asynccontextmanager
async def program(world: World) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The manager as a process of its own, from the moment on when it is ready."""
    command = [
        str(Path(sys.executable).parent / "permissions-manager"),
        f"--kubeconfig={world.server.kubeconfig}",
        f"--webhook-port={world.port}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: is_ready(world.port), "the manager is ready")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()


async def is_ready(port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return False
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    try:
        answer = await reader.read()
    except OSError:
        return False
    finally:
        writer.close()
    return b" 200 " in answer.split(b"\r\n", 1)[0]


USERS = 50
PAUSE_S = 0.1
"""Between two pods of one user: fifty who never wait would measure the machine."""


class Attack:
    """Every user tries bad pods all the time. What slipped through, and how often each was refused."""

    def __init__(self, world: World, places: list[str]) -> None:
        self.slipped: list[str] = []
        self.refused = dict.fromkeys(places, 0)
        self._world = world
        self._tasks = [asyncio.create_task(self._one(place)) for place in places]

    async def _one(self, place: str) -> None:
        bad = podtable.mounting("/etc", podtable.open_pod(runAsUser=0))
        while True:
            try:
                await self._world.create(self._world.client, bad, place)
                self.slipped.append(place)
            except kube_errors.ApiError:
                self.refused[place] += 1
            await asyncio.sleep(PAUSE_S)

    async def everybody_tried(self) -> None:
        """Wait until every user was refused once more than now."""
        before = dict(self.refused)
        # One that was under way when this began may have been decided before it.
        await until(
            lambda: all(count >= before[place] + 2 for place, count in self.refused.items()), "everybody has tried"
        )

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def admitted(world: World, place: str) -> bool:
    try:
        await world.create(world.client, podtable.open_pod(), place)
    except kube_errors.ApiError:
        return False
    return True


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An answer that is none."""
    with contextlib.suppress(OSError):
        await reader.read(100)
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}')
        await writer.drain()
    writer.close()


async def test_nothing_slips_through_while_the_webhook_is_killed_frozen_or_wrong(world: World) -> None:
    free = f"free-{world.id}"
    await world.client.create(NAMESPACES, {"metadata": {"name": free}})
    for ref in (MUTATING_CONFIGURATIONS, CONFIGURATIONS):
        change = [
            {"op": "add", "path": f"/webhooks/{index}/timeoutSeconds", "value": 1}
            for index in range(1 if ref is MUTATING_CONFIGURATIONS else 2)
        ]
        await world.client.patch(ref, manifests.MUTATING, change, type=PatchType.JSON)
    async with program(world) as process:
        names = [f"user{number}" for number in range(USERS)]
        for release in await asyncio.gather(*map(world.add, names)):
            await world.ready(release)
        places = [f"{world.user(name)}-restricted" for name in names]
        attack = Attack(world, places)
        await until(lambda: admitted(world, places[0]), "good pods are admitted")
        await attack.everybody_tried()
        process.send_signal(signal.SIGSTOP)
        await attack.everybody_tried()
        assert not await admitted(world, places[0])
        await until(lambda: admitted(world, free), "others are not hindered")
        process.send_signal(signal.SIGCONT)
        await until(lambda: admitted(world, places[0]), "good pods are admitted after a stop")
        process.kill()
        process.wait()
        await attack.everybody_tried()
        assert not await admitted(world, places[0])
        assert await admitted(world, free)
    server = await asyncio.start_server(garbage, "127.0.0.1", world.port)
    await attack.everybody_tried()
    assert not await admitted(world, places[0])
    assert await admitted(world, free)
    server.close()
    async with program(world):
        await until(lambda: admitted(world, places[0]), "good pods are admitted without a hand")
        await attack.everybody_tried()
        await attack.end()
    assert attack.slipped == []
    for place in places:
        found = await world.client.list(PODS.raw(), place)
        assert all(each["spec"]["securityContext"]["runAsUser"] == 1000 for each in found.items)


async def test_two_replicas_answer_and_one_of_them_writes(world: World) -> None:
    """The second takes over the port's work when the first one ends: here both share a certificate."""
    async with world.manager() as first:
        other = World(world.server, world.client, servers.free_port())
        async with other.manager() as second:
            replicas = (first.leadership, second.leadership)
            await until(lambda: sum(each.is_leading for each in replicas) == 1, "one of them leads")
            assert first.webhook is not None and second.webhook is not None
            assert first.webhook.pair._content == second.webhook.pair._content
            await world.made("john")
            place = f"{world.user('john')}-restricted"
            async with world.client_of("john") as john:
                await point_at(world.client, other.url)
                assert (await created(world, john, place))["spec"]["securityContext"]["runAsUser"] == 1000


async def created(world: World, client: Client, place: str) -> Any:
    async def is_created() -> Any:
        try:
            return await world.create(client, podtable.open_pod(), place)
        except kube_errors.InternalError:
            return None

    return await until(is_created, "a pod is created")


async def point_at(client: Client, url: str) -> None:
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url + manifests.MUTATE_PODS}]
    await client.patch(MUTATING_CONFIGURATIONS, manifests.MUTATING, change, type=PatchType.JSON)
