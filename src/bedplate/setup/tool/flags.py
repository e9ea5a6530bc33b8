"""Every flag of cm-kubernetes-setup, declared once: its group in the help, its value, the actions that it belongs to.

In: nothing. Out: `FLAGS`, of which `command` makes the parser. A flag given with an action that it does not belong to
is refused, so that none is accepted without an effect.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from bedplate.setup.engine.choices import ACTIONS

__all__ = ["ACTION_FLAGS", "DEPLOY", "DEV_FLAGS", "DEV_GROUP", "FLAGS", "GROUPS", "RUNS", "Flag", "by_name"]

GROUPS = (
    "optional arguments",
    "common",
    "Supported versions information",
    "installing Kubernetes clusters",
    "user management",
    "backup or restore Permission Manager user configurations",
    "list available operators",
    "update kubernetes addons",
    "upgrading Kubernetes clusters",
    "removing Kubernetes clusters",
    "pulling images to the nodes",
    "docker.io",
    "ingress certificate",
    "certificates and etcd snapshots",
    "kubeadm",
    "containerd",
    "netq",
    "Docker storage backend specific",
    "advanced",
)
DEV_GROUP = "development"
"""The group of what --dev unlocks; help shows it with --dev alone."""

DEPLOY = "deploy"
"""The action of a command line without another one: with -c FILE a deployment, without it the wizard."""
PEOPLE_WRITE = ("add-user", "modify-user")
_BACKUPS = ("backup-permissions", "restore-permissions")
PEOPLE = (*PEOPLE_WRITE, "remove-user", "list-users", "get-user", "renew-user", *_BACKUPS)
NODES = ("add-nodes", "remove-nodes")
CLUSTERS = ("update-addons", "pull")
"""Actions on a cluster that is there."""
_INGRESS, _RESTORE = "configure-ingress", "etcd-restore"
_ASKED = ("etcd-snapshot", "etcd-snapshots", "certificates", "renew-certificates")
CARE = (_INGRESS, _RESTORE, *_ASKED)
"""Actions for running clusters."""
STARTS = (DEPLOY, "upgrade", "remove", *NODES, _INGRESS, _RESTORE)
RUNS = (*STARTS, "resume", "undo")
"""Actions that run stages."""

_path = click.Path(path_type=pathlib.Path, dir_okay=False)
_folder = click.Path(path_type=pathlib.Path, file_okay=False)


@dataclass(frozen=True)
class Flag:
    """A flag. `actions` are those it may be given with; None: all."""

    name: str
    group: str
    help: str
    kind: Any = None
    """A click type, or None for a flag without a value."""
    metavar: str = ""
    actions: tuple[str, ...] | None = None
    is_action: bool = False
    letter: str = ""
    is_multiple: bool = False
    is_bare: bool = False
    """Whether the value may be left out: it is then empty."""

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")

    def option(self) -> click.Option:
        words = [f"--{self.name}", *([f"-{self.letter}"] if self.letter else []), self.attribute]
        if self.name == "config":
            words = ["-c", self.attribute]
        if self.kind is None:
            return click.Option(words, is_flag=True, help=self.help)
        bare: dict[str, Any] = {"is_flag": False, "flag_value": ""} if self.is_bare else {}
        return click.Option(
            words, type=self.kind, metavar=self.metavar or None, help=self.help, multiple=self.is_multiple, **bare
        )


def _users() -> tuple[Flag, ...]:
    group = "user management"
    asked = (*PEOPLE_WRITE,)
    return (
        Flag("add-user", group, _ADD, str, "[USER]", is_action=True, is_bare=True),
        Flag("list-users", group, "Show all configured users.", is_action=True),
        Flag("get-user", group, "Show one user.", str, "USER", is_action=True),
        Flag("modify-user", group, "Change a user.", str, "USER", is_action=True),
        Flag("remove-user", group, "Delete a user.", str, "USER", is_action=True),
        Flag("renew-user", group, "Issue a new client certificate for a user.", str, "USER", is_action=True),
        Flag(
            "namespace", group, "Namespace of the binding. [default: USER-restricted]", str, "NS", (*asked, "get-user")
        ),
        Flag("add-to-namespace", group, "Grant the role in the namespace, which must exist.", None, "", asked),
        Flag("remove-from-namespace", group, "Revoke the role in the namespace.", None, "", ("modify-user",)),
        Flag(
            "role",
            group,
            "edit, admin, view or cluster-admin, for which the namespace does not matter. [default: edit]",
            click.Choice(["edit", "admin", "view", "cluster-admin"]),
            "ROLE",
            asked,
        ),
        Flag("runas-uid", group, "UID of unprivileged pods. [default: the user's]", str, "UID", asked),
        Flag("runas-gids", group, "GIDs, with commas. [default: the user's]", str, "GIDS", asked),
        Flag("user-paths", group, "Mountable host paths, with commas. [default: /home/USER]", str, "PATHS", asked),
        Flag("allow-all-uids", group, "Allow any UID; host paths are then refused.", None, "", asked),
        Flag("no-allow-all-uids", group, "Allow the UID of the user alone.", None, "", asked),
        Flag("operators", group, "Operators that the user may use, with commas.", str, "NAMES", asked),
        Flag(
            "cluster-kubeconfig",
            group,
            "Kubeconfig of an administrator, for a cluster that the head does not know.",
            _path,
            "FILE",
            (*PEOPLE, "list-operators"),
        ),
        Flag("ca-cert", group, "The cluster's authority, where it does not sign itself.", _path, "FILE", _SIGNING),
        Flag("ca-key", group, "The key of that authority.", _path, "FILE", _SIGNING),
        Flag("certificate-days", group, "Lifetime of the client certificate. [default: 365]", _days, "DAYS", _SIGNING),
        Flag("force", group, "Also where pods run, or others gave the user rights.", None, "", _FORCED),
        Flag("timeout", group, "How long to wait for the cluster. [default: 60]", _seconds, "SECONDS", PEOPLE),
    )


def _installs() -> tuple[Flag, ...]:
    """What leaves stages of a deployment out."""
    deploy = (DEPLOY,)
    return (
        Flag("skip-docker", _INSTALL, "Leave out the stages of Docker.", None, "", deploy),
        Flag("skip-reboot", _INSTALL, "Do not reboot nodes whose system asks for it.", None, "", deploy),
        Flag(
            "skip-image-update",
            _INSTALL,
            "Leave software images of the nodes as they are.",
            None,
            "",
            (DEPLOY, "upgrade"),
        ),
        Flag("skip-dns-configuration-check", _INSTALL, "Do not check the DNS configuration.", None, "", deploy),
        Flag(
            "skip-package-manager-update-check",
            _INSTALL,
            "Do not check that the package index can be refreshed.",
            None,
            "",
            deploy,
        ),
        Flag(
            "skip-install-repos",
            _INSTALL,
            "Write no repositories of Kubernetes and Helm; they must be configured.",
            None,
            "",
            deploy,
        ),
        Flag(
            "skip-package-install",
            _INSTALL,
            "Install no packages, whatever kubernetes.skip.packages says; they must be there.",
            None,
            "",
            deploy,
        ),
        Flag(
            "skip-disksetup-changes",
            _INSTALL,
            "Do not make etcd nodes data nodes; the disk layout is ready.",
            None,
            "",
            deploy,
        ),
    )


def _pulls() -> tuple[Flag, ...]:
    group, pull = "pulling images to the nodes", ("pull",)
    return (
        Flag("pull", group, "Pull images to nodes of a cluster, through their agents.", is_action=True),
        Flag("images", group, "The images, with commas.", str, "IMAGES", pull),
        Flag("nodes", group, "Nodes, with commas, or ranges. [default: all of the cluster]", str, "NODES", pull),
        Flag("node-selector", group, "Only nodes with these labels: a=b, a==b, a!=b, with commas.", str, "QUERY", pull),
        Flag("pull-registry-server", group, "The registry that the login is for.", str, "HOST[:PORT]", pull),
        Flag("pull-registry-username", group, "The user of that registry.", str, "USER", pull),
        Flag("pull-registry-email", group, "The mail address of that user; it is not sent.", str, "EMAIL", pull),
        Flag("pull-registry-password", group, "Its password; - reads it from standard input.", str, "PASSWORD", pull),
        Flag("docker-io-username", "docker.io", "The user of Docker Hub.", str, "USER", (DEPLOY, *pull)),
        Flag(
            "docker-io-password",
            "docker.io",
            "Its password; - reads it from standard input.",
            str,
            "PASSWORD",
            (DEPLOY, *pull),
        ),
    )


def _upgrades() -> tuple[Flag, ...]:
    group = "upgrading Kubernetes clusters"
    drained = ("upgrade", "resume")
    return (
        Flag("upgrade", group, "Upgrade a cluster, node by node, as 1.35 or 1.35.4.", str, "VERSION", is_action=True),
        Flag(
            "rehearse",
            group,
            "Do it in a lab on this machine that stands for the cluster, which is not changed. Needs root.",
            None,
            "",
            ("upgrade",),
        ),
        Flag("rehearse-workers", group, "Workers of that lab at most. [default: 2]", _lab_workers, "N", ("upgrade",)),
        Flag("batch", group, "Workers that are upgraded together. [default: 1]", _batch, "N", ("upgrade",)),
        Flag("delete-emptydir-data", group, "Drain pods although they lose their emptyDir volumes.", None, "", drained),
        Flag("delete-unmanaged-pods", group, "Drain pods that no controller makes again.", None, "", drained),
        Flag("disable-eviction", group, "Delete pods whose disruption budget does not let them go.", None, "", drained),
        Flag(
            "drain-timeout",
            group,
            "How long to wait for the pods of a node. [default: 300]",
            _seconds,
            "SECONDS",
            drained,
        ),
    )


def _cares() -> tuple[Flag, ...]:
    ingress, group = "ingress certificate", "certificates and etcd snapshots"
    pair = "Certificate of the ingress, PEM, with its chain. [default: one is made, by an authority of its own]"
    return (
        Flag("configure-ingress", ingress, "Give the ingress of a cluster its certificate.", is_action=True),
        Flag("certificate", ingress, pair, _path, "FILE", (_INGRESS,)),
        Flag("certificate-key", ingress, "Its key.", _path, "FILE", (_INGRESS,)),
        Flag(
            "trusted-domains",
            ingress,
            "Names of the certificate that is made, with commas. [default: those of the cluster]",
            str,
            "NAMES",
            (_INGRESS,),
        ),
        Flag(
            "pki",
            ingress,
            "Folder with a folder of certificates for each cluster. [default: /etc/kubernetes/pki]",
            _folder,
            "DIR",
            (_INGRESS,),
        ),
        Flag("certificates", group, "Show when the certificates of a cluster's nodes end.", is_action=True),
        Flag("renew-certificates", group, "Renew those that kubeadm issued.", is_action=True),
        Flag(
            "etcd-snapshot",
            group,
            "Take a snapshot of etcd, check it, and copy it to FILE; it is kept on the head in any case.",
            str,
            "[FILE]",
            is_action=True,
            is_bare=True,
        ),
        Flag("etcd-snapshots", group, "Show the snapshots of a cluster.", is_action=True),
        Flag(
            "etcd-restore",
            group,
            "Put a snapshot, a file or one of --etcd-snapshots, in the place of etcd's data; undone if it fails.",
            str,
            "FILE",
            is_action=True,
        ),
        Flag(
            "accept-other-authority",
            group,
            "Restore also a snapshot from before the cluster got its authority, or of a cluster that it replaces.",
            None,
            "",
            (_RESTORE,),
        ),
    )


_batch = click.IntRange(1, 1000)
_lab_workers = click.IntRange(0, 50)
_days = click.IntRange(1, 3650)
_seconds = click.FloatRange(1, 3600)
_SIGNING = ("add-user", "renew-user")
_FORCED = ("modify-user", "remove-user")
_LISTS = ("list-versions", "list-operators-versions", "list-operators")
_ADD = "Create a Kubernetes user; without a name, ask for it and for all settings."
_INSTALL = "installing Kubernetes clusters"

FLAGS: tuple[Flag, ...] = (
    Flag(
        "cluster",
        "optional arguments",
        "Name of the cluster. [default: the only one]",
        str,
        "NAME",
        (*RUNS, "list-operators", *CLUSTERS, *PEOPLE, *_ASKED),
    ),
    Flag("config", "common", "Answers, in YAML: run without questions.", _path, "FILE", (DEPLOY,), letter="c"),
    Flag("plan", "common", "Print the stages of the run, and run none.", None, "", STARTS),
    Flag("resume", "common", "Continue a run that was interrupted or failed.", is_action=True),
    Flag("undo", "common", "Take back what such a run did.", is_action=True),
    Flag("url", "common", "URL of a head; repeat it for every head of the site.", str, "URL", is_multiple=True),
    Flag("data", "common", "The data folder of a head on this machine.", _folder, "DIR"),
    Flag("served", "common", "Wait for the daemon that serves --data; never open the folder."),
    Flag("token-file", "common", "Bearer token for the head.", _path, "FILE"),
    Flag("cert", "common", "Client certificate for the head.", _path, "FILE"),
    Flag("key", "common", "Its key.", _path, "FILE"),
    Flag("cacert", "common", "The authority that signed the head's certificate.", _path, "FILE"),
    Flag(
        "list-versions",
        "Supported versions information",
        "Print the supported minor releases of Kubernetes, newest first.",
        is_action=True,
    ),
    Flag(
        "list-operators-versions",
        "Supported versions information",
        "Print the versions of operators.",
        is_action=True,
    ),
    *_installs(),
    Flag(
        "kubeconfig-of",
        _INSTALL,
        "Print the path of an administrator's kubeconfig of a cluster.",
        str,
        "CLUSTER",
        is_action=True,
    ),
    Flag(
        "add-nodes",
        _INSTALL,
        "Add nodes to a cluster: names and ranges such as node[004-006], with commas.",
        str,
        "NODES",
        is_action=True,
    ),
    Flag("control-plane", _INSTALL, "Add them as control plane nodes.", None, "", ("add-nodes",)),
    *_users(),
    Flag(
        "backup-permissions",
        "backup or restore Permission Manager user configurations",
        "Save the permission objects.",
        _path,
        "FILE",
        is_action=True,
    ),
    Flag(
        "restore-permissions",
        "backup or restore Permission Manager user configurations",
        "Load them; running workloads of users are affected.",
        _path,
        "FILE",
        is_action=True,
    ),
    Flag(
        "list-operators",
        "list available operators",
        "Show operators, and whether their API is available.",
        is_action=True,
    ),
    Flag(
        "update-addons",
        "update kubernetes addons",
        "Bring the manifests of this release to the applications of a cluster, and show what changed.",
        is_action=True,
    ),
    *_upgrades(),
    Flag("remove", "removing Kubernetes clusters", "Remove a cluster.", is_action=True),
    Flag(
        "yes-i-really-mean-it",
        "removing Kubernetes clusters",
        "Mandatory with --remove and --etcd-restore.",
        None,
        "",
        ("remove", _RESTORE),
    ),
    Flag(
        "remove-ceph-storage",
        "removing Kubernetes clusters",
        "Also delete the pool of the cluster's volumes in Ceph.",
        None,
        "",
        ("remove",),
    ),
    Flag(
        "remove-nodes",
        "removing Kubernetes clusters",
        "Drain nodes and take them out of a cluster.",
        str,
        "NODES",
        is_action=True,
    ),
    *_pulls(),
    *_cares(),
    Flag("kubeadm-image-repository", "kubeadm", "Where kubeadm takes images from.", str, "REPOSITORY", (DEPLOY,)),
    Flag("containerd-sandbox-image", "containerd", "The image of pod sandboxes.", str, "IMAGE", (DEPLOY,)),
    Flag("skip-netq-prerequisites-checks", "netq", "Do not check what NetQ needs.", None, "", (DEPLOY,)),
    Flag(
        "allow-device-mapper",
        "Docker storage backend specific",
        "Offer the deprecated storage backend devicemapper, and accept it from a file.",
        None,
        "",
        (DEPLOY,),
    ),
    Flag("verbose", "advanced", "Log more, and show tracebacks.", letter="v"),
    Flag(
        "store-name-aliases",
        "advanced",
        "Save head nodes and the default category by alias, so that the file fits another site.",
        None,
        "",
        (DEPLOY,),
    ),
    Flag("no-distro-checks", "advanced", "Do not check the distribution of the nodes.", None, "", (DEPLOY,)),
    Flag(
        "json",
        "advanced",
        "Print JSON, one object in each line.",
        None,
        "",
        (*RUNS, *PEOPLE, *CLUSTERS, *_LISTS, "etcd-snapshot", "etcd-snapshots", "certificates"),
    ),
    Flag(
        "output-remote-execution-runner",
        "advanced",
        "Print lines for the daemon's remote execution.",
        None,
        "",
        (*RUNS, "list-operators"),
    ),
    Flag(
        "on-error-action",
        "advanced",
        "What to do after a critical error: debug, remotedebug, undo or abort. [default: ask]",
        click.Choice(ACTIONS),
        "ACTION",
        (*STARTS, "resume"),
    ),
    Flag("skip-packages", "advanced", "Install no packages; they must be there.", None, "", (DEPLOY,)),
    Flag(
        "min-reboot-timeout",
        "advanced",
        "How long to wait for reboots. [default: 300, which is the minimum]",
        click.IntRange(300, 86400),
        "SECONDS",
        (DEPLOY,),
    ),
    Flag("strict", "advanced", "Refuse nodes below 16 GB of memory or 2 cores.", None, "", (DEPLOY,)),
    Flag(
        "allow-running-from-secondary",
        "advanced",
        "Run on a head node that is not the active one.",
        None,
        "",
        RUNS,
    ),
    Flag(
        "log-file",
        "advanced",
        "The log file. [default: /var/log/cm-kubernetes-setup.log]",
        _path,
        "FILE",
        RUNS,
    ),
    Flag(
        "state",
        "advanced",
        "Folder with the journals of runs. [default: setup in the head's data folder, or /var/lib/bedplate-setup]",
        _folder,
        "DIR",
        RUNS,
    ),
    Flag("dev", "advanced", "Unlock further arguments; --help --dev shows them."),
)

DEV_FLAGS: tuple[Flag, ...] = (
    Flag(
        "stop-after",
        DEV_GROUP,
        "End the run as interrupted once that stage is done; --resume and --undo continue.",
        str,
        "STAGE",
        (*STARTS, "resume"),
    ),
    Flag("fail-at", DEV_GROUP, "Let that stage fail, to try --on-error-action.", str, "STAGE", (*STARTS, "resume")),
)
"""What is refused without --dev."""

ACTION_FLAGS: tuple[Flag, ...] = tuple(flag for flag in FLAGS if flag.is_action)


def by_name() -> dict[str, Flag]:
    return {flag.name: flag for flag in FLAGS}


def in_group(group: str) -> Sequence[Flag]:
    return [flag for flag in FLAGS if flag.group == group]
