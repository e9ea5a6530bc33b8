"""`Table` answers: what `kubectl get` prints.

In: stored objects and the columns of their kind. Out: Table JSON. The cells of built-in kinds are functions in
`cells`; those of custom kinds follow the JSON paths of their definition (plain members, indices, `[*]` and simple
filters).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

from bedplate.apiserver import kinds, status, views
from bedplate.apiserver.state import bodies
from bedplate.apiserver.tables import cell_values, cells
from bedplate.core import clock as clocks

__all__ = ["TableView", "json_path"]

_NAME = kinds.Column(name="Name", format="name", description="Name must be unique within a namespace.")
_AGE = kinds.Column(name="Age", type="date", json_path=".metadata.creationTimestamp")


class TableView(views.PlainView):
    """Objects as rows."""

    has_heading = True
    is_cacheable = False

    def __init__(
        self, resource: kinds.Resource, storage: kinds.Resource, version: str, include: str, clock: clocks.Clock
    ) -> None:
        super().__init__(resource)
        if include not in ("", "Metadata", "Object", "None"):
            raise status.bad_request(f'unrecognized includeObject value: "{include}"')
        self._storage = storage
        self._clock = clock
        self._include = include or "Metadata"
        self._api_version = f"meta.k8s.io/{version}"
        self._columns = _columns(resource)
        # Ages change with time; frames are shared within one event only, as the event's own cache does.
        self.key = f"{resource.api_version} table {version} {self._include}"

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        obj = bodies.decode(body)
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return self._table([obj], metadata, heading)

    def items(self, objects: Iterable[bodies.Stored]) -> bytes:
        return b",".join([bodies.encode(self._row(stored.decode())) for stored in objects])

    def frame(self, metadata: dict[str, Any], size: int) -> tuple[bytes, bytes]:
        return bodies.encode(self._head(metadata, True))[:-1] + b',"rows":[', b"]}"

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        partial = {"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": metadata}
        rows = [{"cells": [""] * len(self._columns), "object": partial}]
        return bodies.encode(self._head({"resourceVersion": str(revision)}, False) | {"rows": rows})

    def _head(self, metadata: dict[str, Any], heading: bool) -> dict[str, Any]:
        columns = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in self._columns
        ]
        head = {"kind": "Table", "apiVersion": self._api_version, "metadata": metadata}
        return head | {"columnDefinitions": columns if heading else []}

    def _table(self, objects: list[bodies.Object], metadata: dict[str, Any], heading: bool) -> bytes:
        return bodies.encode(self._head(metadata, heading) | {"rows": [self._row(obj) for obj in objects]})

    def _row(self, obj: bodies.Object) -> dict[str, Any]:
        row: dict[str, Any] = {"cells": self._cells(obj)}
        if self._include == "Metadata":
            row["object"] = views.partial(obj, self._api_version)
        elif self._include == "Object":
            row["object"] = kinds.from_storage(self.resource, obj, self._storage)
        else:
            row["object"] = None
        return row

    def _cells(self, obj: bodies.Object) -> list[Any]:
        now = self._clock.now()
        if not self.resource.is_custom:
            return cells.cells(self._storage, obj, now)
        return [obj["metadata"]["name"], *(_custom_cell(column, obj, now) for column in self._columns[1:])]


def _columns(resource: kinds.Resource) -> list[kinds.Column]:
    if resource.is_custom:
        return [_NAME, *(resource.columns or (_AGE,))]
    return list(resource.columns) or [_NAME, kinds.Column(name="Created At", type="date")]


def _custom_cell(column: kinds.Column, obj: bodies.Object, now: Any) -> Any:
    values = json_path(obj, column.json_path)
    if not values:
        return None
    value = values[0]
    if value is None:
        return None
    match column.type:
        case "date":
            return cell_values.age(value, now)
        case "integer" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
        case "number" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        case "boolean":
            return value if isinstance(value, bool) else None
        case "string":
            return value if isinstance(value, str) else bodies.encode(values if len(values) > 1 else value).decode()
    return None


_STEP = re.compile(
    r"\.(?P<member>(?:[^.\[\]\\]|\\.)+)"
    r"|\[(?:'(?P<quoted>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<index>-?\d+)|(?P<all>\*)"
    r"|\?\(\s*@\.(?P<key>[^=!<> ]+)\s*(?P<operator>==|!=)\s*[\"'](?P<value>[^\"']*)[\"']\s*\))\]"
)


@functools.lru_cache(maxsize=1024)
def _compiled(path: str) -> tuple[re.Match[str], ...] | None:
    path = path if path.startswith((".", "[")) else f".{path}"
    steps: list[re.Match[str]] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        steps.append(step)
        at = step.end()
    return tuple(steps)


def json_path(obj: Any, path: str) -> list[Any]:
    """The values a JSONPath selects; none where it does not fit the object or is not supported."""
    values = [obj]
    for step in _compiled(path) or ():
        values = [member for value in values for member in _follow(value, step)]
    return values if _compiled(path) else []


def _follow(value: Any, step: re.Match[str]) -> list[Any]:
    name = step["member"] or step["quoted"] or step["double"]
    if name is not None:
        name = name.replace("\\", "") if step["member"] else name
        if name == "*":
            return list(value.values()) if isinstance(value, dict) else []
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return list(value.values()) if step["all"] and isinstance(value, dict) else []
    if step["all"]:
        return value
    if step["index"] is not None:
        index = int(step["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    is_equality = step["operator"] == "=="
    key = step["key"]
    return [item for item in value if ([step["value"]] == [str(v) for v in json_path(item, key)]) is is_equality]
