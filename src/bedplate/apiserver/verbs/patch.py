"""PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

In: a `Target`, the content type and the raw patch. Out: an `Outcome`. The patch functions are pure and live elsewhere;
here is the loop that reads, patches and writes, tried again on conflict unless the patch insists on a version.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from bedplate.apiserver import meta, status
from bedplate.apiserver.state import bodies
from bedplate.apiserver.verbs import request, write
from bedplate.apiserver.wire import codec

__all__ = ["apply", "merge", "patch"]

Object = bodies.Object
Target = request.Target

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_YAML = "application/apply-patch+yaml"
_FORMS = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_YAML)


async def merge(target: Target, body: Mapping[str, Any]) -> Object:
    """A merge patch by a caller in the process."""
    from bedplate.apiserver.merge import patches

    outcome = await _rewrite(target, lambda old: patches.merge_patch(old, body), _insists(body))
    return bodies.decode(outcome.body)


async def patch(target: Target, content_type: str, raw: bytes, query: Mapping[str, str]) -> write.Outcome:
    """A patch as it came over HTTP."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in _FORMS or (media == STRATEGIC_PATCH and target.resource.is_custom):
        forms = [form for form in _FORMS if form != STRATEGIC_PATCH or not target.resource.is_custom]
        text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(forms)}"
        raise status.StatusError(415, "UnsupportedMediaType", text)
    if media == APPLY_YAML:
        return await _apply_request(target, raw, query)
    if "force" in query:
        problem = status.FieldProblem.forbidden("force", "may not be specified for non-apply patch")
        raise status.invalid_kind("meta.k8s.io", "PatchOptions", "", [problem])
    body = await request.aside(len(raw), lambda: codec.decode_patch(raw))
    change = _change(target, media, body)
    insists = media != JSON_PATCH and _insists(body)
    return await _rewrite(target, change, insists)


def _change(target: Target, media: str, body: Any) -> Callable[[Object], Object]:
    from bedplate.apiserver.merge import patches, strategic

    if media == JSON_PATCH:
        return lambda old: patches.json_patch(old, body)
    if not isinstance(body, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(body), "number")
        raise status.bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )
    if media == MERGE_PATCH:
        return lambda old: patches.merge_patch(old, body)
    return lambda old: strategic.strategic_merge(old, body, target.resource.type)


def _insists(body: Any) -> bool:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    return isinstance(metadata, Mapping) and bool(metadata.get("resourceVersion"))


async def _rewrite(target: Target, change: Callable[[Object], Object], insists: bool) -> write.Outcome:
    def patched(old: Object) -> Object:
        # Patches share what they leave alone with the old object, which later steps must not see changed.
        new = copy.deepcopy(change(old))
        _check_identity(target, old, new)
        return request.checked_patch(target, new)

    return await write.rewrite(target, patched, is_conditional=insists)


def _check_identity(target: Target, old: Object, new: Any) -> None:
    """A patch may not turn an object into another one."""
    if not isinstance(new, dict):
        raise status.bad_request("the patch does not leave an object")
    meta.check_object(target.resource, new)
    metadata = new["metadata"]
    problems = []
    for name in ("name", "namespace"):
        before, after = old["metadata"].get(name), metadata.get(name)
        if after is not None and before is not None and after != before:
            problems.append(status.FieldProblem.invalid(f"metadata.{name}", after, "field is immutable"))
        elif before is not None:
            metadata[name] = before
    if problems and problems[0].field == "metadata.name":
        text = f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        raise status.bad_request(text)
    if problems:
        text = "the namespace of the object ({}) does not match the namespace on the request ({})"
        raise status.bad_request(text.format(metadata["namespace"], target.namespace))


async def _apply_request(target: Target, raw: bytes, query: Mapping[str, str]) -> write.Outcome:
    problems = []
    if not query.get("fieldManager"):
        problems.append(status.FieldProblem.required("fieldManager", "is required for apply patch"))
    if problems:
        raise status.invalid_kind("meta.k8s.io", "PatchOptions", "", problems)
    body = await request.aside(len(raw), lambda: codec.decode_yaml(raw))
    if not isinstance(body, dict):
        raise status.bad_request("error decoding YAML: the patch must be an object")
    return await apply(target, body, force=request.is_true(query.get("force")))


async def apply(target: Target, config: Object, *, force: bool) -> write.Outcome:
    """Server-side apply; creates the object when it is absent."""
    from bedplate.apiserver.merge import apply as applying
    from bedplate.apiserver.merge import typedvalue

    fields = target.services.field_manager(target.resource)
    now = target.services.now_text()

    def merged(live: Object | None) -> Object:
        try:
            new = applying.apply(
                fields, live, config, target.manager, force=force, time=now, subresource=target.subresource
            )
        except typedvalue.Mistyped as err:
            # What was stored before, unchecked, has no owners; the real server says as much, and no reason.
            raise status.StatusError(500, "", f"failed to create typed live object: {err}") from None
        new = copy.deepcopy(new)
        if live is not None:
            _check_identity(target, live, new)
        return new

    await request.aside(target.size_bytes, lambda: request.checked(target, copy.deepcopy(config), []))
    metadata = config.get("metadata") or {}
    if metadata.get("name", target.name) != target.name:
        text = f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        raise status.bad_request(text)
    if target.stored() is None and not target.subresource:
        if metadata.get("uid") or metadata.get("resourceVersion"):
            raise status.not_found(target.resource, target.name)
        write.require_create(target)
        new = await request.aside(target.size_bytes, lambda: merged(None))
        new["metadata"]["name"] = target.name
        owners = new["metadata"].get("managedFields")
        try:
            return await write.create_outcome(target, meta.check_object(target.resource, new), owners=owners)
        except status.StatusError as err:
            # Created by another request meanwhile: this one is an update then, not a conflict.
            if err.reason != "AlreadyExists" or target.stored() is None:
                raise
    return await write.rewrite(target, merged, is_conditional=_insists(config), owns=False)


def preview(target: Target, content_type: str, raw: bytes) -> Object:
    """The object a patch would lead to, for subresources that are handled by the kind itself."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        raise status.StatusError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
    old = target.read(target.existing())
    new = copy.deepcopy(_change(target, media, codec.decode_patch(raw))(old))
    _check_identity(target, old, new)
    return new
