"""Where one stands: paths as the prompt shows them. Pure.

In: a session and a place: () is the top, (mode,) and (mode, key, submode) are lists, (mode, key) and so on objects, by
attribute names. Out: prompts and names for people.
"""

from __future__ import annotations

from bedplate.head import Path, Session

__all__ = ["is_list", "is_object", "list_of", "path_text", "prompt", "renumbered"]


def is_object(place: Path) -> bool:
    return len(place) > 0 and len(place) % 2 == 0


def is_list(place: Path) -> bool:
    return len(place) % 2 == 1


def list_of(place: Path) -> Path:
    """The list a place is, or the one its object stands in."""
    return place[:-1] if is_object(place) else place


def prompt(head: str, session: Session, place: Path) -> str:
    """`[head->mode*[object*]->submode]% `: a star where something below is staged; an index has none."""
    text = f"[{head}"
    for at in range(0, len(place), 2):
        here = place[: at + 1]
        text += f"->{session.submode(here).shell}{_star(session, here)}"
        if at + 1 < len(place):
            star = "" if session.submode(here).indexed else _star(session, place[: at + 2])
            text += f"[{place[at + 1]}{star}]"
    return text + "]% "


def _star(session: Session, path: Path) -> str:
    return "*" if session.is_changed(path) else ""


def path_text(path: Path) -> str:
    """A path in words that need no session: `category[default]->roles[Docker::Host]`, then what is left over."""
    text, at = "", 0
    while at < len(path):
        text += ("->" if at else "") + path[at].replace("_", "")
        if at + 1 < len(path):
            text += f"[{path[at + 1]}]"
        at += 2
    return text


def renumbered(session: Session, place: Path) -> Path:
    """The place after a commit, which counts indexed lists from 0."""
    path: Path = ()
    for at, step in enumerate(place):
        if at % 2 and session.submode(place[:at]).indexed:
            keys = sorted(session.children(place[:at]), key=int)
            step = str(keys.index(step)) if step in keys else step
        path = (*path, step)
    return path
