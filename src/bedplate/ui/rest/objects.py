"""Objects over HTTP: reading them now or as they were, and writing one at a time.

In: checked requests. Out: objects with their revision as ETag, secrets as stars, each encoded once for as long as it
stays as it is. Each write is one commit of its author; `edits_in` gives what was sent as edits of the
head, with masks where the secret is to stay. Whether they may be committed is decided in the head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Address, Edit, Edits, Obj, Schema, Tree
from bedplate.head.daemon import Service
from bedplate.head.schema import codec
from bedplate.ui.rest import conditions
from bedplate.ui.rest.operations import JSON, Ask
from bedplate.ui.rest.problems import Malformed, Precondition, Unconditional

__all__ = ["Encoder", "Objects", "edits_in"]

_PLACE = ("mode", "key", "revision")

_PUT = msgspec.json.Decoder(headapi.ObjectPut)
_PATCH = msgspec.json.Decoder(headapi.ObjectPatch)
_NEW = msgspec.json.Decoder(headapi.ObjectNew)
_NONCE = "Idempotency-Key"
_ALWAYS = ("mode", "key", "revision", "type")


class Objects:
    """The handlers of `/tree` and `/objects`."""

    def __init__(self, service: Service, encoder: Encoder) -> None:
        self._service = service
        self._head = service.head
        self._encoder = encoder
        self._whole: tuple[str, bytes] = ("", b"")

    # Reading

    async def tree(self, ask: Ask) -> web.StreamResponse:
        """Every object; the present tree is encoded once for each revision."""
        at = ask.maybe("at")
        revision = self._head.revision if at is None else at
        if at is not None:
            tree = await self._head.tree_at(at)
        tag, name, history = self._tag(revision), self._service.name, self._head.incarnation
        if conditions.is_known(ask.request, tag):
            return web.Response(status=304, headers={"ETag": conditions.etag(tag)})
        if at is not None:
            body = Encoder(tree.schema).tree(name, history, revision, tree)
        else:
            if self._whole[0] != tag:
                self._whole = (tag, self._encoder.tree(name, history, revision, self._head.tree))
            body = self._whole[1]
        return json(body, etag=tag)

    async def list(self, ask: Ask) -> web.StreamResponse:
        """A part of a mode; the cursor keeps the revision, so that all parts are of one tree."""
        mode, limit = self._mode(ask), ask.number("limit", 500)
        at, after = ask.maybe("at"), ""
        cursor = ask.text("continue")
        if cursor:
            number, _, after = cursor.partition(":")
            at = int(number)
        tree, revision = await self._tree_at(at)
        objects = tree.mode(mode)
        keys = sorted(key for key in objects if key > after)
        items = [self._item(mode, objects[key], ask.names("fields")) for key in keys[:limit]]
        page: dict[str, Any] = {"items": items, "revision": revision}
        if len(keys) > limit:
            page |= {"remaining": len(keys) - limit, "continue": f"{revision}:{keys[limit - 1]}"}
        return json(msgspec.json.encode(page))

    async def get(self, ask: Ask) -> web.StreamResponse:
        mode, key = self._mode(ask), ask.text("key")
        tree, _ = await self._tree_at(ask.maybe("at"))
        obj = tree.get((mode, key))
        tag = self._tag(obj.revision)
        if conditions.is_known(ask.request, tag):
            return web.Response(status=304, headers={"ETag": conditions.etag(tag)})
        return json(self._encoder.encoded(mode, obj), etag=tag)

    # Writing

    async def create(self, ask: Ask) -> web.StreamResponse:
        """A new object, named in its body."""
        mode, sent = self._mode(ask), await ask.body(_NEW)

        async def edits(tree: Tree) -> list[Edit]:
            if tree.find(mode, sent.key) is not None:
                raise errors.AlreadyExists(f"{mode}[{sent.key}] already exists", hint="PUT replaces it")
            return [Edit(mode, sent.key, None, _decoded(tree, mode, sent.key, sent))]

        await self._commit(ask, edits)
        return self._written(mode, sent.key, 201)

    async def put(self, ask: Ask) -> web.StreamResponse:
        """The object as it should be, new or not. One that exists must be named by `If-Match` or `revision`."""
        mode, key, sent = self._mode(ask), ask.text("key"), await ask.body(_PUT)
        is_new = False

        async def edits(tree: Tree) -> list[Edit]:
            nonlocal is_new
            base = present = tree.find(mode, key)
            is_new = present is None
            is_named = await self._is_named(ask, mode, key, present)
            if present is not None and not is_named:
                if not isinstance(sent.revision, int):
                    tag = self._tag(present.revision)
                    raise Unconditional(
                        f"{mode}[{key}] exists, and the request does not say which one it replaces",
                        hint=f'send If-Match: "{tag}", or * to replace any; PATCH changes parts of it',
                    )
                base = Obj(present.type, key, revision=sent.revision)
            return [Edit(mode, key, base, _decoded(tree, mode, key, sent))]

        await self._commit(ask, edits)
        return self._written(mode, key, 201 if is_new else 200)

    async def patch(self, ask: Ask) -> web.StreamResponse:
        """The object with some of its parts changed; what the patch does not name stays as it is now."""
        mode, key, sent = self._mode(ask), ask.text("key"), await ask.body(_PATCH)

        async def edits(tree: Tree) -> list[Edit]:
            base = present = tree.get((mode, key))
            if not await self._is_named(ask, mode, key, present) and isinstance(sent.revision, int):
                base = Obj(present.type, key, revision=sent.revision)
            return [Edit(mode, key, base, self._patched(tree, mode, present, sent))]

        await self._commit(ask, edits)
        return self._written(mode, key, 200)

    def _patched(self, tree: Tree, mode: str, present: Obj, sent: headapi.ObjectPatch) -> Obj:
        shown = msgspec.to_builtins(self._encoder.shown(mode, present))
        merged = _merged(shown, msgspec.to_builtins(sent)) | {"revision": present.revision}
        try:
            document = msgspec.convert({"values": {}, "extras": {}, "children": {}} | merged, headapi.ObjectPut)
            return _decoded(tree, mode, present.key, document)
        except (msgspec.ValidationError, Malformed) as wrong:
            # The patch has the right form; what it makes of the object has not.
            faults = wrong.problems if isinstance(wrong, Malformed) else ()
            raise errors.Invalid(f"{mode}[{present.key}] would not be an object: {wrong}", problems=faults) from None

    async def delete(self, ask: Ask) -> web.StreamResponse:
        """Remove an object that nothing refers to."""
        mode, key = self._mode(ask), ask.text("key")

        async def edits(tree: Tree) -> list[Edit]:
            present = tree.find(mode, key)
            is_named = await self._is_named(ask, mode, key, present)
            base, seen = tree.get((mode, key)), ask.maybe("revision")
            if not is_named and seen is not None:
                base = Obj(base.type, key, revision=seen)
            return [Edit(mode, key, base, None)]

        await self._commit(ask, edits)
        return web.Response(status=204)

    async def _commit(self, ask: Ask, edits: Edits) -> None:
        nonce, request = await nonce_of(ask)
        await self._head.commit_as(ask.identity, edits, ask.text("message"), nonce=nonce, request=request)

    def _written(self, mode: str, key: str, status: int) -> web.StreamResponse:
        obj = self._head.tree.get((mode, key))
        return json(self._encoder.encoded(mode, obj), status=status, etag=self._tag(obj.revision))

    async def _is_named(self, ask: Ask, mode: str, key: str, present: Obj | None) -> bool:
        """Whether a header says which object is meant. Raises `Precondition` naming who wrote the present one."""
        tag, what = None if present is None else self._tag(present.revision), f"{mode}[{key}]"
        try:
            conditions.require_absent(ask.request, tag, what)
            return conditions.require_match(ask.request, tag, what)
        except Precondition as err:
            if present is None or present.revision == 0:
                raise
            last = await self._head.read(present.revision)
            raise Precondition(f"{err.message}: {last.author} wrote it", hint=err.hint) from None

    # Inside

    def _tag(self, revision: int) -> str:
        """What tells an object, or a tree, from all others: numbers alone come again after a restored backup."""
        incarnation = self._head.incarnation
        return f"{revision}-{incarnation}" if incarnation else str(revision)

    def _mode(self, ask: Ask) -> str:
        mode = ask.request.match_info["mode"]
        if mode not in self._head.tree.schema.modes:
            modes = ", ".join(self._head.tree.schema.modes)
            raise errors.NotFound(f"there is no mode {mode!r}", hint=f"modes: {modes}")
        return mode

    async def _tree_at(self, at: int | None) -> tuple[Tree, int]:
        if at is None or at == self._head.revision:
            return self._head.tree, self._head.revision
        return await self._head.tree_at(at), at

    def _item(self, mode: str, obj: Obj, fields: Sequence[str]) -> Any:
        if not fields:
            return msgspec.Raw(self._encoder.encoded(mode, obj))
        shown = msgspec.to_builtins(self._encoder.shown(mode, obj))
        return {name: part for name, content in shown.items() if (part := _picked(name, content, fields))}


def _picked(name: str, content: Any, fields: Sequence[str]) -> Any:
    if name in _ALWAYS or not isinstance(content, Mapping):
        return content
    return {field: content[field] for field in fields if field in content}


def _merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


async def nonce_of(ask: Ask, sent: headapi.CommitRequest | headapi.UndoRequest | None = None) -> tuple[str, str]:
    """What makes a repeated write the same one, and the digest of the request. Raises `Malformed`.

    The digest of a message that was read (`sent`) is that of its meaning: another client may write out the defaults.
    """
    nonce = (sent.nonce if sent else "") or ask.request.headers.get(_NONCE, "")
    if nonce and (
        len(nonce) > 64 or not all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in nonce)
    ):
        raise Malformed(
            f"{_NONCE} is longer than 64 characters, or contains characters other than letters, digits, dots and dashes"
        )
    digest = hashlib.sha256(f"{ask.request.method} {ask.request.path_qs}\n".encode())
    digest.update(await ask.content() if sent is None else msgspec.json.encode(sent, order="deterministic"))
    return nonce, digest.hexdigest()


def json(body: bytes, *, status: int = 200, etag: str = "") -> web.Response:
    """An answer in JSON, compressed where the asker understands it and it is worth it."""
    # Who may see an answer hangs on who asks: nobody in between keeps it.
    headers = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
    response = web.Response(status=status, body=body, content_type=JSON, headers=headers)
    if etag:
        response.headers["ETag"] = conditions.etag(etag)
    if len(body) > 4096:
        response.enable_compression()
    return response


class Encoder:
    """Remembers the bytes of the objects it was last asked for."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._made: dict[Address, tuple[Obj, bytes]] = {}

    def shown(self, mode: str, obj: Obj) -> headapi.Object:
        """An object for people and programs."""
        data = codec.encode(self._schema, obj, lambda secret: headapi.MASK)
        return headapi.Object(mode=mode, key=obj.key, revision=obj.revision, **data)

    def encoded(self, mode: str, obj: Obj) -> bytes:
        """The same as bytes."""
        cached = self._made.get((mode, obj.key))
        if cached is not None and cached[0] is obj:
            return cached[1]
        data = msgspec.json.encode(self.shown(mode, obj))
        self._made[mode, obj.key] = (obj, data)
        return data

    def tree(self, head: str, history: str, revision: int, tree: Tree) -> bytes:
        """A whole tree; what is no longer in it is forgotten here."""
        objects = [msgspec.Raw(self.encoded(mode, obj)) for mode, obj in tree.objects()]
        if len(self._made) > 2 * len(objects) + 1000:
            self._made.clear()
        return msgspec.json.encode({"head": head, "revision": revision, "objects": objects, "history": history})


