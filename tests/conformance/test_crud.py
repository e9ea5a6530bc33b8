"""Create, read, update: what the server fills in, what it refuses, and optimistic concurrency."""

from __future__ import annotations

import asyncio
import re

from tests.conformance.http import Api
from tests.conformance.objects import config_map, core, unique


async def test_create_fills_in_metadata(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "v"}))
    metadata = made["metadata"]
    assert made["apiVersion"] == "v1"
    assert made["kind"] == "ConfigMap"
    assert metadata["namespace"] == ns
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"[1-9][0-9]*", metadata["resourceVersion"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert "generation" not in metadata
    assert made["data"] == {"k": "v"}


async def test_create_ignores_server_owned_metadata(api: Api, ns: str) -> None:
    body = config_map("a", uid="6d7b9a1c-0000-0000-0000-000000000000", creationTimestamp="2001-01-01T00:00:00Z")
    body["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"
    made = await api.create(core(ns, "configmaps"), body)
    assert made["metadata"]["uid"] != body["metadata"]["uid"]
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in made["metadata"]


async def test_create_twice_says_already_exists(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    status = (await api.post(core(ns, "configmaps"), config_map("a"))).fails(409, "AlreadyExists")
    assert status["message"] == 'configmaps "a" already exists'
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_create_with_a_resource_version_is_refused(api: Api, ns: str) -> None:
    reply = await api.post(core(ns, "configmaps"), config_map("a", resourceVersion="5"))
    status = reply.fails(500, None) if reply.status == 500 else reply.json
    assert "resourceVersion should not be set on objects to be created" in status["message"]


async def test_create_in_another_namespace_than_the_path_is_refused(api: Api, ns: str) -> None:
    reply = await api.post(core(ns, "configmaps"), config_map("a", namespace="default"))
    status = reply.fails(400, "BadRequest")
    assert "does not match the namespace" in status["message"]


async def test_create_in_a_missing_namespace_says_not_found(api: Api) -> None:
    missing = unique("missing")
    status = (await api.post(core(missing, "configmaps"), config_map("a"))).fails(404, "NotFound")
    assert status["message"] == f'namespaces "{missing}" not found'
    assert status["details"] == {"name": missing, "kind": "namespaces"}


async def test_create_without_a_name_is_invalid(api: Api, ns: str) -> None:
    body = config_map("x")
    del body["metadata"]["name"]
    status = (await api.post(core(ns, "configmaps"), body)).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert status["details"]["causes"][0]["reason"] == "FieldValueRequired"


async def test_a_name_must_be_a_dns_name(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("Not_DNS"))).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert status["details"]["causes"][0]["reason"] == "FieldValueInvalid"
    assert status["message"].startswith('ConfigMap "Not_DNS" is invalid: metadata.name: Invalid value: "Not_DNS"')


async def test_get_of_a_missing_object_says_not_found(api: Api, ns: str) -> None:
    status = (await api.get(core(ns, "configmaps", "nothing"))).fails(404, "NotFound")
    assert status["message"] == 'configmaps "nothing" not found'
    assert status["details"] == {"name": "nothing", "kind": "configmaps"}


async def test_update_with_the_current_version_is_taken(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    made["data"]["k"] = "2"
    updated = (await api.put(core(ns, "configmaps", "a"), made)).expect(200)
    assert updated["data"] == {"k": "2"}
    assert int(updated["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert updated["metadata"]["uid"] == made["metadata"]["uid"]
    assert await api.read(core(ns, "configmaps", "a")) == updated


async def test_update_with_an_old_version_conflicts(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    (await api.put(core(ns, "configmaps", "a"), {**made, "data": {"k": "2"}})).expect(200)
    status = (await api.put(core(ns, "configmaps", "a"), {**made, "data": {"k": "3"}})).fails(409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert status["details"] == {"name": "a", "kind": "configmaps"}
    assert (await api.read(core(ns, "configmaps", "a")))["data"] == {"k": "2"}


async def test_update_without_a_version_overwrites(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    updated = (await api.put(core(ns, "configmaps", "a"), config_map("a", {"other": "2"}))).expect(200)
    assert updated["data"] == {"other": "2"}


async def test_update_with_the_same_content_keeps_the_version(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    again = (await api.put(core(ns, "configmaps", "a"), made)).expect(200)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_update_with_a_foreign_uid_conflicts(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    other = "11111111-2222-3333-4444-555555555555"
    made["metadata"]["uid"] = other
    status = (await api.put(core(ns, "configmaps", "a"), made)).fails(409, "Conflict")
    assert f"Precondition failed: UID in precondition: {other}" in status["message"]


async def test_update_cannot_move_server_owned_metadata(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    body = config_map("a", {"k": "2"}, creationTimestamp="2001-01-01T00:00:00Z", selfLink="/nowhere")
    updated = (await api.put(core(ns, "configmaps", "a"), body)).expect(200)
    assert updated["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert updated["metadata"]["uid"] == made["metadata"]["uid"]


async def test_update_under_another_name_is_refused(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    status = (await api.put(core(ns, "configmaps", "a"), config_map("b"))).fails(400, "BadRequest")
    assert status["message"] == "the name of the object (b) does not match the name on the URL (a)"


async def test_update_of_a_missing_object_with_a_version_or_uid_says_not_found_or_conflict(api: Api, ns: str) -> None:
    (await api.put(core(ns, "configmaps", "a"), config_map("a", resourceVersion="7"))).fails(404, "NotFound")
    (await api.put(core(ns, "configmaps", "a"), config_map("a"))).fails(404, "NotFound")


async def test_of_many_writers_with_one_version_exactly_one_wins(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    bodies = [{**made, "data": {"winner": str(number)}} for number in range(12)]
    replies = await asyncio.gather(*(api.put(core(ns, "configmaps", "a"), body) for body in bodies))
    assert sorted(reply.status for reply in replies) == [200] + [409] * 11
    winner = next(reply.json for reply in replies if reply.status == 200)
    assert (await api.read(core(ns, "configmaps", "a")))["data"] == winner["data"]


async def test_delete_with_preconditions(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    target = core(ns, "configmaps", "a")
    wrong_uid = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    assert "the UID in the precondition" in (await api.delete(target, wrong_uid)).fails(409, "Conflict")["message"]
    wrong_version = {"preconditions": {"resourceVersion": "1"}}
    assert (
        "the ResourceVersion in the precondition (1)"
        in (await api.delete(target, wrong_version)).fails(409, "Conflict")["message"]
    )
    right = {"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}}
    (await api.delete(target, right)).expect(200)
    (await api.get(target)).fails(404, "NotFound")


async def test_delete_answers_with_a_status_naming_the_object(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    status = (await api.delete(core(ns, "configmaps", "a"))).expect(200)
    assert status["kind"] == "Status"
    assert status["status"] == "Success"
    assert status["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_a_new_object_of_the_same_name_has_a_new_uid(api: Api, ns: str) -> None:
    first = await api.create(core(ns, "configmaps"), config_map("a"))
    (await api.delete(core(ns, "configmaps", "a"))).expect(200)
    second = await api.create(core(ns, "configmaps"), config_map("a"))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_list_has_a_version_at_least_as_new_as_its_items(api: Api, ns: str) -> None:
    for name in ("c", "a", "b"):
        await api.create(core(ns, "configmaps"), config_map(name))
    listed = await api.read(core(ns, "configmaps"))
    assert listed["kind"] == "ConfigMapList"
    assert listed["apiVersion"] == "v1"
    names = [item["metadata"]["name"] for item in listed["items"]]
    assert names == sorted(names)
    assert {"a", "b", "c"} <= set(names)
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    newest = max(int(item["metadata"]["resourceVersion"]) for item in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= newest


async def test_a_null_in_a_map_is_the_empty_value(api: Api, ns: str) -> None:
    body = config_map("nulls", {"c": None}, labels={"a": None}, annotations={"b": None})
    made = await api.create(core(ns, "configmaps"), body)
    assert made["metadata"]["labels"] == {"a": ""}
    assert made["metadata"]["annotations"] == {"b": ""}
    assert made["data"] == {"c": ""}
    spec = {"user": "x", "extra": {"e": None}, "nonResourceAttributes": {"path": "/", "verb": "get"}}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**kind, "spec": spec})
    assert answer["status"]["allowed"] is False
