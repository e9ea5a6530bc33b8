"""Faults planted on purpose, one named topic at a time, so that the conformance suite can show that it would notice.

The entry point calls `plant` once with the value of `BEDPLATE_PLANT_FAULT`; code at a fault point asks `is_on`.
Without a planted fault that is one comparison with an empty text.
"""

from __future__ import annotations

from bedplate.core import errors

__all__ = ["TOPICS", "is_on", "plant"]

TOPICS: dict[str, str] = {
    "apply": "conflicts with other owners are always forced",
    "bookmarks": "no bookmarks are sent",
    "cel": "custom objects are not validated",
    "configs": "config maps and secrets are not validated",
    "crd_lifecycle": "nobody looks after definitions once they are written",
    "crd_schema": "custom objects are neither pruned nor defaulted",
    "crud": "an update does not look at the resourceVersion",
    "delete_collection": "selectors of a collection's deletion are ignored",
    "deletion": "every deletion propagates in the background",
    "discovery": "documents of single groups are missing",
    "dry_run": "dry runs are carried out",
    "errors": "refusals carry no details",
    "events": "events are shown in the stored version only",
    "field_selectors": "field selectors choose everything",
    "field_validation": "strict validation only drops unknown fields",
    "finalizers": "finalizers do not hold an object",
    "generate_name": "generated names lack their base",
    "http": "answers are never compressed and every method is tried",
    "json_patch": "test operations always succeed",
    "label_selectors": "label selectors choose everything",
    "leases": "an update of a Lease does not look at the resourceVersion",
    "merge_patch": "null does not remove",
    "namespaces": "objects may be created in namespaces that are missing or on their way out",
    "openapi": "documents of single groups are missing",
    "pagination": "later pages show the present, not the first page's moment",
    "pods": "pods are stored as they come",
    "protobuf": "protobuf bodies are refused",
    "rbac": "everybody may do everything",
    "reviews": "reviews are answered without a verdict",
    "scale": "a new scale is accepted and forgotten",
    "services": "services are stored as they come",
    "status_subresource": "status and the rest are written together",
    "strategic_merge": "strategic merge patches are taken for merge patches",
    "tables": "cells stand in the wrong order",
    "watch_expired": "a watch from a forgotten version is accepted",
    "watch_resume": "a resumed watch repeats an event",
    "watch_selectors": "an object that enters or leaves the selection is modified, not added or deleted",
    "webhooks": "webhooks are not asked",
}
"""Topic and what goes wrong when it is planted."""

_planted = {"topic": ""}


def plant(topic: str) -> None:
    """Plant the fault of a topic; an empty topic plants none."""
    if topic and topic not in TOPICS:
        raise errors.Invalid(f"no fault can be planted for {topic!r}", hint=f"one of {', '.join(sorted(TOPICS))}")
    _planted["topic"] = topic


def is_on(topic: str) -> bool:
    return _planted["topic"] == topic
