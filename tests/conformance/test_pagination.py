"""Lists in pages: limit, continue, a consistent snapshot, what remains, and expiry."""

from __future__ import annotations

import asyncio

from tests.conformance.conftest import new_namespace
from tests.conformance.http import Api, Json
from tests.conformance.objects import config_map, core, unique
from tests.waiting import until


async def fill(api: Api, ns: str, count: int = 7) -> str:
    """A collection of podtemplates (nobody else writes them), and its path."""
    collection = core(ns, "podtemplates")
    await asyncio.gather(*(api.create(collection, template(f"p{number}")) for number in range(count)))
    return collection


def template(name: str, **labels: str) -> Json:
    spec = {"containers": [{"name": "main", "image": "example/main:1"}]}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "labels": labels},
        "template": {"spec": spec},
    }


def names(page: Json) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


async def test_pages_cover_the_collection_in_order(api: Api, ns: str) -> None:
    collection = await fill(api, ns)
    seen: list[str] = []
    sizes = []
    token = ""
    while True:
        page = await api.read(collection, limit=3, **({"continue": token} if token else {}))
        seen += names(page)
        sizes.append(len(page["items"]))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == [f"p{number}" for number in range(7)]
    assert sizes == [3, 3, 1]


async def test_remaining_item_count(api: Api, ns: str) -> None:
    collection = await fill(api, ns)
    first = await api.read(collection, limit=3)
    assert first["metadata"]["remainingItemCount"] == 4
    second = await api.read(collection, limit=3, **{"continue": first["metadata"]["continue"]})
    assert second["metadata"]["remainingItemCount"] == 1
    last = await api.read(collection, limit=3, **{"continue": second["metadata"]["continue"]})
    assert "remainingItemCount" not in last["metadata"]
    assert "continue" not in last["metadata"]


async def test_later_pages_are_of_the_first_pages_snapshot(api: Api, ns: str) -> None:
    collection = await fill(api, ns)
    first = await api.read(collection, limit=3)
    (await api.delete(f"{collection}/p5")).expect(200)
    await api.create(collection, template("p55"))
    (await api.patch(f"{collection}/p6", {"metadata": {"labels": {"changed": "yes"}}})).expect(200)
    rest = await api.read(collection, limit=10, **{"continue": first["metadata"]["continue"]})
    assert names(rest) == ["p3", "p4", "p5", "p6"]
    assert "labels" not in rest["items"][-1]["metadata"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_selectors_apply_to_pages(api: Api, ns: str) -> None:
    collection = core(ns, "podtemplates")
    for number in range(8):
        await api.create(collection, template(f"p{number}", parity="odd" if number % 2 else "even"))
    first = await api.read(collection, limit=2, labelSelector="parity=odd")
    assert names(first) == ["p1", "p3"]
    assert "remainingItemCount" not in first["metadata"]
    rest = await api.read(
        collection, labelSelector="parity=odd", limit=2, **{"continue": first["metadata"]["continue"]}
    )
    assert names(rest) == ["p5", "p7"]


async def test_a_limit_larger_than_the_collection_gives_no_token(api: Api, ns: str) -> None:
    collection = await fill(api, ns, 3)
    for limit in (3, 100, 0):
        page = await api.read(collection, limit=limit)
        assert len(page["items"]) == 3
        assert "continue" not in page["metadata"]


async def test_a_resource_version_beside_continue_is_refused(api: Api, ns: str) -> None:
    collection = await fill(api, ns, 3)
    first = await api.read(collection, limit=1)
    options = {"continue": first["metadata"]["continue"], "resourceVersion": first["metadata"]["resourceVersion"]}
    (await api.get(collection, limit=1, **options)).fails(400, "BadRequest")


async def test_a_broken_token_is_a_bad_request(api: Api, ns: str) -> None:
    reply = await api.get(core(ns, "podtemplates"), limit=1, **{"continue": "no-token-of-ours"})
    status = reply.fails(400, "BadRequest")
    assert "continue key is not valid" in status["message"]


async def test_an_expired_token_is_410_and_offers_a_fresh_one(forgetful: Api) -> None:
    api = forgetful
    ns = await new_namespace(api)
    collection = await fill(api, ns)
    first = await api.read(collection, limit=2)

    async def expired() -> Json:
        (await api.patch(f"{collection}/p0", {"metadata": {"annotations": {"touch": unique("t")}}})).expect(200)
        api.server.forget_history()
        reply = await api.get(collection, limit=2, **{"continue": first["metadata"]["continue"]})
        return reply.fails(410, "Expired") if reply.status == 410 else None

    status = await until(expired, "expired continue token")
    assert status["message"].startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    fresh = await api.read(collection, limit=20, **{"continue": status["metadata"]["continue"]})
    assert names(fresh) == ["p2", "p3", "p4", "p5", "p6"]


async def test_an_exact_old_version_is_readable_until_it_expires(forgetful: Api) -> None:
    api = forgetful
    ns = await new_namespace(api)
    collection = await fill(api, ns, 2)
    before = await api.read(collection)
    await api.create(collection, template("later"))
    options = {"resourceVersion": before["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
    assert names(await api.read(collection, **options)) == ["p0", "p1"]

    async def expired() -> bool:
        (await api.patch(f"{collection}/p0", {"metadata": {"annotations": {"touch": unique("t")}}})).expect(200)
        api.server.forget_history()
        reply = await api.get(collection, **options)
        return reply.status == 410 and bool(reply.fails(410, "Expired"))

    await until(expired, "expired exact version")


async def test_exact_needs_a_version_and_a_future_one_is_refused(api: Api, ns: str) -> None:
    status = (await api.get(core(ns, "configmaps"), resourceVersionMatch="Exact")).fails(422, "Invalid")
    assert "resourceVersionMatch" in status["message"]
    (await api.get(core(ns, "configmaps"), resourceVersion="abc")).expect(400, 500)


async def test_not_older_than_a_version_that_exists(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    options = {"resourceVersion": made["metadata"]["resourceVersion"], "resourceVersionMatch": "NotOlderThan"}
    assert "a" in await api.names(core(ns, "configmaps"), **options)
