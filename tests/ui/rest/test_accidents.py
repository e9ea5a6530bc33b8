"""Writes that nobody meant: a PUT without a condition, a nonce used twice, a reader that comes from another history."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest
from tests.ui.rest.serving import CA_KEY, Served, served

from bedplate.client import HeadClient, Stale
from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.session import Session
from bedplate.store.interface import Put
from bedplate.ui.remote import RemoteBackend
from bedplate.ui.rest.operations import Ask

DEFAULT = "/api/v1/objects/category/default"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def test_a_put_without_a_condition_does_not_replace(http: aiohttp.ClientSession, server: Served) -> None:
    async with http.put(DEFAULT, json={"values": {"notes": "mine"}}) as answer:
        problem = await answer.json(content_type=None)
        assert (answer.status, problem["type"]) == (428, "urn:bedplate:conflict")
        assert 'If-Match: "1"' in problem["hint"]
    assert server.head.revision == 1
    for headers, body in (({"If-Match": "*"}, {}), ({}, {"revision": 2}), ({"If-Match": '"3"'}, {})):
        content = {"values": {"notes": str(headers), "software_image": "default-image"}, **body}
        async with http.put(DEFAULT, json=content, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
    async with http.put("/api/v1/objects/category/new", json={}) as answer:
        assert answer.status == 201
    assert server.head.revision == 5


async def test_the_client_says_what_it_replaces(client: HeadClient, server: Served) -> None:
    with pytest.raises(errors.Conflict, match="exists"):
        await client.put("category", "default", {"notes": "mine"})
    await client.put("category", "default", {"notes": "mine"}, replace=True)
    assert server.head.revision == 2


async def test_a_merge_patch_changes_what_it_names(client: HeadClient, http: aiohttp.ClientSession) -> None:
    await client.put("category", "default", {"notes": "old", "software_image": "default-image"}, replace=True)
    async with http.patch(DEFAULT, json={"values": {"notes": "new"}}, headers=MERGE) as answer:
        assert answer.status == 200
        assert answer.headers["ETag"] == '"3"'
        assert (await answer.json())["values"] == {"notes": "new", "software_image": "default-image"}
    async with http.patch(DEFAULT, json={"values": {"notes": None}, "extras": {"rack": "3"}}, headers=MERGE) as answer:
        assert (await answer.json())["values"] == {"software_image": "default-image"}
    assert (await client.get("category", "default")).extras == {"rack": "3"}
    patched = await client.patch("category", "default", {"notes": "by the client"}, extras={"rack": None})
    assert (patched.values["notes"], patched.extras) == ("by the client", {})


async def test_a_merge_patch_keeps_secrets_and_reaches_children(client: HeadClient, server: Served) -> None:
    await client.patch("kubernetes", "default", {"notes": "x"}, children={"label_sets": {"zone": None}})
    cluster = server.head.tree.get(("kubernetes", "default"))
    assert cluster.values["kube_ca_key"].reveal() == CA_KEY  # type: ignore[union-attr]
    assert list(cluster.children["label_sets"]) == ["amd"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"values": {"notes": "x"}}, {"If-Match": '"7"'}, 412),
        ({"values": {"notes": "x"}, "revision": 7}, {}, 409),
        ({"values": {"nonsense": 1}}, {}, 409),
        ({"values": 3}, {}, 400),
        ({"key": "other"}, {}, 409),
        ({"values": {"notes": "x"}}, {"Content-Type": "application/json"}, 415),
    ],
)
async def test_a_merge_patch_that_does_not_fit_is_refused(
    http: aiohttp.ClientSession, server: Served, body: dict[str, object], headers: dict[str, str], status: int
) -> None:
    async with http.patch(DEFAULT, json=body, headers=MERGE | headers) as answer:
        assert answer.status == status, await answer.text()
    assert server.head.revision == 1
    async with http.patch(DEFAULT.replace("default", "none"), json={}, headers=MERGE) as answer:
        assert answer.status == 404


async def test_a_nonce_with_another_request_is_refused(http: aiohttp.ClientSession, server: Served) -> None:
    async def ask(method: str, path: str, body: object, **headers: str) -> tuple[int, str]:
        sent = {"Idempotency-Key": "n1"} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with http.request(method, f"/api/v1/{path}", json=body, headers=sent) as answer:
            return answer.status, await answer.text()

    assert (await ask("POST", "objects/category", {"key": "a"}))[0] == 201
    assert (await ask("POST", "objects/category", {"key": "a"}))[0] == 201, "the same again is the same"
    others = [
        ("POST", "objects/category", {"key": "b"}, {}),
        ("POST", "objects/category?message=x", {"key": "a"}, {}),
        ("PUT", "objects/category/c", {}, {}),
        ("PATCH", "objects/category/a", {"values": {"notes": "x"}}, MERGE),
        ("DELETE", "objects/category/a", None, {}),
        ("POST", "commits", {"edits": []}, {}),
        ("POST", "revisions/2/undo", {}, {}),
    ]
    for method, path, body, headers in others:
        status, text = await ask(method, path, body, **headers)
        assert status == 422, (method, path, text)
        assert "revision 2" in text
    assert server.head.revision == 2


async def test_a_request_in_other_words_is_the_same_request(http: aiohttp.ClientSession, server: Served) -> None:
    brief = {"edits": [{"mode": "category", "key": "a", "object": {"type": "Category"}}], "nonce": "n1"}
    written_out = {"nonce": "n1", "message": "", "force": False, **brief}
    for body in (brief, written_out):
        async with http.post("/api/v1/commits", json=body) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["revision"]["number"] == 2
    async with http.post("/api/v1/commits", json={**brief, "message": "another"}) as answer:
        assert answer.status == 422
    assert server.head.revision == 2


async def test_a_reader_from_another_history_is_told(http: aiohttp.ClientSession, server: Served) -> None:
    for parameters, headers in (
        ({"after": "9"}, {}),
        ({}, {"Last-Event-ID": "9.0.0"}),
        ({"after": f"1.{server.notices.last + 5}.0"}, {}),
    ):
        async with http.get("/api/v1/events", params={"wait": "1", **parameters}, headers=headers) as answer:
            text = await answer.text()
        assert text.startswith(f"id: 1.{server.notices.last}."), text
        assert 'event: reset\ndata: {"revision":1}\n\n' in text
    async with http.get("/api/v1/events", params={"wait": "1", "after": "1"}) as answer:
        assert "reset" not in await answer.text()


async def test_what_a_reader_is_told_first_does_not_count_as_waiting(
    http: aiohttp.ClientSession, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load the answer was empty once: the second that was asked for was over before the first line."""
    maybe, catch_up = Ask.maybe, server.head.catch_up

    async def slowly() -> None:
        await asyncio.sleep(0.05)
        await catch_up()

    monkeypatch.setattr(Ask, "maybe", lambda ask, name: 0.01 if name == "wait" else maybe(ask, name))
    monkeypatch.setattr(server.head, "catch_up", slowly)
    async with http.get("/api/v1/events", params={"wait": "1", "after": "9"}) as answer:
        assert "event: reset" in await answer.text()


