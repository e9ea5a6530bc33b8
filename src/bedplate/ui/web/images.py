"""The page of software images: their trees, what is being copied now and how far it is, and how it last ended.

In: the head's images and requests to nodes. Out: the page. What nodes say about a transfer is text of theirs: it is
shown as text, cut, and only digits before a percent sign are taken for a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiohttp import web

from bedplate.api.headapi import ErrandState, ImageState
from bedplate.core import errors
from bedplate.head.schema.ranges import compress, natural
from bedplate.ui.web import links
from bedplate.ui.web.visit import Visit

__all__ = ["Image", "Move", "ended", "images", "under_way"]

_PERCENT = re.compile(r"(\d{1,3})%")
_NAMED = 200
"""So many letters of the names of an image's nodes are shown."""
_MOST = 200
"""So many transfers are shown of each kind; the rest is counted."""


class Image(NamedTuple):
    """An image as the page shows it."""

    state: ImageState
    way: str
    remedy: str
    nodes: str


class Move(NamedTuple):
    """A transfer: `what` it does in words, `percent` how far it is where that is known."""

    errand: ErrandState
    way: str
    what: str
    percent: int | None
    text: str


def _what(errand: ErrandState) -> str:
    verbs = {"grab": "grab", "full": "full installation", "sync": "sync at its start"}
    verb = verbs.get(errand.mode, "update")
    return verb if errand.write else f"trial of {verb}"


def _moved(errand: ErrandState) -> Move:
    percent = _PERCENT.search(errand.text) if errand.state == "accepted" else None
    words = {"waiting": "waits for the node", "expired": "the node did not answer in time"}
    return Move(
        errand,
        links.show(("device", errand.node)),
        _what(errand),
        min(int(percent[1]), 100) if percent is not None else None,
        (errand.text or words.get(errand.state, ""))[:500],
    )


def under_way(errands: Iterable[ErrandState]) -> list[Move]:
    """Transfers that wait or are under way: those that move first."""
    moves = [_moved(errand) for errand in errands]
    return sorted(moves, key=lambda move: (move.errand.state != "accepted", natural(move.errand.node)))


def ended(errands: Iterable[ErrandState]) -> list[Move]:
    """How the last transfer of each node ended: failures first, then the newest."""
    last: dict[str, ErrandState] = {}
    for errand in errands:
        if errand.is_transfer and errand.write and errand.state in ("done", "failed", "expired"):
            last[errand.node] = errand
    moves = sorted((_moved(errand) for errand in last.values()), key=lambda move: move.errand.changed, reverse=True)
    return sorted(moves, key=lambda move: move.errand.state == "done")


def _listed(states: Sequence[ImageState], users: dict[str, list[str]], remedies: dict[str, str]) -> list[Image]:
    listed = []
    for state in states:
        names = compress(sorted(users.get(state.name, ()), key=natural))
        shown = names if len(names) <= _NAMED else f"{names[:_NAMED]}…"
        listed.append(Image(state, links.show(("softwareimage", state.name)), remedies.get(state.name, ""), shown))
    return listed


async def images(visit: Visit) -> web.StreamResponse:
    """Images with their nodes, what is being copied, and how it last ended."""
    fleet = visit.service.fleet
    if fleet is None:
        raise errors.Unavailable("this head serves no nodes", hint="bedplate head serve")
    moving, over = under_way(fleet.errands.transfers()), ended(fleet.errands.list())
    states = fleet.imaging.states()
    remedies = {state.name: fleet.imaging.remedy(state.name) for state in states if state.state != "ready"}
    return visit.page(
        "images.html",
        "Image updates",
        images=_listed(states, fleet.imaging.users(), remedies),
        moving=moving[:_MOST],
        more_moving=max(len(moving) - _MOST, 0),
        ended=over[:_MOST],
        more_ended=max(len(over) - _MOST, 0),
        failed=sum(move.errand.state != "done" for move in over),
    )
