"""Who owns which field: `metadata.managedFields` as kube-apiserver keeps it.

In: the object before and after a write, the name of the writer. Out: the new `managedFields` list. Objects are those
of the moment at which the real server looks: decoded, defaulted and in the form it would store, but **before**
admission and the kind's own preparation, since what the server itself fills in (a cluster IP) belongs to nobody.

`FieldManager` is one per served version of a kind. It is pure apart from what it remembers of the type. `apply` adds
server-side apply to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedplate.apiserver.merge import fieldset, typedmerge, typedvalue
from bedplate.apiserver.merge.fieldset import FieldSet
from bedplate.apiserver.shape.typegraph import TypeNode
from bedplate.core.clock import parse_rfc3339, rfc3339

__all__ = ["APPLY", "UPDATE", "Entry", "FieldManager", "Identity", "Managed", "keep_times", "reset_fields", "zero"]

APPLY = "Apply"
UPDATE = "Update"
MAX_UPDATERS = 10
ANCIENT = "ancient-changes"
UNKNOWN = "unknown"
SCALE = "scale"

Object = dict[str, Any]
Entry = dict[str, Any]
Identity = tuple[str, str, str, str]
"""manager, operation, apiVersion (empty for Apply: an applier keeps its entry across versions), subresource."""
Managed = dict[Identity, Entry]

SYSTEM_FIELDS = fieldset.make(
    ["apiVersion"],
    ["kind"],
    ["metadata"],
    *(
        ["metadata", name]
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)
"""never owned by anybody."""


class FieldManager:
    """Keeps the owners of the fields of one served version of a kind.

    `reset` maps a subresource ("" is the object itself) to the fields that a write through it cannot change; they are
    never owned through it. `versions` names the other served versions, with how their top-level fields are called here.
    """

    def __init__(
        self,
        node: TypeNode,
        *,
        api_version: str,
        kind: str,
        is_custom: bool = False,
        reset: Mapping[str, FieldSet] | None = None,
        versions: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.node = node
        self.walk = typedvalue.TypeWalk(node)
        self.api_version = api_version
        self.kind = kind
        self.is_custom = is_custom
        self._reset = dict(reset or {})
        self._versions = {api_version: {}, **(versions or {})}
        self._nothing: Object | None = None

    @property
    def nothing(self) -> Object:
        """The object before it exists: for a built-in kind Go's zero value, which already has some fields."""
        if self._nothing is None:
            named: Object = {"apiVersion": self.api_version, "kind": self.kind}
            self._nothing = named if self.is_custom else {**zero(self.node), **named}
        return self._nothing

    def on_create(self, new: Object, manager: str, time: str, subresource: str = "") -> list[Entry] | None:
        """The owners of a new object: its creator, unless the object brings valid managedFields along."""
        given = new["metadata"].get("managedFields")
        if given:
            return self.on_update(self.nothing, new, manager, time, subresource)
        try:
            touched, _ = self.changes(self.nothing, without_managed(new), subresource)
        except typedvalue.Mistyped:
            return None
        owned = fieldset.difference(touched, SYSTEM_FIELDS)
        if not owned:
            return None
        return [self.entry(manager, UPDATE, owned, time, subresource)]

    def on_update(self, old: Object, new: Object, manager: str, time: str, subresource: str = "") -> list[Entry] | None:
        """The owners after a write that is not an apply; None where the object has no managedFields."""
        managed = self.decode(old, new, is_subresource=bool(subresource))
        if not managed and old.get("metadata", {}).get("uid"):
            return None
        try:
            managed = self.record(managed, old, new, manager, time, subresource)
        except typedvalue.Mistyped:
            # The real server keeps no owners rather than wrong ones.
            return None
        return encode(managed)

    # --- steps, shared with `apply` -------------------------------------------------------------------------------

    def record(self, managed: Managed, old: Object, new: Object, manager: str, time: str, subresource: str) -> Managed:
        """Give what changed to the writer and take it from everybody else."""
        touched, removed = self.changes(without_managed(old), without_managed(new), subresource)
        managed, _ = self.take(self.reconciled(managed), touched, removed)
        own = fieldset.difference(touched, SYSTEM_FIELDS)
        if own:
            entry = self.entry(manager, UPDATE, own, time, subresource)
            identity = identify(entry)
            before = managed.get(identity)
            if before is not None:
                entry["fieldsV1"] = fieldset.union(own, before["fieldsV1"])
            managed[identity] = entry
        return _cap(managed)

    def changes(self, old: Object, new: Object, subresource: str) -> tuple[FieldSet, FieldSet]:
        """What was added or changed, and what was removed, as far as this way of writing can do it."""
        reset = self._reset.get(subresource)
        if reset:
            old, new = _without_members(old, reset), _without_members(new, reset)
        touched, removed = self.walk.difference(self.node, old, new)
        if reset:
            return (
                fieldset.difference(touched or {}, reset, recursive=True),
                fieldset.difference(removed or {}, reset, recursive=True),
            )
        return touched or {}, removed or {}

    def writable(self, fields: FieldSet, subresource: str) -> FieldSet:
        """The part of a set that this way of writing can own."""
        return fieldset.difference(fields, self._reset.get(subresource, {}), recursive=True)

    def take(
        self, managed: Managed, touched: FieldSet, removed: FieldSet, keep: Identity | None = None
    ) -> tuple[Managed, dict[Identity, FieldSet]]:
        """Everybody but `keep` loses what was touched or removed. Also says who lost touched fields, and which."""
        out: Managed = {}
        lost: dict[Identity, FieldSet] = {}
        for identity, entry in managed.items():
            if identity == keep:
                out[identity] = entry
                continue
            renames = self._versions.get(entry["apiVersion"])
            if renames is None:
                continue
            came, went = (_renamed(touched, renames), _renamed(removed, renames)) if renames else (touched, removed)
            fields = entry["fieldsV1"]
            conflicting = fieldset.intersection(fields, came) if came else {}
            if conflicting:
                lost[identity] = conflicting
                fields = fieldset.difference(fields, conflicting)
            if went:
                fields = fieldset.difference(fields, went)
            if fields:
                out[identity] = entry if fields is entry["fieldsV1"] else {**entry, "fieldsV1": fields}
        return out, lost

    def reconciled(self, managed: Managed) -> Managed:
        """The owners of a custom object after its definition may have changed."""
        if not self.is_custom:
            return managed
        out = dict(managed)
        for identity, entry in managed.items():
            fields = typedmerge.collapsed(self.node, entry["fieldsV1"])
            if fields is not entry["fieldsV1"]:
                out[identity] = {**entry, "fieldsV1": fields}
        return out

    def owned_here(self, entry: Entry) -> FieldSet:
        """An entry's set with the field names of this version; nothing for a version that is gone."""
        renames = self._versions.get(entry["apiVersion"])
        if renames is None:
            return {}
        fields: FieldSet = entry["fieldsV1"]
        return fieldset.in_order({_rename(element, renames): below for element, below in fields.items()})

    def entry(self, manager: str, operation: str, fields: FieldSet, time: str | None, subresource: str) -> Entry:
        entry: Entry = {"manager": manager or UNKNOWN, "operation": operation, "apiVersion": self.api_version}
        # The real server loses the time on the way through the Scale object.
        if time is not None and subresource != SCALE:
            entry["time"] = time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = fields
        if subresource:
            entry["subresource"] = subresource
        return entry

    def decode(self, old: Object, new: Object, *, is_subresource: bool) -> Managed:
        """The owners to go on from: those in the request if it brings valid ones, else those of the live object."""
        live = old.get("metadata", {}).get("managedFields") or []
        given = new["metadata"].get("managedFields")
        # Custom objects lose an empty list when they are decoded, so it does not reset their owners.
        if is_subresource or given is None or given == live or (given == [] and self.is_custom):
            return index(live)
        if given in ([], [{}]):
            return {}
        try:
            return index([_checked(entry) for entry in given])
        except (fieldset.BadFields, TypeError, AttributeError):
            return index(live)


