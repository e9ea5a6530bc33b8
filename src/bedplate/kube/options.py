"""Query parameters and option bodies of verbs, in one place.

In: Python values. Out: the query of a request, the body of a deletion. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["DeleteOptions", "ListOptions", "PatchType", "Query", "WriteOptions"]

Query = list[tuple[str, str]]


class PatchType(StrEnum):
    """The four ways to say a change; the value is the media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class ListOptions(msgspec.Struct, frozen=True):
    """What to list or watch, and as of when."""

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""

    def query(self) -> Query:
        pairs = (
            ("labelSelector", self.label_selector),
            ("fieldSelector", self.field_selector),
            ("resourceVersion", self.resource_version),
            ("resourceVersionMatch", self.resource_version_match),
            ("limit", str(self.limit) if self.limit else ""),
            ("continue", self.continue_token),
        )
        return [(key, value) for key, value in pairs if value]

    def following(self, token: str) -> ListOptions:
        """The same list from a continue token on; it carries the moment, and no resourceVersion may stand beside it."""
        if not token:
            return self
        return msgspec.structs.replace(self, continue_token=token, resource_version="", resource_version_match="")


class WriteOptions(msgspec.Struct, frozen=True):
    """How to write. `field_validation`: Ignore, Warn or Strict; empty leaves it to the server (Warn)."""

    field_manager: str = ""
    dry_run: bool = False
    force: bool = False
    field_validation: str = ""

    def query(self) -> Query:
        pairs = (
            ("fieldManager", self.field_manager),
            ("dryRun", "All" if self.dry_run else ""),
            ("force", "true" if self.force else ""),
            ("fieldValidation", self.field_validation),
        )
        return [(key, value) for key, value in pairs if value]


class DeleteOptions(msgspec.Struct, frozen=True):
    """How to delete. `propagation`: Orphan, Background or Foreground; `uid`, `resource_version` must match if given."""

    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    grace_period_s: int | None = None
    dry_run: bool = False

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        pairs = (("uid", self.uid), ("resourceVersion", self.resource_version))
        if preconditions := {key: value for key, value in pairs if value}:
            body["preconditions"] = preconditions
        if self.propagation:
            body["propagationPolicy"] = self.propagation
        if self.grace_period_s is not None:
            body["gracePeriodSeconds"] = self.grace_period_s
        if self.dry_run:
            body["dryRun"] = ["All"]
        return body
