"""Nodes that have to start again before they become part of a cluster.

In: what agents say of their machines. Out: `chosen`, pure: who is rebooted and who is not, with the reason; requests to
the agents, as `device power reset` makes them, that are waited for until the node reports again. A node that needs no
reboot, that is a member of another cluster, or that is a head node is never rebooted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.setup.answers.site import Site, of_tree
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["Chosen", "chosen", "reboot"]

_POLL_S = 0.5
_ASKED = "reboots"
_OVER = ("done", "failed", "expired")


class Chosen(NamedTuple):
    """Nodes to reboot, and why others that need it are left alone."""

    nodes: tuple[str, ...]
    left: tuple[str, ...]


def chosen(present: Mapping[str, headapi.System | None], site: Site, cluster: str) -> Chosen:
    """Pure."""
    rebooted, left = [], []
    for name, system in present.items():
        if system is None or not system.reboot:
            continue
        node = site.nodes.get(name)
        if node is None or node.is_head:
            left.append(f"{name} has to reboot; a head node is not rebooted by this tool")
        elif node.cluster not in ("", cluster):
            left.append(f"{name} has to reboot, and is a member of the cluster {node.cluster}; it is left alone")
        else:
            rebooted.append(name)
    return Chosen(tuple(rebooted), tuple(left))


async def reboot(context: Context, settings: Settings) -> None:
    """Reboot who has to, and wait. A resumed run waits for what it has asked for, and asks for nothing twice."""
    tree, head = context.services.backend.tree, nodes.head_of(context)
    asked: dict[str, str] = dict(context.notes.get(_ASKED, {}))
    names = [name for name in settings.members.nodes if name not in asked.values()]
    # A run that was killed before it noted them, or somebody else, may have asked already. They are looked up first: a
    # node that starts again meanwhile would be asked once more by what it said before.
    present = await head.errands(names) if names else []
    items = [item for item in present if item.kind == "reboot" and item.state not in _OVER]
    picked = chosen(await nodes.systems(context, names), of_tree(tree, settings.head), settings.name)
    for text in picked.left:
        context.say(f"Warning: {text}")
    timeout_s = float(context.answers["kubernetes"]["reboot_timeout"])
    rest = [name for name in picked.nodes if name not in {item.node for item in items}]
    items += await head.ask_errand(rest, "reboot", lasts_s=timeout_s) if rest else []
    if items:
        asked |= {item.id: item.node for item in items}
        context.notes[_ASKED] = asked
    if not asked:
        context.say("No node has to reboot")
        return
    await _until_back(context, asked, timeout_s)
    context.say(f"Rebooted: {', '.join(sorted(set(asked.values())))}")


async def _until_back(context: Context, asked: Mapping[str, str], timeout_s: float) -> None:
    """Wait until the nodes have started again and report. Raises `Unavailable` with those that have not."""
    head, names = nodes.head_of(context), sorted(set(asked.values()))
    end_s = context.clock.monotonic() + timeout_s
    while True:
        states = [item for item in await head.errands(names) if item.id in asked]
        away = {node.node for node in await nodes.down(context, names)}
        failed = [f"{item.node}: {item.text or item.state}" for item in states if item.state in ("failed", "expired")]
        late = sorted({item.node for item in states if item.state not in _OVER} | away)
        if failed:
            raise errors.Unavailable(f"nodes were not rebooted: {'; '.join(failed)}", hint="see device status, resume")
        if not late:
            return
        if context.clock.monotonic() > end_s:
            raise errors.Unavailable(
                f"{', '.join(late)} has not come back within {timeout_s:g} s",
                hint="see its console, then resume; --min-reboot-timeout lets it take longer",
            )
        await context.clock.sleep(_POLL_S)
