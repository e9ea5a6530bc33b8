"""Commits of tests: as whoever opened the data folder, under the name a test gives."""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api.headapi import Revision
from bedplate.head.policy import Identity
from bedplate.head.schema.entity import Path
from bedplate.head.service import Head
from bedplate.head.session import Edit, Session


async def commit(
    head: Head, edits: Sequence[Edit], author: str = "setup", message: str = "", *, force: bool = False, nonce: str = ""
) -> Revision | None:
    return await head.commit_as(Identity.local(author), edits, message, force=force, nonce=nonce)


async def commit_session(
    head: Head, session: Session, author: str = "setup", message: str = "", *, scope: Path = (), force: bool = False
) -> Revision | None:
    """Commit what a session has staged below a scope; the session then stands on the new tree."""
    edits = session.edits(scope)
    revision = await commit(head, edits, author, message, force=force)
    session.follow(head.tree, edits)
    return revision


async def undo(
    head: Head, number: int, author: str = "setup", message: str = "", *, force: bool = False, nonce: str = ""
) -> Revision | None:
    return await head.undo_as(Identity.local(author), number, message, force=force, nonce=nonce)
