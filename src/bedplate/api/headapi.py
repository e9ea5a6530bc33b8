"""What goes over the wire between a head and its clients: one declaration for both sides.

In: nothing. Out: msgspec Structs. The head encodes answers and decodes requests with them and makes its OpenAPI
components of them; the client does the reverse. Requests refuse fields they do not know, so that a slip is told;
answers skip them, so that an older client reads a newer head. Objects of the tree are plain JSON by attribute: what
they may hold is said by the head's schema, which is not known here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bedplate.api.states import State, Status

__all__ = [
    "EXTRA",
    "MASK",
    "NAME",
    "Action",
    "AuditEntry",
    "AuditPage",
    "AuthorityState",
    "Certificate",
    "CertificateList",
    "Change",
    "CheckHistory",
    "CheckState",
    "CommitRequest",
    "CommitResult",
    "Edit",
    "ExplainResult",
    "Fact",
    "Failure",
    "HealthEvent",
    "JoinAnswer",
    "JoinRequest",
    "NodeHealth",
    "NodeList",
    "NodeState",
    "Notice",
    "NoticePage",
    "Object",
    "ObjectNew",
    "ObjectPage",
    "ObjectPatch",
    "ObjectPut",
    "ObjectWrite",
    "PlanAction",
    "PlanRequest",
    "PlanResult",
    "Problem",
    "ReportRequest",
    "ReportResult",
    "Reset",
    "Result",
    "Revision",
    "RevisionPage",
    "Revocation",
    "RevocationList",
    "RevocationRequest",
    "RotationRequest",
    "Sample",
    "Severity",
    "Token",
    "TokenList",
    "TokenMade",
    "TokenRequest",
    "TreeDocument",
    "UndoRequest",
    "Whoami",
]

MASK = "*****"
"""What stands in place of a secret, in answers and, for "as it is", in requests."""

Severity = Literal["notice", "warning", "error"]
_UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u206f\u3000\ufeff\ufff0-\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bcaf\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Blanks, control characters and those that change the direction or the look of others, for a pattern's brackets."""
_PLACES = r"(?!-)(?!\.\.?$)"
"""Neither an option nor a place in a file system."""
NAME = rf"{_PLACES}[^\x20{_UNSEEN}/;|#'\"\\,\[\]*<>]{{1,253}}"
"""What an object may be called."""
EXTRA = rf"{_PLACES}[^{_UNSEEN}]{{1,253}}"
"""What a free parameter may be called."""
Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=rf"^{NAME}$(?!\n)")]
Line = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
Word = Annotated[str, Meta(pattern=r"^[a-z][a-z ]{0,30}$(?!\n)")]
Counted = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Nonce = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,64}$(?!\n)")]


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


# Errors


class Problem(_Answer, frozen=True, omit_defaults=True):
    """RFC 9457. `author` and `revision` name the commit that was first (409); `problems` lists every fault."""

    type: str
    title: str
    status: int
    detail: str = ""
    hint: str = ""
    problems: list[str] = []
    author: str = ""
    revision: int = 0
    active: str = ""


# Objects


class Object(_Answer, frozen=True, omit_defaults=True):
    """One top-level object: what differs from the defaults, secrets as stars, and the revision that last wrote it.

    `children` holds the objects of each submode by name, or as a list where they have none; each has `type`, `values`,
    `extras` and `children` again."""

    mode: str
    key: str
    revision: int
    type: str
    values: dict[str, Any] = {}
    extras: dict[str, str] = {}
    children: dict[str, Any] = {}


class ObjectPage(_Answer, frozen=True, omit_defaults=True):
    """A part of a mode, sorted by key, all of it at one revision; `cursor` requests the next page."""

    items: list[dict[str, Any]]
    revision: int
    remaining: int = 0
    cursor: str = msgspec.field(default="", name="continue")


class TreeDocument(_Answer, frozen=True):
    """Every object at one revision; `history` tells the head's revisions from those of the same numbers that it had
    before it was restored from a backup."""

    head: str
    revision: int
    objects: list[Object]
    history: str | None = None


class ObjectWrite(_Request, frozen=True):
    """An object as it should be. Where it says `*****` the secret of that place stays as it is."""

    type: str | msgspec.UnsetType = msgspec.UNSET
    values: dict[str, Any] = {}
    extras: dict[str, str] = {}
    children: dict[str, Any] = {}


class ObjectPut(ObjectWrite, frozen=True):
    """What PUT takes: an object as GET gives it. `revision` refuses the write when the object is of another one."""

    mode: str | msgspec.UnsetType = msgspec.UNSET
    key: str | msgspec.UnsetType = msgspec.UNSET
    revision: Counted | msgspec.UnsetType = msgspec.UNSET


class ObjectPatch(_Request, frozen=True):
    """What PATCH takes, a JSON merge patch (RFC 7396) of what GET gives: null takes something away, what is not named
    stays. `revision` refuses the write when the object is of another one."""

    type: str | msgspec.UnsetType = msgspec.UNSET
    values: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    extras: dict[str, str | None] | msgspec.UnsetType | None = msgspec.UNSET
    children: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    mode: str | msgspec.UnsetType = msgspec.UNSET
    key: str | msgspec.UnsetType = msgspec.UNSET
    revision: Counted | msgspec.UnsetType = msgspec.UNSET


