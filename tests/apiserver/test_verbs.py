"""Verbs through the in-process client: what no other server need be compared for."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bedplate.apiserver import hooks, meta, server, services, status


@pytest.fixture
async def parts(tmp_path: pathlib.Path) -> AsyncIterator[services.Services]:
    async with server.ApiServer(server.Options(data=tmp_path / "data")) as running:
        yield running.services


def config_map(name: str = "", **metadata: Any) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**named, "namespace": "default", **metadata},
        "data": {"k": "1"},
    }


async def test_create_read_update_delete(parts: services.Services) -> None:
    client = parts.client
    made = await client.create("", "configmaps", config_map("a"))
    assert client.get("", "configmaps", "default", "a") == made
    made["data"]["k"] = "2"
    changed = await client.update("", "configmaps", made)
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    with pytest.raises(status.StatusError) as refusal:
        await client.update("", "configmaps", made)
    assert (refusal.value.code, refusal.value.reason) == (409, "Conflict")
    await client.delete("", "configmaps", "default", "a")
    assert client.get("", "configmaps", "default", "a") is None


async def test_what_is_read_belongs_to_the_reader(parts: services.Services) -> None:
    await parts.client.create("", "configmaps", config_map("a"))
    first = parts.client.get("", "configmaps", "default", "a")
    assert first is not None
    first["data"]["k"] = "changed"
    second = parts.client.get("", "configmaps", "default", "a")
    assert second is not None
    assert second["data"] == {"k": "1"}


async def test_a_generated_name_that_is_taken_is_generated_again(
    parts: services.Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["taken", "taken", "free"])
    monkeypatch.setattr(meta, "generated_name", lambda base, rng: base + next(names))
    await parts.client.create("", "configmaps", config_map("x-taken"))
    made = await parts.client.create("", "configmaps", config_map(generateName="x-"))
    assert made["metadata"]["name"] == "x-free"


async def test_generated_names_that_stay_taken_are_refused(
    parts: services.Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta, "generated_name", lambda base, rng: base + "taken")
    await parts.client.create("", "configmaps", config_map("x-taken"))
    with pytest.raises(status.StatusError) as refusal:
        await parts.client.create("", "configmaps", config_map(generateName="x-"))
    assert refusal.value.reason == "AlreadyExists"


async def test_patches_without_a_version_are_tried_until_they_land(parts: services.Services) -> None:
    await parts.client.create("", "configmaps", config_map("a"))
    await asyncio.gather(
        *(parts.client.patch("", "configmaps", "default", "a", {"data": {f"k{number}": "1"}}) for number in range(20))
    )
    found = parts.client.get("", "configmaps", "default", "a")
    assert found is not None
    assert len(found["data"]) == 21


class Reserving(hooks.Behaviour):
    """A kind that reserves something for each write and gives it back when the write does not happen."""

    def __init__(self) -> None:
        self.reserved = 0

    def prepare_create(self, write: hooks.Write) -> None:
        self.reserved += 1
        write.rollbacks.append(self.give_back)

    prepare_update = prepare_create

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        bad = write.object.get("data") == {"bad": "1"}
        return [status.FieldProblem.invalid("data", "bad", "not this one")] if bad else []

    def give_back(self) -> None:
        self.reserved -= 1


async def test_what_a_kind_reserves_is_given_back_when_the_write_fails(parts: services.Services) -> None:
    kind = Reserving()
    parts.behaviours["", "configmaps"] = kind
    await parts.client.create("", "configmaps", config_map("a"))
    assert kind.reserved == 1
    await parts.client.create("", "configmaps", config_map("dry"), dry_run=True)
    with pytest.raises(status.StatusError):
        await parts.client.create("", "configmaps", config_map("a"))
    with pytest.raises(status.StatusError):
        await parts.client.create("", "configmaps", {**config_map("b"), "data": {"bad": "1"}})
    assert kind.reserved == 1


async def test_nothing_is_written_when_nothing_changes(parts: services.Services) -> None:
    made = await parts.client.create("", "configmaps", config_map("a"))
    before = parts.registry.revision
    assert await parts.client.update("", "configmaps", made) == made
    assert parts.registry.revision == before


async def test_an_object_goes_with_its_last_finalizer(parts: services.Services) -> None:
    await parts.client.create("", "configmaps", config_map("a", finalizers=["example.com/hold"]))
    held = await parts.client.delete("", "configmaps", "default", "a")
    assert held["metadata"]["deletionTimestamp"]
    with pytest.raises(status.StatusError) as refusal:
        await parts.client.patch(
            "", "configmaps", "default", "a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        )
    assert refusal.value.code == 422
    await parts.client.patch("", "configmaps", "default", "a", {"metadata": {"finalizers": None}})
    assert parts.client.get("", "configmaps", "default", "a") is None


async def test_the_in_process_watch_sees_changes_in_order(parts: services.Services) -> None:
    with parts.client.watch("", "secrets", existing=False) as changes:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        await parts.client.create("", "secrets", secret)
        await parts.client.delete("", "secrets", "default", "s")
        async with asyncio.timeout(30):
            assert [(await anext(changes)).type for _ in range(2)] == ["ADDED", "DELETED"]


async def test_an_unknown_kind_is_not_found(parts: services.Services) -> None:
    with pytest.raises(status.StatusError) as refusal:
        await parts.client.create("example.com", "nothings", config_map("a"))
    assert refusal.value.code == 404


def test_uids_are_random_uuids() -> None:
    import random
    import uuid

    rng = random.Random(1)
    for _ in range(200):
        found = uuid.UUID(meta.new_uid(rng))
        assert (found.version, found.variant) == (4, uuid.RFC_4122)
