"""The life of a CustomResourceDefinition: accepted names, conditions, the kinds it brings, and its end.

In: definitions as they are written, and those that are there. Out: their status; served kinds (`kinds.Kinds`) with
their rules; and, when one is deleted, the deletion of all its objects first. `plan_status` is pure. Definitions are
judged by `checks`, objects by `custom`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from bedplate.apiserver import hooks, kinds, services, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine
from bedplate.apiserver.crds import checks, custom
from bedplate.apiserver.schema import gotext
from bedplate.apiserver.shape import rules as shape_rules
from bedplate.apiserver.state import bodies
from bedplate.core import clock as clocks

__all__ = ["FINALIZER", "DefinitionBehaviour", "plan_status", "run"]

GROUP, RESOURCE = "apiextensions.k8s.io", "customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_WAIT_S = 0.2

Object = dict[str, Any]


def set_condition(crd_status: Object, kind: str, state: str, reason: str, message: str, now: datetime) -> None:
    """Put a condition into a status; the time moves only when the state changes."""
    conditions: list[Object] = crd_status.setdefault("conditions", [])
    old = next((each for each in conditions if each["type"] == kind), None)
    fresh = {
        "type": kind,
        "status": state,
        "lastTransitionTime": clocks.rfc3339(now),
        "reason": reason,
        "message": message,
    }
    if old is None:
        conditions.append(fresh)
    elif old["status"] == state:
        old |= {"reason": reason, "message": message}
    else:
        old |= fresh


def plan_status(crd: Mapping[str, Any], others: Iterable[Mapping[str, Any]], now: datetime) -> Object:
    """The status a definition should have, given all other definitions: names are first come, first served."""
    spec, names = crd["spec"], crd["spec"]["names"]
    crd_status: Object = {**(crd.get("status") or {})}
    crd_status["conditions"] = [dict(each) for each in crd_status.get("conditions") or ()]
    accepted: Object = dict(crd_status.get("acceptedNames") or {})
    resources, kind_names = _taken(crd, others)
    refusals: list[tuple[str, str]] = []
    for key, taken in (("plural", resources), ("singular", resources)):
        _accept(names.get(key, ""), accepted, key, taken, refusals)
    short = [name for name in names.get("shortNames") or () if name not in (accepted.get("shortNames") or ())]
    clashes = [f'"{name}" is already in use' for name in short if name in resources]
    if clashes:
        refusals.append(("ShortNamesConflict", clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"))
    else:
        _keep(accepted, "shortNames", names.get("shortNames"))
    for key in ("kind", "listKind"):
        _accept(names.get(key, ""), accepted, key, kind_names, refusals)
    _keep(accepted, "categories", names.get("categories"))
    crd_status["acceptedNames"] = {"plural": "", "kind": ""} | accepted
    _set_naming(crd_status, refusals, now)
    crd_status["storedVersions"] = _stored_versions(spec, crd_status)
    return crd_status


def _accept(name: str, accepted: Object, key: str, taken: set[str], refusals: list[tuple[str, str]]) -> None:
    if name != accepted.get(key) and name in taken:
        refusals.append((key[0].upper() + key[1:] + "Conflict", f'"{name}" is already in use'))
    else:
        accepted[key] = name


def _keep(accepted: Object, key: str, value: Any) -> None:
    if value:
        accepted[key] = list(value)
    else:
        accepted.pop(key, None)


def _taken(crd: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Resource and kind names that other definitions of the group hold."""
    resources: set[str] = set()
    kind_names: set[str] = set()
    for other in others:
        if other["spec"]["group"] != crd["spec"].get("group") or other["metadata"]["name"] == crd["metadata"]["name"]:
            continue
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())} - {""}
        kind_names |= {names.get("kind", ""), names.get("listKind", "")} - {""}
    return resources, kind_names


