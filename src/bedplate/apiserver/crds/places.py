"""Where in the tree of a definition's schema a rule stands, and where its `fieldPath` leads.

In: schemas and paths as text. Out: `Place` values for `schema_checks` and `validations`, which walk the same tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Place", "resolve_path"]

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the tree a schema stands."""

    schema: Schema
    path: str
    is_root: bool = False
    in_metadata: bool = False
    no_defaults: str = ""
    """why defaults are refused here; empty when they are allowed."""
    uncorrelatable: str = ""
    """the path above which old and new values cannot be matched; empty when they can."""
    cardinality: int | None = 1
    """how often a value of this schema can occur in an object; None when unbounded."""
    judges_rules: bool = True


def resolve_path(schema: Schema, text: str) -> tuple[list[str], Schema] | None:
    """The names a path such as `.spec['a.b']` goes through and the schema it ends at; None when it leads nowhere."""
    names, rest, here = [], text, schema
    while rest:
        if rest.startswith("["):
            end = rest.find("']", 2)
            if not rest.startswith("['") or end < 0:
                return None
            name, rest = rest[2:end], rest[end + 2 :]
        elif rest.startswith("."):
            stop = min((at for at in (rest.find(".", 1), rest.find("[", 1)) if at > 0), default=len(rest))
            name, rest = rest[1:stop], rest[stop:]
        else:
            return None
        extra = here.get("additionalProperties")
        member = (here.get("properties") or {}).get(name) or (extra if isinstance(extra, Mapping) else None)
        if not name or member is None:
            return None
        names.append(name)
        here = member
    return (names, here) if names else None