async def test_an_etag_of_another_history_fits_nothing(http: aiohttp.ClientSession, server: Served) -> None:
    async with http.get("/api/v1/tree") as answer:
        assert (answer.headers["ETag"], (await answer.json())["history"]) == ('"1"', "")
    await server.store.commit([Put("/head/incarnation", b"c0ffee00")])
    await server.head._ledger.open()
    async with http.get("/api/v1/tree") as answer:
        assert (answer.headers["ETag"], (await answer.json())["history"]) == ('"1-c0ffee00"', "c0ffee00")
    async with http.get(DEFAULT) as answer:
        tag = answer.headers["ETag"]
        assert tag == '"1-c0ffee00"'
    for condition in ('"1"', '"1-c0ffee01"', 'W/"1"'):
        for method, body in (("PUT", {}), ("PATCH", {}), ("DELETE", None)):
            content = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
            sent = {"If-Match": condition} | content
            async with http.request(method, DEFAULT, json=body, headers=sent) as answer:
                assert answer.status == 412, (method, condition, await answer.text())
        for address in (DEFAULT, "/api/v1/tree"):
            async with http.get(address, headers={"If-None-Match": condition}) as answer:
                assert answer.status == 200
    async with http.get("/api/v1/tree", headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304
    async with http.patch(DEFAULT, json={"values": {"notes": "x"}}, headers=MERGE | {"If-Match": tag}) as answer:
        assert (answer.status, answer.headers["ETag"]) == (200, '"2-c0ffee00"')
    for history, status in (("", 409), ("c0ffee01", 409), ("c0ffee00", 200)):
        edits = [{"mode": "category", "key": "new", "object": {"type": "Category"}}]
        async with http.post("/api/v1/commits", json={"edits": edits, "history": history}) as answer:
            assert answer.status == status, await answer.text()


async def test_what_is_deleted_is_what_was_seen(client: HeadClient, server: Served) -> None:
    await client.create("category", "new")
    await client.patch("category", "new", {"notes": "x"})
    with pytest.raises(errors.Conflict, match="admin in revision 3"):
        await client.delete("category", "new", base=2)
    await client.delete("category", "new", base=3)
    assert server.head.tree.find("category", "new") is None


async def test_a_reader_of_another_revision_of_the_same_number_is_told(tmp_path: Path) -> None:
    """A backup was restored, and others have committed since: numbers alone say nothing."""

    async def ask(server: Served, last: str) -> str:
        headers = {"Authorization": f"Bearer {server.tokens['admin']}", "Last-Event-ID": last}
        async with (
            aiohttp.ClientSession(server.url, headers=headers) as http,
            http.get("/api/v1/events", params={"wait": "1", "types": "revision"}) as answer,
        ):
            return await answer.text()

    for name in ("before", "after", "third"):
        (tmp_path / name).mkdir()
    async with served(tmp_path / "before") as server, server.client() as client:
        await client.patch("category", "default", {"notes": "before"})
        seen = re.findall("id: ([0-9.]+)", await ask(server, "1"))[-1]
        assert seen.startswith("2.") and "reset" not in await ask(server, seen)
        async with RemoteBackend(client, SCHEMA) as backend:
            session = Session(backend.tree)
            session.set(("category", "default"), "notes", "staged")
    async with served(tmp_path / "after") as server, server.client() as client:
        for notes in ("after", "once more"):
            await client.patch("category", "default", {"notes": notes})
        assert 'event: reset\ndata: {"revision":3}' in await ask(server, seen)
        assert "reset" not in await ask(server, seen.rpartition(".")[0]), "an id of an earlier version"
    async with served(tmp_path / "third") as server, server.client() as client:
        await client.patch("category", "default", {"notes": "another"})
        async with RemoteBackend(client, SCHEMA) as backend:
            session.follow(backend.tree)
            with pytest.raises(Stale, match="changed by admin in revision 2"):
                await backend.commit(session.edits())


async def test_a_shell_over_a_restored_head_reads_the_tree_again(client: HeadClient, server: Served) -> None:
    async with RemoteBackend(client, SCHEMA) as backend:
        backend._revision = 40
        events = backend.follow()
        async with asyncio.timeout(60):
            notice = await anext(events)
        assert "restored from a backup" in getattr(notice, "text", "")
        assert backend.revision == server.head.revision == 1
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_stale_merge_patch_names_who_was_first(client: HeadClient) -> None:
    await client.patch("category", "default", {"notes": "a"})
    with pytest.raises((Stale, errors.Conflict), match="admin"):
        await client.patch("category", "default", {"notes": "b"}, base=1)
