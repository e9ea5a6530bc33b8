"""Get and list: answers from memory, pages and old versions from the store.

In: a `Target`, the query and the wanted form. Out: JSON bytes. The common cases need no waiting and no decoding; a
list without selectors is a join of stored bytes, kept until the kind changes. Continue tokens name a revision and the
last key, as Kubernetes' do, so every page is of the first page's moment.
"""

from __future__ import annotations

import base64
import bisect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from bedplate.apiserver import kinds, selectors, status, views
from bedplate.apiserver.state import bodies, registry
from bedplate.apiserver.tables import rendering
from bedplate.apiserver.verbs import request
from bedplate.apiserver.wire import codec
from bedplate.store import interface

__all__ = ["Selection", "get", "list_", "select", "selection", "view_for"]

Target = request.Target
Stored = bodies.Stored
FUTURE_WAIT_S = 3.0
_CACHED_ITEMS = 20
_CACHED_LISTS = 8
_CACHED_BYTES = 8 * 1024 * 1024


class Selection(NamedTuple):
    """What selectors ask for: a predicate (None: everything) and a text that is equal for equal selections."""

    key: str
    predicate: Callable[[Stored], bool] | None
    name: str = ""
    """Set when a field selector asks for one name."""


def selection(resource: kinds.Resource, query: Mapping[str, str], *, name: str = "") -> Selection:
    """Read labelSelector and fieldSelector; raises 400."""
    label_text, field_text = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if name:
        field_text = f"metadata.name={name}" + (f",{field_text}" if field_text else "")
    if not label_text and not field_text:
        return Selection("", None)
    try:
        requirements = selectors.parse_labels(label_text)
        terms = selectors.parse_fields(field_text, resource.selectable)
    except ValueError as err:
        raise status.bad_request(f"unable to parse selector: {err}" if label_text else str(err)) from None
    labels = selectors.label_predicate(requirements)
    meta = [term for term in terms if term.path in ("metadata.name", "metadata.namespace")]
    fields = selectors.field_predicate([term for term in terms if term not in meta])

    def matches(stored: Stored) -> bool:
        for term in meta:
            value = stored.name if term.path == "metadata.name" else stored.namespace
            if (value == term.value) is term.is_negated:
                return False
        if labels is not None and not labels(stored.labels):
            return False
        return fields is None or fields(stored.decode())

    names = [term.value for term in meta if term.path == "metadata.name" and not term.is_negated]
    only = names[0] if names and labels is None and len(terms) == 1 else ""
    return Selection(f"{label_text}\n{field_text}", matches, only)


def view_for(target: Target, wish: codec.Wanted, query: Mapping[str, str]) -> views.View:
    """How the answer shows objects."""
    resource, storage = target.resource, target.storage
    encoder = target.protobuf
    if encoder is not None and resource is storage and encoder.supports(resource.api_version, resource.kind):
        return views.ProtobufView(resource, encoder)
    if wish.shape == "Table":
        return rendering.TableView(
            resource, storage, wish.shape_version, query.get("includeObject", ""), target.services.clock
        )
    if wish.shape:
        return views.PartialView(resource, wish.shape_version)
    if resource.is_custom and views.needs_shaping(resource):
        return views.ShapedView(resource, storage, target.services.rules)
    if resource is storage:
        return views.PlainView(resource)
    return views.ConvertedView(resource, storage)


def get(target: Target, wish: codec.Wanted, query: Mapping[str, str]) -> bytes | Awaitable[bytes]:
    """One object."""
    revision = request.resource_version(query.get("resourceVersion", "")) if query else 0
    state = target.services.registry
    if revision > state.revision or state.is_shared:
        return _get_later(target, wish, query, revision)
    return _get_now(target, wish, query)


def _get_now(target: Target, wish: codec.Wanted, query: Mapping[str, str]) -> bytes:
    body = target.existing().body
    if not wish.shape and target.resource.storage_version and not target.resource.is_custom:
        return body
    return view_for(target, wish, query).show(body, heading=True)


