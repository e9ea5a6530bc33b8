"""The page of people: who may do what in a Kubernetes cluster, since when, and until when their certificates hold.

In: what the head knows of a cluster's users, and what is staged. Out: the page; the staged take-over of a user whom the
tree does not have. Users are added, edited and removed by the forms of the tree, with its validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from aiohttp import web

from bedplate.api.headapi import PeopleState, PersonState
from bedplate.core import clock, errors
from bedplate.head import Path
from bedplate.head.people.adopting import as_object
from bedplate.ui.web import links
from bedplate.ui.web.edits import allow
from bedplate.ui.web.visit import Visit

__all__ = ["adopt", "people"]

_SOON = timedelta(days=30)


class Line(NamedTuple):
    """A row of the page. `tone` is that of the day on which the certificate expires."""

    row: PersonState
    day: str
    tone: str
    is_staged: bool
    is_in_tree: bool


class Section(NamedTuple):
    """A cluster with its users, and those that are staged alone."""

    state: PeopleState
    lines: list[Line]
    staged: list[str]
    place: Path


async def people(visit: Visit) -> web.StreamResponse:
    """The users of one cluster, or of all."""
    name = visit.request.match_info.get("cluster", "")
    if name:
        visit.tree.get(("kubernetes", name))
    names = [name] if name else sorted(visit.tree.mode("kubernetes"))
    sections = [_section(visit, name) for name in names]
    return visit.page("people.html", f"People on {name}" if name else "People", sections=sections, only=name)


def _section(visit: Visit, cluster: str) -> Section:
    place = ("kubernetes", cluster, "kubernetes_users")
    users = visit.tree.get(place[:2]).below(place[2])
    clusters = visit.service.clusters
    if clusters is None or visit.service.head.tree.find("kubernetes", cluster) is None:
        state = PeopleState(cluster=cluster, reached=False, trouble="nothing is known of it yet")
    else:
        state = clusters.people.state(cluster)
    now = visit.service.clock.now()
    lines = [
        Line(row, *_expiry(row.expires, now), visit.session.is_changed((*place, row.user)), row.user in users)
        for row in state.people
    ]
    known = {row.user for row in state.people}
    return Section(state, lines, sorted(name for name in users if name not in known), place)


def _expiry(text: str, now: datetime) -> tuple[str, str]:
    if not text:
        return "", ""
    moment = clock.parse_rfc3339(text)
    return f"{moment:%Y-%m-%d}", "bad" if moment <= now else "warn" if moment - now < _SOON else ""


async def adopt(visit: Visit) -> web.StreamResponse:
    """Stage a user of the cluster as a user of the tree, with the same values."""
    cluster = visit.request.match_info["cluster"]
    place = ("kubernetes", cluster, "kubernetes_users")
    allow(visit, place)
    user = visit.typed.get("user", "")
    path = (*place, user)
    visit.session.put(path, as_object(user, _rows(visit, cluster)))
    visit.login.say(f"{links.title(path)} is staged with the rights it has.", "good", "Look at the plan, then commit.")
    return visit.go(links.show(path))


def _rows(visit: Visit, cluster: str) -> Sequence[PersonState]:
    if visit.service.clusters is None:
        raise errors.Unavailable("this head keeps nothing for clusters", hint="serve it from a data folder")
    return visit.service.clusters.people.state(cluster).people
