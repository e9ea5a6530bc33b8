"""The JSON Schema of a file with answers, made from the declaration. Pure."""

from __future__ import annotations

from typing import Any

from bedplate.setup.answers.declaration import FIELDS
from bedplate.setup.answers.document import META

__all__ = ["schema"]


def schema() -> dict[str, Any]:
    """Draft 2020-12."""
    root = _object("Answers for cm-kubernetes-setup")
    root = {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "required": ["kubernetes"]}
    root["properties"]["meta"] = _object("Who wrote the file")
    for key, kind in META.items():
        root["properties"]["meta"]["properties"][key] = {**kind.schema(), "description": kind.about}
    for field in FIELDS:
        holder = root
        *above, key = field.path.split(".")
        for part in above:
            holder = holder["properties"].setdefault(part, _object(""))
        about = {"title": field.title, "description": field.help, "default": field.default}
        holder["properties"][key] = {**field.kind.schema(), **about}
    return root


def _object(description: str) -> dict[str, Any]:
    about = {"description": description} if description else {}
    return {"type": "object", **about, "properties": {}, "additionalProperties": False}
