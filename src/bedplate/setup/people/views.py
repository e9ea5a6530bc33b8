"""What people see of users: the table and the JSON of `--list-users`, the rows of `--get-user`. Pure.

In: grants. Out: text. A user with rights in several namespaces has a row for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bedplate.people.grants import Grant
from bedplate.people.settings import CLUSTER_ADMIN

__all__ = ["COLUMNS", "described", "json_of", "record", "table"]

COLUMNS = ("USER", "NAMESPACE", "ROLE", "UID", "GIDS", "PATHS", "ALL-UIDS", "OPERATORS")
EVERYWHERE = "*"
"""The namespace of an administrator of the whole cluster."""


def record(grant: Grant) -> dict[str, Any]:
    """A grant for programs."""
    return {
        "user": grant.user,
        "namespace": namespace_of(grant),
        "role": grant.role,
        "uid": grant.uid,
        "gids": list(grant.gids),
        "paths": list(grant.paths),
        "all_uids": grant.allow_all_uids,
        "operators": list(grant.operators),
        "object": grant.name,
        "since": grant.created,
        "certificate_expires": _day(grant),
        "ready": grant.is_ready,
        "message": grant.message,
    }


def namespace_of(grant: Grant) -> str:
    """Where a grant holds."""
    return EVERYWHERE if grant.role == CLUSTER_ADMIN else grant.namespace


def _day(grant: Grant) -> str | None:
    return grant.expires.strftime("%Y-%m-%d") if grant.expires else None


def json_of(grants: Iterable[Grant]) -> str:
    """One JSON list."""
    return msgspec.json.format(msgspec.json.encode([record(grant) for grant in grants]), indent=2).decode()


def table(grants: Iterable[Grant]) -> str:
    """The columns aligned, `-` where there is nothing."""
    rows = [
        (
            grant.user,
            namespace_of(grant),
            grant.role,
            str(grant.uid),
            _joined(grant.gids),
            _joined(grant.paths),
            "yes" if grant.allow_all_uids else "no",
            _joined(grant.operators),
        )
        for grant in grants
    ]
    cells = [COLUMNS, *rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(COLUMNS))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _joined(values: Iterable[object]) -> str:
    return ",".join(str(value) for value in values) or "-"


def described(grants: Sequence[Grant]) -> str:
    """Everything about one user, a block for each namespace."""
    return "\n\n".join(_block(grant) for grant in grants)


def _block(grant: Grant) -> str:
    rows = (
        ("User", grant.user),
        ("Namespace", namespace_of(grant)),
        ("Role", grant.role),
        ("UID", str(grant.uid)),
        ("GIDs", _joined(grant.gids)),
        ("Paths", _joined(grant.paths)),
        ("All UIDs", "yes" if grant.allow_all_uids else "no"),
        ("Operators", _joined(grant.operators)),
        ("Object", grant.name),
        ("Since", grant.created or "-"),
        ("Certificate expires", _day(grant) or "-"),
        ("Ready", "yes" if grant.is_ready else f"no: {grant.message or 'not taken up by a permission manager yet'}"),
    )
    width = max(len(title) for title, _ in rows) + 1
    return "\n".join(f"{title + ':':{width}} {value}".rstrip() for title, value in rows)
