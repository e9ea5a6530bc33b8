"""The first screen without its terminal: the operations there are, and what has to be known before one can begin. Pure.

In: a site, whether a run was interrupted, and what was typed. Out: operations, each an action of the tool; the values
of flags that the answers stand for, and what is wrong with them. A deployment has screens of its own (`steps`); what a
flag means, and whether its value fits in the end, is decided by the tool.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from bedplate.head.schema import ranges
from bedplate.people.settings import ROLES
from bedplate.setup.answers.declaration import minors
from bedplate.setup.answers.site import Site

__all__ = ["Asking", "Entry", "Operation", "operations"]

Check = Callable[[str, str, Site], str]
"""What is wrong with a text, for that cluster; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A question about an operation, and the flag that gets the answer. What may be empty is then not given."""

    flag: str
    title: str
    help: str
    kind: Literal["text", "file", "switch", "choice", "name of the cluster"] = "text"
    is_needed: bool = False
    choices: tuple[str, ...] = ()
    check: Check | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """What can be chosen, that which is chosen already first; empty: anything can be typed."""
        return ("no", "yes") if self.kind == "switch" else self.choices


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of the first screen."""

    action: str
    title: str
    about: str
    entries: tuple[Entry, ...] = ()


def _expanded(text: str) -> tuple[tuple[str, ...], str]:
    """The names that a text has, and what is wrong with it."""
    try:
        return tuple(ranges.expand(text)), ""
    except ValueError as err:
        return (), str(err)


def _named(text: str, fits: Callable[[str], str]) -> str:
    names, wrong = _expanded(text)
    return wrong or next((why for name in names if (why := fits(name))), "")


def _free(text: str, cluster: str, site: Site) -> str:
    def fits(name: str) -> str:
        node = site.nodes.get(name)
        if node is None:
            return f"{name}: there is no such node"
        return f"{name} is part of the cluster {node.cluster} already" if node.cluster else ""

    return _named(text, fits)


def _member(text: str, cluster: str, site: Site) -> str:
    def fits(name: str) -> str:
        node = site.nodes.get(name)
        return "" if node is not None and node.cluster == cluster else f"{name} is not part of the cluster {cluster}"

    return _named(text, fits)


def _confirmed(text: str, cluster: str, site: Site) -> str:
    return "" if text == cluster else f"type {cluster} to confirm"


def _user() -> Entry:
    return Entry("", "User", "The name of the user.", is_needed=True)


def _of(action: str, entry: Entry) -> Entry:
    """The value of an action itself."""
    return Entry(action.replace("-", "_"), entry.title, entry.help, entry.kind, entry.is_needed, entry.choices)


def _about_user(action: str, title: str, about: str, *more: Entry) -> Operation:
    return Operation(action, title, about, (_of(action, _user()), *more))


def _confirmation(about: str) -> Entry:
    return Entry("yes_i_really_mean_it", "Confirmation", about, "name of the cluster", True, check=_confirmed)