def _set_naming(crd_status: Object, refusals: list[tuple[str, str]], now: datetime) -> None:
    if refusals:
        reason, message = refusals[-1]
        set_condition(crd_status, "NamesAccepted", "False", reason, message, now)
        if not any(each["type"] == "Established" for each in crd_status["conditions"]):
            set_condition(crd_status, "Established", "False", "NotAccepted", "not all names are accepted", now)
        return
    set_condition(crd_status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
    message = "the initial names have been accepted"
    set_condition(crd_status, "Established", "True", "InitialNamesAccepted", message, now)


def _stored_versions(spec: Mapping[str, Any], crd_status: Mapping[str, Any]) -> list[str]:
    stored = list(crd_status.get("storedVersions") or ())
    storage = next((version["name"] for version in spec.get("versions") or () if version.get("storage")), None)
    return stored if storage is None or storage in stored else [*stored, storage]


class VersionRules:
    """The rules of one served version; compiled when the first object comes."""

    def __init__(self, version: Mapping[str, Any], resource: kinds.Resource, *, is_terminating: bool) -> None:
        self._version = version
        self._resource = resource
        self._is_terminating = is_terminating
        self._compiled: custom.CustomValidator | None = None

    @property
    def _validator(self) -> custom.CustomValidator:
        if self._compiled is None:
            schema = (self._version.get("schema") or {}).get("openAPIV3Schema") or {}
            scale = (self._version.get("subresources") or {}).get("scale")
            self._compiled = custom.CustomValidator(schema, scale=scale)
        return self._compiled

    def default(self, obj: hooks.Object) -> None:
        self._validator.default(obj)

    def prune(self, obj: hooks.Object) -> list[str]:
        return self._validator.prune(obj)

    def validate(self, obj: hooks.Object, old: hooks.Object | None, subresource: str) -> list[status.FieldProblem]:
        if subresource == "status" and old is not None:
            return self._validator.validate_status(obj, old)
        if old is None and self._is_terminating:
            name = (obj.get("metadata") or {}).get("name") or ""
            why = "create not allowed while custom resource definition is terminating"
            raise status.forbidden(self._resource, name, why)
        return self._validator.validate(obj, old)


class DefinitionBehaviour(hooks.Behaviour):
    """What writing a CustomResourceDefinition does. `live` and `custom_rules` are what it adds to and takes from."""

    def __init__(self, live: kinds.Kinds, custom_rules: dict[tuple[str, str, str], shape_rules.CustomRules]) -> None:
        self._live = live
        self._rules = custom_rules

    def default(self, resource: kinds.Resource, obj: hooks.Object) -> None:
        checks.default(obj)

    def prepare_create(self, write: hooks.Write) -> None:
        write.object["status"] = {}
        self._fill_status(write)

    def prepare_update(self, write: hooks.Write) -> None:
        assert write.old is not None
        if write.subresource != "status":
            write.object["status"] = {**(write.old.get("status") or {})}
            self._fill_status(write)

    def _fill_status(self, write: hooks.Write) -> None:
        crd = write.object
        names = (crd.get("spec") or {}).get("names") or {}
        if not all(names.get(key) for key in ("plural", "singular", "kind", "listKind")):
            # It will be refused, for reasons that `validate` gives; names cannot be weighed before.
            crd["status"]["storedVersions"] = _stored_versions(crd.get("spec") or {}, crd["status"])
            return
        others = write.services.client.list(GROUP, RESOURCE)
        crd["status"] = plan_status(crd, others, write.services.clock.now())

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        if write.subresource == "status":
            return []
        field_problems = checks.validate(write.object, write.old)
        if not field_problems:
            known = checks.unrecognized_formats(write.old) if write.old is not None else []
            for name in checks.unrecognized_formats(write.object):
                text = f"unrecognized format {gotext.quote(name)}"
                if name not in known and text not in write.warnings:
                    write.warnings.append(text)
        return field_problems

    def mark_deleted(self, obj: hooks.Object) -> None:
        """Objects of the kind go first: the finalizer keeps the definition until they are gone."""
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        now = clocks.parse_rfc3339(obj["metadata"]["deletionTimestamp"])
        set_condition(obj.setdefault("status", {}), "Terminating", "True", "InstanceDeletionPending", message, now)

    def after_commit(self, change: bodies.Change) -> None:
        crd = change.previous if change.type == "DELETED" else change.object
        if crd is None:
            return
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in [key for key in self._rules if (key[0], key[2]) == (group, plural)]:
            del self._rules[key]
        if change.type == "DELETED" or not checks.has_condition(crd, "Established"):
            self._live.remove(group, plural)
            return
        pods = self._live.get("", "v1", "pods")
        assert pods is not None
        served = kinds.from_crd(crd, pods.type.fields["metadata"])
        self._live.replace(served, without=(group, plural))
        versions = {version["name"]: version for version in crd["spec"]["versions"]}
        for resource in served:
            is_terminating = "deletionTimestamp" in crd["metadata"]
            version = versions[resource.version]
            self._rules[resource.key] = VersionRules(version, resource, is_terminating=is_terminating)


async def run(parts: services.Services) -> None:
    """Keep definitions' names up to date, and clear away the objects of those that are being deleted."""
    client = parts.client.acting_as(subjects.LOOPBACK, "crd-controller")

    async def reconcile(name: str) -> None:
        crd = client.get(GROUP, RESOURCE, "", name)
        if crd is None:
            return
        if crd["metadata"].get("deletionTimestamp"):
            if FINALIZER in (crd["metadata"].get("finalizers") or ()):
                await _clear(parts, client, crd, loop)
            return
        crd_status = plan_status(crd, client.list(GROUP, RESOURCE), parts.clock.now())
        if crd_status != crd.get("status"):
            crd["status"] = crd_status
            await client.update(GROUP, RESOURCE, crd, subresource="status")

    def concerned(change: bodies.Change) -> list[str]:
        # A name that one gives up may be what another waits for.
        waiting = [crd for crd in client.list(GROUP, RESOURCE) if not checks.has_condition(crd, "NamesAccepted")]
        return [change.name, *(str(crd["metadata"]["name"]) for crd in waiting)]

    loop: Loop[str] = Loop("customresourcedefinitions", client, reconcile)
    await loop.run((GROUP, RESOURCE, concerned))


async def _clear(parts: services.Services, client: hooks.Client, crd: Object, loop: Loop[str]) -> None:
    """Delete all objects of a definition that is being deleted; then let it go."""
    group, plural, name = crd["spec"]["group"], crd["spec"]["names"]["plural"], crd["metadata"]["name"]
    now = parts.clock.now()
    message = "CustomResource deletion is in progress"
    if not any(each.get("message") == message for each in crd["status"]["conditions"]):
        set_condition(crd["status"], "Terminating", "True", "InstanceDeletionInProgress", message, now)
        crd = await client.update(GROUP, RESOURCE, crd, subresource="status")
    for obj in client.list(group, plural):
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp"):
            await absent_is_fine(client.delete(group, plural, metadata.get("namespace", ""), metadata["name"]))
    if client.list(group, plural):
        # Finalizers of the objects are still at work; look again soon.
        loop.add_later(str(name), _WAIT_S)
        return
    message = "removed all instances"
    set_condition(crd["status"], "Terminating", "False", "InstanceDeletionCompleted", message, now)
    crd = await client.update(GROUP, RESOURCE, crd, subresource="status")
    finalizers = [each for each in crd["metadata"].get("finalizers") or () if each != FINALIZER]
    await absent_is_fine(client.patch(GROUP, RESOURCE, "", str(name), {"metadata": {"finalizers": finalizers or None}}))
