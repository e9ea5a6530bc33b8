"""A webhook server over HTTPS, and admission with configurations that tests put in force."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from tests.kube.certs import Authority

from bedplate.apiserver import hooks, kinds
from bedplate.apiserver.access import subjects
from bedplate.apiserver.shape import typegraph
from bedplate.apiserver.webhooks import admission, calls, configurations

Answer = Callable[[dict[str, Any]], Any]
USER = subjects.User("alice", groups=("devs",), extra=(("scope", ("a",)),))


class Endpoint:
    """A webhook server. `answers` by path: a function of the request that gives the response, or anything to send."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.port = 0
        self.bundle = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        review = await request.json()
        self.asked.append((request.path, review["request"]))
        answer = self.answers[request.path](review["request"])
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response(body | {"response": {"uid": review["request"]["uid"]} | answer})

    def client(self, path: str) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.bundle}

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@pytest.fixture
async def endpoint(tmp_path: pathlib.Path) -> AsyncIterator[Endpoint]:
    found = Endpoint()
    authority = Authority()
    found.bundle = base64.b64encode(authority.pem).decode()
    context = authority.server_context(tmp_path, "127.0.0.1", "hook.ns.svc")
    application = web.Application()
    application.router.add_post("/{path:.*}", found.handle)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


class Parts:
    """As much of a server as admission looks at."""

    def __init__(self) -> None:
        self.kinds = kinds.Kinds([self.kind("v1"), self.kind("v2"), self.kind("v1", resource="things", scope=False)])
        self.client = self
        self.rules = self
        self.namespace_labels = {"env": "prod"}

    def kind(self, version: str, resource: str = "widgets", scope: bool = True) -> kinds.Resource:
        status_part = kinds.Subresource(name="status", group="g.io", version=version, kind="Widget", verbs=("update",))
        return kinds.Resource(
            group="g.io",
            version=version,
            resource=resource,
            kind="Widget",
            list_kind="WidgetList",
            singular="widget",
            namespaced=scope,
            type=typegraph.ANY,
            subresources={"status": status_part},
            storage_version=version == "v1",
            storage_key=("g.io", "v1", resource),
        )

    def get(self, group: str, resource: str, namespace: str, name: str) -> Any:
        return {"metadata": {"name": name, "labels": self.namespace_labels}}

    def prune(self, resource: kinds.Resource, obj: Any) -> list[str]:
        obj.pop("junk", None)
        return []


def write(operation: Any = "CREATE", **given: Any) -> hooks.Write:
    parts: Any = Parts()
    resource = parts.kinds.get("g.io", given.pop("version", "v1"), given.pop("resource", "widgets"))
    obj = {
        "apiVersion": resource.api_version,
        "kind": "Widget",
        "metadata": {"name": "x", "labels": given.pop("labels", {})},
        "spec": {"n": 1},
    }
    states: dict[str, Any] = {"new": None if operation == "DELETE" else copy.deepcopy(obj)}
    states["old"] = None if operation == "CREATE" else copy.deepcopy(obj)
    namespace = "ns" if resource.namespaced else ""
    return hooks.Write(
        services=parts,
        resource=resource,
        operation=operation,
        namespace=namespace,
        name="x",
        user=USER,
        **states,
        **given,
    )


def config(client: dict[str, Any], name: str = "a.example.com", **given: Any) -> dict[str, Any]:
    rule = {"operations": ["*"], "apiGroups": ["g.io"], "apiVersions": ["v1"], "resources": ["widgets"]}
    hook = {"name": name, "clientConfig": client, "rules": [rule], "admissionReviewVersions": ["v1"]}
    return hook | {"sideEffects": "None", "timeoutSeconds": 5} | given


class Chain:
    """Admission with configurations that are put in force one by one."""

    def __init__(self) -> None:
        self.admission = admission.WebhookAdmission(calls.Caller(self.resolve))
        self.services: dict[str, tuple[str, int]] = {}

    def resolve(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        if name not in self.services:
            raise LookupError(f'service "{name}" not found')
        return self.services[name]

    def add(self, kind: str, *found: dict[str, Any], name: str = "c") -> None:
        whole = {"kind": "X", "metadata": {"name": name}, "webhooks": list(found)}
        configurations.default(whole)
        assert configurations.validate(whole) == []
        self.admission.configure(kind, name, whole)


@pytest.fixture
async def chain() -> AsyncIterator[Chain]:
    found = Chain()
    yield found
    await found.admission.close()


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}
