"""What people are told about an application: notices when it comes to stand otherwise, and its state.

In: how it stood and how it stands. Out: notices without numbers, `api.headapi.ApplicationState`. Pure. An application
that fails again for the same reason is not reported again.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api.headapi import ApplicationState, ObjectFailure
from bedplate.api.states import Applied
from bedplate.head.applications.planning import Key
from bedplate.head.applications.records import Application, Item
from bedplate.head.notices import News

__all__ = ["shown", "told"]

_NAMED = 3


def told(
    before: Application | None,
    after: Application | None,
    key: Key,
    *,
    repaired: Sequence[Item] = (),
    deleted: Sequence[Item] = (),
    kept: Sequence[tuple[Item, str]] = (),
    revision: int = 0,
) -> list[News]:
    """What a pass over an application made of it; None where nothing is recorded."""
    host = after.cluster if after is not None else before.cluster if before is not None else ""
    what = f"Application {key}"
    news = []
    if after is not None and after.state == "failed":
        if before is None or before.failures != after.failures:
            first = after.failures[0]
            more = f" (and {len(after.failures) - 1} more)" if len(after.failures) > 1 else ""
            where = f"{first.object}: " if first.object else ""
            news.append(News(host, f"{what} failed: {where}{first.reason}{more}", "warning", revision))
    elif after is not None and after.state == "applied":
        if before is None or before.state != "applied":
            news.append(News(host, f"{what} was applied: {_count(len(after.objects))}", "notice", revision))
        elif repaired:
            news.append(News(host, f"{what} was changed by others and repaired: {_three(repaired)}"))
    known = before.warnings if before is not None else ()
    news += [
        News(host, f"{what}: {warning}", "warning", revision)
        for warning in (after.warnings if after is not None else ())
        if warning not in known
    ]
    if deleted:
        news.append(News(host, f"{what}: deleted {_three(deleted)}", "notice", revision))
    news += [News(host, f"{what}: {item} was kept: {why}", "warning", revision) for item, why in kept]
    if after is None and before is not None:
        news.append(News(host, f"{what} was removed from the cluster", "notice", revision))
    return news


def _count(number: int) -> str:
    return "1 object" if number == 1 else f"{number} objects"


def _three(items: Sequence[Item]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(str(item) for item in items[:_NAMED]) + more


def shown(cluster: str, key: Key, record: Application | None, *, is_enabled: bool, is_empty: bool) -> ApplicationState:
    """How an application stands, for people and programs. One without manifests has nothing to wait for."""
    if record is None:
        state: Applied = "disabled" if not is_enabled else "applied" if is_empty else "pending"
        return ApplicationState(cluster=cluster, group=key.group, name=key.name, state=state)
    return ApplicationState(
        cluster=cluster,
        group=key.group,
        name=key.name,
        state=record.state,
        since=record.since,
        objects=len(record.objects),
        failures=[ObjectFailure(object=trouble.object, reason=trouble.reason) for trouble in record.failures],
        warnings=list(record.warnings),
    )
