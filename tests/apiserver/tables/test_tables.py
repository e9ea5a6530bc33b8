"""Tables: ages, JSON paths, cells of built-in kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bedplate.apiserver import facts, kinds, status
from bedplate.apiserver.state import bodies
from bedplate.apiserver.tables import cell_values, cells, rendering
from bedplate.core.clock import ManualClock

NOW = datetime(2026, 1, 2, 0, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"), (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (600, "10m"), (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"), (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (51 * 3600, "2d3h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400, "2y"), (2 * 365 * 86400 + 5 * 86400, "2y5d"), (9 * 365 * 86400, "9y"),
    ],
)  # fmt: skip
def test_ages_in_short_words(seconds: int, expected: str) -> None:
    assert cell_values.duration(seconds) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.a", [1]),
        (".spec.list[0].n", ["x"]),
        (".spec.list[-1].n", ["y"]),
        (".spec.list[*].n", ["x", "y"]),
        ('.spec.list[?(@.n=="y")].v', [2]),
        (".metadata.annotations.example\\.com/k", ["v"]),
        (".metadata.annotations['example.com/k']", ["v"]),
        (".spec.missing", []),
        (".spec.a.b", []),
        (".spec.list[7]", []),
        ("$$", []),
    ],
)
def test_json_paths(path: str, expected: list[Any]) -> None:
    obj = {
        "metadata": {"annotations": {"example.com/k": "v"}},
        "spec": {"a": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]},
    }
    assert rendering.json_path(obj, path) == expected


def built_in(name: str) -> kinds.Resource:
    return next(found for found in facts.load("1.35").resources() if found.resource == name)


def test_every_kind_has_as_many_cells_as_columns() -> None:
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "creationTimestamp": "2026-01-01T23:59:00Z"}}
    for resource in facts.load("1.35").resources():
        if "list" in resource.verbs:
            found = cells.cells(resource, obj, NOW)
            assert len(found) == len(resource.columns), resource.resource
            assert "n" in found, resource.resource


def test_a_pod_in_trouble() -> None:
    pod = {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T23:59:00Z"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n1"},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {"ready": True, "restartCount": 0, "state": {"running": {}}},
                {
                    "ready": False,
                    "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T23:58:00Z"}},
                },
            ],
        },
    }
    found = cells.cells(built_in("pods"), pod, NOW)
    assert found[:7] == ["p", "1/2", "CrashLoopBackOff", "3 (2m ago)", "60s", "10.0.0.1", "n1"]


def table(include: str = "") -> dict[str, Any]:
    resource = built_in("configmaps")
    view = rendering.TableView(resource, resource, "v1", include, ManualClock(NOW))
    body = (
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"5","name":"c",'
        b'"creationTimestamp":"2026-01-01T23:59:00Z"},"data":{"k":"v"}}'
    )
    return bodies.decode(view.show(body, heading=True))


def test_a_table_of_one_object() -> None:
    found = table()
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert found["rows"][0]["cells"] == ["c", 1, "60s"]
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert found["metadata"] == {"resourceVersion": "5"}


def test_what_a_row_carries() -> None:
    assert table("Object")["rows"][0]["object"]["data"] == {"k": "v"}
    assert table("None")["rows"][0]["object"] is None
    with pytest.raises(status.StatusError, match="unrecognized includeObject value"):
        table("Everything")
