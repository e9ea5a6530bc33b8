"""DELETE of one object and of a collection: preconditions, grace, finalizers, propagation.

In: a `Target` and DeleteOptions. Out: the HTTP code and a `Status` or the object. What becomes of dependents is only
written down here, as finalizers; the garbage collector carries it out.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping
from typing import Any

from bedplate.apiserver import meta, parts, status
from bedplate.apiserver.state import bodies
from bedplate.apiserver.verbs import read, request, write
from bedplate.core import clock as clocks
from bedplate.store import interface

__all__ = ["delete", "delete_collection", "read_options"]

Object = bodies.Object
Target = request.Target

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_POLICIES = ("Background", "Foreground", "Orphan")
_AT_ONCE = 50

# Kinds that orphan their dependents where nobody says otherwise, as they always have.
_ORPHANING = frozenset({("", "replicationcontrollers"), ("batch", "jobs")})
# Kinds whose deletion answers with the object instead of a Status.
_ANSWERED_WITH_OBJECT = frozenset(
    {
        *(("", name) for name in ("namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates")),
        *(("", name) for name in ("resourcequotas", "serviceaccounts", "services")),
        *(("storage.k8s.io", name) for name in ("csidrivers", "csinodes", "storageclasses", "volumeattachments")),
        *(
            ("resource.k8s.io", name)
            for name in ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
        ),
    }
)


def read_options(body: Any, query: Mapping[str, str]) -> Object:
    """DeleteOptions from the body or, without one, from the query; raises 400 and 422."""
    options: Object = {}
    if isinstance(body, dict) and body:
        if body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type DeleteOptions): {body.get('kind')}"
            )
        options = dict(body)
    else:
        if "gracePeriodSeconds" in query:
            options["gracePeriodSeconds"] = request.integer(query, "gracePeriodSeconds")
        if query.get("propagationPolicy"):
            options["propagationPolicy"] = query["propagationPolicy"]
        if query.get("orphanDependents"):
            options["orphanDependents"] = request.is_true(query["orphanDependents"])
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    _check(options)
    return options


def _check(options: Object) -> None:
    parts.number(options, "gracePeriodSeconds")
    parts.text(options, "propagationPolicy")
    parts.texts(options, "dryRun")
    for field in ("uid", "resourceVersion"):
        parts.text(parts.mapping(options, "preconditions"), field)
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    problem = status.FieldProblem
    problems = []
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(problem.invalid("propagationPolicy", policy, detail))
    if policy is not None and policy not in _POLICIES:
        problems.append(problem.not_supported("propagationPolicy", policy, [*_POLICIES, "nil"]))
    wishes = options.get("dryRun") or ()
    problems += [problem.not_supported("dryRun", wish, ["All"]) for wish in wishes if wish != "All"]
    if problems:
        raise status.invalid_kind("meta.k8s.io", "DeleteOptions", "", problems)


async def delete(target: Target, options: Object) -> tuple[int, Object]:
    """Delete one object: the code and what to answer."""
    target.options = options
    target.dry_run = target.dry_run or bool(options.get("dryRun"))
    for _ in range(write.CONFLICT_ATTEMPTS):
        stored = target.existing()
        old = target.read(stored)
        _check_preconditions(target, options, old)
        pending = target.write("DELETE", old, None)
        await target.behaviour.before_delete(pending)
        if target.services.admission.wants(pending):
            await target.services.admission.validate(pending)
        try:
            return await _delete_once(target, options, stored, old)
        except interface.CompareFailed:
            await asyncio.sleep(0)
    raise status.conflict(target.resource, target.name)


def _check_preconditions(target: Target, options: Object, old: Object) -> None:
    preconditions = options.get("preconditions") or {}
    metadata = old["metadata"]
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid is not None and uid != metadata.get("uid"):
        raise status.conflict(
            target.resource,
            target.name,
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata.get('uid')}). "
            "The object might have been deleted and then recreated",
        )
    if version is not None and version != metadata["resourceVersion"]:
        raise status.conflict(
            target.resource,
            target.name,
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified",
        )


async def _delete_once(target: Target, options: Object, stored: bodies.Stored, old: Object) -> tuple[int, Object]:
    new = target.read(stored)
    _mark(target, options, new)
    if write.is_finished(target, new):
        return 200, await _remove(target, stored, old)
    if new != old:
        meta.set_generation(target.resource, old, new)
        if not target.dry_run:
            key = bodies.key_of(target.kind, target.namespace, target.name)
            value = write.stored_value(target, new)
            revision = await target.services.registry.commit([interface.Put(key, value, stored.revision)])
            new["metadata"]["resourceVersion"] = str(revision)
    return (202 if options.get("orphanDependents") is False else 200), new


def _mark(target: Target, options: Object, obj: Object) -> None:
    """Set finalizers, deletionTimestamp and grace as the deletion asks for."""
    metadata, behaviour = obj["metadata"], target.behaviour
    finalizers = _finalizers(target, options, metadata.get("finalizers") or [])
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = 0
    if behaviour.has_graceful_deletion:
        asked = options.get("gracePeriodSeconds")
        grace = behaviour.grace_seconds(obj, None if asked is None else max(1, asked) if asked < 0 else asked)
    before = metadata.get("deletionGracePeriodSeconds")
    now = target.services.clock.now()
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = clocks.rfc3339(now + datetime.timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        behaviour.mark_deleted(obj)
    elif before and grace < before:
        # A shorter grace is taken, a longer one is not: the clock of a deletion never goes back.
        metadata["deletionTimestamp"] = clocks.rfc3339(now + datetime.timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace


def _finalizers(target: Target, options: Object, present: list[str]) -> list[str]:
    """The finalizers that stand for what is to become of dependents."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is None and orphan is None:
        orphans = ORPHAN in present or (target.kind in _ORPHANING and FOREGROUND not in present)
        is_foreground = FOREGROUND in present
    else:
        orphans = policy == "Orphan" or orphan is True
        is_foreground = policy == "Foreground"
    kept = [name for name in present if name not in (ORPHAN, FOREGROUND)]
    return kept + ([ORPHAN] if orphans else []) + ([FOREGROUND] if is_foreground else [])


