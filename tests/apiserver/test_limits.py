"""What is too deep, too long or too large: refused by a Status, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import json
import pathlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.apiserver.test_server import CONFIG_MAPS, client

from bedplate.apiserver import server
from bedplate.apiserver.verbs import request
from bedplate.apiserver.wire import codec

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DIGITS = "9" * 5000
DEEP = {
    "or": " || ".join(["self.a == 1"] * 200),
    "and": " && ".join(["self.a == 1"] * 300),
    "sum": " + ".join(["self.a"] * 300) + " > 0",
    "parentheses": "(" * 200 + "true" + ")" * 200,
    "negations": "!(" * 240 + "true" + ")" * 240,
    "lists": "[" * 220 + "]" * 220 + " == []",
    "choices": "self.a == 1 ? true : " * 240 + "false",
    "literal": f"self.a == {DIGITS}",
    "unsigned literal": f"self.a == {DIGITS}u",
}


@pytest.fixture
async def session(tmp_path: pathlib.Path) -> AsyncIterator[aiohttp.ClientSession]:
    options = server.Options(data=tmp_path / "data")
    async with server.ApiServer(options) as running, client(options.data, running.url) as session:
        yield session


def definition(**rule: str) -> dict[str, Any]:
    spec = {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [rule]}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"plural": "ws", "singular": "w", "kind": "W"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ws.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.mark.parametrize("name", DEEP)
async def test_an_expression_that_is_too_deep_is_invalid(session: aiohttp.ClientSession, name: str) -> None:
    reply = await session.post(CRDS, json=definition(rule=DEEP[name]))
    assert (reply.status, (await reply.json())["reason"]) == (422, "Invalid")
    message = f"string({DEEP[name]})"
    reply = await session.post(CRDS, json=definition(rule="self.a == 1", messageExpression=message))
    assert (reply.status, (await reply.json())["reason"]) == (422, "Invalid")


@pytest.mark.parametrize("name", ["or", "parentheses", "literal"])
async def test_a_condition_of_a_webhook_that_is_too_deep_is_invalid(session: aiohttp.ClientSession, name: str) -> None:
    hook = {
        "name": "a.x.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "matchConditions": [{"name": "c", "expression": DEEP[name].replace("self.a", "object.a")}],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    reply = await session.post(HOOKS, json={**kind, "metadata": {"name": "a"}, "webhooks": [hook]})
    assert (reply.status, (await reply.json())["reason"]) == (422, "Invalid")


async def test_a_hundred_terms_are_not_too_many(session: aiohttp.ClientSession) -> None:
    reply = await session.post(CRDS, json=definition(rule=" || ".join(["self.a == 1"] * 100)))
    assert reply.status == 201


def quota(amount: str) -> dict[str, Any]:
    spec = {"hard": {"cpu": amount}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}


QUOTAS = "/api/v1/namespaces/default/resourcequotas"


@pytest.mark.parametrize("amount", [DIGITS, f"{DIGITS}Ki", f"0.{DIGITS}", f"1e{DIGITS}", f"-{DIGITS}m"])
@pytest.mark.parametrize("verb", ["create", "apply", "update", "merge"])
async def test_a_quantity_of_thousands_of_digits_is_invalid(
    session: aiohttp.ClientSession, amount: str, verb: str
) -> None:
    if verb in ("update", "merge"):
        assert (await session.post(QUOTAS, json=quota("1"))).status == 201
    if verb == "create":
        reply = await session.post(QUOTAS, json=quota(amount))
    elif verb == "update":
        reply = await session.put(f"{QUOTAS}/q", json=quota(amount))
    else:
        media = "apply-patch+yaml" if verb == "apply" else "merge-patch+json"
        headers = {"Content-Type": f"application/{media}"}
        body = json.dumps(quota(amount))
        reply = await session.patch(f"{QUOTAS}/q?fieldManager=m", data=body, headers=headers)
    answer = await reply.json()
    assert (reply.status, answer["reason"]) == (422, "Invalid")
    assert answer["details"]["causes"][0]["field"] == "spec.hard.cpu"
    assert len(answer["message"]) < 1000


async def test_others_are_served_while_a_large_body_is_read(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading of the large body ends only when the server has answered somebody else."""
    answered, begun = threading.Event(), threading.Event()
    decode = codec.decode_yaml

    def slow(raw: bytes) -> Any:
        begun.set()
        assert answered.wait(30), "nobody was served meanwhile"
        return decode(raw)

    monkeypatch.setattr(codec, "decode_yaml", slow)
    data = {f"k{number}": "v" * 40 for number in range(request.LARGE_BYTES // 40)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    url = f"{CONFIG_MAPS}/a?fieldManager=m"
    applying = asyncio.create_task(session.patch(url, data=json.dumps(body), headers=headers).__aenter__())
    await asyncio.to_thread(begun.wait, 30)
    assert (await session.get("/livez")).status == 200
    answered.set()
    assert (await applying).status == 201


async def test_work_on_what_is_large_leaves_the_loop() -> None:
    here = threading.get_ident()
    assert await request.aside(request.LARGE_BYTES, threading.get_ident) == here
    assert await request.aside(request.LARGE_BYTES + 1, threading.get_ident) != here


async def test_a_large_apply_is_written_like_a_small_one(session: aiohttp.ClientSession) -> None:
    data = {f"k{number}": "v" for number in range(20_000)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    url = f"{CONFIG_MAPS}/a?fieldManager=m"
    assert len(json.dumps(body)) > request.LARGE_BYTES
    assert (await session.patch(url, data=json.dumps(body), headers=headers)).status == 201
    body["data"] = dict(list(data.items())[:10_000])
    reply = await session.patch(url, data=json.dumps(body), headers=headers)
    assert reply.status == 200
    assert (await reply.json())["data"] == body["data"]
    merge = {"Content-Type": "application/merge-patch+json"}
    reply = await session.patch(f"{CONFIG_MAPS}/a", data='{"data":{"k0":null}}', headers=merge)
    assert "k0" not in (await reply.json())["data"]
