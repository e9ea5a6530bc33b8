"""Who may do what, for people and programs. Pure.

In: the grants of a cluster and what the last pass decided about users of the tree. Out: `PersonState` values in the
order of user and namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from bedplate.api.headapi import PeopleState, PersonState
from bedplate.api.states import Granted
from bedplate.core import clock
from bedplate.head.people import renewing
from bedplate.head.people.deciding import Verdict
from bedplate.people import grants
from bedplate.people.grants import Grant
from bedplate.people.settings import CLUSTER_ADMIN

__all__ = ["PeopleFollower", "shown"]

EVERYWHERE = "*"
_WAITING = "no permission manager has answered yet"


class PeopleFollower(Protocol):
    """What works on the users of one cluster."""

    async def run(self, file: Path) -> None:
        """Work with that kubeconfig until cancelled."""
        ...

    def state(self) -> PeopleState:
        """Who may do what there."""
        ...


def shown(
    cluster: str,
    observed: Iterable[Grant],
    verdicts: Mapping[tuple[str, str], Verdict],
    reasons: Mapping[tuple[str, str], str],
    access: Mapping[str, str],
    tree: Collection[str],
) -> list[PersonState]:
    """All users: those of the cluster, and those of the tree of whom nothing was made. `reasons` are failures of
    writes, `access` of certificates, by user; `tree` are the users of the tree."""
    present = list(observed)
    rows = [_row(cluster, grant, present, verdicts, reasons, access, tree) for grant in present]
    there = {(grant.user, grant.namespace) for grant in present}
    for key, verdict in verdicts.items():
        if key not in there and not verdict.is_removal:
            rows.append(_row(cluster, verdict.grant, present, verdicts, reasons, access, tree))
    for user, namespace in reasons.keys() - there - verdicts.keys():
        rows.append(
            PersonState(
                cluster=cluster,
                user=user,
                namespace=namespace,
                role="",
                owner="tree",
                state="failed",
                reason=reasons[user, namespace],
            )
        )
    return sorted(rows, key=lambda row: (row.user, row.namespace, row.object))


def _row(
    cluster: str,
    grant: Grant,
    present: Collection[Grant],
    verdicts: Mapping[tuple[str, str], Verdict],
    reasons: Mapping[tuple[str, str], str],
    access: Mapping[str, str],
    tree: Collection[str],
) -> PersonState:
    key = (grant.user, grant.namespace)
    verdict = verdicts.get(key)
    state, reason = _state(grant, verdict, reasons.get(key, ""))
    own = [other for other in present if other.user == grant.user]
    last = renewing.newest(own)
    is_ours = grant.owner in (grants.OWNED, grants.LEAVING) or (grant.user in tree and verdict is not None)
    return PersonState(
        cluster=cluster,
        user=grant.user,
        namespace=EVERYWHERE if grant.role == CLUSTER_ADMIN else grant.namespace,
        role=grant.role,
        owner="tree" if is_ours else "cluster",
        state=state,
        reason=reason,
        uid=grant.uid if grant.uid >= 0 else None,
        gids=[gid for gid in grant.gids if gid >= 0],
        paths=list(grant.paths),
        all_uids=grant.allow_all_uids,
        operators=list(grant.operators),
        shared=not grant.create_namespace,
        object=grant.name,
        since=grant.created,
        expires=clock.rfc3339(last.expires) if last is not None and last.expires is not None else "",
        access=access.get(grant.user, ""),
    )


def _state(grant: Grant, verdict: Verdict | None, failure: str) -> tuple[Granted, str]:
    if verdict is not None and verdict.is_removal:
        return "removing", failure
    if verdict is not None and verdict.conflict:
        return "conflict", verdict.conflict
    if failure or (verdict is not None and verdict.problem):
        return "failed", failure or (verdict.problem if verdict is not None else "")
    if grant.owner == grants.LEAVING:
        return "removing", ""
    if grant.is_ready:
        return "ready", ""
    return ("failed", grant.message) if grant.message else ("pending", _WAITING)
