"""Notices as a shell shows them: what happened on nodes, and what other people committed.

In: the events of a backend. Out: lines such as `Thu Oct 31 15:58:56 2024 [notice] basecm10: Service shorewall was
restarted`, in local time. Who shows them, and when, is the terminal's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from bedplate.api.headapi import Notice, Revision
from bedplate.core.clock import parse_rfc3339
from bedplate.head import changes
from bedplate.head.schema import ranges
from bedplate.ui.backend import Event

__all__ = ["gathered", "line", "of_revision", "shown"]

_NAMED = 3
_MANY = 3


def line(notice: Notice) -> str:
    """A notice as the manual prints it, its time in the zone of this machine."""
    try:
        moment = time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(parse_rfc3339(notice.time).timestamp()))
    except ValueError:
        moment = notice.time
    return f"{moment} [{notice.severity}] {notice.host}: {notice.text}"


def of_revision(revision: Revision, head: str) -> Notice:
    """What a commit of somebody else looks like among the notices: who, which number, which objects."""
    objects = [f"{mode}[{key}]" for mode, key in dict.fromkeys(map(changes.address, revision.changes))]
    named = ", ".join(objects[:_NAMED])
    if len(objects) > _NAMED:
        named += f" and {len(objects) - _NAMED} more"
    message = f" ({revision.message})" if revision.message else ""
    text = f"{revision.author} committed revision {revision.number}: {named}{message}"
    return Notice(id=0, time=revision.time, severity="notice", host=head, text=text)


def shown(event: Event, head: str, own: Callable[[int], bool]) -> Notice | None:
    """What is shown of an event: a notice as it is, a commit unless it is one's own."""
    if isinstance(event, Notice):
        return event
    return None if own(event.number) else of_revision(event, head)


def gathered(news: Iterable[Notice]) -> list[Notice]:
    """Notices of one moment, in their order; what three or more hosts say alike is said once, for all of them."""
    alike: dict[tuple[str, str], list[Notice]] = {}
    for notice in news:
        alike.setdefault((notice.severity, notice.text), []).append(notice)
    told: list[Notice] = []
    for same in alike.values():
        hosts = {notice.host for notice in same}
        told += [msgspec.structs.replace(same[-1], host=ranges.compress(hosts))] if len(hosts) >= _MANY else same
    return sorted(told, key=lambda notice: notice.time)
