"""What is the same for every address: problems, methods, bodies, parameters, rights, metrics."""

from __future__ import annotations

import asyncio
import io
import json

import aiohttp
import pytest
from tests.ui.rest.serving import Served, served

from bedplate.api import headapi
from bedplate.client import Forbidden, HeadClient, Unauthorized
from bedplate.core import errors
from bedplate.ui import rest


async def problem(answer: aiohttp.ClientResponse) -> headapi.Problem:
    assert answer.content_type == "application/problem+json"
    said = json.loads(await answer.read())
    found = headapi.Problem(**said)
    assert found.status == answer.status
    assert found.title
    return found


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/", 404),
        ("PATCH", "/api/v1/tree", 405),
        ("DELETE", "/api/v1/commits", 405),
        ("POST", "/healthz", 405),
        ("GET", "/api/v1/tree?at=x", 400),
        ("GET", "/api/v1/tree?at=1&at=2", 400),
        ("GET", "/api/v1/tree?nothing=1", 400),
        ("GET", "/api/v1/objects/device?limit=0", 400),
        ("GET", "/api/v1/plan", 400),
        ("GET", "/api/v1/revisions/0", 400),
        ("GET", "/api/v1/revisions/77", 404),
        ("GET", "/api/v1/nodes/none/explain", 404),
        ("GET", "/api/v1/events?types=gossip", 400),
        ("GET", "/api/v1/events?after=yesterday", 400),
    ],
)
async def test_what_cannot_be_answered_is_a_problem(
    http: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with http.request(method, path) as answer:
        assert answer.status == status
        told = await problem(answer)
        assert told.detail
        if status == 405:
            assert answer.headers["Allow"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {"Content-Type": "application/json"}, 400),
        (b"[]", {"Content-Type": "application/json"}, 400),
        (b'{"edits": [{"mode": "device"}]}', {"Content-Type": "application/json"}, 400),
        (b'{"edits": [], "more": 1}', {"Content-Type": "application/json"}, 400),
        (b'{"edits": [{"mode": "nothing", "key": "a"}]}', {"Content-Type": "application/json"}, 400),
        (b'{"edits": [{"mode": "device", "key": "a b"}]}', {"Content-Type": "application/json"}, 400),
        (b'{"edits": [], "message": "\xff"}', {"Content-Type": "application/json"}, 400),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Type": "application/json; charset=utf-16"}, 415),
    ],
)
async def test_a_body_that_cannot_be_read_is_told(
    http: aiohttp.ClientSession, server: Served, body: bytes, headers: dict[str, str], status: int
) -> None:
    async with http.post("/api/v1/commits", data=body, headers=headers) as answer:
        assert answer.status == status
        await problem(answer)
    assert server.head.revision == 1


@pytest.mark.parametrize("part", ["type", "values", "extras", "children"])
async def test_a_body_that_is_nested_deep_is_told_in_few_words(
    http: aiohttp.ClientSession, server: Served, part: str
) -> None:
    # Up to where the body can no longer be read, as whoever quotes it has less room than who reads it.
    for depth in (100, 300, 700, *range(860, 1000, 12)):
        deep = "[" * depth + "]" * depth
        content = f'{{"type": {deep}}}' if part == "type" else f'{{"{part}": {{"notes": {deep}}}}}'
        for path, body in (
            ("commits", f'{{"edits": [{{"mode": "category", "key": "deep", "object": {content}}}], "nonce": "n"}}'),
            ("plan", f'{{"edits": [{{"mode": "category", "key": "deep", "object": {content}}}]}}'),
            ("objects/category", f'{{"key": "deep", {content[1:]}'),
        ):
            async with http.post(f"/api/v1/{path}", data=body, headers={"Content-Type": "application/json"}) as answer:
                assert answer.status in (400, 409), (depth, path)
                assert len(await answer.read()) < 2000
    assert server.head.revision == 1


