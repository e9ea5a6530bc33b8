"""The software images of a cluster's nodes: their package repository and their Kubernetes packages.

In: nodes, a version. Out: the trees of their images on the head, changed by the head itself: a repository file is
written, commands run inside the tree. Only trees that the head has adopted count; a node without one is told and left
alone. A tree has no way back: undoing says which images stay as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Tree
from bedplate.head.entities.nodes import PhysicalNode
from bedplate.head.images.repositories import Mirror
from bedplate.head.resolve import inherited
from bedplate.head.schema.ranges import compress
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes

__all__ = ["Used", "tell_what_stays", "update", "used", "write_repositories"]

_CHANGED = "changed images"
_COMMAND_S = 3600
_UPSTREAM = Mirror()
_HINT = "correct the image, or leave it alone with --skip-image-update"


class Used(NamedTuple):
    """An image, the nodes that are meant, and others that have it, too."""

    image: str
    nodes: tuple[str, ...]
    others: tuple[str, ...]


def used(tree: Tree, names: Sequence[str]) -> list[Used]:
    """The images of nodes, by name; head nodes have none. Pure."""
    users: dict[str, list[str]] = {}
    for node, device in tree.mode("device").items():
        value = inherited(tree, device, PhysicalNode.software_image)[0] if device.type == "PhysicalNode" else ""
        if value:
            users.setdefault(str(value), []).append(node)
    meant = set(names)
    return [
        Used(image, tuple(node for node in all_ if node in meant), tuple(node for node in all_ if node not in meant))
        for image, all_ in sorted(users.items())
        if meant & set(all_)
    ]


async def _ready(context: Context, names: Sequence[str]) -> list[Used]:
    """Those images of nodes that the head has a tree of; what has none is told."""
    chosen = used(context.services.backend.tree, names)
    listed = await nodes.head_of(context).images() if chosen else None
    ready = {item.name for item in listed.items if item.state == "ready"} if listed is not None else set()
    there = [each for each in chosen if each.image in ready]
    bare = set(names) - {node for each in there for node in each.nodes}
    if bare:
        context.say(f"{compress(sorted(bare))}: no software image that the head has adopted; nothing is done")
    return there


async def write_repositories(context: Context, names: Sequence[str], version: str, mirror: Mirror) -> None:
    """Write the package repository of a version into the images of nodes. Raises `Invalid`."""
    for each in await _ready(context, names):
        _note(context, f"the package repository of {version} in {each.image}")
        action = headapi.ImageAction(
            action="repository", version=version, write=True, base=mirror.base, key=mirror.key, helm=mirror.helm
        )
        result = await _act(context, each.image, action, "or leave it alone with --skip-install-repos")
        context.say(f"{each.image}: {result.text}")


async def update(context: Context, names: Sequence[str], version: str, *, has_repository: bool = False) -> None:
    """Install the packages of a version in the images of nodes; with `has_repository` from that of the version, which
    is written first. Raises `Invalid` and `Terminal`."""
    for each in await _ready(context, names):
        if each.others:
            context.say(
                f"Warning: {each.image} is the image of {compress(list(each.others))} as well, which are not part of "
                "this; they get its packages with their next image update or start"
            )
        _note(context, f"packages of {version} in {each.image}")
        action = headapi.ImageAction(action="repository", version=version, write=has_repository)
        result = await _act(context, each.image, action)
        for command in result.commands:
            context.log.info(f"{each.image}: {command}")
            run = headapi.ImageAction(action="run", command=["sh", "-c", command], timeout=_COMMAND_S)
            ran = await _act(context, each.image, run)
            if ran.code:
                last = " ".join(ran.output.strip().splitlines()[-3:])
                raise errors.Terminal(f"{each.image}: {command} ended with {ran.code}: {last}", hint=_HINT)
        context.say(f"{each.image}: packages of {version}, for {compress(list(each.nodes))}")


async def _act(context: Context, image: str, action: headapi.ImageAction, hint: str = _HINT) -> headapi.ImageResult:
    try:
        return await nodes.head_of(context).act_on_image(image, action)
    except errors.Invalid as err:
        raise errors.Invalid(f"{image}: {err.message}", hint=f"{err.hint}; {hint}" if err.hint else hint) from err


def _note(context: Context, what: str) -> None:
    context.notes[_CHANGED] = sorted({*context.notes.get(_CHANGED, []), what})


def tell_what_stays(context: Context) -> None:
    """Say what an undone run leaves in images; once."""
    for what in context.notes.get(_CHANGED, []):
        context.say(f"Warning: a software image has no way back; this stays: {what}")
    context.notes[_CHANGED] = []