def index(entries: list[Entry]) -> Managed:
    """Entries by who they are of; one without a set owns nothing."""
    return {identify(entry): entry if "fieldsV1" in entry else {**entry, "fieldsV1": {}} for entry in entries}


def identify(entry: Entry) -> Identity:
    operation = entry["operation"]
    version = "" if operation == APPLY else entry["apiVersion"]
    return entry.get("manager", ""), operation, version, entry.get("subresource", "")


def encode(managed: Managed) -> list[Entry] | None:
    """The list as it is stored: appliers first, then by time, manager, version and subresource."""
    return sorted(managed.values(), key=_place) or None


def _place(entry: Entry) -> tuple[str, str, str, str, str]:
    return (
        entry["operation"],
        entry.get("time") or "",
        entry.get("manager", ""),
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def without_managed(obj: Object) -> Object:
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _without_members(obj: Object, fields: FieldSet) -> Object:
    """The object without its top-level fields that are members of a set: what cannot matter is not looked at."""
    return {key: value for key, value in obj.items() if fields.get("f:" + key, fields) != {}}


def keep_times(old: Object, new: Object) -> Object:
    """A write that changes nothing but times in managedFields changes nothing: then `new` with the old times.

    To be called last, on the object as it would be stored.
    """
    before, after = old["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not before or not after or len(before) != len(after) or before == after:
        return new
    for left, right in zip(before, after, strict=True):
        if {**left, "time": None} != {**right, "time": None}:
            return new
    if not typedvalue.identical(without_managed(old), without_managed(new)):
        return new
    return {**new, "metadata": {**new["metadata"], "managedFields": before}}


def _checked(entry: Mapping[str, Any]) -> Entry:
    """One entry as a client wrote it, in our form; raises `BadFields` where the real server refuses it."""
    if entry.get("operation") not in (APPLY, UPDATE):
        raise fieldset.BadFields("operation must be `Apply` or `Update`")
    if not entry.get("apiVersion"):
        raise fieldset.BadFields("apiVersion must not be empty")
    if entry.get("fieldsType") != "FieldsV1":
        raise fieldset.BadFields("fieldsType must be FieldsV1")
    out: Entry = {}
    for key in ("manager", "operation", "apiVersion"):
        if entry.get(key):
            out[key] = entry[key]
    if entry.get("time"):
        try:
            out["time"] = rfc3339(parse_rfc3339(entry["time"]))
        except ValueError as err:
            raise fieldset.BadFields(str(err)) from err
    out["fieldsType"] = "FieldsV1"
    out["fieldsV1"] = fieldset.canonical(entry.get("fieldsV1"))
    if entry.get("subresource"):
        out["subresource"] = entry["subresource"]
    return out


def _cap(managed: Managed) -> Managed:
    """At most ten updaters: the oldest are merged into one entry per version."""
    updaters = [identity for identity in managed if identity[1] == UPDATE]
    surplus = len(updaters) - MAX_UPDATERS
    if surplus <= 0:
        return managed
    updaters.sort(key=lambda identity: (managed[identity].get("time") or "", identity))
    first: dict[str, Identity] = {}
    for identity in updaters:
        if surplus <= 0:
            break
        entry = managed[identity]
        version = entry["apiVersion"]
        if version not in first:
            first[version] = identity
            continue
        bucket: Identity = (ANCIENT, UPDATE, version, "")
        if bucket not in managed:
            oldest = managed.pop(first[version])
            managed[bucket] = {key: value for key, value in oldest.items() if key != "subresource"} | {
                "manager": ANCIENT
            }
        merged = {**managed[bucket], "fieldsV1": fieldset.union(entry["fieldsV1"], managed[bucket]["fieldsV1"])}
        if entry.get("time"):
            merged["time"] = entry["time"]
        managed[bucket] = merged
        # As in the real server this forgets the bucket itself when an older entry of its version comes before it.
        del managed[identity]
        surplus -= 1
    return managed


def _rename(element: str, renames: Mapping[str, str]) -> str:
    return "f:" + renames[element[2:]] if element[2:] in renames else element


def _renamed(fields: FieldSet, renames: Mapping[str, str]) -> FieldSet:
    """A set of this version with the top-level names of another one."""
    back = {ours: theirs for theirs, ours in renames.items()}
    return fieldset.in_order({_rename(element, back): below for element, below in fields.items()})


# --- facts about kinds -----------------------------------------------------------------------------------------------

_GO_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0"}
_GO_STRUCTS = {"time": None, "microtime": None, "quantity": "0", "int-or-string": 0}
"""scalars that are structs in Go, which `omitempty` does not leave out."""


def zero(node: TypeNode) -> Object:
    """The JSON of a built-in type's zero value in Go: the fields that are written even when nobody set them."""
    out: Object = {}
    for name, field in node.fields.items():
        if field.omit_zero:
            continue
        if field.shape == "struct" and not field.pointer:
            out[name] = zero(field)
        elif field.scalar in _GO_STRUCTS and not field.pointer:
            out[name] = _GO_STRUCTS[field.scalar]
        elif not field.omit_empty:
            out[name] = _GO_ZERO.get(field.scalar) if field.shape == "scalar" and not field.pointer else None
    return out


_RESET: dict[tuple[str, str, str], FieldSet] = {
    ("", "pods", "status"): fieldset.make(["spec"], ["metadata", "deletionTimestamp"], ["metadata", "ownerReferences"]),
    ("", "namespaces", "finalize"): fieldset.make(["status"]),
    ("apps", "deployments", "status"): fieldset.make(["spec"], ["metadata", "labels"]),
    ("certificates.k8s.io", "certificatesigningrequests", ""): fieldset.make(["spec"], ["status"]),
    ("certificates.k8s.io", "certificatesigningrequests", "status"): fieldset.make(["spec"], ["status", "conditions"]),
    ("certificates.k8s.io", "certificatesigningrequests", "approval"): fieldset.make(
        ["spec"], ["status", "certificate"]
    ),
}
_STATUS_WITHOUT_METADATA = {
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
    "internal.apiserver.k8s.io",
    "admissionregistration.k8s.io",
    "storagemigration.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
}
"""groups whose status subresource leaves all metadata alone."""


def reset_fields(group: str, resource: str, subresource: str, *, has_status: bool) -> FieldSet:
    """The fields that a write through this subresource ("" for the object itself) cannot change."""
    known = _RESET.get((group, resource, subresource))
    if known is not None:
        return known
    if not has_status or subresource not in ("", "status"):
        return {}
    if subresource == "":
        return fieldset.make(["status"])
    return fieldset.make(["spec"], *([["metadata"]] if group in _STATUS_WITHOUT_METADATA else []))
