"""Server-side apply: merge a partial object into the live one and account for who owns what.

In: the live object (or None), the applied configuration, the name of the applier. Out: the merged object with
its managedFields, still to be defaulted, admitted and checked by the caller, or a `StatusError`: 409 with every
conflicting field and its owner, 400 or 500 with the real server's text for a configuration that is not such an object.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec

from bedplate.apiserver.merge import fieldset, typedmerge, typedvalue
from bedplate.apiserver.merge.fieldset import FieldSet
from bedplate.apiserver.merge.managed import (
    APPLY,
    SCALE,
    SYSTEM_FIELDS,
    Entry,
    FieldManager,
    Identity,
    Managed,
    encode,
    identify,
    index,
)
from bedplate.apiserver.status import StatusError, bad_request

__all__ = ["apply"]

Object = dict[str, Any]
Conflicts = dict[Identity, list[tuple[str, ...]]]

BEFORE_FIRST_APPLY = "before-first-apply"
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SCALE_VERSION = "autoscaling/v1"
MAX_ANNOTATIONS_BYTES = 256 * 1024


class _Conflicting(Exception):
    """Others own fields that the configuration would change."""

    def __init__(self, conflicts: Conflicts) -> None:
        super().__init__()
        self.conflicts = conflicts


def apply(
    fields: FieldManager,
    live: Object | None,
    config: Object,
    manager: str,
    *,
    force: bool,
    time: str,
    subresource: str = "",
) -> Object:
    """The live object after `config` was applied. When nothing changed, the same but for the set of owners."""
    _check(fields, config)
    request = _Request(fields, live, config, manager, time, subresource)
    try:
        merged = request.run(force=force)
    except _Conflicting as conflict:
        allowed = request.allowed_by_last_applied() if manager == KUBECTL else {}
        left = {
            who: [path for path in paths if not fieldset.has(allowed, path)]
            for who, paths in conflict.conflicts.items()
        }
        left = {who: paths for who, paths in left.items() if paths}
        if left:
            raise _conflict_error(left, SCALE_VERSION if subresource == SCALE else "") from None
        merged = request.run(force=True)
    return _with_last_applied(merged, config) if manager == KUBECTL else merged


def _check(fields: FieldManager, config: Object) -> None:
    group_version, _, kind = config.get("apiVersion") or "", None, config.get("kind") or ""
    if (group_version, kind) != (fields.api_version, fields.kind):
        raise bad_request(f"invalid object type: {_kind_text(group_version, kind)}")
    metadata = config.get("metadata") or {}
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    problems = typedmerge.problems(fields.node, config)
    if problems:
        text = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {problem}" for problem in problems)
        who = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {_kind_text(group_version, kind)}"
        raise StatusError(500, "", f"failed to create typed patch object ({who}): {text}")


def _kind_text(group_version: str, kind: str) -> str:
    return f"{group_version if '/' in group_version else '/' + group_version}, Kind={kind}"


class _Request:
    """One application of one configuration; `run` may be called again with force."""

    def __init__(
        self,
        fields: FieldManager,
        live: Object | None,
        config: Object,
        manager: str,
        time: str,
        subresource: str,
    ) -> None:
        self._fields = fields
        # The result may share parts with what it was merged into, and `nothing` is used again.
        self._live = copy.deepcopy(fields.nothing) if live is None else live
        self._config = config
        self._manager = manager
        self._time = time
        self._subresource = subresource

    def run(self, *, force: bool) -> Object:
        fields, live = self._fields, self._live
        managed = fields.reconciled(index(live.get("metadata", {}).get("managedFields") or []))
        if not managed:
            managed = fields.record(managed, fields.nothing, live, BEFORE_FIRST_APPLY, self._time, self._subresource)
        claimed = fields.writable(typedvalue.fields_of(fields.node, self._config), self._subresource)
        mine = fields.entry(self._manager, APPLY, claimed, None, self._subresource)
        me = identify(mine)
        before = managed.get(me)
        managed[me] = (
            mine
            if before is None or "time" not in before
            else fields.entry(self._manager, APPLY, claimed, before["time"], self._subresource)
        )
        merged = typedmerge.merge(fields.node, live, self._config)
        last = fields.owned_here(before) if before is not None else {}
        if fieldset.difference(last, claimed):
            merged = self._pruned(merged, managed, last)
        touched, removed = fields.changes(live, merged, self._subresource)
        managed, lost = fields.take(managed, touched, removed, keep=me)
        if lost and not force:
            raise _Conflicting({who: list(fieldset.paths(paths)) for who, paths in lost.items()})
        is_changed = not fields.walk.equal(fields.node, live, merged)
        self._settle(managed, me, is_changed)
        return _with_managed(merged, encode(managed))

    def _settle(self, managed: Managed, me: Identity, is_changed: bool) -> None:
        """Our own entry in its final form: without system fields, with the time if the object changed."""
        entry: Entry = managed[me]
        owned = fieldset.difference(entry["fieldsV1"], SYSTEM_FIELDS)
        if not owned:
            del managed[me]
            return
        time = self._time if is_changed else entry.get("time")
        managed[me] = self._fields.entry(self._manager, APPLY, owned, time, self._subresource)

    def _pruned(self, merged: Object, managed: Managed, last: FieldSet) -> Object:
        """Without what this applier owned last time, does not mention now, and nobody else owns."""
        node = self._fields.node
        last = typedmerge.with_named_fields(node, last)
        everything = _named_fields_of(node, merged)
        pruned = typedmerge.remove(node, merged, last) or {}
        for owned in self._owned_by_version(managed):
            kept = fieldset.union(_named_fields_of(node, pruned), typedmerge.with_named_fields(node, owned))
            pruned = typedmerge.remove(node, merged, fieldset.difference(everything, kept)) or {}
        gone = fieldset.difference(everything, _named_fields_of(node, pruned))
        result: Object = typedmerge.remove(node, merged, fieldset.intersection(gone, last)) or {}
        return result

    def _owned_by_version(self, managed: Managed) -> Iterable[FieldSet]:
        by_version: dict[str, FieldSet] = {}
        for entry in managed.values():
            version = entry["apiVersion"]
            by_version[version] = fieldset.union(by_version.get(version, {}), self._fields.owned_here(entry))
        return by_version.values()

    def allowed_by_last_applied(self) -> FieldSet:
        """What kubectl's client-side apply owns by its annotation: taking that over is not a conflict."""
        annotations = self._live.get("metadata", {}).get("annotations") or {}
        try:
            last = msgspec.json.decode(annotations.get(LAST_APPLIED) or "", type=dict[str, Any])
        except msgspec.DecodeError:
            return {}
        node = self._fields.node
        if last.get("apiVersion") != self._fields.api_version or typedmerge.problems(node, last):
            return {}
        owned = typedvalue.fields_of(node, last)
        for different in self._fields.walk.difference(node, last, self._live):
            owned = fieldset.difference(owned, different or {})
        return owned


