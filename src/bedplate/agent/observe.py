"""What is on the node, compared with what was put there: drift, and the steps that repair it.

In: the held state, what was found of it, and what is to be done about changes by hand. Out: the difference, and the
held state without what does not hold any more: the steps from there to the desired state are the repair, in the order
that `api.steps` knows. `compare` and `remaining` are pure; `Watch` looks, at size and times first, and reads a file
only where those changed.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import stat
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

import msgspec

from bedplate.agent.files import FileProblem, Present, Root
from bedplate.agent.services import Status
from bedplate.agent.sound import sound
from bedplate.agent.state import Record, State, digest_of
from bedplate.api.desired import Desired, block_of
from bedplate.core.clock import rfc3339

__all__ = [
    "Difference",
    "Edits",
    "Look",
    "Policy",
    "Watch",
    "compare",
    "content_digest",
    "remaining",
    "unwanted",
    "with_failed",
]

Policy = Literal["restore", "report", "keep"]
"""What is done about a change by hand: `restore` puts the file right at once; `report` leaves it until the head changes
the file, and a check fails meanwhile; `keep` leaves it, whatever the head says."""


class Edits(NamedTuple):
    """The policy, and that of single paths by pattern; the first pattern that matches counts."""

    policy: Policy = "restore"
    paths: tuple[tuple[str, Policy], ...] = ()

    def of(self, path: str) -> Policy:
        return next((policy for pattern, policy in self.paths if fnmatch.fnmatchcase(path, pattern)), self.policy)

    def under(self, settings: Mapping[str, str]) -> Edits:
        """With what the head says: its patterns before the machine's own, and its policy instead of the machine's.
        What is not a policy is passed over: a newer head may know more of them."""
        pairs = (text.rpartition("=") for text in settings.get("hand_edit_paths", "").split(","))
        paths = tuple((pattern, policy) for pattern, _, word in pairs if (policy := _policy(word)) is not None)
        return Edits(_policy(settings.get("hand_edits", "")) or self.policy, (*paths, *self.paths))


def _policy(word: str) -> Policy | None:
    return next((policy for policy in get_args(Policy) if policy == word.lower()), None)


class Look(NamedTuple):
    """What was found at a managed path: of a block its content alone. `by` and `at` are the file's owner and time."""

    digest: str
    mode: int
    uid: int
    gid: int
    at: str = ""
    by: str = ""
    why: str = ""

    @property
    def is_there(self) -> bool:
        return bool(self.digest)


class Difference(NamedTuple):
    """Something that is not as it was put: `what` says how."""

    kind: str
    name: str
    what: str


def compare(
    records: Iterable[Record],
    looks: Mapping[str, Look],
    state: Desired,
    services: Mapping[str, Status],
    packages: set[str] | None,
    owners: Mapping[str, tuple[int, int]],
) -> list[Difference]:
    """All differences, files first. `packages` None: nobody looked. `owners`: whom files should belong to."""
    differences = []
    managed = {file.path for file in state.files}
    for record in records:
        if record.path in managed and record.path in looks:
            what = _changed(record, looks[record.path], owners.get(record.path))
            if what:
                differences.append(Difference("file", record.path, what))
    for service in state.services:
        status = services.get(service.name)
        if service.autostart and status is not None and not status.is_up and status.condition != "unknown":
            why = f": {status.why}" if status.why else ""
            differences.append(Difference("service", service.name, f"is {status.condition}{why}"))
    if packages is not None:
        differences += [
            Difference("package", name, "is not installed") for name in state.packages if name not in packages
        ]
    return differences


def _changed(record: Record, look: Look, owner: tuple[int, int] | None) -> str:
    if look.why:
        return look.why
    if not look.is_there:
        return "was removed"
    author = f" by {look.by}" if look.by else ""
    if look.digest != record.digest:
        return f"was changed by hand ({look.at}{author})"
    if look.mode != record.mode and not record.block:
        return f"has mode {look.mode:04o} instead of {record.mode:04o}"
    if owner is not None and (look.uid, look.gid) != owner and not record.block:
        return f"belongs to {look.uid}:{look.gid} instead of {record.owner}:{record.group}"
    return ""


