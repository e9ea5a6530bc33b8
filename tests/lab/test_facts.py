"""Reading facts from a server: which pages are asked, what is kept, how selectors are probed."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from bedplate.lab import facts

REF = "#/components/schemas/"
POD = {
    "properties": {
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": REF + "Meta"}]},
        "spec": {"default": {}, "allOf": [{"$ref": REF + "PodSpec"}]},
        "status": {"$ref": REF + "PodStatus"},
    },
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
}
SCHEMAS = {
    "Pod": POD,
    "Meta": {"properties": {"name": {"type": "string"}}},
    "PodSpec": {"properties": {"nodeName": {"type": "string"}, "containers": {"type": "array"}}},
    "PodStatus": {"properties": {"phase": {"type": "string"}}},
}
ENTRY = {"resource": "pods", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "verbs": ["list", "get"]}
REVIEW = {"resource": "reviews", "responseKind": {"group": "", "version": "", "kind": "Review"}, "verbs": ["create"]}


class FakeServer:
    """Answers like a server with one kind that can be listed."""

    def __init__(self) -> None:
        self.probed: list[str] = []

    async def get(self, path: str, accept: str = "application/json") -> Any:
        pages: dict[str, Any] = {
            "/version": {"gitVersion": "v1.99.1", "major": "1", "minor": "99", "platform": "linux/amd64"},
            "/api": {"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [ENTRY, REVIEW]}]}]},
            "/apis": {"items": []},
            "/openapi/v3": {
                "paths": {
                    "api": {"serverRelativeURL": "/unversioned"},
                    "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=1"},
                    "version": {"serverRelativeURL": "/unversioned"},
                }
            },
            "/openapi/v3/api/v1?hash=1": {"components": {"schemas": SCHEMAS}},
            "/api/v1/pods?limit=1": {"columnDefinitions": [{"name": "Name", "type": "string"}]},
        }
        assert ("as=Table" in accept) == ("limit" in path)
        return pages[path]

    async def allows(self, path: str) -> bool:
        selector = unquote(path.partition("fieldSelector=")[2]).partition("=")[0]
        self.probed.append(selector)
        return selector in ("spec.nodeName", "status.phase")


@pytest.fixture
def server() -> Any:
    return FakeServer()


async def test_gathering_reads_every_version_and_every_listed_kind(server: Any) -> None:
    gathered = await facts._gather(server)
    assert gathered.kubernetes == {"gitVersion": "v1.99.1", "major": "1", "minor": "99"}
    assert list(gathered.openapi) == ["api/v1"]
    assert list(gathered.columns) == ["/v1/pods"]


async def test_selectors_are_probed_for_every_scalar_outside_metadata(server: Any) -> None:
    gathered = await facts._gather(server)
    found = await facts._probe_selectors(server, gathered)
    assert found == {"/v1/pods": ["spec.nodeName", "status.phase"]}
    assert "kind" not in server.probed
    assert not any(selector.startswith("metadata") for selector in server.probed)
    assert "spec.containers" not in server.probed


def test_changed_program_gets_another_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    built: list[tuple[str, str]] = []

    class Recorder(facts._ProgramBuilder):
        def build(self, source: Any, position: str = "") -> Any:
            built.append((source.name, source.tag))
            return tmp_path

    monkeypatch.setattr(facts, "_ProgramBuilder", Recorder)
    facts._build_program(tmp_path, "v1.99.1", lambda _line: None)
    facts._build_program(tmp_path, "v1.99.1", lambda _line: None)
    assert built[0] == built[1]
    assert built[0][0].startswith("factgen-")
    assert built[0][1] == "v1.99.1"
