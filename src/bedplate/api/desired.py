"""What a node should be, as the head tells its agents: files, packages, services and the rest, as data.

In: nothing. Out: msgspec Structs with a digest that is the same as long as nothing is to be done on the node. Which
object of the tree caused what is not told here (`head/render` knows it): a file that another role writes alike is the
same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec

__all__ = [
    "MASK",
    "CareAction",
    "ChangeAction",
    "Check",
    "Desired",
    "File",
    "Flag",
    "KubeadmAction",
    "Login",
    "Service",
    "Taint",
    "block_of",
    "etag_of",
    "merged",
]

MASK = "*****"
"""What replaces the content of a secret file when the file is shown."""

ChangeAction = Literal["NONE", "RESTART", "RELOAD"]
"""What the services of a file do when it changed."""

CareAction = Literal["", "inspect", "renew", "snapshot", "fetch", "drop", "halt", "replace", "put-back", "go-on"]
"""What a node of a running cluster is asked for: to tell how it stands, to renew its certificates, to give a snapshot
of etcd; and for a restore to fetch one, to drop it, to halt its API server, to replace the data of its member, to put
the former data back, to let the API server go on."""
KubeadmAction = Literal["", "init", "join", "reset", "upgrade-check", "upgrade-apply", "upgrade-node"]
"""What kubeadm is run for on a node. An upgrade is applied on the first control plane node, then taken over by each of
the others; its check fetches packages, and changes nothing."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class File(_Value, frozen=True):
    """A file on the node.

    `folder_mode` is the mode of a created folder for it; empty: the folder must be there. A `block` is kept
    between two marked lines of a file that others write, too (`merged`). When the file changed, `services` do `action`;
    before it is put in place `test` must succeed, in which `{}` stands for the path of the new content, and no other
    program may have one of the `ports` that it makes its services listen on.
    `stop_on_failure` stops the services when the file cannot be written. `secret` content is shown to nobody but the
    node.
    """

    path: str
    content: str
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    folder_mode: str = "0755"
    block: bool = False
    secret: bool = False
    services: tuple[str, ...] = ()
    action: ChangeAction = "NONE"
    test: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    stop_on_failure: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def on_disk(self) -> tuple[str, ...]:
        """What must be the same for the file on the node to be the same."""
        return (self.path, self.content, self.mode, self.owner, self.group, "block" if self.block else "")

    def masked(self) -> File:
        """As it may be shown: without content when it is secret."""
        return msgspec.structs.replace(self, content=MASK) if self.secret else self


class Service(_Value, frozen=True):
    """A system service. Where `serial` is set, nodes with the same one restart it one after the other."""

    name: str
    run_if: str = "ALWAYS"
    monitored: bool = True
    autostart: bool = True
    timeout: int = -1
    sickness_script: str = ""
    sickness_timeout: int = 10
    sickness_interval: int = 60
    serial: str = ""


class Flag(_Value, frozen=True):
    """A flag in the command of a static pod's container; without a value it stands alone."""

    manifest: str
    container: str
    key: str
    value: str = ""

    @property
    def name(self) -> str:
        """As explanations and plans name it."""
        return f"{self.manifest}:{self.container}:{self.key}"

    @property
    def argument(self) -> str:
        return f"--{self.key}={self.value}" if self.value else f"--{self.key}"


