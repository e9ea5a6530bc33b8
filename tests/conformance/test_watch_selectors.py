"""Watches with selectors: an object that begins to match is added, one that stops is deleted."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import core, pod, secret


async def version(api: Api, ns: str) -> str:
    return str((await api.read(core(ns, "secrets")))["metadata"]["resourceVersion"])


def labelled(name: str, **labels: str) -> Json:
    body = secret(name)
    body["metadata"]["labels"] = labels
    return body


async def relabel(api: Api, ns: str, name: str, **labels: str | None) -> None:
    (await api.patch(core(ns, "secrets", name), {"metadata": {"labels": labels}})).expect(200)


async def test_only_matching_objects_are_seen(api: Api, ns: str) -> None:
    async with api.watch(core(ns, "secrets"), labelSelector="app=web", resourceVersion=await version(api, ns)) as watch:
        await api.create(core(ns, "secrets"), labelled("other", app="db"))
        await api.create(core(ns, "secrets"), labelled("mine", app="web"))
        await relabel(api, ns, "other", more="1")
        await relabel(api, ns, "mine", more="1")
        assert await watch.take(2) == [("ADDED", "mine"), ("MODIFIED", "mine")]


async def test_an_object_that_begins_to_match_is_added(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), labelled("a", app="db"))
    async with api.watch(core(ns, "secrets"), labelSelector="app=web", resourceVersion=await version(api, ns)) as watch:
        await relabel(api, ns, "a", app="web")
        assert await watch.take(1) == [("ADDED", "a")]


async def test_an_object_that_stops_matching_is_deleted(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), labelled("a", app="web"))
    async with api.watch(core(ns, "secrets"), labelSelector="app=web", resourceVersion=await version(api, ns)) as watch:
        await relabel(api, ns, "a", app=None)
        event = await watch.next()
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["labels"] == {"app": "web"}, "the last state that matched"
        held = await api.read(core(ns, "secrets", "a"))
        assert event["object"]["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]


async def test_deletion_of_an_object_that_does_not_match_is_not_seen(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), labelled("a", app="db"))
    async with api.watch(core(ns, "secrets"), labelSelector="app=web", resourceVersion=await version(api, ns)) as watch:
        (await api.delete(core(ns, "secrets", "a"))).expect(200)
        await api.create(core(ns, "secrets"), labelled("b", app="web"))
        assert await watch.take(1) == [("ADDED", "b")]


async def test_a_field_selector_on_the_name_watches_one_object(api: Api, ns: str) -> None:
    start = await version(api, ns)
    async with api.watch(core(ns, "secrets"), fieldSelector="metadata.name=b", resourceVersion=start) as watch:
        for name in "abc":
            await api.create(core(ns, "secrets"), secret(name))
        (await api.delete(core(ns, "secrets", "b"))).expect(200)
        assert await watch.take(2) == [("ADDED", "b"), ("DELETED", "b")]
        assert await watch.is_quiet()


async def test_binding_a_pod_moves_it_between_field_selectors(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    await api.create(core(ns, "pods"), pod("p"))
    start = (await api.read(core(ns, "pods")))["metadata"]["resourceVersion"]
    pods = core(ns, "pods")
    async with (
        api.watch(pods, fieldSelector="spec.nodeName=n1", resourceVersion=start) as bound,
        api.watch(pods, fieldSelector="spec.nodeName=", resourceVersion=start) as unbound,
    ):
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
        (await api.post(core(ns, "pods", "p", "binding"), body)).expect(201)
        assert await bound.take(1) == [("ADDED", "p")]
        assert await unbound.take(1) == [("DELETED", "p")]


async def test_the_initial_state_is_filtered(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), labelled("a", app="web"))
    await api.create(core(ns, "secrets"), labelled("b", app="db"))
    async with api.watch(core(ns, "secrets"), labelSelector="app!=db") as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        assert await watch.is_quiet()