async def _get_later(target: Target, wish: codec.Wanted, query: Mapping[str, str], revision: int) -> bytes:
    await _await_revision(target, revision, is_any="resourceVersion" in query)
    return _get_now(target, wish, query)


async def _await_revision(target: Target, revision: int, *, is_any: bool) -> None:
    """Wait for a version asked for, or for the newest when none is; 504 when it does not come."""
    import asyncio

    state = target.services.registry
    if not is_any:
        await state.freshen()
    elif revision > state.revision:
        try:
            async with asyncio.timeout(FUTURE_WAIT_S):
                await state.reached(revision)
        except TimeoutError:
            raise status.too_large_resource_version(revision, state.revision) from None


class _Token(msgspec.Struct):
    """A continue token: `start` is the first key not yet seen, `rv` the revision of the first page (-1: any)."""

    v: str
    rv: int
    start: str


def _encode_token(revision: int, last: str) -> str:
    token = _Token("meta.k8s.io/v1", revision, last + "\0")
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def _decode_token(text: str) -> _Token:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (ValueError, msgspec.DecodeError) as err:
        raise status.bad_request(f"continue key is not valid: {err}") from None
    if token.v != "meta.k8s.io/v1" or token.rv == 0 or not token.start.endswith("\0"):
        raise status.bad_request(
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        )
    return token


class _Plan(NamedTuple):
    """How a list is to be made. `revision` 0: now."""

    limit: int
    revision: int
    after: str
    is_any: bool
    at_least: int


def _plan(query: Mapping[str, str]) -> _Plan:
    """Read limit, continue, resourceVersion and resourceVersionMatch; raises 400 and 422."""
    limit = max(0, request.integer(query, "limit"))
    request.integer(query, "timeoutSeconds")
    match, text = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    if match:
        _check_match(match, text, query)
    if token_text := query.get("continue", ""):
        if text not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        token = _decode_token(token_text)
        revision = 0 if token.rv < 0 else token.rv
        return _Plan(limit, revision, token.start[:-1], False, 0)
    version = request.resource_version(text)
    if match == "Exact" or (version and limit and not match):
        return _Plan(limit, version, "", True, version)
    return _Plan(limit, 0, "", bool(text), version)


def _check_match(match: str, version: str, query: Mapping[str, str]) -> None:
    problem = status.FieldProblem
    if query.get("continue"):
        raise request.list_options_invalid(
            problem.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        )
    if not version:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise request.list_options_invalid(problem.forbidden("resourceVersionMatch", detail))
    if match not in ("Exact", "NotOlderThan"):
        raise request.list_options_invalid(
            problem.not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])
        )
    if match == "Exact" and version == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise request.list_options_invalid(problem.forbidden("resourceVersionMatch", detail))


def list_(target: Target, wish: codec.Wanted, query: Mapping[str, str]) -> bytes | Awaitable[bytes]:
    """A list, whole or by pages."""
    if "sendInitialEvents" in query:
        detail = "sendInitialEvents is forbidden for list"
        raise request.list_options_invalid(status.FieldProblem.forbidden("sendInitialEvents", detail))
    chosen = selection(target.resource, query)
    view = view_for(target, wish, query)
    target.media = view.media
    plan = _plan(query) if query else _Plan(0, 0, "", False, 0)
    state = target.services.registry
    collection = state.collection(target.kind)
    if state.is_shared or plan.at_least > state.revision:
        return _list_later(target, view, chosen, plan)
    if plan.revision and plan.revision < collection.revision:
        return _list_past(target, view, chosen, plan)
    return _list_now(target, view, chosen, plan)


async def _list_later(target: Target, view: views.View, chosen: Selection, plan: _Plan) -> bytes:
    await _await_revision(target, plan.at_least, is_any=plan.is_any)
    if plan.revision and plan.revision < target.services.registry.collection(target.kind).revision:
        return await _list_past(target, view, chosen, plan)
    return _list_now(target, view, chosen, plan)