async def test_a_body_that_is_too_large_is_refused_also_without_a_length(tmp_path) -> None:  # type: ignore[no-untyped-def]
    async def endless():  # type: ignore[no-untyped-def]
        for _ in range(100):
            yield b" " * 1000

    async with served(tmp_path, limits=rest.Limits(body_bytes=5000, import_bytes=5000)) as server:
        headers = {"Authorization": f"Bearer {server.tokens['admin']}", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(server.url, headers=headers) as http:
            for body in (b" " * 6000, endless()):
                async with http.post("/api/v1/commits", data=body) as answer:
                    assert answer.status == 413
                    assert (await problem(answer)).hint
            async with http.post("/api/v1/objects/category", data=b" " * 6000) as answer:
                assert answer.status == 413


async def test_a_stranger_is_told_how_to_be_known(server: Served) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for headers in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": "Basic x"}):
            async with http.get("/api/v1/tree", headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
                assert (await problem(answer)).hint
        for path in ("/healthz", "/livez", "/readyz", "/openapi.json"):
            async with http.get(path) as answer:
                assert answer.status == 200
        async with http.get("/metrics") as answer:
            assert answer.status == 401


async def test_an_auditor_reads_and_cannot_write(server: Served) -> None:
    edit = headapi.Edit(mode="category", key="default", base=1, object={"values": {"notes": "x"}})
    async with server.client("arno") as arno:
        assert (await arno.whoami()).role == "auditor"
        assert (await arno.tree()).objects
        assert await arno.revisions()
        assert await arno.audit()
        assert await arno.export()
        assert (await arno.plan([edit])).revision == 1
        for refused in (
            arno.commit([edit]),
            arno.put("category", "default", {}),
            arno.create("category", "x"),
            arno.delete("device", "node007"),
            arno.undo(1),
            arno.import_("format: bedplate/head/v1\n"),
            arno.report("node001"),
            arno.create_token("arno"),
            arno.export(with_secrets=True),
        ):
            with pytest.raises(Forbidden) as told:
                await refused
            assert "arno" in str(told.value)
    assert server.head.revision == 1


async def test_an_operator_edits_all_but_users_tokens_and_secrets(server: Served) -> None:
    async with server.client("olga") as olga, server.client("admin") as admin:
        await admin.put("user", "arno", {"revision": "x"}, replace=True)
        await olga.put("category", "default", {"notes": "x"}, replace=True)
        held = await olga.get("kubernetes", "default")
        await olga.put("kubernetes", "default", {**held.values, "notes": "x"}, children=held.children, replace=True)
        for refused in (
            olga.put("user", "olga", {"role": "admin"}),
            olga.create_token("admin"),
            olga.patch("kubernetes", "default", {"kube_ca_key": "mine"}),
            olga.delete("kubernetes", "default"),
            olga.undo(2),
            olga.export(with_secrets=True),
        ):
            with pytest.raises(Forbidden):
                await refused
    assert server.head.revision == 4


async def test_a_node_sees_itself_alone(server: Served) -> None:
    async with server.client("node001") as node:
        assert await node.desired("node001") is not None
        assert await node.report("node001") == 1
        for refused in (node.desired("node002"), node.report("node002"), node.tree(), node.nodes(), node.notices()):
            with pytest.raises(Forbidden):
                await refused


async def test_a_user_who_is_shut_out_is_out_with_the_next_request(client: HeadClient, server: Served) -> None:
    async with server.client("olga") as olga:
        await olga.whoami()
        await client.put("user", "olga", {"role": "operator", "enabled": False}, replace=True)
        with pytest.raises(Unauthorized):
            await olga.whoami()


async def test_nobody_takes_away_their_own_access(client: HeadClient, server: Served) -> None:
    for refused in (
        client.delete("user", "admin"),
        client.put("user", "admin", {}, replace=True),
        client.put("user", "admin", {"role": "admin", "enabled": False}, replace=True),
        client.import_("format: bedplate/head/v1\n", prune=True),
    ):
        with pytest.raises(errors.Invalid, match="lose their own access"):
            await refused
    assert (await client.whoami()).role == "admin"
    assert server.head.revision == 1


async def test_tokens_are_made_shown_without_their_text_and_revoked(client: HeadClient, server: Served) -> None:
    made = await client.create_token("arno", "laptop", days=3)
    async with HeadClient(server.url, token=made.token) as arno:
        assert (await arno.whoami()).user == "arno"
        listed = {one.id: one for one in await client.tokens()}
        assert listed[made.about.id].name == "laptop"
        assert listed[made.about.id].expires > listed[made.about.id].created
        await client.revoke_token(made.about.id)
        with pytest.raises(Unauthorized):
            await arno.whoami()
    for refused in (
        client.revoke_token(made.about.id),
        client.create_token("nobody"),
        client.create_token("x", kind="node"),
    ):
        with pytest.raises(errors.NotFound):
            await refused


async def test_nobody_revokes_the_token_they_ask_with(client: HeadClient) -> None:
    own = (await client.whoami()).via.removeprefix("token ")
    with pytest.raises(errors.Invalid, match="that this request uses"):
        await client.revoke_token(own)
    assert (await client.whoami()).user == "admin"


async def test_requests_are_counted_by_operation(http: aiohttp.ClientSession, client: HeadClient) -> None:
    await client.put("category", "default", {"notes": "x"}, replace=True)
    with pytest.raises(errors.NotFound):
        await client.get("device", "none")
    async with http.get("/metrics") as answer:
        text = await answer.text()
    assert 'bedplate_head_requests_total{code="200",method="PUT",operation="put"} 1.0' in text
    assert 'bedplate_head_requests_total{code="404",method="GET",operation="get"} 1.0' in text
    assert "bedplate_head_commits_total 1.0" in text
    assert 'bedplate_head_request_duration_seconds_count{operation="put"} 1.0' in text
    assert "node001" not in text


async def test_a_bug_is_told_without_its_insides(
    server: Served, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("inner words")

    monkeypatch.setattr(server.head, "log", broken)
    async with http.get("/api/v1/revisions") as answer:
        assert answer.status == 500
        told = await problem(answer)
    assert "inner words" not in told.detail
    assert told.hint


async def test_what_is_no_http_is_refused_without_a_traceback(
    log: io.StringIO, server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for said in (
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n",
        b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        async with asyncio.timeout(120):
            assert b" 400 " in await reader.read()
        writer.close()
    assert "head.no_http" in log.getvalue()
    assert "Traceback" not in log.getvalue()
    assert [record.name for record in caplog.records if record.name.startswith("aiohttp")] == []


async def test_a_passive_head_reads_and_sends_writers_to_the_active_one(tmp_path) -> None:  # type: ignore[no-untyped-def]
    class Passive:
        is_active = False
        active_name = "other"
        active_url = "https://other:8081"
        trouble = ""

        def refuse_writes(self) -> None:
            from bedplate.head.service import NotActive

            raise NotActive(self.active_name, self.active_url)

    async with served(tmp_path, standing=Passive()) as server:
        headers = {"Authorization": f"Bearer {server.tokens['admin']}"}
        async with aiohttp.ClientSession(server.url, headers=headers) as http:
            for method, path, body in (
                ("PUT", "/api/v1/objects/category/default", {}),
                ("POST", "/api/v1/commits", {"edits": [{"mode": "category", "key": "x", "object": {}}]}),
                ("POST", "/api/v1/nodes/node001/report", {}),
                ("POST", "/api/v1/revisions/1/undo", {}),
                ("POST", "/api/v1/tokens", {"subject": "admin"}),
            ):
                async with http.request(method, path, json=body) as answer:
                    assert answer.status == 503, path
                    assert answer.headers["Bedplate-Active"] == "https://other:8081"
                    assert answer.headers["Retry-After"] == "1"
                    assert (await problem(answer)).active == "https://other:8081"
            async with http.get("/api/v1/whoami") as answer:
                said = await answer.json()
                assert (said["isActive"], said["active"]) == (False, "https://other:8081")
        assert server.head.revision == 1


async def test_the_longest_command_for_an_image_that_the_document_allows_fits_into_a_request(
    http: aiohttp.ClientSession,
) -> None:
    """However it is encoded: as text or as numbers of letters."""
    body = json.dumps({"action": "run", "command": ["\U0001f600" * 2000] * 160}).encode()
    async with http.post(
        "/api/v1/images/default-image", data=body, headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status in (400, 409), await answer.text()
    for command in (["x"] * 161, ["x" * 2001], ["a\0b"]):
        async with http.post("/api/v1/images/default-image", json={"action": "run", "command": command}) as answer:
            assert answer.status == 400 and "command" in (await problem(answer)).detail
