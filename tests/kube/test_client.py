"""Verbs against a scripted server: what is sent, and how strange answers are judged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kube.scripted import Answer, Asked, ScriptedServer, node, node_list, serving, status
from tests.waiting import until

from bedplate.api.resources import CONFIG_MAPS, NODES, PODS, ResourceRef
from bedplate.core import clock
from bedplate.core import errors as core
from bedplate.kube import Client, ClientConfig, PatchType, errors, subresources
from bedplate.kube.codec import Added, Bookmark, Modified


@asynccontextmanager
async def client_of(server: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(ClientConfig(server.url, qps=-1)) as client:
        yield client


async def test_a_list_is_read_page_by_page_as_of_one_moment() -> None:
    def answer(asked: Asked) -> Answer:
        pages = {"": (["a", "b"], "t1"), "t1": (["c"], "t2"), "t2": (["d"], "")}
        names, token = pages[asked.query.get("continue", "")]
        return Answer(200, node_list(names, "10", token))

    async with serving(answer) as server, client_of(server) as client:
        found = await client.list(
            NODES, label_selector="x=y", resource_version="5", resource_version_match="NotOlderThan"
        )
    assert [item.name for item in found.items] == ["a", "b", "c", "d"]
    assert (found.resource_version, found.continue_token) == ("10", "")
    first, second, _ = (asked.query for asked in server.asked)
    assert (first["limit"], first["resourceVersion"], first["resourceVersionMatch"]) == ("500", "5", "NotOlderThan")
    assert (second["limit"], second["continue"], second["labelSelector"]) == ("500", "t1", "x=y")
    assert "resourceVersion" not in second and "resourceVersionMatch" not in second


async def test_a_list_counts_once_against_the_rate_limit() -> None:
    def answer(asked: Asked) -> Answer:
        page = int(asked.query.get("continue", "0"))
        return Answer(200, node_list([f"n{page}"], "10", str(page + 1) if page < 9 else ""))

    time = clock.ManualClock()
    async with serving(answer) as server, Client(ClientConfig(server.url, qps=1, burst=1), time=time) as client:
        async with asyncio.timeout(60):
            assert len((await client.list(NODES)).items) == 10
        second = asyncio.ensure_future(client.list(NODES))
        await time.advance(0.9)
        assert len(server.asked) == 10
        await time.advance(0.2)
        async with asyncio.timeout(60):
            assert len((await second).items) == 10


async def test_a_limit_gives_one_page_and_its_token() -> None:
    async with serving([Answer(200, node_list(["a"], "10", "next"))]) as server, client_of(server) as client:
        page = await client.list(NODES, limit=1)
        assert (page.continue_token, len(page.items)) == ("next", 1)
        assert len(server.asked) == 1


async def test_history_lost_between_pages_gives_the_whole_list_at_once_never_a_mixture() -> None:
    def answer(asked: Asked) -> Answer:
        if "continue" in asked.query:
            return status(410, "Expired", "the token is too old")
        if "limit" in asked.query:
            return Answer(200, node_list(["a", "gone"], "10", "t1"))
        return Answer(200, node_list(["a", "b", "c"], "20"))

    async with serving(answer) as server, client_of(server) as client:
        found = await client.list(NODES, field_selector="f=g")
    assert ([item.name for item in found.items], found.resource_version) == (["a", "b", "c"], "20")
    assert server.asked[-1].query == {"fieldSelector": "f=g"}


async def test_pages_handed_out_one_by_one_raise_when_history_is_lost() -> None:
    def answer(asked: Asked) -> Answer:
        return status(410, "Expired") if "continue" in asked.query else Answer(200, node_list(["a"], "10", "t1"))

    async with serving(answer) as server, client_of(server) as client:
        seen = []
        with pytest.raises(errors.Expired):
            async for page in client.list_pages(NODES):
                seen += page.items
    assert len(seen) == 1


async def test_a_list_that_is_refused_at_once_is_not_tried_differently() -> None:
    async with serving([status(410, "Expired")]) as server, client_of(server) as client:
        with pytest.raises(errors.Expired):
            await client.list(NODES, resource_version="1", resource_version_match="Exact")
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>welcome to the hotel network</html>",
        b"{}",
        b"[]",
        b'{"kind":"Status","status":"Success","metadata":{},"items":[]}',
        b'{"kind":"NodeList","metadata":{"resourceVersion":"1"}}',
        b'{"kind":"NodeList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}',
        b'{"kind":"NodeList","metadata":{"resourceVersion":"1"},"items":{}}',
        b'{"kind":"NodeList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"labels":[]}}]}',
    ],
)
async def test_a_success_that_is_no_list_is_never_an_empty_cluster(body: bytes) -> None:
    async with serving([Answer(200, body)]) as server, client_of(server) as client:
        with pytest.raises(errors.Undecodable):
            await client.list(NODES)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"metadata":{"name":"other"}}', b"<html>"])
async def test_a_success_that_is_not_the_object_is_an_error(body: bytes) -> None:
    async with serving([Answer(200, body)]) as server, client_of(server) as client:
        refs: list[ResourceRef[Any]] = [NODES, NODES.raw(), NODES.partial()]
        for ref in refs:
            with pytest.raises(errors.Undecodable):
                await client.get(ref, "a")


async def test_an_empty_name_never_reaches_the_server() -> None:
    async with serving([Answer(200, node_list([]))]) as server, client_of(server) as client:
        for call in (
            client.get(NODES, ""),
            client.delete(NODES, ""),
            client.patch(NODES, "", {}),
            client.update(NODES, {}),
        ):
            with pytest.raises(ValueError, match="empty"):
                await call
        with pytest.raises(ValueError, match="namespace"):
            await client.delete(PODS, "a")
        assert server.asked == []


async def test_raw_items_of_a_list_carry_their_kind() -> None:
    async with serving([Answer(200, node_list(["a"]))]) as server, client_of(server) as client:
        (item,) = (await client.list(NODES.raw())).items
    assert (item["apiVersion"], item["kind"]) == ("v1", "Node")


async def test_metadata_alone_is_asked_for_as_such() -> None:
    async with serving([Answer(200, node_list(["a"]))]) as server, client_of(server) as client:
        await client.list(NODES.partial())
        assert "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" in server.asked[0].headers["accept"]


async def test_a_creation_sends_kind_options_and_body() -> None:
    async with (
        serving([Answer(201, {"metadata": {"name": "x", "namespace": "n"}})]) as server,
        client_of(server) as client,
    ):
        await client.create(
            CONFIG_MAPS,
            {"metadata": {"name": "x", "namespace": "n"}},
            field_manager="me",
            dry_run=True,
            field_validation="Strict",
        )
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/n/configmaps")
    assert asked.json == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}}
    assert asked.query == {"fieldManager": "me", "dryRun": "All", "fieldValidation": "Strict"}


@pytest.mark.parametrize("kind", list(PatchType))
async def test_each_patch_has_its_media_type(kind: PatchType) -> None:
    body: object = (
        [{"op": "add", "path": "/x", "value": 1}] if kind is PatchType.JSON else {"metadata": {"labels": {"a": None}}}
    )
    async with serving([Answer(200, node("a"))]) as server, client_of(server) as client:
        await client.patch(NODES, "a", body, type=kind, field_manager="me", subresource="status")  # type: ignore[arg-type]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PATCH", "/api/v1/nodes/a/status")
    assert asked.headers["content-type"] == kind.value
    if kind is PatchType.APPLY:
        # The server refuses an applied object that does not name itself.
        assert asked.json == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"a": None}}}
    else:
        assert asked.json == body


async def test_apply_needs_a_manager_and_can_be_forced() -> None:
    async with serving([Answer(200, node("a"))]) as server, client_of(server) as client:
        with pytest.raises(ValueError, match="field manager"):
            await client.patch(NODES, "a", {}, type=PatchType.APPLY)
        await client.patch(NODES, "a", {}, type=PatchType.APPLY, field_manager="me", force=True)
    assert server.asked[0].query == {"fieldManager": "me", "force": "true"}


async def test_a_deletion_carries_its_conditions_in_the_body() -> None:
    async with serving([Answer(200, {"kind": "Status"})]) as server, client_of(server) as client:
        await client.delete(PODS, "a", "n", uid="u", resource_version="7", propagation="Foreground", grace_period_s=0)
    assert server.asked[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


async def test_deleting_a_collection_keeps_its_selector() -> None:
    async with serving([Answer(200, node_list([]))]) as server, client_of(server) as client:
        await client.delete_collection(PODS, "n", label_selector="a=b")
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query) == ("DELETE", "/api/v1/namespaces/n/pods", {"labelSelector": "a=b"})


async def test_a_watch_asks_for_bookmarks_and_an_end_and_yields_until_the_server_ends_it() -> None:
    lines = [
        {"type": "ADDED", "object": node("a")},
        {"type": "MODIFIED", "object": node("a", "2")},
        {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "9"}}},
    ]
    stream = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    chunks = [stream[:30], stream[30:31], stream[31:]]
    async with serving([Answer(200, chunks=chunks)]) as server, client_of(server) as client:
        found = [event async for event in client.watch(NODES, resource_version="1", field_selector="f=g")]
    assert [type(event) for event in found] == [Added, Modified, Bookmark]
    query = server.asked[0].query
    assert (query["watch"], query["allowWatchBookmarks"], query["resourceVersion"]) == ("true", "true", "1")
    assert 300 <= int(query["timeoutSeconds"]) <= 600
    assert query["fieldSelector"] == "f=g" and "sendInitialEvents" not in query


async def test_a_streamed_list_asks_for_initial_events() -> None:
    async with serving([Answer(200, chunks=[])]) as server, client_of(server) as client:
        assert [event async for event in client.watch(NODES, send_initial_events=True, timeout_s=7)] == []
    query = server.asked[0].query
    assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert (query["allowWatchBookmarks"], query["timeoutSeconds"]) == ("true", "7")


@pytest.mark.parametrize("rest", [b"", b'{"type":"ADDED","obj'])
async def test_a_watch_that_breaks_off_hands_out_its_events_and_then_raises(rest: bytes) -> None:
    line = json.dumps({"type": "ADDED", "object": node("a")}).encode() + b"\n"
    seen: list[str] = []
    async with serving([Answer(200, chunks=[line + rest], cut_after=1)]) as server, client_of(server) as client:
        with pytest.raises(errors.Interrupted):
            async for event in client.watch(NODES):
                seen += [event.object.name]
    assert seen == ["a"]


async def test_a_watch_from_forgotten_history_is_expired_both_ways() -> None:
    error = (
        json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).encode() + b"\n"
    )
    for answer in (status(410, "Gone"), Answer(200, chunks=[error])):
        async with serving([answer]) as server, client_of(server) as client:
            with pytest.raises(errors.Expired):
                async for _ in client.watch(NODES, resource_version="1"):
                    pass


async def test_a_watch_is_not_held_by_the_rate_limit_and_not_retried_inside() -> None:
    async with serving([Answer(drop=True)]) as server, Client(ClientConfig(server.url, qps=0.001, burst=1)) as client:
        for _ in range(3):
            with pytest.raises(core.Unavailable):
                async for _ in client.watch(NODES):
                    pass
        assert len(server.asked) == 3


async def test_leaving_a_watch_early_closes_its_connection_and_the_client_goes_on() -> None:
    line = json.dumps({"type": "ADDED", "object": node("a")}).encode() + b"\n"

    def answer(asked: Asked) -> Answer:
        return Answer(200, chunks=[line] * 50, hang=True) if "watch" in asked.query else Answer(200, node("a"))

    async with serving(answer) as server, client_of(server) as client:
        watch = client.watch(NODES)
        async for _ in watch:
            break
        await watch.aclose()
        await until(lambda: server.closed)
        assert (await client.get(NODES, "a")).name == "a"


async def test_subresources_with_a_kind_of_their_own() -> None:
    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/scale"):
            return Answer(200, {"kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 3}})
        if asked.path.endswith("/token"):
            return Answer(
                201, {"kind": "TokenRequest", "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}}
            )
        return Answer(201, {"kind": "Status", "status": "Success"})

    async with serving(answer) as server, client_of(server) as client:
        assert (await subresources.set_scale(client, PODS, "d", "n", 3)).spec.replicas == 3
        assert (await subresources.request_token(client, "sa", "n", audiences=["x"], lifetime_s=600)).token == "t"
        await subresources.evict(client, "p", "n", uid="u", grace_period_s=5)
        await subresources.bind_pod(client, "p", "n", "node-1", uid="u")
    scale, token, eviction, binding = server.asked
    assert (scale.method, scale.json) == ("PATCH", {"spec": {"replicas": 3}})
    assert token.json["spec"] == {"audiences": ["x"], "expirationSeconds": 600}
    assert eviction.json["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert binding.json["target"]["name"] == "node-1" and binding.json["metadata"]["uid"] == "u"


async def test_a_disruption_budget_shows_as_too_many_requests() -> None:
    refusal = status(429, "TooManyRequests", "would violate the budget")
    async with serving([refusal]) as server, client_of(server) as client:
        with pytest.raises(errors.TooManyRequests, match="budget"):
            await subresources.evict(client, "p", "n")
        assert len(server.asked) == 1
