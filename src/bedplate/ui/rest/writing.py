"""From a request that writes to a revision: decoding edits, asking for rights, committing once.

In: edits as they came, who sends them, and a nonce. Out: `head.session.Edit`s with their secrets; a revision. The same
way for every address that writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bedplate.client import wire
from bedplate.core import errors
from bedplate.head.access import Identity, demand_edits
from bedplate.head.entities.site import User
from bedplate.head.objects import Obj
from bedplate.head.records import Revision
from bedplate.head.schema import codec
from bedplate.head.session import Edit
from bedplate.head.tree import Address, Tree
from bedplate.ui.rest.masks import unmasked
from bedplate.ui.rest.problems import Malformed
from bedplate.ui.rest.service import Service

__all__ = ["Writer", "decoded"]

_PLACE = ("mode", "key", "revision")


def decoded(tree: Tree, mode: str, key: str, said: wire.ObjectWrite) -> Obj:
    """An object as somebody wrote it. Raises `Malformed`, and `Invalid` for one of the right form that cannot be."""
    data: dict[str, Any] = msgspec.to_builtins(said)
    for name, place in (("mode", mode), ("key", key)):
        if data.get(name, place) != place:
            raise errors.Invalid(
                f"the object says {name} {data[name]!r}, its address {place!r}", hint=f"leave out {name}"
            )
    try:
        return codec.decode(
            tree.schema, tree.schema.modes[mode], key, {k: v for k, v in data.items() if k not in _PLACE}
        )
    except codec.UnfitObject:
        raise
    except errors.Invalid as wrong:
        raise Malformed(wrong.message, hint=wrong.hint, problems=list(wrong.problems)) from None


class Writer:
    """Commits for callers, as their author."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._head = service.head

    async def edits(self, said: Sequence[wire.Edit], undoes: int = 0) -> list[Edit]:
        """Edits as the head takes them. With `undoes`, masks stand for the secrets that revision had replaced."""
        tree = self._head.tree
        source = await self._undone(undoes) if undoes else tree
        found: dict[Address, Edit] = {}
        for one in said:
            if one.mode not in tree.schema.modes:
                raise Malformed(f"there is no mode {one.mode!r}", hint=f"modes: {', '.join(tree.schema.modes)}")
            place = (one.mode, one.key)
            if place in found:
                raise errors.Invalid(f"{one.mode}[{one.key}] is edited twice in one commit", hint="send it once")
            base = None if one.base is None else Obj("", one.key, revision=one.base)
            held = source.find(*place) or tree.find(*place)
            new = None if one.object is None else _whole(tree, one, held)
            found[place] = Edit(one.mode, one.key, base, new)
        return list(found.values())

    async def commit(
        self,
        identity: Identity,
        edits: Sequence[Edit],
        message: str,
        *,
        force: bool = False,
        undoes: int = 0,
        nonce: str = "",
    ) -> Revision | None:
        """One revision, masked; None when nothing changes. Raises `Denied`, `Stale`, `Invalid`."""
        self._service.standing.refuse_writes()
        demand_edits(identity, self._head.tree, edits)
        _refuse_lockout(identity, edits)
        exact = undoes if undoes and await self._is_reverse(edits, undoes) else 0
        made = await self._head.commit(
            edits, identity.name, message, force=force, undoes=exact, nonce=_own(identity, nonce)
        )
        return None if made is None else await self._head.read(made.number)

    async def undo(
        self, identity: Identity, number: int, message: str, *, force: bool = False, nonce: str = ""
    ) -> Revision | None:
        """Take a revision back. Raises `Denied`, and `Conflict` naming what stands in the way."""
        self._service.standing.refuse_writes()
        session = self._head.session()
        await self._head.stage_undo(session, number, force=force)
        demand_edits(identity, self._head.tree, session.edits())
        _refuse_lockout(identity, session.edits())
        made = await self._head.undo(number, identity.name, message, force=force, nonce=_own(identity, nonce))
        return None if made is None else await self._head.read(made.number)

    async def landed(self, identity: Identity, nonce: str) -> Revision | None:
        """The revision that this caller's nonce has made already, masked."""
        made = await self._head.made_by(_own(identity, nonce), identity.name) if nonce else None
        return None if made is None else await self._head.read(made.number)

    async def _undone(self, number: int) -> Tree:
        session = self._head.session()
        await self._head.stage_undo(session, number, force=True)
        return session.tree

    async def _is_reverse(self, edits: Sequence[Edit], number: int) -> bool:
        session = self._head.session()
        try:
            await self._head.stage_undo(session, number)
        except errors.Conflict:
            return False
        wanted = {(edit.mode, edit.key): edit.new for edit in session.edits()}
        return wanted == {(edit.mode, edit.key): edit.new for edit in edits}


def _whole(tree: Tree, said: wire.Edit, held: Obj | None) -> Obj:
    """The object of an edit. What it holds is asked of the tree's schema, so a fault in it is `Invalid`."""
    try:
        msgspec.convert(said.object, wire.ObjectWrite)
    except msgspec.ValidationError as wrong:
        raise Malformed(f"{said.mode}[{said.key}] is no object: {wrong}") from None
    submode, where = tree.schema.modes[said.mode], f"{said.mode}[{said.key}]"
    return unmasked(codec.decode(tree.schema, submode, said.key, said.object), held, where)


def _refuse_lockout(identity: Identity, edits: Sequence[Edit]) -> None:
    """Nobody takes away their own access: as only administrators edit users, one of them always stays."""
    for edit in edits:
        if (edit.mode, edit.key) != ("user", identity.name):
            continue
        if edit.new is None or not User.enabled.value(edit.new) or User.role.value(edit.new) != identity.role:
            raise errors.Invalid(
                f"{identity.name} would lose the access this commit is made with",
                hint="another administrator can do that",
            )


def _own(identity: Identity, nonce: str) -> str:
    """Nonces of different callers never meet."""
    return f"{identity.name}/{nonce}" if nonce else ""