_NODES = "Names and ranges such as node[004-006], with commas."
_AS_IT_IS = "Empty: as it is."
_DEPLOY = Operation("deploy", "Deploy", "Make a new Kubernetes cluster")
_EXIT = Operation("exit", "Exit", "Leave without changing anything")
_RESUME = Operation("resume", "Resume", "Continue the run that was interrupted")
_UNDO = Operation("undo", "Undo", "Take back what the interrupted run did")
_LATER = (
    Operation("add-user", "Add user", "Create a Kubernetes user"),
    _about_user(
        "modify-user",
        "Modify User",
        "Change a Kubernetes user",
        Entry("namespace", "Namespace", "The namespace of the binding. Empty: that of the user."),
        Entry("add_to_namespace", "Add to it", "Grant the role in that namespace, which must exist.", "switch"),
        Entry("remove_from_namespace", "Remove from it", "Revoke the role in that namespace.", "switch"),
        Entry("role", "Role", _AS_IT_IS, "choice", choices=("", *ROLES)),
        Entry("runas_uid", "UID", f"The UID of the user's pods. {_AS_IT_IS}"),
        Entry("runas_gids", "GIDs", f"Their GIDs, with commas. {_AS_IT_IS}"),
        Entry("user_paths", "Host paths", f"Paths that they may mount, with commas. {_AS_IT_IS}"),
        Entry("allow_all_uids", "Any UID", "Allow any UID, root's included; host paths are then refused.", "switch"),
        Entry("no_allow_all_uids", "Own UID alone", "Allow the UID of the user alone.", "switch"),
        Entry("operators", "Operators", f"Operators that the user may use, with commas. {_AS_IT_IS}"),
    ),
    Operation("list-users", "List users", "Show all configured users"),
    _about_user("get-user", "Show user", "Show one user"),
    _about_user("renew-user", "Renew user", "Issue a new client certificate for a user"),
    _about_user("remove-user", "Remove user", "Delete a Kubernetes user"),
    Operation(
        "backup-permissions",
        "Save permissions",
        "Save the permission objects of users",
        (Entry("backup_permissions", "File", "The file to write.", "file", True),),
    ),
    Operation(
        "restore-permissions",
        "Load permissions",
        "Load them; running workloads of users are affected",
        (Entry("restore_permissions", "File", "A file of Save permissions.", "file", True),),
    ),
    Operation("configure-ingress", "Configure Ingress", "Configure Ingress Server Certificate"),
    Operation("list-operators", "List operators", "Show operators and whether their API is available"),
    Operation("update-addons", "Update add-ons", "Bring the manifests of this release to the cluster"),
    Operation(
        "pull",
        "Pull images",
        "Pull images to nodes before pods need them",
        (
            Entry("images", "Images", "The images, with commas.", is_needed=True),
            Entry("nodes", "Nodes", f"{_NODES} Empty: all of the cluster.", check=_member),
            Entry("node_selector", "Labels", "Only nodes with these labels: a=b, a!=b, with commas. Empty: any."),
        ),
    ),
    Operation(
        "add-nodes",
        "Add nodes",
        "Make nodes part of a cluster",
        (
            Entry("add_nodes", "Nodes", _NODES, is_needed=True, check=_free),
            Entry("control_plane", "Control plane", "Add them as control plane nodes.", "switch"),
        ),
    ),
    Operation(
        "remove-nodes",
        "Remove nodes",
        "Drain nodes and take them out of a cluster",
        (Entry("remove_nodes", "Nodes", _NODES, is_needed=True, check=_member),),
    ),
    Operation(
        "upgrade",
        "Upgrade",
        "Bring a cluster to another version of Kubernetes, node by node",
        (
            Entry("upgrade", "Version", "No minor release is skipped.", "choice", True, tuple(minors())),
            Entry("plan", "Plan only", "Show which node is upgraded when, and what is in the way.", "switch"),
            Entry("delete_emptydir_data", "Lose emptyDir", "Drain pods although they lose their emptyDir.", "switch"),
        ),
    ),
    Operation("certificates", "Certificates", "Show when the certificates of a cluster's nodes end"),
    Operation("renew-certificates", "Renew certificates", "Renew those that kubeadm issued"),
    Operation(
        "etcd-snapshot",
        "Snapshot",
        "Take a snapshot of etcd, and check it",
        (Entry("etcd_snapshot", "File", "Where to copy it. Empty: it is kept on the head alone."),),
    ),
    Operation("etcd-snapshots", "Snapshots", "Show the snapshots of a cluster"),
    Operation(
        "etcd-restore",
        "Restore",
        "Put a snapshot in the place of etcd's data",
        (
            Entry("etcd_restore", "Snapshot", "A file, or the name of one of Snapshots.", is_needed=True),
            _confirmation("What was written since the snapshot is lost. The name of the cluster confirms it."),
        ),
    ),
    Operation(
        "remove",
        "Remove",
        "Remove a cluster",
        (_confirmation("Everything in the cluster is destroyed. Its name confirms it."),),
    ),
)


def operations(site: Site, *, is_interrupted: bool = False) -> list[Operation]:
    """What the first screen offers: Deploy and Exit alone before there is a cluster."""
    interrupted = (_RESUME, _UNDO) if is_interrupted else ()
    return [_DEPLOY, *interrupted, *(_LATER if site.clusters else ()), _EXIT]


class Asking:
    """What is asked before an operation begins; without entries it begins at once."""

    def __init__(self, operation: Operation, site: Site) -> None:
        self.operation = operation
        self._site = site
        self._names = tuple(sorted(site.clusters))
        is_about_one = operation in _LATER and len(self._names) > 1
        which = (Entry("cluster", "Cluster", "The cluster that is meant.", "choice", True, self._names),)
        self.entries: tuple[Entry, ...] = (*(which if is_about_one else ()), *operation.entries)
        self._typed = {entry.flag: (entry.options or ("",))[0] for entry in self.entries}

    @property
    def cluster(self) -> str:
        """The cluster that is meant, as far as it is known."""
        return self._typed.get("cluster") or (self._names[0] if self._names else "")

    def text(self, entry: Entry) -> str:
        return self._typed[entry.flag]

    def type(self, entry: Entry, text: str) -> None:
        self._typed[entry.flag] = text.strip()

    def problems(self) -> dict[str, str]:
        """What is wrong, by flag."""
        return {entry.flag: why for entry in self.entries if (why := self._wrong(entry))}

    def _wrong(self, entry: Entry) -> str:
        text = self.text(entry)
        if not text and entry.kind != "name of the cluster":
            return "this is needed" if entry.is_needed else ""
        return entry.check(text, self.cluster, self._site) if entry.check is not None else ""

    def values(self) -> dict[str, Any]:
        """The flags that the answers stand for."""
        return dict(self._given())

    def _given(self) -> Iterable[tuple[str, Any]]:
        for entry in self.entries:
            text = self.text(entry)
            if entry.kind == "name of the cluster" or (entry.kind == "switch" and text == "yes"):
                yield entry.flag, True
            elif text and entry.kind != "switch":
                yield entry.flag, pathlib.Path(text) if entry.kind == "file" else text
