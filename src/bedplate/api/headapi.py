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

from bedplate.api.desired import CareAction
from bedplate.api.states import Applied, Granted, Progress, Release, State, Status

__all__ = [
    "EXTRA",
    "MASK",
    "NAME",
    "Action",
    "ApplicationState",
    "AuditEntry",
    "AuditPage",
    "AuthorityState",
    "Care",
    "Certificate",
    "CertificateAnswer",
    "CertificateList",
    "CertificateRequest",
    "Change",
    "CheckHistory",
    "CheckState",
    "ClusterHealth",
    "ClusterState",
    "CommitRequest",
    "CommitResult",
    "Edit",
    "Enrolment",
    "EnrolmentAnswer",
    "EnrolmentDecision",
    "EnrolmentList",
    "EnrolmentRequest",
    "ErrandKind",
    "ErrandList",
    "ErrandRequest",
    "ErrandState",
    "ErrandTold",
    "ExplainResult",
    "Fact",
    "Facts",
    "Failure",
    "HealthEvent",
    "ImageAction",
    "ImageList",
    "ImageResult",
    "ImageState",
    "JoinAnswer",
    "JoinRequest",
    "Kubeadm",
    "NodeHealth",
    "NodeList",
    "NodeProgress",
    "NodeState",
    "Notice",
    "NoticePage",
    "Object",
    "ObjectFailure",
    "ObjectNew",
    "ObjectPage",
    "ObjectPatch",
    "ObjectPut",
    "ObjectWrite",
    "PlanAction",
    "PlanRequest",
    "PlanResult",
    "Problem",
    "Pull",
    "RegistryLogin",
    "ReportRequest",
    "ReportResult",
    "Reset",
    "Result",
    "Revision",
    "RevisionPage",
    "RevisionProgress",
    "Revocation",
    "RevocationList",
    "RevocationRequest",
    "RolloutAction",
    "RolloutNode",
    "RolloutState",
    "RotationRequest",
    "Sample",
    "Severity",
    "System",
    "Token",
    "TokenList",
    "TokenMade",
    "TokenRequest",
    "Transfer",
    "TreeDocument",
    "TurnAnswer",
    "TurnEnd",
    "TurnList",
    "TurnRequest",
    "TurnState",
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


class _Told(_Request, frozen=True, forbid_unknown_fields=False):
    """What agents report. A newer agent may know fields that this head does not: they are skipped, so that what the
    head does know arrives, and agents can be updated before their head."""


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
    """Edits for one revision; `dryRun` asks for the changes that they would make. With `batch`, a number of nodes or a
    share such as `10%`, nodes get the revision in batches: the next one once all nodes of the last one have applied it
    and were well for `settle` seconds, and none after more than `maxFailed` nodes have failed it. `history` is
    that of the tree they were made on: a head that was restored from a backup since refuses them."""

    edits: list[Edit]
    undoes: Counted = 0
    batch: Annotated[str, Meta(pattern=r"^(?:[1-9][0-9]{0,5}|(?:[1-9][0-9]?|100)%)?$(?!\n)")] = ""
    max_failed: Annotated[int, Meta(ge=0, le=100_000)] = msgspec.field(default=0, name="maxFailed")
    settle: Annotated[int, Meta(ge=0, le=86400)] = 10
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


class Action(_Told, frozen=True):
    """Something a node did: `Service nginx was reloaded` is kind `service`, name `nginx`, verb `reloaded`; `text` says
    more, as why."""

    kind: Word
    name: Line
    verb: Word
    text: Line = ""


class Failure(Action, frozen=True):
    """Something a node could not do, and why."""


class Result(_Told, frozen=True):
    """What a check said, and what to do about it; `ageS` seconds ago, where a node could not tell it at once."""

    check: Name
    status: Status
    value: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None
    info: Line = ""
    remedy: Line = ""
    age_s: Annotated[float, Meta(ge=0, le=1e9)] = msgspec.field(default=0.0, name="ageS")


ErrandKind = Literal["reboot", "reset", "off", "on", "imageupdate", "grabimage", "kubeadm", "pullimages", "care"]


class ErrandTold(_Told, frozen=True):
    """What became of a request to a node: `accepted` once its agent has written down the id, so that it is never done
    twice; then `done` or `failed`. What lasts is told as accepted again, `text` says how far it is; `lines` are what it
    changed, or would change."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-zA-Z_-]{1,64}$(?!\n)")]
    state: Literal["accepted", "done", "failed"]
    text: Line = ""
    lines: Annotated[list[Line], Meta(max_length=200)] = []


class System(_Told, frozen=True):
    """What a machine is: the distribution, by ID and VERSION_ID of its `/etc/os-release`, how its agent installs
    packages (`folder`: from a folder, `none`: not at all), `memory` and `disk`, that of its root, in bytes, `cores`;
    `reboot`: the system says that it has to start again."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9._-]{0,64}$(?!\n)")] = ""
    version: Annotated[str, Meta(pattern=r"^[0-9A-Za-z._~+-]{0,64}$(?!\n)")] = ""
    packages: Literal["", "apt", "yum", "zypper", "folder", "none"] = ""
    memory: Counted = 0
    disk: Counted = 0
    cores: Counted = 0
    reboot: bool = False


