"""Create and update: from a decoded object to a durable commit.

In: a `Target` and an object in the target's version. Out: an `Outcome` with the stored object's JSON. The order of the
steps is that of the real server: decode, default, field owners, mutating admission, the kind's preparation,
validation, validating admission, commit. A conflict in the store is tried again as long as the writer did not insist
on a version.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from bedplate.api import quantity
from bedplate.apiserver import hooks, kinds, meta, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.merge import managed
from bedplate.apiserver.state import bodies
from bedplate.apiserver.verbs import request
from bedplate.store import interface

__all__ = ["Outcome", "create", "replace", "update"]

Object = bodies.Object
Target = request.Target

GENERATED_NAME_ATTEMPTS = 8
CONFLICT_ATTEMPTS = 50
ALLOCATION_ATTEMPTS = 200
_rng = random.Random()
_KEEPS_STATUS_ON_CREATE = frozenset({("", "nodes")})


class Outcome(NamedTuple):
    """What a write answers with: the HTTP code and the object in the target's version."""

    code: int
    body: bytes


async def create(target: Target, obj: Object) -> Object:
    """Create and give the stored object back, for callers in the process."""
    return bodies.decode((await create_outcome(target, meta.check_object(target.resource, obj))).body)


async def update(target: Target, obj: Object) -> Object:
    return bodies.decode((await replace(target, meta.check_object(target.resource, obj))).body)


