"""The HTTP level: paths, methods, media types, compression, sizes, time limits."""

from __future__ import annotations

import gzip
import json

import yaml
from tests.conformance.http import Api
from tests.conformance.objects import config_map, core, unique


async def test_unknown_paths(api: Api, ns: str) -> None:
    reply = await api.get("/nothing/here")
    assert reply.status == 404
    assert (await api.get(core(ns, "gadgets"))).status == 404
    assert (await api.get(core(ns, "configmaps", "a", "nonsense"))).status in (404, 405)


async def test_the_root_lists_paths(api: Api) -> None:
    paths = (await api.read("/"))["paths"]
    assert {"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version"} <= set(paths)


async def test_methods_that_do_not_fit(api: Api, ns: str) -> None:
    status = (await api.put(core(ns, "configmaps"), config_map("a"))).fails(405, "MethodNotAllowed")
    assert status["message"] == "the server does not allow this method on the requested resource"
    (await api.post(core(ns, "configmaps", "a"), config_map("a"))).fails(405, "MethodNotAllowed")
    (await api.patch(core(ns, "configmaps"), {})).fails(405, "MethodNotAllowed")


async def test_unsupported_body_types(api: Api, ns: str) -> None:
    body = json.dumps(config_map("a")).encode()
    status = (await api.post(core(ns, "configmaps"), body, content_type="text/plain")).fails(
        415, "UnsupportedMediaType"
    )
    assert "the body of the request was in an unknown format - accepted media types include" in status["message"]
    await api.create(core(ns, "configmaps"), config_map("a"))
    (await api.patch(core(ns, "configmaps", "a"), {}, "application/json")).fails(415, "UnsupportedMediaType")


async def test_an_accept_nobody_can_serve(api: Api, ns: str) -> None:
    reply = await api.get(core(ns, "configmaps"), accept="image/png")
    assert reply.status == 406
    assert reply.json["reason"] == "NotAcceptable"
    for accept in ("*/*", "application/json;q=0.5, image/png;q=0.1"):
        assert (await api.get(core(ns, "configmaps"), accept=accept)).status == 200, accept


async def test_yaml_in_and_out(api: Api, ns: str) -> None:
    body = yaml.safe_dump(config_map("a", {"k": "1"})).encode()
    reply = await api.post(core(ns, "configmaps"), body, content_type="application/yaml", accept="application/yaml")
    assert reply.status == 201
    assert reply.headers["Content-Type"] == "application/yaml"
    assert yaml.safe_load(reply.body)["data"] == {"k": "1"}


async def test_large_answers_are_compressed_when_asked(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("big", {"k": "x" * 200_000}))
    url = api.server.url + core(ns, "configmaps", "big")
    headers = {**api.headers, "Accept": "application/json", "Accept-Encoding": "gzip"}
    async with api.session.get(url, headers=headers, auto_decompress=False) as response:
        raw = await response.read()
        assert response.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(raw))["data"]["k"] == "x" * 200_000
    async with api.session.get(
        url, headers={**headers, "Accept-Encoding": "identity"}, auto_decompress=False
    ) as response:
        assert "Content-Encoding" not in response.headers
        assert len(await response.read()) > 200_000


async def test_too_large_a_body(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a", {"k": "x" * 4_000_000}))).fails(
        413, "RequestEntityTooLarge"
    )
    assert "limit is 3145728" in status["message"]


async def test_pretty(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    assert b'\n  "kind": "ConfigMap"' in (await api.get(core(ns, "configmaps", "a"), pretty="true")).body
    assert (await api.get(core(ns, "configmaps", "a"), pretty="false")).body.count(b"\n") <= 1


async def test_head_and_trailing_slash(api: Api, ns: str) -> None:
    reply = await api.request("HEAD", core(ns, "configmaps"))
    assert reply.status in (200, 405)
    assert reply.body == b""
    assert (await api.get("/api/")).status in (200, 404)


async def test_a_watch_is_chunked_and_typed(api: Api, ns: str) -> None:
    async with api.watch(core(ns, "configmaps"), timeoutSeconds=1) as watch:
        assert watch.response.headers["Content-Type"] == "application/json"
        assert watch.response.headers["Transfer-Encoding"] == "chunked"
        await watch.ended()


async def test_names_in_paths_are_unescaped(api: Api, ns: str) -> None:
    name = unique("system") + ":role"
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": []}
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles"
    await api.create(roles, body)
    assert (await api.read(f"{roles}/{name}"))["metadata"]["name"] == name
    from yarl import URL

    url = URL(f"{api.server.url}{roles}/{name.replace(':', '%3A')}", encoded=True)
    async with api.session.get(url, headers=api.headers) as response:
        assert response.status == 200


async def test_every_answer_carries_audit_and_cache_headers(api: Api, ns: str) -> None:
    reply = await api.get(core(ns, "configmaps"))
    assert reply.headers["Audit-Id"]
    assert reply.headers["Cache-Control"] == "no-cache, private"


async def test_broken_options_are_refused(api: Api, ns: str) -> None:
    (await api.get(core(ns, "configmaps"), limit="many")).fails(400, "BadRequest")
    (await api.get(core(ns, "configmaps"), watch="perhaps", timeoutSeconds=1)).expect(200)
    (await api.get(core(ns, "configmaps"), timeoutSeconds="long")).fails(400, "BadRequest")
