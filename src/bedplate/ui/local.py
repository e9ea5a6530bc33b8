"""A backend over a head in this process: for a shell without a daemon, and for tests.

In: an open `Head`, the name of the head node and of the user. Out: what `Backend` promises. Nobody reports to a head
that serves nothing: what is known of nodes is what they told the last daemon of the folder.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from bedplate.api.headapi import (
    AuditEntry,
    Change,
    NodeHealth,
    NodeProgress,
    NodeState,
    Notice,
    Revision,
    RevisionProgress,
    Whoami,
)
from bedplate.core import errors
from bedplate.head import Edit, Head, Health, Identity, Notices, Path, Secret, Tree
from bedplate.head.rollout import Batches
from bedplate.head.schema.ranges import natural
from bedplate.ui.backend import Event

if TYPE_CHECKING:
    from bedplate.client import HeadClient
    from bedplate.head.progress import Progress

__all__ = ["LocalBackend"]


class LocalBackend:
    """Answers from a `Head` in this process, which is opened and closed by its owner."""

    def __init__(
        self,
        head: Head,
        *,
        name: str,
        identity: Identity,
        health: Callable[[], Awaitable[Health]] | None = None,
        notices: Callable[[], Awaitable[Notices]] | None = None,
    ) -> None:
        self._head = head
        self._health = health
        self._notices = notices
        self.name = name
        self.user = identity.name
        self._identity = identity
        self._own: set[int] = set()

    @property
    def tree(self) -> Tree:
        return self._head.tree

    @property
    def revision(self) -> int:
        return self._head.revision

    async def commit(
        self,
        edits: Sequence[Edit],
        message: str = "",
        *,
        force: bool = False,
        undoes: int = 0,
        batches: Batches | None = None,
    ) -> Revision | None:
        if batches is not None:
            raise errors.Unavailable(
                "no daemon serves this head, so that no node would get its batch; nothing was committed",
                hint="bedplate head serve --data DIR; then cmsh --data DIR",
            )
        revision = await self._head.commit_as(self._identity, edits, message, force=force, undoes=undoes)
        if revision is not None:
            self._own.add(revision.number)
        return revision

    def is_own(self, number: int) -> bool:
        """Whether a revision was committed through this backend."""
        return number in self._own

    async def check(self, edits: Sequence[Edit], *, force: bool = False, undoes: int = 0) -> list[Change]:
        return await self._head.check_as(self._identity, edits, force=force, undoes=undoes)

    async def catch_up(self) -> None:
        await self._head.catch_up()

    async def tree_at(self, number: int) -> Tree:
        return await self._head.tree_at(number)

    async def read(self, number: int) -> Revision:
        return await self._head.read(number)

    async def log(self, limit: int = 20, path: Path = ()) -> list[Revision]:
        return await self._head.log(limit, path)

    async def audit(self, path: Path = (), limit: int = 100) -> list[AuditEntry]:
        return await self._head.audit(path, limit)

    async def undo_changes(self, number: int, *, force: bool = False) -> list[Change]:
        return await self._head.undo_changes(number, force=force)

    def unseal(self, sealed: Any) -> Secret:
        return self._head.unseal(sealed)

    async def export_document(self, *, with_secrets: bool = False) -> str:
        from bedplate.head import exchange  # YAML is needed by nothing else here

        return exchange.export(self._head.tree, with_secrets=with_secrets)

    async def whoami(self) -> Whoami:
        return Whoami(
            user=self.user, role=self._identity.role, head=self.name, revision=self.revision, via=self._identity.via
        )

    async def states(self, nodes: Sequence[str] = ()) -> Sequence[NodeState]:
        names = sorted(nodes or self.tree.mode("device"), key=natural)
        if self._health is None:
            return [NodeState(node=name, state="UNKNOWN") for name in names]
        return await self._progress(await self._health()).states(names)

    def _progress(self, health: Health) -> Progress:
        from bedplate.head.progress import Progress
        from bedplate.head.wants import Wants

        return Progress(self._head, health, Wants(self._head))

    async def progress(self, number: int) -> RevisionProgress:
        await self._head.read(number)
        if self._health is not None:
            return await self._progress(await self._health()).of(number)
        from bedplate.head.wants import Wants

        nodes = [NodeProgress(node=name, state="UNKNOWN") for name in await Wants(self._head).with_work(number)]
        return RevisionProgress(revision=number, total=len(nodes), applied=0, is_settled=True, nodes=nodes)

    async def health(self, node: str, check: str = "") -> NodeHealth:
        self.tree.get(("device", node))
        if self._health is None:
            return NodeHealth(state=NodeState(node=node, state="UNKNOWN"), history=[])
        return await (await self._health()).node_health(node, check)

    @property
    def fleet(self) -> HeadClient:
        raise errors.Unavailable(
            "no daemon serves this head, so that no agent asks it for anything",
            hint="bedplate head serve --data DIR; then cmsh --data DIR",
        )

    async def notices(self, limit: int = 100, *, host: str = "") -> Sequence[Notice]:
        return (await self._notices()).latest(limit, host=host) if self._notices is not None else []

    async def follow(self) -> AsyncIterator[Event]:
        async for revision in self._head.revisions(self._head.revision):
            yield revision
