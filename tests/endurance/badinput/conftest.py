"""A server that must survive every case, and what a refusal looks like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.endurance import running

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Embedded]:
    with running.Embedded(tmp_path_factory.mktemp("bad-input")).running() as server:
        yield server


@pytest.fixture(autouse=True)
def survives(server: running.Embedded) -> Iterator[None]:
    """After every case the server answers, and its log tells of no crash."""
    before = len(server.faults)
    yield
    assert server.request("GET", "/readyz")[0] == 200
    assert server.faults[before:] == []


def configmap(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def refusal(answer: tuple[int, bytes], *codes: int) -> dict[str, Any]:
    code, body = answer
    assert code in codes, (code, body[:500])
    status: dict[str, Any] = json.loads(body)
    assert status["kind"] == "Status", status
    assert status["code"] == code, status
    return status