def _named_fields_of(node: Any, value: Object) -> FieldSet:
    return typedmerge.with_named_fields(node, typedvalue.fields_of(node, value))


def _with_managed(obj: Object, entries: list[Entry] | None) -> Object:
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return {**obj, "metadata": metadata}


def _with_last_applied(obj: Object, config: Object) -> Object:
    """Keep client-side apply's annotation in step, where there is one."""
    annotations = obj["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return obj
    metadata = dict(config.get("metadata") or {})
    if "annotations" in metadata:
        others = {key: value for key, value in (metadata["annotations"] or {}).items() if key != LAST_APPLIED}
        metadata["annotations"] = others
        if not others:
            del metadata["annotations"]
    applied = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    annotations = {**annotations, LAST_APPLIED: applied}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATIONS_BYTES:
        del annotations[LAST_APPLIED]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


# --- conflicts -------------------------------------------------------------------------------------------------------


def _conflict_error(conflicts: Conflicts, version: str) -> StatusError:
    """`version` is shown instead of the owners' own one, where the request saw the object in another form."""
    conflicts = {(who[0], who[1], version or who[2], who[3]): paths for who, paths in conflicts.items()}
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_manager_text(who)}",
            "field": fieldset.path_text(path),
        }
        for who in sorted(conflicts)
        for path in conflicts[who]
    ]
    if len(causes) == 1:
        who = next(iter(conflicts))
        message = f"Apply failed with 1 conflict: conflict with {_manager_text(who)}: {causes[0]['field']}"
    else:
        lines = []
        for who in sorted(conflicts):
            lines.append(f"conflicts with {_manager_text(who)}:")
            lines += [f"- {fieldset.path_text(path)}" for path in conflicts[who]]
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, details={"causes": causes})


def _manager_text(who: Identity) -> str:
    manager, operation, version, subresource = who
    text = f'"{manager}"' + (f' with subresource "{subresource}"' if subresource else "")
    return text if operation == APPLY else f"{text} using {version}"