class ObjectNew(ObjectWrite, frozen=True, kw_only=True):
    """What POST takes: an object with its name."""

    key: Name
    mode: str | msgspec.UnsetType = msgspec.UNSET


class Edit(_Request, frozen=True):
    """One top-level object: `base` is the revision of the object the edit was made on, absent for one that was not
    there; `object` is what should be, absent for nothing. `was` is the name that a renamed object had, which the same
    commit removes or gives to another object: masked secrets are those that it had there."""

    mode: str
    key: Name
    base: Counted | None = None
    object: dict[str, Any] | None = None
    was: Name | None = None


class UndoRequest(_Request, frozen=True):
    """`dryRun` asks for the changes that would take the revision back. A repeated `nonce` is answered with the revision
    it made the first time."""

    message: Line = ""
    force: bool = False
    dry_run: bool = msgspec.field(default=False, name="dryRun")
    nonce: Nonce = ""


class CommitRequest(UndoRequest, frozen=True, kw_only=True):
    """Edits for one revision; `dryRun` asks for the changes that they would make. `history` is that of the tree they
    were made on: a head that was restored from a backup since refuses them."""

    edits: list[Edit]
    undoes: Counted = 0
    history: str | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """One thing that changed, by path; `old` or `new` is null where there was or is nothing (for a field: the default).

    Secrets are masked; inside the head they are sealed."""

    path: tuple[str, ...]
    old: Any = None
    new: Any = None


class Revision(_Answer, frozen=True, omit_defaults=True):
    """One commit."""

    number: int
    time: str
    author: str
    changes: list[Change]
    message: str = ""
    undoes: int = 0
    nonce: str = ""


class CommitResult(_Answer, frozen=True, omit_defaults=True):
    """The revision that was made; none when nothing changes, or when only asked what would (`changes`)."""

    changes: list[Change]
    revision: Revision | None = None


class RevisionPage(_Answer, frozen=True, omit_defaults=True):
    """Revisions, newest first; `cursor` asks for older ones."""

    items: list[Revision]
    revision: int
    cursor: str = msgspec.field(default="", name="continue")


class AuditEntry(Change, frozen=True, kw_only=True):
    """Who changed which parameter when."""

    revision: int
    time: str
    author: str


class AuditPage(_Answer, frozen=True):
    """Entries, newest first."""

    items: list[AuditEntry]
    revision: int


# Plans and explanations


class PlanRequest(_Request, frozen=True):
    """Edits whose effect on nodes is asked for."""

    edits: list[Edit]
    force: bool = False


class PlanAction(_Answer, frozen=True, omit_defaults=True):
    """What changes on a node: `verb` is add, change or remove; `source` names the object that causes it."""

    node: str
    kind: str
    name: str
    verb: str
    source: str
    old: str = ""
    new: str = ""
    effect: str = ""


class PlanResult(_Answer, frozen=True):
    """Actions by node, and the revision they start from."""

    actions: list[PlanAction]
    revision: int


class Fact(_Answer, frozen=True, omit_defaults=True):
    """One thing that holds on a node, the object that causes it, and the revision that last wrote that object."""

    kind: str
    name: str
    value: str
    source: str
    mode: str
    key: str
    revision: int
    next_best: str = msgspec.field(default="", name="nextBest")


class ExplainResult(_Answer, frozen=True):
    """The facts of a node at a revision."""

    node: str
    revision: int
    facts: list[Fact]


# Nodes


class Action(_Request, frozen=True):
    """Something a node did: `Service nginx was reloaded` is kind `service`, name `nginx`, verb `reloaded`."""

    kind: Word
    name: Line
    verb: Word


class Failure(Action, frozen=True):
    """Something a node could not do, and why."""

    text: Line = ""


class Result(_Request, frozen=True):
    """What a check said."""

    check: Name
    status: Status
    value: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None
    info: Line = ""


class ReportRequest(_Request, frozen=True):
    """What an agent has done and measured. `applied` is the revision whose desired state holds on the node now,
    `digest` that state's ETag."""

    applied: Counted = 0
    digest: Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_-]{0,100}$(?!\n)")] = ""
    actions: Annotated[list[Action], Meta(max_length=500)] = []
    failures: Annotated[list[Failure], Meta(max_length=500)] = []
    results: Annotated[list[Result], Meta(max_length=100)] = []


class ReportResult(_Answer, frozen=True):
    """The head's present revision: what the agent may have missed."""

    revision: int


class Sample(_Answer, frozen=True, omit_defaults=True):
    """One result of a check."""

    time: str
    status: Status
    value: float | None = None
    info: str = ""


class CheckState(Sample, frozen=True, kw_only=True):
    """The last result of a check on a node; `since` is when it began to say so."""

    check: str
    since: str


