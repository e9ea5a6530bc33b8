"""What is looked at before a deployment: the nodes, names, the package manager of this machine.

In: the context of a stage. Out: messages, warnings, or an error that stops the run before anything was changed.
"""

from __future__ import annotations

import asyncio
import shutil
import socket

from bedplate.core import errors
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["dns", "members", "package_manager"]

_LOOKUP_S, _REFRESH_S = 10.0, 300.0
_MANAGERS = (
    ("apt-get", ("apt-get", "update", "--quiet")),
    ("dnf", ("dnf", "makecache", "--quiet")),
    ("zypper", ("zypper", "--quiet", "refresh")),
)


async def members(context: Context, settings: Settings) -> None:
    """Every node must be known to the head, up, and well enough to be changed."""
    states = {state.node: state for state in await nodes.head_of(context).nodes(settings.members.nodes)}
    away = [name for name in settings.members.nodes if name not in states or states[name].state != "UP"]
    if away:
        raise errors.Unavailable(
            f"the agent of {', '.join(away)} does not report",
            hint="see cmsh: device status; start the agents, then retry",
        )
    planes, workers = len(settings.members.masters), len(settings.workers)
    context.say(f"{planes} control plane node{'s' * (planes != 1)}, {workers} worker{'s' * (workers != 1)}")


async def dns(context: Context, settings: Settings) -> None:
    """The external name must lead somewhere; a name without a dot is a site's own, and not asked for."""
    if context.services.options.skips_dns_check or "." not in settings.fqdn:
        context.say("Not checked")
        return
    try:
        async with asyncio.timeout(_LOOKUP_S):
            await asyncio.get_running_loop().getaddrinfo(settings.fqdn, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as err:
        raise errors.Unavailable(
            f"the external name {settings.fqdn} cannot be resolved: {getattr(err, 'strerror', '') or 'no answer'}",
            hint="add it to DNS, or continue with --skip-dns-configuration-check",
        ) from err


async def package_manager(context: Context, settings: Settings) -> None:
    """Where the head node is to be part of the cluster, its package manager must reach its repositories; those of other
    nodes are used by their agents, which tell what they miss."""
    is_needed = settings.head in settings.members.nodes
    if context.services.options.skips_package_manager_check or not is_needed:
        context.say("Not checked")
        return
    command = next((words for program, words in _MANAGERS if shutil.which(program)), None)
    if command is None:
        context.say("Warning: no package manager is known on this machine")
        return
    child = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(_REFRESH_S):
            out, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        out = b"no answer in time"
    if child.returncode:
        last = out.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise errors.Unavailable(
            f"{' '.join(command)} failed: {last[0]}",
            hint="correct the repositories, or continue with --skip-package-manager-update-check",
        )
