"""What the user management of `cm-kubernetes-setup` is asked to do: the meaning of its flags, as they were typed.

In: the values of a command line. Out: one frozen `Request` for `bedplate.setup.people.perform`. Values are kept as
text and are not checked here: `plan.py` reports every problem of a request at once, so that a parser in front of it
needs no rules of its own. None means that the flag was not given; `""` that it was given without a value, as in
`--operators ""`.
"""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec

__all__ = ["Action", "Cluster", "Request"]


class Action(enum.StrEnum):
    """Which of the flags that name an action was given. A command line has at most one of them."""

    ADD = "--add-user"
    MODIFY = "--modify-user"
    REMOVE = "--remove-user"
    LIST = "--list-users"
    GET = "--get-user"
    RENEW = "--renew-user"
    BACKUP = "--backup-permissions"
    RESTORE = "--restore-permissions"


class Cluster(msgspec.Struct, frozen=True):
    """A cluster that the request may be about: its name, and an administrator's kubeconfig for it."""

    name: str
    kubeconfig: Path


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the user management.

    `clusters` has one entry for `--cluster-kubeconfig FILE` (name it after `--cluster`, else ""), and one for each
    cluster of the head otherwise; with several of them `cluster` (`--cluster`) must name one.
    """

    action: Action
    clusters: tuple[Cluster, ...]
    cluster: str = ""
    user: str = ""  # the value of --add-user and the like; "" with is_interactive
    file: Path | None = None  # of --backup-permissions and --restore-permissions
    namespace: str | None = None
    add_to_namespace: bool = False
    remove_from_namespace: bool = False
    role: str | None = None
    runas_uid: str | None = None
    runas_gids: str | None = None
    user_paths: str | None = None
    allow_all_uids: bool | None = None  # --allow-all-uids is True, --no-allow-all-uids is False
    operators: str | None = None
    force: bool = False  # --force: take a namespace of the user away in which pods run
    as_json: bool = False  # --json of --list-users and --get-user
    is_interactive: bool = False  # ask the eight questions; --add-user without a value, and the wizard's entry
    ca_certificate: Path | None = None  # --ca-cert: the cluster's CA, where it does not sign by itself
    ca_key: Path | None = None  # --ca-key
    days: int | None = None  # --certificate-days: lifetime of the client certificate, 365 by default
    timeout_s: float = 60.0  # --timeout: how long to wait for the permission manager and for the certificate
    verbose: bool = False
