"""The file of `--backup-permissions` and `--restore-permissions`: a YAML list of the permission objects. Pure.

In: objects of the cluster, or the text of a file. Out: the text, or the changes that restore it; every problem of a
file at once. What the server sets (uid, versions, times, status, who wrote which field, finalizers) is left out, so
that two backups of the same permissions are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from bedplate.api import names, permissions
from bedplate.api.resources import RawObject
from bedplate.core import errors, yamls
from bedplate.people import grants
from bedplate.people.grants import Observed
from bedplate.people.plan import Change

__all__ = ["read", "text_of"]

_KEPT = ("name", "namespace", "labels", "annotations")


def text_of(observed: Observed) -> str:
    """The file, in the order of kind and name."""
    objects = [
        {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {key: obj["metadata"][key] for key in _KEPT if obj["metadata"].get(key)},
            "spec": obj.get("spec") or {},
        }
        for ref in grants.KINDS
        for obj in sorted(observed.objects.get(ref.plural, ()), key=lambda obj: str(obj["metadata"]["name"]))
    ]
    return yaml.safe_dump(objects, sort_keys=False, allow_unicode=True)


def read(text: str, observed: Observed) -> list[Change]:
    """What restores the file: objects that already are as in it are left out. Raises `Invalid` with every problem."""
    try:
        items = yamls.load(text, strict=True)
    except (yaml.YAMLError, ValueError) as err:
        raise errors.Invalid(f"the backup cannot be read: {err}") from err
    if isinstance(items, dict) and items.get("kind") == "List":
        items = items.get("items")
    if not isinstance(items, list):
        raise errors.Invalid(
            "the backup must be a YAML list of permission objects", hint="write one with --backup-permissions"
        )
    problems: list[str] = []
    changes: list[Change] = []
    seen: set[str] = set()
    for number, item in enumerate(items, 1):
        faults = _problems(item)
        name = item["metadata"]["name"] if not faults else ""
        if name and name in seen:
            faults = [f"the name {name!r} is given twice"]
        problems += [f"entry {number}: {fault}" for fault in faults]
        if not faults:
            seen.add(name)
            changes += _change(item, observed)
    if problems:
        raise errors.Invalid("the backup cannot be restored; nothing was changed", problems=problems)
    return changes


def _problems(item: Any) -> list[str]:
    if not isinstance(item, dict):
        return ["must be an object"]
    kinds = {(ref.api_version, ref.kind) for ref in grants.KINDS}
    if (item.get("apiVersion"), item.get("kind")) not in kinds:
        return [f"{item.get('apiVersion')} {item.get('kind')} is not a permission object"]
    metadata, spec = item.get("metadata"), item.get("spec")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return ["metadata.name is missing"]
    problems = [f"metadata.name {problem}" for problem in names.dns_subdomain_problems(metadata["name"])]
    if metadata.get("namespace", permissions.NAMESPACE) != permissions.NAMESPACE:
        problems.append(f"metadata.namespace must be {permissions.NAMESPACE}")
    for part in ("labels", "annotations"):
        values = metadata.get(part) or {}
        if not isinstance(values, dict) or not all(isinstance(text, str) for pair in values.items() for text in pair):
            problems.append(f"metadata.{part} must be a mapping of text")
    if not isinstance(spec, dict) or not isinstance(spec.get("username"), str):
        return [*problems, "spec.username is missing"]
    return [*problems, *permissions.username_problems(spec["username"])]


def _change(item: Mapping[str, Any], observed: Observed) -> list[Change]:
    ref = next(ref for ref in grants.KINDS if ref.kind == item["kind"])
    name = item["metadata"]["name"]
    present = {obj["metadata"]["name"]: obj for obj in observed.objects.get(ref.plural, ())}.get(name)
    metadata = {key: item["metadata"][key] for key in _KEPT if item["metadata"].get(key)}
    after: RawObject = {"metadata": {**metadata, "namespace": permissions.NAMESPACE}, "spec": item["spec"]}
    if present is not None and _same(present, after):
        return []
    return [Change(ref, name, present, after)]


def _same(present: RawObject, after: RawObject) -> bool:
    return present.get("spec") == after["spec"] and all(
        (present["metadata"].get(part) or {}) == (after["metadata"].get(part) or {})
        for part in ("labels", "annotations")
    )
