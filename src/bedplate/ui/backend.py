"""What a front end with a session of its own (the shell) needs of a head, wherever that head runs.

In: edits of a `Session`, questions. Out: the present tree, revisions, and what happens. `ui/local` answers from a
`Head` in this process, `ui/remote` from a daemon; both raise the errors of `bedplate.core.errors` alone (`Stale` is a
`Conflict` with `author` and `revision`). Nothing is staged here: staged edits belong to the front end, so that they
outlive a connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bedplate.api.headapi import (
    AuditEntry,
    Change,
    NodeHealth,
    NodeState,
    Notice,
    Revision,
    RevisionProgress,
    Whoami,
)
from bedplate.head import Edit, Path, Secret, Tree
from bedplate.head.rollout import Batches

if TYPE_CHECKING:
    from bedplate.client import HeadClient

__all__ = ["Backend", "Event"]


Event = Revision | Notice


class Backend(Protocol):
    """A head, in this process or behind a daemon. Open with `async with` where the implementation asks for it."""

    @property
    def name(self) -> str:
        """The active head node: the first word of the prompt, and what `master` stands for."""

    @property
    def user(self) -> str:
        """Who is asking: the author of commits."""

    @property
    def tree(self) -> Tree:
        """The newest tree known here; reading it costs nothing. After a commit of one's own it holds that commit."""

    @property
    def revision(self) -> int:
        """The number of the revision that `tree` stands at."""

    async def commit(
        self,
        edits: Sequence[Edit],
        message: str = "",
        *,
        force: bool = False,
        undoes: int = 0,
        batches: Batches | None = None,
    ) -> Revision | None:
        """Write the edits as one revision; None when they change nothing. Raises `Stale`, `Invalid`, `Denied`.

        With `batches` nodes get it in batches, where a daemon serves the head.

        `undoes` names the revision of which the edits are exactly the reverse. Of `Edit.base` only the revision counts.
        A secret whose text is `changes.MASK` stands for the one the head has at that place.
        """

    async def check(self, edits: Sequence[Edit], *, force: bool = False, undoes: int = 0) -> list[Change]:
        """What a commit of the edits would change, secrets masked, without doing it. Raises what it would raise."""

    async def catch_up(self) -> None:
        """Let `tree` hold what others have committed up to now, also when nobody follows."""

    async def tree_at(self, number: int) -> Tree:
        """The tree as it was after a revision; 0 is the empty one. Raises `NotFound`."""

    async def read(self, number: int) -> Revision:
        """A revision; secrets are stars. Raises `NotFound`."""

    async def log(self, limit: int = 20, path: Path = ()) -> list[Revision]:
        """The newest revisions that touched something at or below a path, newest first."""

    async def audit(self, path: Path = (), limit: int = 100) -> list[AuditEntry]:
        """Who changed which parameter when, newest first; secrets are stars."""

    async def undo_changes(self, number: int, *, force: bool = False) -> list[Change]:
        """What takes a revision back, to be staged with `unseal`. Raises `Conflict` naming what stands in the way."""

    def unseal(self, sealed: Any) -> Secret:
        """The secret of what `undo_changes` says in its place."""

    async def export_document(self, *, with_secrets: bool = False) -> str:
        """The committed tree as YAML. Secrets are an administrator's to ask for: else `Denied`."""

    async def whoami(self) -> Whoami:
        """Who the head takes the caller for."""

    async def states(self, nodes: Sequence[str] = ()) -> Sequence[NodeState]:
        """What is known of the nodes, or of all: whether they report, what they applied, what their checks say."""

    async def progress(self, number: int) -> RevisionProgress:
        """Which of the nodes that a revision means something to have applied it. Raises `NotFound`."""

    async def health(self, node: str, check: str = "") -> NodeHealth:
        """A node with the history of its checks, or of one. Raises `NotFound`."""

    @property
    def fleet(self) -> HeadClient:
        """What nodes and administrators ask of a daemon: enrolments and what else agents take part in. Raises
        `Unavailable` for a head that no daemon serves."""

    async def notices(self, limit: int = 100, *, host: str = "") -> Sequence[Notice]:
        """The latest notices, of a host or of all, newest first."""

    def follow(self) -> AsyncIterator[Event]:
        """Revisions (of anybody, oneself included) and notices from now on, for as long as somebody reads.

        `tree` holds a revision before it is given out. A lost connection is made again here, and nothing is lost of
        what the daemon still has.
        """