def _decoded(tree: Tree, mode: str, key: str, document: headapi.ObjectWrite) -> Obj:
    """An object as it was sent. Raises `Malformed`, and `Invalid` for one of the right form that cannot be."""
    data: dict[str, Any] = msgspec.to_builtins(document)
    for name, place in (("mode", mode), ("key", key)):
        if data.get(name, place) != place:
            raise errors.Invalid(
                f"the object has {name} {data[name]!r}, its address {place!r}", hint=f"leave out {name}"
            )
    try:
        return codec.decode(
            tree.schema, tree.schema.modes[mode], key, {k: v for k, v in data.items() if k not in _PLACE}
        )
    except codec.UnfitObject:
        raise
    except errors.Invalid as wrong:
        raise Malformed(wrong.message, hint=wrong.hint, problems=list(wrong.problems)) from None


def edits_in(tree: Tree, sent: Sequence[headapi.Edit]) -> list[Edit]:
    """Edits as the head takes them; masks in them stay. Raises `Malformed`, `Invalid`."""
    edits = []
    for edit in sent:
        if edit.mode not in tree.schema.modes:
            raise Malformed(f"there is no mode {edit.mode!r}", hint=f"modes: {', '.join(tree.schema.modes)}")
        base = None if edit.base is None else Obj("", edit.key, revision=edit.base)
        new = None if edit.object is None else _object(tree, edit)
        edits.append(Edit(edit.mode, edit.key, base, new, edit.was or ""))
    return edits


def _object(tree: Tree, edit: headapi.Edit) -> Obj:
    """The object of an edit. What it holds is asked of the tree's schema, so a fault in it is `Invalid`."""
    try:
        msgspec.convert(edit.object, headapi.ObjectWrite)
    except msgspec.ValidationError as wrong:
        raise Malformed(f"{edit.mode}[{edit.key}] is not an object: {wrong}") from None
    return codec.decode(tree.schema, tree.schema.modes[edit.mode], edit.key, edit.object)