async def _remove(target: Target, stored: bodies.Stored, old: Object) -> Object:
    registry = target.services.registry
    if not target.dry_run:
        key = bodies.key_of(target.kind, target.namespace, target.name)
        revision = await registry.commit([interface.Delete(key, stored.revision)])
        old["metadata"]["resourceVersion"] = str(revision)
    if target.kind in _ANSWERED_WITH_OBJECT:
        return old
    return status.success(target.resource, target.name, old["metadata"].get("uid", ""))


async def delete_collection(target: Target, options: Object, query: Mapping[str, str]) -> Object:
    """Delete all objects that the selectors choose; the list of them."""
    selection = read.select(target, query)
    revision = target.services.registry.revision
    items = [target.read(stored) for stored in selection]
    for start in range(0, len(selection), _AT_ONCE):
        some = [_delete_one(target, stored, options) for stored in selection[start : start + _AT_ONCE]]
        # All are tried; the first refusal is the answer, as where one follows the other.
        for outcome in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
    for item in items:
        if not target.resource.is_custom:
            item.pop("kind", None)
            item.pop("apiVersion", None)
    resource = target.resource
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version}
    return head | {"metadata": {"resourceVersion": str(revision)}, "items": items}


async def _delete_one(target: Target, stored: bodies.Stored, options: Object) -> None:
    item_target = request.Target(
        services=target.services,
        resource=target.resource,
        namespace=stored.namespace,
        name=stored.name,
        user=target.user,
        manager=target.manager,
        dry_run=target.dry_run,
        warnings=target.warnings,
    )
    try:
        await delete(item_target, dict(options))
    except status.StatusError as err:
        if err.code != 404:
            raise