class ReportRequest(_Told, frozen=True):
    """What an agent has done and measured. `applied` is the revision whose desired state holds on the node now,
    `digest` that state's ETag; `tried` is the revision that `failures` are about (the head's newest if absent). A
    report with `digest`, or with that revision as `applied`, and without failures says that it is well now. `booted`:
    the machine has started since the last report; `version` is the agent's own. `checks` are all that the agent runs,
    told when they are others than before: what any other check said is forgotten. `system` is told when it changed.
    `run` is a number that an agent draws when it starts: two in turns are two machines."""

    applied: Counted = 0
    tried: Counted = 0
    digest: Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_-]{0,100}$(?!\n)")] = ""
    actions: Annotated[list[Action], Meta(max_length=500)] = []
    failures: Annotated[list[Failure], Meta(max_length=500)] = []
    results: Annotated[list[Result], Meta(max_length=100)] = []
    errands: Annotated[list[ErrandTold], Meta(max_length=20)] = []
    booted: bool = False
    version: Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+~-]{0,64}$(?!\n)")] = ""
    checks: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=100)] | None = None
    run: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,32}$(?!\n)")] = ""
    system: System | None = None


class ReportResult(_Answer, frozen=True):
    """The head's present revision: what the agent may have missed."""

    revision: int


class Sample(_Answer, frozen=True, omit_defaults=True):
    """One result of a check."""

    time: str
    status: Status
    value: float | None = None
    info: str = ""
    remedy: str = ""


class CheckState(Sample, frozen=True, kw_only=True):
    """The last result of a check on a node; `since` is when it began to say so."""

    check: str
    since: str


class NodeState(_Answer, frozen=True, omit_defaults=True):
    """What is known of a node: `state` is UP, DOWN or UNKNOWN, `health` is FAIL when a check of it fails, PASS when all
    pass; `heard` is the time of its last report. `pending` is the revision that it has not applied yet, `failures` why,
    as it says; a `held` one waits for its batch of a roll-out. `image` is what became of its last image update,
    `version` that of its agent, `system` what it says of its machine."""

    node: str
    state: State
    heard: str = ""
    applied: int = 0
    digest: str = ""
    checks: list[CheckState] = []
    health: Status = "UNKNOWN"
    pending: int = 0
    is_held: bool = msgspec.field(default=False, name="held")
    failures: list[str] = []
    image: str = ""
    version: str = ""
    system: System | None = None


class NodeProgress(_Answer, frozen=True, omit_defaults=True):
    """How far a node is with a revision: an `UNKNOWN` one never reported, a `DOWN` one no longer does, a `held` one
    waits for its batch of a roll-out, or has to leave a cluster first (`text`). `applied` is the revision it has."""

    node: str
    state: Progress
    text: str = ""
    applied: int = 0


class RevisionProgress(_Answer, frozen=True, omit_defaults=True):
    """Of `total` nodes that a revision means something to, `applied` have it; `nodes` are the others. It is `settled`
    once none of them is expected to apply it by itself. `stopped` says why its roll-out does not go on."""

    revision: int
    total: int
    applied: int
    is_settled: bool = msgspec.field(name="settled")
    nodes: list[NodeProgress] = []
    stopped: str = ""


class RolloutNode(_Answer, frozen=True, omit_defaults=True):
    """How a node of a roll-out stands: a `held` one does not have the revision yet, an `away` one was silent when it
    began and is not waited for."""

    node: str
    state: Release
    text: str = ""


class RolloutState(_Answer, frozen=True, omit_defaults=True):
    """How far the roll-out of a revision is: `released` of `total` nodes have it. `nodes` are all of them while it is
    under way, and those that failed once it is over."""

    revision: int
    state: Literal["running", "paused", "stopped", "done", "undone"]
    by: str
    started: str
    batch: int
    total: int
    released: int
    max_failed: int = msgspec.field(default=0, name="maxFailed")
    settle: float = 0.0
    text: str = ""
    nodes: list[RolloutNode] = []


