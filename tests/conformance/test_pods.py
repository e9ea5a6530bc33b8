"""Pods: defaults, binding, eviction under disruption budgets, immutability, graceful deletion."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import core, path, pod
from tests.waiting import until


async def start(api: Api, ns: str, name: str = "p", **metadata: Json) -> Json:
    await objects.usable_namespace(api, ns)
    return await api.create(core(ns, "pods"), pod(name, **metadata))


def binding(node: str) -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}


async def test_defaults(api: Api, ns: str) -> None:
    made = await start(api, ns)
    spec = made["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["serviceAccountName"] == "default"
    assert spec["schedulerName"] == "default-scheduler"
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"


async def test_a_token_volume_and_tolerations_are_added(api: Api, ns: str) -> None:
    made = await start(api, ns)
    (volume,) = made["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert {next(iter(source)) for source in volume["projected"]["sources"]} == {
        "serviceAccountToken", "configMap", "downwardAPI",
    }  # fmt: skip
    mount = made["spec"]["containers"][0]["volumeMounts"][0]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    keys = {each["key"] for each in made["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


async def test_binding_sets_the_node_once(api: Api, ns: str) -> None:
    await start(api, ns)
    status = (await api.post(core(ns, "pods", "p", "binding"), binding("n1"))).expect(201)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    held = await api.read(core(ns, "pods", "p"))
    assert held["spec"]["nodeName"] == "n1"
    conditions = {each["type"]: each["status"] for each in held["status"]["conditions"]}
    assert conditions == {"PodScheduled": "True"}
    again = (await api.post(core(ns, "pods", "p", "binding"), binding("n2"))).fails(409, "Conflict")
    assert "already assigned to node" in again["message"]


async def test_the_older_bindings_path(api: Api, ns: str) -> None:
    await start(api, ns)
    (await api.post(core(ns, "bindings"), binding("n1"))).expect(201)
    assert (await api.read(core(ns, "pods", "p")))["spec"]["nodeName"] == "n1"


async def test_most_of_the_spec_is_immutable(api: Api, ns: str) -> None:
    await start(api, ns)
    status = (await api.patch(core(ns, "pods", "p"), {"spec": {"restartPolicy": "Never"}})).fails(422, "Invalid")
    assert "pod updates may not change fields other than" in status["message"]
    patch = {"spec": {"containers": [{"name": "main", "image": "example/main:2"}]}}
    kind = "application/strategic-merge-patch+json"
    assert (await api.patch(core(ns, "pods", "p"), patch, kind)).expect(200)["spec"]["containers"][0][
        "image"
    ] == "example/main:2"


async def test_an_unscheduled_pod_is_deleted_at_once(api: Api, ns: str) -> None:
    await start(api, ns)
    (await api.delete(core(ns, "pods", "p"))).expect(200)
    (await api.get(core(ns, "pods", "p"))).fails(404, "NotFound")


async def test_a_scheduled_pod_is_given_its_grace_period(api: Api, ns: str) -> None:
    await start(api, ns)
    (await api.post(core(ns, "pods", "p", "binding"), binding("n1"))).expect(201)
    marked = (await api.delete(core(ns, "pods", "p"))).expect(200)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"]
    assert (await api.get(core(ns, "pods", "p"))).status == 200
    (await api.delete(core(ns, "pods", "p"), {"gracePeriodSeconds": 0})).expect(200)
    (await api.get(core(ns, "pods", "p"))).fails(404, "NotFound")


def eviction(name: str = "p", **options: Json) -> Json:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


async def test_eviction_deletes_a_pod_without_a_budget(api: Api, ns: str) -> None:
    await start(api, ns)
    status = (await api.post(core(ns, "pods", "p", "eviction"), eviction(gracePeriodSeconds=0))).expect(201)
    assert status["status"] == "Success"
    (await api.get(core(ns, "pods", "p"))).fails(404, "NotFound")
    (await api.post(core(ns, "pods", "p", "eviction"), eviction())).fails(404, "NotFound")


async def run(api: Api, ns: str, name: str) -> None:
    await start(api, ns, name, labels={"app": "x"})
    (await api.post(core(ns, "pods", name, "binding"), {**binding("n1"), "metadata": {"name": name}})).expect(201)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    (await api.patch(core(ns, "pods", name, "status"), {"status": status})).expect(200)


async def budget(api: Api, ns: str, **spec: Json) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec},
    }
    budgets = path("policy", "v1", ns, "poddisruptionbudgets")
    await api.create(budgets, body)

    async def observed() -> bool:
        held = await api.read(f"{budgets}/b")
        return bool(held.get("status", {}).get("observedGeneration") == held["metadata"]["generation"])

    await until(observed, "budget observed")


async def test_a_budget_refuses_eviction(api: Api, ns: str) -> None:
    await run(api, ns, "p")
    await budget(api, ns, minAvailable=1)
    status = (await api.post(core(ns, "pods", "p", "eviction"), eviction())).fails(429, "TooManyRequests")
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert status["details"]["causes"][0]["reason"] == "DisruptionBudget"
    held = await api.read(core(ns, "pods", "p"))
    assert "deletionTimestamp" not in held["metadata"]


async def test_a_budget_allows_what_it_allows(api: Api, ns: str) -> None:
    for name in ("p", "q"):
        await run(api, ns, name)
    await budget(api, ns, minAvailable=1)

    async def one_allowed() -> bool:
        held = await api.read(path("policy", "v1", ns, "poddisruptionbudgets", "b"))
        return bool(held["status"]["disruptionsAllowed"] == 1)

    await until(one_allowed, "one disruption allowed")
    (await api.post(core(ns, "pods", "p", "eviction"), eviction())).expect(201)
    assert "deletionTimestamp" in (await api.read(core(ns, "pods", "p")))["metadata"]
    (await api.post(core(ns, "pods", "q", "eviction"), eviction("q"))).fails(429, "TooManyRequests")


async def test_a_dry_run_eviction_evicts_nobody(api: Api, ns: str) -> None:
    await start(api, ns)
    (await api.post(core(ns, "pods", "p", "eviction"), eviction(), dryRun="All")).expect(201)
    assert (await api.get(core(ns, "pods", "p"))).status == 200


async def test_a_missing_service_account_refuses_the_pod(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    body = pod("p")
    body["spec"]["serviceAccountName"] = "nobody"
    status = (await api.post(core(ns, "pods"), body)).fails(403, "Forbidden")
    assert "error looking up service account" in status["message"]
