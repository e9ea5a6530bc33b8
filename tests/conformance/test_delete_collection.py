"""Deleting a collection: selectors, finalizers, answers and preconditions."""

from __future__ import annotations

from tests.conformance.http import Api
from tests.conformance.objects import core, secret


async def fill(api: Api, ns: str) -> None:
    for name, app in (("a", "web"), ("b", "web"), ("c", "db")):
        body = secret(name)
        body["metadata"]["labels"] = {"app": app}
        await api.create(core(ns, "secrets"), body)


async def test_all_of_a_namespace_and_nothing_else(api: Api, ns: str) -> None:
    await fill(api, ns)
    keep = await api.create(core("default", "secrets"), {"metadata": {"generateName": "keep-"}})
    (await api.delete(core(ns, "secrets"))).expect(200)
    assert await api.names(core(ns, "secrets")) == []
    assert (await api.get(core("default", "secrets", keep["metadata"]["name"]))).status == 200


async def test_a_label_selector_limits_it(api: Api, ns: str) -> None:
    await fill(api, ns)
    (await api.delete(core(ns, "secrets"), labelSelector="app=web")).expect(200)
    assert await api.names(core(ns, "secrets")) == ["c"]


async def test_a_field_selector_limits_it(api: Api, ns: str) -> None:
    await fill(api, ns)
    (await api.delete(core(ns, "secrets"), fieldSelector="metadata.name!=b")).expect(200)
    assert await api.names(core(ns, "secrets")) == ["b"]


async def test_the_answer_is_the_list_of_what_was_deleted(api: Api, ns: str) -> None:
    await fill(api, ns)
    answer = (await api.delete(core(ns, "secrets"), labelSelector="app=web")).expect(200)
    assert answer["kind"] == "SecretList"
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "b"]


async def test_finalizers_keep_their_objects(api: Api, ns: str) -> None:
    await fill(api, ns)
    (await api.patch(core(ns, "secrets", "a"), {"metadata": {"finalizers": ["example.com/hold"]}})).expect(200)
    (await api.delete(core(ns, "secrets"))).expect(200)
    assert await api.names(core(ns, "secrets")) == ["a"]
    assert "deletionTimestamp" in (await api.read(core(ns, "secrets", "a")))["metadata"]


async def test_watchers_see_every_deletion(api: Api, ns: str) -> None:
    await fill(api, ns)
    start = (await api.read(core(ns, "secrets")))["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        (await api.delete(core(ns, "secrets"))).expect(200)
        assert sorted(await watch.take(3)) == [("DELETED", "a"), ("DELETED", "b"), ("DELETED", "c")]


async def test_dry_run_deletes_nothing(api: Api, ns: str) -> None:
    await fill(api, ns)
    (await api.delete(core(ns, "secrets"), dryRun="All")).expect(200)
    assert await api.names(core(ns, "secrets")) == ["a", "b", "c"]


async def test_all_namespaces_at_once_is_not_allowed(api: Api) -> None:
    (await api.delete("/api/v1/secrets", labelSelector="no=such")).fails(405, "MethodNotAllowed")
