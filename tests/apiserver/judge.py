"""A real kube-apiserver that is asked for its verdicts (fixtures for tests marked `real`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.apiserver import recorded
from tests.waiting import DEADLINE_S

from bedplate.lab import binaries, controlplane

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Judge:
    """A real server that is asked for its verdicts."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self._session.request(method, self._url + path, json=body) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def define(self, crd: dict[str, Any]) -> str:
        """Create a definition and wait until its objects are served; their path."""
        code, answer = await self.call("POST", DEFINITIONS, crd)
        assert code == 201, answer
        path = f"/apis/{recorded.GROUP}/v1/{crd['spec']['names']['plural']}"
        async with asyncio.timeout(DEADLINE_S):
            while (await self.call("GET", path))[0] != 200:
                await asyncio.sleep(0.05)
        return path

    async def verdict(self, path: str, kind: str, name: str, spec: Any, old: Any = None) -> recorded.Answer:
        code, answer = await self.call("POST", path, recorded.instance(kind, name, spec if old is None else old))
        if old is not None:
            assert code == 201, answer
            code, answer = await self.call("PUT", f"{path}/{name}", answer | {"spec": spec})
        return causes(code, answer)


def causes(code: int, answer: Any) -> recorded.Answer:
    if code in (200, 201):
        return []
    assert code == 422, answer
    return recorded.normal(answer["details"]["causes"])


@contextlib.asynccontextmanager
async def real_judge(tmp_path: pathlib.Path) -> AsyncIterator[Judge]:
    if binaries.cached("kube-apiserver") is None or binaries.cached("etcd") is None:
        pytest.skip("no kube-apiserver and etcd in the cache; `bedplate binaries get` makes them")
    async with controlplane.ControlPlane(directory=tmp_path) as plane:
        context = ssl.create_default_context(cafile=str(plane.ca))
        context.load_cert_chain(str(plane.pki / "admin.crt"), str(plane.pki / "admin.key"))
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
            yield Judge(session, plane.url)


def settle(name: str, found: dict[str, Any]) -> None:
    """Compare with what is recorded; with BEDPLATE_RECORD=1 record it first."""
    if os.environ.get("BEDPLATE_RECORD"):
        recorded.record(name, found)
    assert found == recorded.answers(name)