def remaining(state: Desired, differences: Iterable[Difference], edits: Edits) -> Desired:
    """The held state without what does not hold and is to be repaired."""
    lost = {(difference.kind, difference.name) for difference in differences}
    return msgspec.structs.replace(
        state,
        files=tuple(
            file for file in state.files if ("file", file.path) not in lost or edits.of(file.path) != "restore"
        ),
        services=tuple(service for service in state.services if ("service", service.name) not in lost),
        packages=tuple(name for name in state.packages if ("package", name) not in lost),
    )


def with_failed(before: Desired, desired: Desired | None, after: Desired) -> Desired:
    """The state with the services that should have run, do not, and should not any more: their keepers may be about to
    start them again, and have to be told. What could not be tried at all has no keeper."""
    known = {service.name for service in (*before.services, *after.services)}
    tried = sound(desired)[0].services if desired is not None else ()
    failed = tuple(service for service in tried if service.name not in known)
    return msgspec.structs.replace(before, services=(*before.services, *failed)) if failed else before


def unwanted(differences: Iterable[Difference], edits: Edits) -> list[Difference]:
    """Those that nobody allowed."""
    return [
        difference for difference in differences if difference.kind != "file" or edits.of(difference.name) != "keep"
    ]


class Watch:
    """Looks at managed files, and remembers what it saw."""

    def __init__(self, root: Root, state: State) -> None:
        self._root = root
        self._state = state
        self._seen: dict[str, tuple[tuple[int, ...], Look]] = {}

    def look(self, records: Sequence[Record]) -> dict[str, Look]:
        """What is at each path."""
        looks = {record.path: self._look(record) for record in records}
        self._seen = {path: seen for path, seen in self._seen.items() if path in looks}
        return looks

    def forget(self, path: str = "") -> None:
        """Look again: at a path that was written, or at all of them."""
        if path:
            self._seen.pop(path, None)
        else:
            self._seen.clear()

    def owners(self, records: Iterable[Record]) -> dict[str, tuple[int, int]]:
        """Whom files should belong to, where owners can be set at all."""
        owners: dict[str, tuple[int, int]] = {}
        if not self._root.is_privileged:
            return owners
        known: dict[tuple[str, str], tuple[int, int] | None] = {}
        for record in records:
            pair = (record.owner, record.group)
            if pair not in known:
                try:
                    known[pair] = (self._root.user_id(record.owner), self._root.group_id(record.group))
                except FileProblem:
                    known[pair] = None
            numbers = known[pair]
            if numbers is not None:
                owners[record.path] = numbers
        return owners

    def _look(self, record: Record) -> Look:
        path = record.path
        try:
            about = self._root.stat(path)
            if about is None:
                return Look("", 0, 0, 0)
            is_link = stat.S_ISLNK(about.st_mode)
            mark = _mark(about)
            kept = self._seen.get(path)
            # A block may be behind a link, whose times say nothing about the file.
            if kept is not None and kept[0] == mark and not is_link:
                return kept[1]
            look = _looked(self._root.read(path, follow=record.block), record)
        except FileProblem as err:
            return Look("", 0, 0, 0, why=f"cannot be read: {err}")
        self._seen[path] = (mark, look)
        return look


def _mark(about: os.stat_result) -> tuple[int, ...]:
    return (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_mode)


def _looked(present: Present, record: Record) -> Look:
    if not present.is_there:
        return Look("", 0, 0, 0)
    digest = content_digest(present, record.block)
    return Look(digest, present.mode, present.uid, present.gid, _time(present.mtime_ns), _user(present.uid))


def _time(mtime_ns: int) -> str:
    """When a file was changed, by its own account: anybody can give it any time."""
    try:
        return rfc3339(datetime.fromtimestamp(mtime_ns / 1e9, UTC))
    except (ValueError, OverflowError, OSError):
        return "an impossible time"


def content_digest(present: Present, is_block: bool) -> str:
    """What a record's digest is compared with: that of the file, or of the block in it; empty when that is missing."""
    if present.kind == "link":
        return f"link:{present.target}"
    if not is_block:
        return digest_of(present.content)
    block = block_of(present.content.decode(errors="surrogateescape"))
    return "" if block is None else digest_of(block.encode(errors="surrogateescape"))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
