"""The server's own controllers against a client that does everything at once and in the wrong order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from tests.endurance import running
from tests.waiting import until

QUIET_S = 1.5
POLICY = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
APPS = "/apis/apps/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Embedded]:
    with running.Embedded(tmp_path_factory.mktemp("consistency")).running() as server:
        yield server
        assert server.faults == []


class Api:
    """JSON over HTTP as the administrator, or as another user."""

    def __init__(self, session: aiohttp.ClientSession, user: str = "") -> None:
        self._session = session
        self._headers = {"Impersonate-User": user} if user else {}

    def acting_as(self, user: str) -> Api:
        return Api(self._session, user)

    async def __call__(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> tuple[int, Any]:
        headers = self._headers | ({"Content-Type": media} if body is not None else {})
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            return answer.status, json.loads(await answer.read() or b"null")

    async def create(self, path: str, body: Any) -> Any:
        code, found = await self("POST", path, body)
        assert code == 201, found
        return found

    async def items(self, path: str) -> list[Any]:
        code, found = await self("GET", path)
        assert code == 200, found
        return list(found["items"])

    async def exists(self, path: str) -> bool:
        return (await self("GET", path))[0] == 200

    async def patch(self, path: str, body: Any) -> Any:
        code, found = await self("PATCH", path, body, "application/merge-patch+json")
        assert code == 200, found
        return found


@pytest.fixture
async def api(server: running.Embedded) -> AsyncIterator[Api]:
    async with running.session(server.server) as session:
        found = Api(session)
        await until(lambda: found.exists("/api/v1/namespaces/default/serviceaccounts/default"), "a default account")
        yield found


def owned(name: str, *owners: Any, blocks: bool = False, kind: str = "ConfigMap") -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner.get("apiVersion", "v1"),
            "kind": owner.get("kind", kind),
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references}}


async def test_nothing_is_left_in_a_namespace_that_is_gone(api: Api) -> None:
    for round_number in range(10):
        name = f"doomed-{round_number}"
        await api.create("/api/v1/namespaces", {"metadata": {"name": name}})

        async def fill(worker: int, name: str = name) -> None:
            for number in range(100):
                body = {"metadata": {"name": f"x-{worker}-{number}"}}
                code, answer = await api("POST", f"/api/v1/namespaces/{name}/configmaps", body)
                if code != 201:
                    assert code in (403, 404), answer
                    return

        writers = [asyncio.create_task(fill(worker)) for worker in range(8)]
        await asyncio.sleep(0.02)
        assert (await api("DELETE", f"/api/v1/namespaces/{name}"))[0] == 200
        await asyncio.gather(*writers)

        async def gone(name: str = name) -> bool:
            return not await api.exists(f"/api/v1/namespaces/{name}")

        await until(gone, f"{name} gone")
        left = [one for one in await api.items("/api/v1/configmaps") if one["metadata"]["namespace"] == name]
        assert left == []


async def test_a_dependent_of_a_kind_just_defined_is_not_taken_for_an_orphan(api: Api) -> None:
    for number in range(5):
        names = {"plural": f"owners{number}", "singular": f"owner{number}", "kind": f"Owner{number}"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "race.example", "scope": "Namespaced", "names": names, "versions": [version]}
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await api.create(path, {"metadata": {"name": f"owners{number}.race.example"}, "spec": spec})
        custom = f"/apis/race.example/v1/namespaces/default/owners{number}"
        body = {"apiVersion": "race.example/v1", "kind": f"Owner{number}", "metadata": {"name": "o"}}
        owner = await api.create(custom, body)
        await api.create(CONFIGMAPS, owned(f"kept-{number}", owner))
    await asyncio.sleep(QUIET_S)
    assert [await api.exists(f"{CONFIGMAPS}/kept-{number}") for number in range(5)] == [True] * 5
    assert (await api("DELETE", "/apis/race.example/v1/namespaces/default/owners0/o"))[0] == 200

    async def gone() -> bool:
        return not await api.exists(f"{CONFIGMAPS}/kept-0")

    await until(gone, "the dependent of a deleted owner gone")


async def test_an_owner_of_the_same_name_is_not_the_owner(api: Api) -> None:
    first = await api.create(CONFIGMAPS, {"metadata": {"name": "again"}})
    assert (await api("DELETE", f"{CONFIGMAPS}/again"))[0] == 200
    await api.create(CONFIGMAPS, {"metadata": {"name": "again"}})
    await api.create(CONFIGMAPS, owned("stale", first, kind="ConfigMap"))

    async def gone() -> bool:
        return not await api.exists(f"{CONFIGMAPS}/stale")

    await until(gone, "an object whose owner is another now")
    assert await api.exists(f"{CONFIGMAPS}/again")


async def test_owners_in_a_circle_can_be_deleted(api: Api) -> None:
    a = await api.create(CONFIGMAPS, {"metadata": {"name": "circle-a"}})
    b = await api.create(CONFIGMAPS, owned("circle-b", a, blocks=True))
    await api.patch(f"{CONFIGMAPS}/circle-a", owned("circle-a", b, blocks=True))
    await api("DELETE", f"{CONFIGMAPS}/circle-a", {"propagationPolicy": "Foreground"})

    async def gone() -> bool:
        return not await api.exists(f"{CONFIGMAPS}/circle-a") and not await api.exists(f"{CONFIGMAPS}/circle-b")

    await until(gone, "two objects that own each other gone")


async def test_foreground_waits_for_blocking_dependents_only(api: Api) -> None:
    owner = await api.create(CONFIGMAPS, {"metadata": {"name": "fg"}})
    held = owned("fg-blocks", owner, blocks=True)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await api.create(CONFIGMAPS, held)
    free = owned("fg-free", owner)
    free["metadata"]["finalizers"] = ["example.com/hold"]
    await api.create(CONFIGMAPS, free)
    await api("DELETE", f"{CONFIGMAPS}/fg", {"propagationPolicy": "Foreground"})
    await asyncio.sleep(QUIET_S)
    assert await api.exists(f"{CONFIGMAPS}/fg")
    await api.patch(f"{CONFIGMAPS}/fg-blocks", {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        return not await api.exists(f"{CONFIGMAPS}/fg")

    await until(gone, "the owner gone when nothing blocks it")
    await api.patch(f"{CONFIGMAPS}/fg-free", {"metadata": {"finalizers": None}})


def deployment(name: str, replicas: int = 2, **more: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **more}
    return {"metadata": {"name": name}, "spec": spec}


async def pods_of(api: Api, name: str) -> list[Any]:
    return await api.items(f"{PODS}?labelSelector=app%3D{name}")


async def test_orphaned_replica_sets_and_pods_are_taken_up_again(api: Api) -> None:
    async def two(name: str = "orphaned") -> bool:
        return len(await pods_of(api, name)) == 2

    await api.create(f"{APPS}/deployments", deployment("orphaned"))
    await until(two, "two pods")
    before = {pod["metadata"]["uid"] for pod in await pods_of(api, "orphaned")}
    await api("DELETE", f"{APPS}/deployments/orphaned", {"propagationPolicy": "Orphan"})

    async def gone() -> bool:
        return not await api.exists(f"{APPS}/deployments/orphaned")

    await until(gone, "the deployment gone")
    await api.create(f"{APPS}/deployments", deployment("orphaned"))

    async def observed() -> bool:
        status = (await api("GET", f"{APPS}/deployments/orphaned"))[1].get("status", {})
        return bool(status.get("replicas") == 2)

    await until(observed, "the new deployment sees the old pods")
    assert {pod["metadata"]["uid"] for pod in await pods_of(api, "orphaned")} == before
    sets = await api.items(f"{APPS}/replicasets?labelSelector=app%3Dorphaned")
    assert len(sets) == 1
    assert sets[0]["metadata"]["ownerReferences"][0]["controller"] is True


@pytest.mark.parametrize("field", ["maxSurge", "maxUnavailable"])
async def test_a_margin_that_is_no_number_is_refused(api: Api, field: str) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {field: "many"}}
    code, _ = await api("POST", f"{APPS}/deployments", deployment("odd", strategy=strategy))
    assert code == 422


async def make_ready(api: Api, name: str, count: int) -> None:
    for number in range(count):
        containers = [{"name": "c", "image": "i"}]
        body = {"metadata": {"name": f"{name}-{number}", "labels": {"app": name}}}
        await api.create(PODS, {**body, "spec": {"nodeName": "n", "containers": containers}})
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await api.patch(f"{PODS}/{name}-{number}/status", {"status": status})


async def test_a_budget_is_never_overdrawn(api: Api) -> None:
    await make_ready(api, "budget", 6)
    spec = {"minAvailable": 4, "selector": {"matchLabels": {"app": "budget"}}}
    await api.create(POLICY, {"metadata": {"name": "budget"}, "spec": spec})

    async def ready() -> bool:
        status = (await api("GET", f"{POLICY}/budget"))[1].get("status", {})
        return bool(status.get("disruptionsAllowed") == 2)

    await until(ready, "two disruptions allowed")

    async def evict(number: int) -> int:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"budget-{number}"}}
        return (await api("POST", f"{PODS}/budget-{number}/eviction", body))[0]

    codes = await asyncio.gather(*(evict(number) for number in range(6)))
    assert sorted(codes) == [201, 201, 429, 429, 429, 429]


async def test_an_unready_pod_may_go_while_the_budget_is_kept_by_others(api: Api) -> None:
    await make_ready(api, "sick", 2)
    await api.patch(f"{PODS}/sick-0/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "sick"}}}
    await api.create(POLICY, {"metadata": {"name": "sick"}, "spec": spec})

    async def counted() -> bool:
        return bool((await api("GET", f"{POLICY}/sick"))[1].get("status", {}).get("currentHealthy") == 1)

    await until(counted, "one healthy pod counted")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "sick-0"}}
    assert (await api("POST", f"{PODS}/sick-0/eviction", body))[0] == 201
    body["metadata"] = {"name": "sick-1"}
    assert (await api("POST", f"{PODS}/sick-1/eviction", body))[0] == 429


async def test_ended_pods_leave_their_endpoints(api: Api) -> None:
    await make_ready(api, "served", 2)
    for number in range(2):
        await api.patch(f"{PODS}/served-{number}/status", {"status": {"podIP": f"10.9.9.{number}"}})
    service = {"metadata": {"name": "served"}, "spec": {"selector": {"app": "served"}, "ports": [{"port": 80}]}}
    await api.create("/api/v1/namespaces/default/services", service)

    async def addresses() -> set[str]:
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        query = "?labelSelector=kubernetes.io%2Fservice-name%3Dserved"
        slices = await api.items(path + query)
        return {one for piece in slices for endpoint in piece["endpoints"] for one in endpoint["addresses"]}

    async def both() -> bool:
        return await addresses() == {"10.9.9.0", "10.9.9.1"}

    await until(both, "two endpoints")
    await api.patch(f"{PODS}/served-0/status", {"status": {"phase": "Failed"}})

    async def one() -> bool:
        return await addresses() == {"10.9.9.1"}

    await until(one, "one endpoint")


async def allow(api: Api, user: str, *rules: dict[str, Any]) -> None:
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": f"of-{user}"}, "rules": list(rules)})
    await bind(api, f"of-{user}", user)


async def bind(api: Api, role: str, user: str) -> tuple[int, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": f"{role}-{user}"}, "roleRef": reference, "subjects": [subject]}
    return await api("POST", f"{RBAC}/clusterrolebindings", body)


async def test_nobody_gives_themselves_more_than_they_have(api: Api) -> None:
    every = {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}
    every["verbs"] = ["get", "list", "create", "update", "patch", "delete"]
    bindings = {**every, "resources": ["clusterrolebindings"]}
    await allow(api, "mallory", every, bindings)
    mallory = api.acting_as("mallory")
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert (await mallory("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "m"}, "rules": everything}))[0] == 403
    assert (await bind(mallory, "cluster-admin", "mallory"))[0] == 403
    own = f"{RBAC}/clusterroles/of-mallory"
    merge = "application/merge-patch+json"
    assert (await mallory("PATCH", own, {"rules": everything}, merge))[0] == 403
    gather = {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]}
    assert (await mallory("PATCH", own, {"aggregationRule": gather}, merge))[0] == 403
    body = {"metadata": {"name": "m2"}, "aggregationRule": gather, "rules": []}
    assert (await mallory("POST", f"{RBAC}/clusterroles", body))[0] == 403
    assert (await mallory("GET", "/api/v1/secrets"))[0] == 403
    for header in ("Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-x"):
        session = mallory._session
        headers = {"Impersonate-User": "mallory", header: "system:masters"}
        headers |= {"Authorization": "Bearer nonsense"}
        async with session.get("/api/v1/secrets", headers=headers) as answer:
            assert answer.status == 401


async def test_a_token_dies_with_its_account_and_its_pod(api: Api, server: running.Embedded) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": "mortal"}})
    pod = {"metadata": {"name": "holder"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    held = await api.create(PODS, pod)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "holder", "uid": held["metadata"]["uid"]}
    bound = (await api.create(f"{accounts}/mortal/token", {"spec": {"boundObjectRef": reference}}))["status"]["token"]
    plain = (await api.create(f"{accounts}/mortal/token", {"spec": {}}))["status"]["token"]

    async def code(token: str) -> int:
        context = server.server.ssl_context(as_admin=False)
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(server.server.url, connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get("/version", headers=headers) as answer,
        ):
            return answer.status

    assert (await code(bound), await code(plain)) == (200, 200)
    assert (await api("DELETE", f"{PODS}/holder", {"gracePeriodSeconds": 0}))[0] == 200
    assert (await code(bound), await code(plain)) == (401, 200)
    assert (await api("DELETE", f"{accounts}/mortal"))[0] == 200
    assert await code(plain) == 401


async def test_odd_times_in_events_do_no_harm(api: Api, server: running.Embedded) -> None:
    involved = {"kind": "X", "name": "x", "namespace": "default"}
    body = {"metadata": {"name": "odd"}, "involvedObject": involved, "lastTimestamp": "yesterday"}
    code, _ = await api("POST", "/api/v1/namespaces/default/events", body)
    assert code in (201, 400, 422)
    assert server.is_alive
