"""What is looked at before a deployment changes nodes: whether they can be changed at all.

In: the context of a stage. Out: a message, or an error that stops the run before anything was changed.
"""

from __future__ import annotations

from bedplate.core import errors
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import hardware, nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["members"]


async def members(context: Context, settings: Settings) -> None:
    """Every node must be known to the head, and its agent must report."""
    states = {state.node: state for state in await nodes.head_of(context).nodes(settings.members.nodes)}
    away = [name for name in settings.members.nodes if name not in states or states[name].state != "UP"]
    if away:
        raise errors.Unavailable(
            f"the agent of {', '.join(away)} does not report",
            hint="see cmsh: device status; start the agents, then retry",
        )
    if context.answers["kubernetes"]["strict"]:
        present = {name: states[name].system for name in settings.members.nodes}
        hardware.tell(context, hardware.known(present))
    for name in settings.tainted_workers:
        context.say(
            f"Warning: {name} is a control plane node and runs no other pods, as not all control plane nodes are named "
            "as workers"
        )
    planes, workers = len(settings.members.masters), len(settings.workers)
    context.say(f"{planes} control plane node{'s' * (planes != 1)}, {workers} worker{'s' * (workers != 1)}")