async def create_outcome(target: Target, obj: Object, *, owners: list[Object] | None = None) -> Outcome:
    """POST of an object of the kind. `owners` are the managedFields where an apply has worked them out already."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise status.StatusError(500, "", "resourceVersion should not be set on objects to be created")
    metadata.pop("resourceVersion", None)
    check_namespace(target, metadata)
    base = metadata.get("generateName", "")
    is_generated = bool(base) and not metadata.get("name")
    for attempt in range(GENERATED_NAME_ATTEMPTS):
        if is_generated:
            metadata["name"] = meta.generated_name(base, _rng)
        target.name = metadata.get("name") or ""
        try:
            return await _create_alone(target, obj, owners)
        except status.StatusError as err:
            if err.reason != "AlreadyExists" or not is_generated or attempt + 1 == GENERATED_NAME_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def check_namespace(target: Target, metadata: Object) -> None:
    """The namespace in the object must be that of the path, and it must be there and not on its way out."""
    if not target.resource.namespaced:
        return
    if metadata.setdefault("namespace", target.namespace) != target.namespace:
        if metadata["namespace"]:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = target.namespace
    namespace = target.services.registry.get(("", "namespaces"), "", target.namespace)
    if namespace is None:
        namespaces = target.services.kinds.get("", "v1", "namespaces")
        assert namespaces is not None
        raise status.not_found(namespaces, target.namespace)
    if b'"deletionTimestamp":"' in namespace.body and "deletionTimestamp" in namespace.decode()["metadata"]:
        name = metadata.get("name") or target.name
        why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        refusal = status.forbidden(target.resource, name, why)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {target.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        refusal.details = {**(refusal.details or {}), "causes": [cause]}
        raise refusal


async def _create_alone(target: Target, obj: Object, owners: list[Object] | None) -> Outcome:
    """Create, again from the start as long as another server gives out addresses at the same moment."""
    if not target.services.registry.is_shared:
        return await _create_once(target, obj, owners)
    for _ in range(ALLOCATION_ATTEMPTS):
        try:
            return await _create_once(target, bodies.decode(bodies.encode(obj)), owners)
        except interface.CompareFailed:
            await asyncio.sleep(_rng.uniform(0, 0.01))
    raise status.StatusError(500, "InternalError", "too many allocations at the same time; try again")


async def _create_once(target: Target, obj: Object, owners: list[Object] | None) -> Outcome:
    services, resource, behaviour = target.services, target.resource, target.behaviour
    now = services.now_text()
    meta.fill_new(resource, obj, target.namespace, now, _rng)
    if "status" in resource.subresources and (resource.group, resource.resource) not in _KEEPS_STATUS_ON_CREATE:
        obj.pop("status", None)
    fields = services.field_manager(resource)

    def complete() -> list[Object] | None:
        default(target, obj)
        return fields.on_create(obj, target.manager, now, target.subresource) if owners is None else owners

    _set_owners(obj, await request.aside(target.size_bytes, complete))
    write = target.write("CREATE", None, obj)
    try:
        await _admit(write, behaviour.prepare_create)
        problems = meta.problems(resource, write.object, None) if target.name else _no_name()
        await _check(write, problems, target.size_bytes)
        if services.admission.wants(write):
            await services.admission.validate(write)
            check_namespace(target, write.object["metadata"])  # webhooks take their time
        return await _commit_new(target, write)
    except BaseException:
        _roll_back(write)
        raise


def _no_name() -> list[status.FieldProblem]:
    return [status.FieldProblem.required("metadata.name", "name or generateName is required")]


async def _commit_new(target: Target, write: hooks.Write) -> Outcome:
    registry = target.services.registry
    value, key = stored_value(target, write.object), bodies.key_of(target.kind, target.namespace, target.name)
    existing = target.stored()
    if existing is not None:
        raise _exists(target, existing)
    if target.dry_run:
        _roll_back(write)
        return Outcome(201, shown(target, value))
    try:
        revision = await registry.commit([interface.Put(key, value, 0), *write.also])
    except interface.CompareFailed as err:
        if err.key != key:
            raise
        raise _exists(target, target.stored()) from None
    return Outcome(201, shown(target, bodies.spliced(value, revision)))


def _exists(target: Target, existing: bodies.Stored | None) -> status.StatusError:
    refusal = status.already_exists(target.resource, target.name)
    if existing is not None and "deletionTimestamp" in existing.decode()["metadata"]:
        refusal.message = f"object is being deleted: {refusal.message}"
    return refusal


def stored_value(target: Target, obj: Object) -> bytes:
    """The object as the store keeps it: in the storage version, without resourceVersion."""
    return bodies.encode_value(kinds.to_storage(target.resource, obj, target.storage))


def shown(target: Target, body: bytes) -> bytes:
    """Stored JSON in the version of the request."""
    if target.resource is target.storage:
        return body
    return bodies.encode(kinds.from_storage(target.resource, bodies.decode(body), target.storage))


def default(target: Target, obj: Object) -> None:
    try:
        target.services.rules.default(target.resource, obj)
    except quantity.TooLong as err:
        problem = status.FieldProblem.invalid(_path_of(obj, err.given).lstrip("."), "", str(err))
        raise status.invalid(target.resource, target.name, [problem]) from None
    target.behaviour.default(target.resource, obj)


def _path_of(obj: Any, value: Any) -> str:
    """Where in an object a value is; empty where it is not."""
    pairs = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    for key, member in pairs:
        step = f"[{key}]" if isinstance(key, int) else f".{key}"
        if member is value:
            return step
        if path := _path_of(member, value):
            return step + path
    return ""


def _set_owners(obj: Object, owners: list[Object] | None) -> None:
    if owners:
        obj["metadata"]["managedFields"] = owners
    else:
        obj["metadata"].pop("managedFields", None)


async def _admit(write: hooks.Write, prepare: Callable[[hooks.Write], None]) -> None:
    services = write.services
    if services.admission.wants(write):
        await services.admission.mutate(write)
        services.rules.default(write.resource, write.object)
    prepare(write)


async def _check(write: hooks.Write, problems: list[status.FieldProblem], size_bytes: int) -> None:
    services, resource = write.services, write.resource
    problems += services.behaviour(resource).validate(write)
    problems += await request.aside(
        size_bytes, lambda: services.rules.validate(resource, write.object, write.old, write.subresource)
    )
    if problems:
        raise status.invalid(resource, write.name or write.object["metadata"].get("name", ""), problems)


def _roll_back(write: hooks.Write) -> None:
    while write.rollbacks:
        write.rollbacks.pop()()


async def replace(target: Target, obj: Object) -> Outcome:
    """PUT of an object or its status."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    if not name:
        raise status.bad_request("the name of the object (based on URL) was undeterminable: name must be provided")
    if name != target.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    if target.resource.namespaced and metadata.get("namespace") not in (None, "", target.namespace):
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    is_conditional = bool(metadata.get("resourceVersion"))
    is_absent = target.stored() is None and not target.subresource
    if is_absent and target.behaviour.create_on_update and not is_conditional and not metadata.get("uid"):
        require_create(target)
        return await create_outcome(target, obj)
    return await rewrite(target, lambda _old: obj, is_conditional=is_conditional)


def require_create(target: Target) -> None:
    """Who creates by another verb needs the right to create all the same."""
    resource = target.resource
    wish = subjects.Attributes(
        "create", resource.group, resource.version, resource.resource, "", target.namespace, target.name
    )
    verdict = target.services.authorizer.authorize(target.user, wish)
    if not verdict.allowed:
        raise status.not_allowed(target.user.name, wish, verdict.reason)