def _list_now(target: Target, view: views.View, chosen: Selection, plan: _Plan) -> bytes:
    state = target.services.registry
    collection = state.collection(target.kind)
    revision = plan.revision or state.revision
    if plan.revision and plan.revision < state.oldest:
        raise _too_old(plan)
    start, end = collection.span(target.namespace)
    if plan.after:
        start = max(start, bisect.bisect_right(collection.keys, plan.after))
    if chosen.predicate is None and not plan.after and not 0 < plan.limit < end - start:
        return _whole_list(collection, view, target.namespace, revision, (start, end))
    chosen_objects: list[Stored] = []
    more_at = -1
    for at in range(start, end):
        stored = collection.items[collection.keys[at]]
        if chosen.predicate is None or chosen.predicate(stored):
            if plan.limit and len(chosen_objects) == plan.limit:
                more_at = at
                break
            chosen_objects.append(stored)
    remaining = end - more_at if more_at >= 0 else 0
    return _answer(view, chosen_objects, revision, remaining if chosen.predicate is None else None, more_at >= 0)


def _whole_list(
    collection: registry.Collection, view: views.View, namespace: str, revision: int, span: tuple[int, int]
) -> bytes:
    """A list of everything. Its items are kept until the kind changes, the whole answer until anything does."""
    key = (namespace, view.key)
    kept = collection.list_cache.get(key) if view.is_cacheable else None
    if kept is not None and kept.changed == collection.revision and kept.revision == revision:
        return kept.answer
    if kept is not None and kept.changed == collection.revision:
        items = kept.answer[kept.items]
    else:
        items = view.items([collection.items[item] for item in collection.keys[span[0] : span[1]]])
    head, tail = view.frame({"resourceVersion": str(revision)}, len(items))
    answer = head + items + tail
    if view.is_cacheable and span[1] - span[0] > _CACHED_ITEMS and len(answer) < _CACHED_BYTES:
        if len(collection.list_cache) >= _CACHED_LISTS:
            collection.list_cache.clear()
        collection.list_cache[key] = registry.KeptList(
            collection.revision, revision, slice(len(head), len(head) + len(items)), answer
        )
    return answer


async def _list_past(target: Target, view: views.View, chosen: Selection, plan: _Plan) -> bytes:
    state = target.services.registry
    prefix = bodies.key_of(target.kind, target.namespace, "") if target.namespace else bodies.prefix_of(target.kind)
    after = bodies.prefix_of(target.kind) + plan.after if plan.after else ""
    limit = plan.limit if chosen.predicate is None else 0
    try:
        if plan.revision < state.oldest:
            raise interface.Compacted(plan.revision, state.oldest)
        page = await state.store.list(prefix, revision=plan.revision, after=after, limit=limit)
    except interface.Compacted:
        raise _too_old(plan) from None
    chosen_objects: list[Stored] = []
    is_more, remaining = page.more, page.remaining
    for entry in page.entries:
        item = bodies.split_key(entry.key)[1]
        stored = Stored(item, entry.revision, bodies.spliced(entry.value, entry.revision))
        if chosen.predicate is None or chosen.predicate(stored):
            if plan.limit and len(chosen_objects) == plan.limit:
                is_more = True
                break
            chosen_objects.append(stored)
    return _answer(view, chosen_objects, plan.revision, remaining if chosen.predicate is None else None, is_more)


def _answer(
    view: views.View, chosen_objects: list[Stored], revision: int, remaining: int | None, is_more: bool
) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if is_more:
        metadata["continue"] = _encode_token(revision, chosen_objects[-1].item)
        if remaining:
            metadata["remainingItemCount"] = remaining
    items = view.items(chosen_objects)
    head, tail = view.frame(metadata, len(items))
    return head + items + tail


def _too_old(plan: _Plan) -> status.StatusError:
    if plan.after:
        return status.expired(status.EXPIRED_CONTINUE, continue_token=_encode_token(-1, plan.after))
    return status.expired("The resourceVersion for the provided list is too old.")


def select(target: Target, query: Mapping[str, str]) -> list[Stored]:
    """The objects a collection verb acts on."""
    chosen = selection(target.resource, query)
    candidates = target.services.registry.items(target.kind, target.namespace)
    return candidates if chosen.predicate is None else [stored for stored in candidates if chosen.predicate(stored)]