class NodeState(_Answer, frozen=True, omit_defaults=True):
    """What is known of a node: `state` is UP, DOWN or UNKNOWN, `health` is FAIL when a check of it fails, PASS when all
    pass; `heard` is the time of its last report."""

    node: str
    state: State
    heard: str = ""
    applied: int = 0
    digest: str = ""
    checks: list[CheckState] = []
    health: Status = "UNKNOWN"


class NodeList(_Answer, frozen=True):
    """Nodes by name."""

    items: list[NodeState]
    revision: int


class CheckHistory(_Answer, frozen=True):
    """The results of one check, oldest first."""

    check: str
    samples: list[Sample]


class NodeHealth(_Answer, frozen=True):
    """A node with the history of its checks."""

    state: NodeState
    history: list[CheckHistory]


# What happens


class Notice(_Answer, frozen=True, omit_defaults=True):
    """Something that happened; `time` is RFC 3339 with milliseconds."""

    id: int
    time: str
    severity: Severity
    host: str
    text: str
    revision: int = 0


class NoticePage(_Answer, frozen=True):
    """Notices, newest first."""

    items: list[Notice]


class Reset(_Answer, frozen=True):
    """The head does not know the place that the reader wants to go on from, as after a restored backup: what the reader
    knows may be of another history. `revision` is the head's newest."""

    revision: int


class HealthEvent(Sample, frozen=True, kw_only=True):
    """A check on a node gave a result."""

    node: str
    check: str


# Who is asking


class Whoami(_Answer, frozen=True, omit_defaults=True):
    """The caller as the head knows it; `head` is the name of the head node that answered, `active` the URL of the one
    that writes, where there are several, `trouble` what is wrong with the store that they share."""

    user: str
    role: str
    head: str
    revision: int
    node: str = ""
    via: str = ""
    active: str = ""
    is_active: bool = msgspec.field(default=True, name="isActive")
    trouble: str = ""


class TokenRequest(_Request, frozen=True):
    """A new bearer token for a user or a node, for some days (0: until it is revoked). One of the kind `join` lets a
    new head node of the name `subject` join the site, once, within a day."""

    subject: Name
    name: Line = ""
    kind: Literal["user", "node", "join"] = "user"
    days: Annotated[int, Meta(ge=0, le=36500)] = 0


class Token(_Answer, frozen=True, omit_defaults=True):
    """A token without its text; `kind` is user or node, `subject` whose it is, `used` when it last was."""

    id: str
    kind: str
    subject: str
    name: str
    created: str
    expires: str = ""
    used: str = ""
    by: str = ""


class TokenMade(_Answer, frozen=True):
    """A token and its text, which is returned only once."""

    token: str
    about: Token


class TokenList(_Answer, frozen=True):
    """All tokens, oldest first."""

    items: list[Token]


class RevocationRequest(_Request, frozen=True):
    """Client certificates that no longer count: the one with a fingerprint (SHA-256), or all that the user or node
    `subject` has so far. One of the two is given."""

    fingerprint: Annotated[str, Meta(pattern=r"^(?:(?:[0-9a-fA-F]{2}:?){31}[0-9a-fA-F]{2})?$(?!\n)")] = ""
    subject: Name | None = None
    kind: Literal["user", "node"] = "user"


class Revocation(_Answer, frozen=True, omit_defaults=True):
    """A certificate that was revoked, or those that a user or node had at a time. Of those only certificates that were
    issued with this `generation`, or with a later one, count: a number that only grows, whatever clocks do."""

    time: str
    kind: str = ""
    subject: str = ""
    fingerprint: str = ""
    by: str = ""
    generation: int = 0


class RevocationList(_Answer, frozen=True):
    """All revocations, oldest first."""

    items: list[Revocation]


class Certificate(_Answer, frozen=True, omit_defaults=True):
    """A certificate of the site: `use` is authority, head (its serving one), user or node; `fingerprint` is SHA-256;
    `used` is when somebody last asked with it; `generation` is that of the last revocation by name before it was issued
    (0: none). Those of users and nodes are known once they have been used."""

    use: str
    subject: str
    issuer: str
    fingerprint: str
    issued: str
    expires: str
    used: str = ""
    revoked: bool = False
    generation: int = 0


class CertificateList(_Answer, frozen=True):
    """Certificates, those that end first before the others."""

    items: list[Certificate]


# The site's keys


class RotationRequest(_Request, frozen=True):
    """Make the next authority, or, with `finish`, let it take the present one's place."""

    finish: bool = False


class AuthorityState(_Answer, frozen=True, omit_defaults=True):
    """What clients have to trust, as PEM: the present authority, and during a rotation the next one. Fingerprints are
    SHA-256."""

    certificates: str
    fingerprint: str
    next: str = ""


class JoinRequest(_Request, frozen=True):
    """The name of the head node that joins. `proof` is a random number that it keeps until it has joined: who asks with
    the same token and the same proof again, because the answer was lost, is answered again."""

    name: Name
    proof: Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{64})?$(?!\n)")] = ""


class JoinAnswer(_Answer, frozen=True):
    """The files of a site that its heads share, by name, and where its tree is; `site` is the head that gave them."""

    files: dict[str, str]
    endpoints: list[str]
    prefix: str
    site: str
