"""Objects over HTTP: reading, writing, conditions, pages, secrets."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tests.ui.rest.serving import CA_KEY, Served

from bedplate.api import headapi
from bedplate.client import HeadClient, Stale
from bedplate.core import errors


async def test_one_object_comes_with_its_revision_as_etag(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/objects/device/node001") as answer:
        assert answer.status == 200
        assert answer.headers["ETag"] == '"1"'
        assert await answer.json() == {
            "mode": "device",
            "key": "node001",
            "revision": 1,
            "type": "PhysicalNode",
            "values": {"category": "default"},
        }


async def test_what_the_asker_knows_is_not_sent_again(http: aiohttp.ClientSession) -> None:
    for path in ("/api/v1/objects/device/node001", "/api/v1/tree"):
        async with http.get(path, headers={"If-None-Match": '"7", W/"1"'}) as answer:
            assert answer.status == 304
            assert answer.headers["ETag"] == '"1"'
            assert await answer.read() == b""
        async with http.get(path, headers={"If-None-Match": '"2"'}) as answer:
            assert answer.status == 200


async def test_a_tag_without_quotes_is_told(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/objects/device/node001", headers={"If-None-Match": "1"}) as answer:
        assert answer.status == 400
        assert "entity tag" in (await answer.json(content_type=None))["detail"]


async def test_the_past_can_be_read(client: HeadClient) -> None:
    await client.put("category", "default", {"software_image": "my-new-image"}, replace=True)
    assert (await client.get("category", "default")).values == {"software_image": "my-new-image"}
    assert (await client.get("category", "default", at=1)).values == {"software_image": "default-image"}
    assert [one.values for one in await client.list("category", at=1)] == [{"software_image": "default-image"}] * 2
    assert (await client.tree(at=0)).objects == []
    with pytest.raises(errors.NotFound):
        await client.tree(at=99)


async def test_a_list_in_parts_is_of_one_revision(client: HeadClient, http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/objects/device", params={"limit": "3"}) as answer:
        first = await answer.json()
    assert [item["key"] for item in first["items"]] == ["basecm10", "node001", "node002"]
    assert first["remaining"] == 5
    await client.delete("device", "node007")
    async with http.get("/api/v1/objects/device", params={"limit": "9", "continue": first["continue"]}) as answer:
        rest = await answer.json()
    assert [item["key"] for item in rest["items"]] == [f"node00{n}" for n in range(3, 8)]
    assert rest["revision"] == 1
    assert "continue" not in rest
    assert "node007" not in [one.key for one in await client.list("device", page=2)]


async def test_a_list_gives_the_fields_that_were_asked_for(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/objects/kubernetes", params={"fields": "etcd_cluster,kube_ca_key"}) as answer:
        items = (await answer.json())["items"]
    assert items[0]["values"] == {"etcd_cluster": "kube-default", "kube_ca_key": "*****"}
    assert "children" not in items[0]


async def test_an_object_that_was_read_can_be_written_back(http: aiohttp.ClientSession, server: Served) -> None:
    async with http.get("/api/v1/objects/kubernetes/default") as answer:
        read = await answer.json()
    read["values"]["notes"] = "ours"
    async with http.put("/api/v1/objects/kubernetes/default", json=read, params={"message": "a note"}) as answer:
        assert answer.status == 200
        written = await answer.json()
    assert written["revision"] == 2
    assert written["values"]["notes"] == "ours"
    held = server.head.tree.get(("kubernetes", "default"))
    assert held.values["kube_ca_key"].reveal() == CA_KEY, "the mask kept it"
    assert (await server.head.read(2)).message == "a note"
    async with http.put("/api/v1/objects/kubernetes/default", json=read) as answer:
        problem = await answer.json(content_type=None)
        assert answer.status == 409, "it was read before somebody wrote it"
        assert (problem["author"], problem["revision"]) == ("admin", 2)


async def test_if_match_refuses_what_changed_and_names_who_did(client: HeadClient, http: aiohttp.ClientSession) -> None:
    await client.put("category", "default", {"software_image": "my-new-image"}, base=1)
    body = {"values": {"software_image": "default-image"}}
    async with http.put("/api/v1/objects/category/default", json=body, headers={"If-Match": '"1"'}) as answer:
        assert answer.status == 412
        assert "admin" in (await answer.json(content_type=None))["detail"]
    async with http.delete("/api/v1/objects/device/node007", headers={"If-Match": '"9"'}) as answer:
        assert answer.status == 412
    async with http.put("/api/v1/objects/category/default", json=body, headers={"If-Match": '"2"'}) as answer:
        assert answer.status == 200
    async with http.put("/api/v1/objects/category/none", json=body, headers={"If-Match": "*"}) as answer:
        assert answer.status == 412, "nothing is there to match"


async def test_if_none_match_only_makes_what_is_not_there(http: aiohttp.ClientSession) -> None:
    for status in (201, 412):
        async with http.put("/api/v1/objects/category/new", json={}, headers={"If-None-Match": "*"}) as answer:
            assert answer.status == status


async def test_objects_are_made_and_removed(client: HeadClient) -> None:
    made = await client.create("category", "gpu", {"software_image": "default-image"}, message="more nodes")
    assert (made.key, made.revision, made.type) == ("gpu", 2, "Category")
    with pytest.raises(errors.Conflict, match="exists"):
        await client.create("category", "gpu")
    await client.delete("category", "gpu", base=2)
    with pytest.raises(errors.NotFound):
        await client.get("category", "gpu")
    with pytest.raises(errors.NotFound):
        await client.delete("category", "gpu")


async def test_what_is_in_use_is_not_removed(client: HeadClient) -> None:
    with pytest.raises(errors.Invalid) as refused:
        await client.delete("category", "default")
    assert "device[node001]" in refused.value.problems[0]


async def test_a_write_that_is_asked_for_again_is_done_once(http: aiohttp.ClientSession, server: Served) -> None:
    key = {"Idempotency-Key": "once-1"}
    for _ in range(3):
        async with http.post("/api/v1/objects/category", json={"key": "gpu"}, headers=key) as answer:
            assert answer.status == 201
    match = {"Idempotency-Key": "once-2", "If-Match": '"2"'}
    for _ in range(3):
        async with http.put("/api/v1/objects/category/gpu", json={"values": {"notes": "x"}}, headers=match) as answer:
            assert answer.status == 200
    for _ in range(3):
        async with http.delete("/api/v1/objects/category/gpu", headers={"Idempotency-Key": "once-3"}) as answer:
            assert answer.status == 204
    assert server.head.revision == 4


async def test_of_many_writers_each_write_lands_or_is_refused(server: Served) -> None:
    async def write(number: int) -> bool:
        async with server.client() as client:
            try:
                await client.put("category", "default", {"notes": str(number)}, base=1)
            except errors.Conflict:
                return False
            return True

    done = await asyncio.gather(*(write(number) for number in range(10)))
    assert done.count(True) == 1
    assert server.head.revision == 2


async def test_every_fault_of_an_object_is_told(http: aiohttp.ClientSession, server: Served) -> None:
    body = {"values": {"mac": "no-mac", "nothing": 1, "category": 7}, "type": "PhysicalNode"}
    async with http.put("/api/v1/objects/device/node009", json=body) as answer:
        problem = await answer.json(content_type=None)
    assert answer.status == 400
    assert answer.content_type == "application/problem+json"
    assert len(problem["problems"]) == 3
    assert server.head.revision == 1


async def test_a_reference_to_nothing_is_refused_by_the_tree(http: aiohttp.ClientSession) -> None:
    body = {"values": {"category": "no-such"}, "type": "PhysicalNode"}
    async with http.put("/api/v1/objects/device/node009", json=body) as answer:
        assert answer.status == 409
        assert "no-such" in (await answer.json(content_type=None))["problems"][0]


async def test_a_mask_for_a_secret_that_is_not_set_is_refused(client: HeadClient, server: Served) -> None:
    for mode, key, values in (
        ("kubernetes", "default", {"kubeadm_cert_key": headapi.MASK}),
        ("kubernetes", "new", {"kube_ca_key": headapi.MASK}),
    ):
        with pytest.raises(errors.Invalid) as refused:
            await client.put(mode, key, values, replace=key == "default")
        assert "is not set" in refused.value.problems[0]
        assert refused.value.hint
    assert server.head.revision == 1


async def test_a_secret_is_set_replaced_and_taken_away(client: HeadClient, server: Served) -> None:
    held = await client.get("kubernetes", "default")
    written = await client.put(
        "kubernetes", "default", {**held.values, "kube_ca_key": "another-one"}, children=held.children, replace=True
    )
    assert written.values["kube_ca_key"] == headapi.MASK
    assert server.head.tree.get(("kubernetes", "default")).values["kube_ca_key"].reveal() == "another-one"
    values = {name: value for name, value in written.values.items() if name != "kube_ca_key"}
    await client.put("kubernetes", "default", values, children=held.children, replace=True)
    assert "kube_ca_key" not in server.head.tree.get(("kubernetes", "default")).values


async def test_a_stale_put_names_the_author(server: Served) -> None:
    async with server.client("admin") as anna, server.client("olga") as olga:
        await olga.put("category", "default", {"notes": "olga's"}, replace=True)
        with pytest.raises(Stale) as refused:
            await anna.commit([headapi.Edit(mode="category", key="default", base=1, object={"values": {"notes": "a"}})])
    assert (refused.value.author, refused.value.revision) == ("olga", 2)
    assert refused.value.hint


async def test_what_is_no_object_is_told(http: aiohttp.ClientSession) -> None:
    for path, status in (("/api/v1/objects/nothing", 404), ("/api/v1/objects/device/node099", 404)):
        async with http.get(path) as answer:
            assert answer.status == status
            assert (await answer.json(content_type=None))["hint"]


async def test_long_answers_are_compressed(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/schema", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len((await answer.json())["entities"]) > 20