class RolloutAction(_Request, frozen=True):
    """What to do with the roll-out: `undo` takes its revision back, as a new revision."""

    action: Literal["pause", "resume", "undo"]


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


# Errands: what a node is asked to do once


class Transfer(_Request, frozen=True):
    """How an image is updated or grabbed. Without `write` nothing is changed, only told. `full` wipes what the image
    does not have; that, and any deletion on a data node, needs the node's name in `confirm`. `image` is the one that a
    node is grabbed into; by default the node's own."""

    write: bool = False
    full: bool = False
    image: Name | None = None
    confirm: Annotated[list[Name], Meta(max_length=10_000)] = []


class Kubeadm(_Request, frozen=True):
    """Have kubeadm make nodes part of a Kubernetes cluster (`init` the first, `join` the others, as their roles say),
    or take them out of it (`reset`); or bring them to another `version` of Kubernetes (`upgrade-apply` the first
    control plane node, `upgrade-node` the others; `upgrade-check` fetches packages, and changes nothing)."""

    action: Literal["init", "join", "reset", "upgrade-check", "upgrade-apply", "upgrade-node"]
    cluster: Name
    version: Annotated[str, Meta(pattern=r"^(1\.[0-9]{1,3}\.[0-9]{1,3})?$(?!\n)")] = ""


ImageName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$(?!\n)")]
Credential = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]


class RegistryLogin(_Request, frozen=True):
    """Who somebody is for a registry: a host, maybe with a port. The head does not write it down."""

    server: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,254}$(?!\n)")]
    username: Credential
    password: Credential


class Pull(_Request, frozen=True):
    """Bring container images to nodes."""

    images: Annotated[list[ImageName], Meta(min_length=1, max_length=100)]
    logins: Annotated[list[RegistryLogin], Meta(max_length=10)] = []


class Care(_Request, frozen=True):
    """Have nodes of a Kubernetes cluster tell how they stand (`inspect`), renew the certificates that kubeadm issued
    (`renew`), give a snapshot of etcd to the head (`snapshot`); or take a step of a restore: `fetch` a snapshot from
    the head and unpack it beside the data, `drop` it, `halt` the API server, `replace` the data of the member,
    `put-back` the former data, let the API server `go-on`. `snapshot` names the one that is meant."""

    action: Literal["inspect", "renew", "snapshot", "fetch", "drop", "halt", "replace", "put-back", "go-on"]
    cluster: Name
    snapshot: Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$(?!\n)")] | None = None


class ErrandRequest(_Request, frozen=True):
    """Ask nodes to reboot, to reset, to switch off, to take over their image or to give one (`transfer` says how), to
    run `kubeadm`, to `pull` container images, or to take `care` of their cluster; what their agents do not accept
    within `lasts` seconds is given up. `on` is for a head with management controllers, and done when the answer
    comes."""

    nodes: Annotated[list[Name], Meta(min_length=1, max_length=10_000)]
    kind: ErrandKind
    lasts: Annotated[int, Meta(ge=1, le=86400)] = 600
    transfer: Transfer | None = None
    kubeadm: Kubeadm | None = None
    pull: Pull | None = None
    care: Care | None = None


class ErrandState(_Answer, frozen=True, omit_defaults=True):
    """A request to a node, until when it is good, and what became of it. Of a transfer: the image, the exclude list
    (`mode`), whether it writes and deletes; of kubeadm: what it does (`action`) for which `cluster`, to
    which `version`; of the care for a cluster: `care` and the `snapshot`. While it is accepted `text` says how far it
    is."""

    id: str
    node: str
    kind: ErrandKind
    state: Literal["waiting", "accepted", "done", "failed", "expired"]
    asked: str
    until: str
    by: str
    changed: str = ""
    text: str = ""
    image: str = ""
    mode: Literal["", "sync", "full", "update", "grab"] = ""
    write: bool = False
    delete: bool = False
    confirmed: bool = False
    lines: list[str] = []
    action: Literal["", "init", "join", "reset", "upgrade-check", "upgrade-apply", "upgrade-node"] = ""
    cluster: str = ""
    images: list[str] = []
    version: str = ""
    care: CareAction = ""
    snapshot: str = ""

    @property
    def is_transfer(self) -> bool:
        return self.kind in ("imageupdate", "grabimage")

    @property
    def is_lasting(self) -> bool:
        return self.is_transfer or self.kind in ("kubeadm", "pullimages", "care")


class ErrandList(_Answer, frozen=True):
    """Requests to nodes, oldest first."""

    items: list[ErrandState]


# Software images: trees on the head


