"""Namespaces: what comes with one, and how one goes."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.conftest import new_namespace
from tests.conformance.http import Api, Json
from tests.conformance.objects import config_map, core
from tests.waiting import until


async def gone(api: Api, name: str) -> None:
    async def is_gone() -> bool:
        return (await api.get(f"/api/v1/namespaces/{name}")).status == 404

    await until(is_gone, f"namespace {name} gone")


async def test_a_new_namespace_is_active_and_labelled(api: Api) -> None:
    held = await api.read(f"/api/v1/namespaces/{await new_namespace(api)}")
    assert held["status"] == {"phase": "Active"}
    assert held["spec"] == {"finalizers": ["kubernetes"]}
    assert held["metadata"]["labels"] == {"kubernetes.io/metadata.name": held["metadata"]["name"]}


async def test_the_service_account_and_root_certificate_come_by_themselves(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)

    async def certificate() -> Json:
        reply = await api.get(core(ns, "configmaps", "kube-root-ca.crt"))
        return reply.json if reply.status == 200 else None

    assert "BEGIN CERTIFICATE" in (await until(certificate, "root certificate"))["data"]["ca.crt"]


async def test_deletion_empties_the_namespace_and_removes_it(api: Api) -> None:
    name = await new_namespace(api)
    kind = await objects.install(api)
    await api.create(core(name, "configmaps"), config_map("a"))
    await api.create(kind.path(name), kind.new("w"))
    answer = (await api.delete(f"/api/v1/namespaces/{name}")).expect(200)
    assert answer["kind"] in ("Namespace", "Status")
    await gone(api, name)
    assert await api.names("/api/v1/configmaps", fieldSelector=f"metadata.namespace={name}") == []
    assert await api.names(kind.path(""), fieldSelector=f"metadata.namespace={name}") == []


async def test_a_terminating_namespace_refuses_new_objects(api: Api) -> None:
    name = await new_namespace(api)
    await api.create(core(name, "configmaps"), config_map("held", finalizers=["example.com/hold"]))
    (await api.delete(f"/api/v1/namespaces/{name}")).expect(200)

    async def terminating() -> bool:
        held = await api.read(f"/api/v1/namespaces/{name}")
        marked = await api.read(core(name, "configmaps", "held"))
        return bool(held["status"]["phase"] == "Terminating" and "deletionTimestamp" in marked["metadata"])

    await until(terminating, "terminating namespace")

    async def refused() -> Json:
        reply = await api.post(core(name, "configmaps"), config_map(objects.unique("new")))
        return reply.fails(403, "Forbidden") if reply.status != 201 else None

    status = await until(refused, "creation refused")
    assert "because it is being terminated" in status["message"]
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    (await api.patch(core(name, "configmaps", "held"), {"data": {"still": "writable"}})).expect(200)
    (await api.patch(core(name, "configmaps", "held"), {"metadata": {"finalizers": None}})).expect(200)
    await gone(api, name)


async def test_conditions_say_what_remains(api: Api) -> None:
    name = await new_namespace(api)
    await api.create(core(name, "configmaps"), config_map("held", finalizers=["example.com/hold"]))
    (await api.delete(f"/api/v1/namespaces/{name}")).expect(200)

    async def remaining() -> Json:
        conditions = (await api.read(f"/api/v1/namespaces/{name}"))["status"].get("conditions", [])
        found = {each["type"]: each for each in conditions}
        return found if found.get("NamespaceFinalizersRemaining", {}).get("status") == "True" else None

    conditions = await until(remaining, "remaining finalizers reported")
    assert "example.com/hold in 1 resource instances" in conditions["NamespaceFinalizersRemaining"]["message"]
    assert conditions["NamespaceContentRemaining"]["status"] == "True"
    (await api.patch(core(name, "configmaps", "held"), {"metadata": {"finalizers": None}})).expect(200)
    await gone(api, name)


async def test_the_name_can_be_used_again(api: Api) -> None:
    name = await new_namespace(api)
    first = await api.read(f"/api/v1/namespaces/{name}")
    (await api.delete(f"/api/v1/namespaces/{name}")).expect(200)
    await gone(api, name)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert (await api.create("/api/v1/namespaces", body))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_system_namespaces_are_there_and_some_cannot_be_deleted(api: Api) -> None:
    async def system() -> bool:
        return {"default", "kube-system", "kube-public", "kube-node-lease"} <= set(
            await api.names("/api/v1/namespaces")
        )

    await until(system, "system namespaces")
    for name in ("default", "kube-system", "kube-public"):
        status = (await api.delete(f"/api/v1/namespaces/{name}")).fails(403, "Forbidden")
        assert "this namespace may not be deleted" in status["message"]


async def test_a_namespace_name_is_a_label(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "with.dot"}}
    (await api.post("/api/v1/namespaces", body)).fails(422, "Invalid")


async def test_finalize_subresource_lets_go(api: Api) -> None:
    name = objects.unique("fin")
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name},
        "spec": {"finalizers": ["kubernetes", "example.com/own"]},
    }
    await api.create("/api/v1/namespaces", body)
    (await api.delete(f"/api/v1/namespaces/{name}")).expect(200)

    async def only_ours() -> Json:
        held = await api.read(f"/api/v1/namespaces/{name}")
        return held if held["spec"].get("finalizers") == ["example.com/own"] else None

    held = await until(only_ours, "only our finalizer left")
    held["spec"]["finalizers"] = []
    (await api.put(f"/api/v1/namespaces/{name}/finalize", held)).expect(200)
    await gone(api, name)