class Taint(_Value, frozen=True):
    """A taint of the Kubernetes node."""

    key: str
    effect: str
    value: str = ""

    @property
    def text(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Check(_Value, frozen=True):
    """A health check that runs on the node."""

    name: str
    interval_s: float = 120.0


class Login(_Value, frozen=True):
    """How a node shows itself to a registry. It is in no store and in no file."""

    server: str
    username: str
    password: str


class Errand(_Value, frozen=True):
    """Something to do once: `reboot`, `reset` (at once, without stopping anything first) or `off`. An agent writes the
    id down, reports it as accepted, does it, and reports that it is done; it never does the same id twice.

    `imageupdate` copies the tree of `image` to the node, `grabimage` the node into it; both may be repeated, and go on
    after an interruption. Without `write` nothing changes, without `delete` nothing is deleted; `confirmed` says that
    somebody named this node for what cannot be undone. `mode` chooses the exclude list.

    `kubeadm` makes the node part of `cluster`, with the configuration that is among its files, or takes it out of it;
    what it does is `action`, never a command of somebody's own; `version` is that of an upgrade. Interrupted, it is
    begun again.

    `pullimages` brings the container images `images` to the node, with `logins` where their registries ask for one.

    `care` does for a node of `cluster` what its field `care` names; `snapshot` is the one that is meant."""

    id: str
    kind: Literal["reboot", "reset", "off", "imageupdate", "grabimage", "kubeadm", "pullimages", "care"]
    image: str = ""
    mode: Literal["", "sync", "full", "update", "grab"] = ""
    write: bool = False
    delete: bool = False
    confirmed: bool = False
    action: KubeadmAction = ""
    cluster: str = ""
    images: tuple[str, ...] = ()
    logins: tuple[Login, ...] = ()
    version: str = ""
    care: CareAction = ""
    snapshot: str = ""

    @property
    def is_transfer(self) -> bool:
        return self.kind in ("imageupdate", "grabimage")

    @property
    def is_lasting(self) -> bool:
        """Whether it takes its time, tells how far it is, and goes on after an interruption."""
        return self.is_transfer or self.kind in ("kubeadm", "pullimages", "care")


class Desired(_Value, frozen=True):
    """All that should hold on one node. `unmanaged` are paths that are left as they are found. `excludes` are the path
    patterns that an image update leaves alone, by list. A `data_node` is not wiped without a confirmation. `errands`
    are not part of the state: they change the ETag, not the digest."""

    node: str
    revision: int = 0
    files: tuple[File, ...] = ()
    unmanaged: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    environment: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    flags: tuple[Flag, ...] = ()
    excludes: dict[str, tuple[str, ...]] = {}
    checks: tuple[Check, ...] = ()
    settings: dict[str, str] = {}
    data_node: bool = False
    warnings: tuple[str, ...] = ()
    errands: tuple[Errand, ...] = ()

    @property
    def etag(self) -> str:
        """The digest, and whether there are other errands: what a poll compares."""
        return etag_of(self.digest, self.errands)

    @property
    def digest(self) -> str:
        """The same for two states in which the node is the same, whatever the revision."""
        same = msgspec.structs.replace(self, revision=0, warnings=(), errands=())
        return hashlib.sha256(msgspec.json.encode(same, order="sorted")).hexdigest()

    def masked(self) -> Desired:
        """As it may be shown to people: without the content of secret files, and without logins."""
        return msgspec.structs.replace(self, files=tuple(file.masked() for file in self.files)).without_logins()

    def without_logins(self) -> Desired:
        """As it may be shown to whoever may read the secrets of the tree: logins are the node's alone."""
        errands = tuple(msgspec.structs.replace(errand, logins=()) for errand in self.errands)
        return msgspec.structs.replace(self, errands=errands)


def etag_of(digest: str, errands: Sequence[Errand]) -> str:
    """The ETag of a state with that digest and these errands."""
    if not errands:
        return digest
    ids = hashlib.sha256(" ".join(errand.id for errand in errands).encode()).hexdigest()
    return f"{digest}_{ids[:16]}"


BEGIN = "# begin of the part that bedplate writes: changes here are lost"
END = "# end of the part that bedplate writes"


def merged(present: str, content: str | None) -> str:
    """The file with the block in place of the one that is in it, at its end when there is none; None takes it away.

    What stands around the block stays as it is, but for a line break at the file's end."""
    lines = _lines(present)
    begin, end = _block(lines)
    block = [] if content is None else [BEGIN, *_lines(content), END]
    kept = [*lines[:begin], *block, *lines[end:]]
    return "\n".join(kept) + "\n" if kept else ""


def block_of(present: str) -> str | None:
    """What the block in a file holds; None when there is none."""
    lines = _lines(present)
    begin, end = _block(lines)
    if begin == len(lines):
        return None
    inside = lines[begin + 1 : end - 1 if lines[end - 1].rstrip("\r") == END else end]
    return "".join(f"{line}\n" for line in inside)


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: carriage returns, form feeds and the like belong to whoever wrote them."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _block(lines: Sequence[str]) -> tuple[int, int]:
    """Where the block begins, and the line after it. One without an end goes on to the end of the file."""
    bare = [line.rstrip("\r") for line in lines]
    if BEGIN not in bare:
        return len(lines), len(lines)
    begin = bare.index(BEGIN)
    return begin, bare.index(END, begin) + 1 if END in bare[begin:] else len(lines)
