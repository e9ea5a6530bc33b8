"""JSON patch (RFC 6902): every operation, pointers, and refusals."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import JSON_PATCH, Api, Json
from tests.conformance.objects import apps, config_map, core, deployment


async def patch(api: Api, ns: str, *operations: Json) -> Json:
    return (await api.patch(core(ns, "configmaps", "a"), list(operations), JSON_PATCH)).expect(200)


async def start(api: Api, ns: str, **data: str) -> Json:
    return await api.create(core(ns, "configmaps"), config_map("a", data, labels={"app": "x"}))


async def test_add_replace_and_remove(api: Api, ns: str) -> None:
    await start(api, ns, keep="1", change="1", drop="1")
    patched = await patch(
        api,
        ns,
        {"op": "add", "path": "/data/new", "value": "n"},
        {"op": "replace", "path": "/data/change", "value": "2"},
        {"op": "remove", "path": "/data/drop"},
    )
    assert patched["data"] == {"keep": "1", "change": "2", "new": "n"}


async def test_copy_and_move(api: Api, ns: str) -> None:
    await start(api, ns, one="1", two="2")
    patched = await patch(
        api,
        ns,
        {"op": "copy", "from": "/data/one", "path": "/data/copied"},
        {"op": "move", "from": "/data/two", "path": "/data/moved"},
    )
    assert patched["data"] == {"one": "1", "copied": "1", "moved": "2"}


async def test_a_failed_test_operation_is_invalid_and_changes_nothing(api: Api, ns: str) -> None:
    made = await start(api, ns, k="1")
    operations = [
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "test", "path": "/data/k", "value": "other"},
    ]
    (await api.patch(core(ns, "configmaps", "a"), operations, JSON_PATCH)).fails(422, "Invalid")
    assert await api.read(core(ns, "configmaps", "a")) == made


async def test_a_passed_test_operation_lets_the_rest_through(api: Api, ns: str) -> None:
    made = await start(api, ns, k="1")
    version = made["metadata"]["resourceVersion"]
    patched = await patch(
        api,
        ns,
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "replace", "path": "/data/k", "value": "2"},
    )
    assert patched["data"]["k"] == "2"


async def test_pointers_unescape_slash_and_tilde(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    await api.create(kind.path(ns), kind.new("w", spec={"a/b": 1, "c~d": 2, "~1": 3}))
    operations = [
        {"op": "replace", "path": "/spec/a~1b", "value": "slash"},
        {"op": "replace", "path": "/spec/c~0d", "value": "tilde"},
        {"op": "remove", "path": "/spec/~01"},
    ]
    patched = (await api.patch(kind.path(ns, "w"), operations, JSON_PATCH)).expect(200)
    assert patched["spec"] == {"a/b": "slash", "c~d": "tilde"}


async def test_list_positions_and_the_end_of_a_list(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    env = "/spec/template/spec/containers/0/env"
    operations = [
        {"op": "add", "path": env, "value": [{"name": "B", "value": "b"}]},
        {"op": "add", "path": f"{env}/0", "value": {"name": "A", "value": "a"}},
        {"op": "add", "path": f"{env}/-", "value": {"name": "C", "value": "c"}},
    ]
    patched = (await api.patch(apps(ns, "deployments", "d"), operations, JSON_PATCH)).expect(200)
    names = [each["name"] for each in patched["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert names == ["A", "B", "C"]


async def test_remove_of_a_missing_path_is_invalid(api: Api, ns: str) -> None:
    await start(api, ns, k="1")
    operations = [{"op": "remove", "path": "/data/missing"}]
    status = (await api.patch(core(ns, "configmaps", "a"), operations, JSON_PATCH)).fails(422, "Invalid")
    assert status["message"] == "the server rejected our request due to an error in our request"


async def test_replacing_the_version_with_an_old_one_conflicts(api: Api, ns: str) -> None:
    made = await start(api, ns, k="1")
    await patch(api, ns, {"op": "replace", "path": "/data/k", "value": "2"})
    operations = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/data/k", "value": "3"},
    ]
    (await api.patch(core(ns, "configmaps", "a"), operations, JSON_PATCH)).fails(409, "Conflict")


async def test_a_body_that_is_no_patch_is_a_bad_request(api: Api, ns: str) -> None:
    await start(api, ns)
    (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "1"}}, JSON_PATCH)).fails(400, "BadRequest")
    (await api.patch(core(ns, "configmaps", "a"), b"[{", JSON_PATCH)).fails(400, "BadRequest")


async def test_patch_of_a_missing_object_says_not_found(api: Api, ns: str) -> None:
    operations = [{"op": "add", "path": "/data", "value": {}}]
    (await api.patch(core(ns, "configmaps", "none"), operations, JSON_PATCH)).fails(404, "NotFound")