class ImageState(_Answer, frozen=True, omit_defaults=True):
    """A software image and its tree on the head. A `missing` or `empty` tree, and one without a marker (`unmarked`), is
    never copied to a node. `busy` says what uses it now, `nodes` how many have it."""

    name: str
    path: str
    state: Literal["ready", "missing", "empty", "unmarked", "outside"]
    nodes: int = 0
    busy: str = ""
    generation: int = 0
    changed: str = ""
    origin: str = ""


class ImageList(_Answer, frozen=True):
    """Images by name; `folder` is where trees may be."""

    folder: str
    items: list[ImageState]


Argument = Annotated[str, Meta(max_length=2000, pattern=r"^[^\x00]*$")]
"""A word of a command: as many as a command may have fit into the body of a request, however they are encoded."""


RepositoryUrl = Annotated[str, Meta(max_length=1000, pattern=r"^((https?|file)://[!-~]+)?$(?!\n)")]


class ImageAction(_Request, frozen=True):
    """What to do with the tree of an image: `adopt` the folder that is there, `copy` the tree of `source`, `remove` it,
    `run` a command in it, or bring its `repository` of Kubernetes packages to a `version`: without `write` what that
    would be is told. `base` is a copy of the repositories, `key` (ASCII-armored) what its packages are signed with,
    `helm` a repository with Helm."""

    action: Literal["adopt", "copy", "remove", "run", "repository"]
    source: Name | None = None
    command: Annotated[list[Argument], Meta(max_length=160)] = []
    timeout: Annotated[int, Meta(ge=1, le=86400)] = 3600
    version: Annotated[str, Meta(max_length=64)] = ""
    write: bool = False
    base: RepositoryUrl = ""
    key: Annotated[str, Meta(max_length=65536, pattern=r"^[^\x00]*$")] = ""
    helm: RepositoryUrl = ""


class ImageResult(_Answer, frozen=True, omit_defaults=True):
    """What was done; of a command its exit code and the end of what it wrote; of a repository its file."""

    text: str
    code: int = 0
    output: str = ""
    commands: list[str] = []


# Turns: what nodes do one after the other


class TurnRequest(_Request, frozen=True):
    """A node asks for the turn of a group (`serial` of a service): it waits for it at most `wait` seconds, and gives it
    back within `lasts` seconds. Whoever has it already has it for `lasts` seconds from now."""

    group: Name
    wait: Annotated[int, Meta(ge=0, le=300)] = 0
    lasts: Annotated[int, Meta(ge=1, le=86400)] = 300


class TurnAnswer(_Answer, frozen=True, omit_defaults=True):
    """Whether the node has the turn, and until when; who has it, or whose failure stops it, and why."""

    group: str
    is_granted: bool = msgspec.field(name="granted")
    until: str = ""
    holder: str = ""
    failed: str = ""
    why: str = ""


class TurnEnd(_Request, frozen=True):
    """A node gives a turn back; `failed` stops all others until it is well again."""

    failed: bool = False
    text: Line = ""


class TurnState(_Answer, frozen=True, omit_defaults=True):
    """Who has the turn of a group, who waits for it, and whose failure stops it."""

    group: str
    node: str = ""
    since: str = ""
    until: str = ""
    waiting: list[str] = []
    failed: str = ""
    failed_at: str = msgspec.field(default="", name="failedAt")
    why: str = ""


class TurnList(_Answer, frozen=True):
    """Turns by group."""

    items: list[TurnState]


# Clusters


class ObjectFailure(_Answer, frozen=True):
    """An object of an application that is not as it should be, and why; no object: the application as a whole."""

    object: str
    reason: str


class ApplicationState(_Answer, frozen=True, omit_defaults=True):
    """How an application of a cluster stands, and since when (RFC 3339 with milliseconds)."""

    cluster: str
    group: str
    name: str
    state: Applied
    since: str = ""
    objects: int = 0
    failures: list[ObjectFailure] = []
    warnings: list[str] = []


class ClusterState(_Answer, frozen=True, omit_defaults=True):
    """What the head knows of a Kubernetes cluster: whether it reaches the API server, and why not; the newest results
    of its checks; its applications."""

    cluster: str
    reached: bool
    trouble: str = ""
    checks: list[CheckState] = []
    applications: list[ApplicationState] = []