async def rewrite(
    target: Target,
    change: Callable[[Object], Object],
    *,
    is_conditional: bool = False,
    owns: bool = True,
) -> Outcome:
    """Read, change, write; again on conflict.

    `change` gets the live object and gives a new one, without changing or sharing parts of the old.
    `owns=False`: it sets managedFields itself.
    """
    for attempt in range(CONFLICT_ATTEMPTS):
        stored = target.existing()
        old = target.read(stored)
        new = await request.aside(_size(target, stored), functools.partial(change, old))
        if target.services.registry.is_shared:
            new = bodies.decode(bodies.encode(new))  # may be tried again, and is filled in each time
        _check_uid(target, old, new)
        _check_version(target, old, new)
        try:
            return await _rewrite_once(target, stored, old, new, owns)
        except interface.CompareFailed as err:
            if err.key != bodies.key_of(target.kind, target.namespace, target.name):
                await asyncio.sleep(_rng.uniform(0, 0.01))
                continue
            if is_conditional or attempt + 1 == CONFLICT_ATTEMPTS:
                raise status.conflict(target.resource, target.name) from None
            if err.current is None:
                raise status.not_found(target.resource, target.name) from None
            await asyncio.sleep(0)
    raise status.conflict(target.resource, target.name)


def _size(target: Target, stored: bodies.Stored) -> int:
    """Of the larger of the two: what came and what is there."""
    return max(target.size_bytes, len(stored.body))


def _check_uid(target: Target, old: Object, new: Object) -> None:
    expected, uid = new["metadata"].get("uid"), old["metadata"].get("uid", "")
    if expected and expected != uid:
        why = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {uid}"
        raise status.conflict(target.resource, target.name, why)


def _check_version(target: Target, old: Object, new: Object) -> None:
    """Who names a resourceVersion writes only over that one."""
    version = new["metadata"].get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise status.conflict(target.resource, target.name)


async def _rewrite_once(target: Target, stored: bodies.Stored, old: Object, new: Object, owns: bool) -> Outcome:
    services, resource, behaviour = target.services, target.resource, target.behaviour
    size_bytes = _size(target, stored)
    meta.keep_server_owned(old, new)
    new = isolate(target, old, new)
    now, fields = services.now_text(), services.field_manager(resource)

    def complete() -> None:
        default(target, new)
        if owns:
            _set_owners(new, fields.on_update(old, new, target.manager, now, target.subresource))

    await request.aside(size_bytes, complete)
    write = target.write("UPDATE", old, new)
    try:
        await _admit(write, behaviour.prepare_update)
        new = write.object
        meta.set_generation(resource, old, new)
        await _check(write, meta.problems(resource, new, old), size_bytes)
        if services.admission.wants(write):
            await services.admission.validate(write)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        new = await request.aside(size_bytes, lambda: managed.keep_times(old, new))
        return await _commit_change(target, write, stored, new)
    except BaseException:
        _roll_back(write)
        raise


def isolate(target: Target, old: Object, new: Object) -> Object:
    """What this way of writing may change: everything but the status, or the status alone."""
    if "status" not in target.resource.subresources:
        return new
    if target.subresource not in ("", "status"):
        # A behaviour's own subresource (binding, finalize) has put the whole object together itself.
        return new
    if not target.subresource:
        return _with(new, "status", old.get("status"))
    metadata = new["metadata"]
    if target.resource.is_custom or target.behaviour.status_keeps_metadata:
        own = metadata.get("managedFields")
        metadata = {key: value for key, value in old["metadata"].items() if key != "managedFields"}
        metadata |= {"managedFields": own} if own is not None else {}
    kept = {**old, "metadata": {**metadata, "resourceVersion": old["metadata"]["resourceVersion"]}}
    return _with(kept, "status", new.get("status"))


def _with(obj: Object, key: str, value: object) -> Object:
    if value is not None:
        return {**obj, key: value}
    return {name: member for name, member in obj.items() if name != key}


async def _commit_change(target: Target, write: hooks.Write, stored: bodies.Stored, new: Object) -> Outcome:
    registry, key = target.services.registry, bodies.key_of(target.kind, target.namespace, target.name)
    assert write.old is not None
    if new == write.old:
        _roll_back(write)
        return Outcome(200, shown(target, stored.body))
    value = stored_value(target, new)
    if is_finished(target, new):
        if not target.dry_run:
            await registry.commit([interface.Delete(key, stored.revision)])
        return Outcome(200, shown(target, bodies.spliced(value, stored.revision)))
    if target.dry_run:
        _roll_back(write)
        return Outcome(200, shown(target, bodies.spliced(value, stored.revision)))
    revision = await registry.commit([interface.Put(key, value, stored.revision), *write.also])
    return Outcome(200, shown(target, bodies.spliced(value, revision)))


def is_finished(target: Target, obj: Object) -> bool:
    """Whether an object being deleted has nothing left that holds it."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers") or target.behaviour.is_held(obj):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