class PersonState(_Answer, frozen=True, omit_defaults=True):
    """What one user may do in one namespace of a cluster (`*`: in the whole cluster), and what was made of it. `owner`
    is `tree` for users of the tree, `cluster` for those that `cm-kubernetes-setup` or an administrator made. `since`
    and `expires` are RFC 3339. `shared` means that the namespace was there before. `reason` says why it is not ready,
    `access` why there is no valid certificate."""

    cluster: str
    user: str
    namespace: str
    role: str
    owner: Literal["tree", "cluster"]
    state: Granted
    reason: str = ""
    uid: int | None = None
    gids: list[int] = []
    paths: list[str] = []
    all_uids: bool = False
    operators: list[str] = []
    shared: bool = False
    object: str = ""
    since: str = ""
    expires: str = ""
    access: str = ""


class PeopleState(_Answer, frozen=True, omit_defaults=True):
    """Who may do what in a Kubernetes cluster: whether the head could ask it, and why not; users in their order."""

    cluster: str
    reached: bool
    trouble: str = ""
    people: list[PersonState] = []


class ClusterHealth(_Answer, frozen=True):
    """A cluster with the kept results of its checks."""

    state: ClusterState
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
    new head node of the name `subject` join the site, once, within a day. One of the kind `enrol` lets the agent of the
    device `subject` enrol, once; one of the kind `enrol-category` lets `uses` new nodes of that category. Both are good
    for `lasts` seconds (0: an hour). With `replace` a device that has a certificate may be enrolled again."""

    subject: Name
    name: Line = ""
    kind: Literal["user", "node", "join", "enrol", "enrol-category"] = "user"
    days: Annotated[int, Meta(ge=0, le=36500)] = 0
    uses: Annotated[int, Meta(ge=1, le=100_000)] = 1
    lasts: Annotated[int, Meta(ge=0, le=31 * 86400)] = 0
    replace: bool = False


class Token(_Answer, frozen=True, omit_defaults=True):
    """A token without its text; `kind` is what it is for, `subject` whose it is, `used` when it last was; `left` says
    how many of its `uses` are left, where they are counted."""

    id: str
    kind: str
    subject: str
    name: str
    created: str
    expires: str = ""
    used: str = ""
    by: str = ""
    uses: int = 0
    left: int = 0
    replace: bool = False


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
    """A certificate of the site: `use` is authority, head (its serving one), user, node, or kubernetes (of a cluster's
    administrator); `fingerprint` is SHA-256; `used` is when somebody last asked with it; `generation` is that of the
    last revocation by name before it was issued (0: none). Those of users and nodes are known once they have been used,
    and those of nodes once they are issued by an enrolment."""

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


# Enrolment: how a node gets its certificate

Csr = Annotated[str, Meta(min_length=1, max_length=16384)]
"""A certificate signing request (PKCS #10) as PEM. Of it only the public key counts."""
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$(?!\n)")]


class Facts(_Request, frozen=True):
    """What a machine says of itself: its host name, the MAC addresses of its interfaces in lower case, its serial
    number."""

    hostname: Annotated[str, Meta(max_length=253, pattern=r"^[!-~]*$(?!\n)")] = ""
    macs: Annotated[list[Hex], Meta(max_length=64)] = []
    serial: Annotated[str, Meta(max_length=100, pattern=r"^[ -~]*$(?!\n)")] = ""


class EnrolmentRequest(_Request, frozen=True):
    """A machine asks for the certificate of a node, with a token of the kind `enrol` or `enrol-category`. The same
    request with the same token has the same answer, however often it is sent."""

    csr: Csr
    facts: Facts = Facts()


class Enrolment(_Answer, frozen=True, omit_defaults=True):
    """A machine that asked for the certificate of `node`. A `pending` one waits for an administrator, for `reasons`.
    `key` is the SHA-256 of its public key, `ends` when the certificate ends; `by` decided, and said `text`."""

    id: str
    node: str
    state: Literal["pending", "issued", "denied"]
    asked: str
    token: str
    key: str
    facts: Facts = Facts()
    reasons: list[str] = []
    decided: str = ""
    by: str = ""
    text: str = ""
    ends: str = ""


class EnrolmentAnswer(Enrolment, frozen=True, omit_defaults=True):
    """What the machine is told: once it is `issued`, its certificate and the authorities to trust, as PEM."""

    certificate: str = ""
    authority: str = ""


class EnrolmentList(_Answer, frozen=True):
    """Enrolments, oldest first."""

    items: list[Enrolment]


class EnrolmentDecision(_Request, frozen=True):
    """Whether a machine gets the certificate that it asked for, and why (not)."""

    approve: bool
    text: Line = ""


class CertificateRequest(_Request, frozen=True):
    """A node asks for its next certificate, over a connection with its present one."""

    csr: Csr


class CertificateAnswer(_Answer, frozen=True):
    """The next certificate, and the authorities to trust, as PEM; `ends` is its end."""

    certificate: str
    authority: str
    ends: str


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
