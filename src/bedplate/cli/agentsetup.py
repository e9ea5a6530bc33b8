"""`bedplate-agent setup`, `start`, `restart`, `stop`, `remove`: the agent as a service of its machine.

In: the agent's settings. Out: links, unit and settings in their places; the agent runs, kept by systemd, or by its own
supervisor where PID 1 is something else; or all of it is gone again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import click

from bedplate.agent import settings as options
from bedplate.agent.placement import SERVICE, Placement, own_home
from bedplate.agent.services import Services
from bedplate.cli import display
from bedplate.core import errors

__all__ = ["COMMANDS", "root_option"]

root_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--root",
    default="/",
    show_default=True,
    envvar="BEDPLATE_ROOT",
    metavar="DIR",
    help="The machine's root folder, or a sandbox: files go below it, services are child processes.",
)


@click.command(
    short_help="Make this copy of the agent the one that runs.",
    epilog=display.examples(
        "tar -xzf bedplate-agent-0.8.0-linux-amd64.tar.gz -C /opt/bedplate-agent",
        "/opt/bedplate-agent/0.8.0/bin/bedplate-agent setup",
    ),
)
@root_option
def setup(root: str) -> None:
    """Put links, the unit and default settings in place for the version that this program is of.

    For the agent's archive, unpacked below /opt/bedplate-agent; packages of a distribution need no set-up.
    """
    home = own_home()
    if home is None:
        raise errors.Invalid("this agent does not run from its archive", hint="make packages builds the archive")
    effects = options.effects(options.read(root))
    version = Placement(effects.root).set_up(home)
    _told(asyncio.run(_enabled(effects.services)))
    click.echo(f"{SERVICE} {version} is set up")


async def _enabled(services: Services) -> str | None:
    return await services.reload_units() or await services.enable(SERVICE)


@click.command(short_help="Start the agent as a service.", epilog=display.examples("bedplate-agent start"))
@root_option
def start(root: str) -> None:
    """Start the agent in the background: a unit of systemd, or kept by its own supervisor elsewhere."""
    _told(asyncio.run(_services(root).start(SERVICE)))


@click.command(short_help="Stop the agent and start it again.", epilog=display.examples("bedplate-agent restart"))
@root_option
def restart(root: str) -> None:
    """Restart the agent that runs as a service; what it started goes on meanwhile."""
    _told(asyncio.run(_services(root).restart(SERVICE)))


@click.command(short_help="Stop the agent.", epilog=display.examples("bedplate-agent stop"))
@root_option
def stop(root: str) -> None:
    """Stop the agent that runs as a service; what it started goes on."""
    _told(asyncio.run(_services(root).stop(SERVICE)))


@click.command(
    short_help="Stop the agent and remove it from this machine.",
    epilog=display.examples("bedplate-agent remove", "bedplate-agent remove --purge"),
)
@root_option
@click.option("--purge", is_flag=True, help="Its settings, certificate, state and logs as well.")
def remove(root: str, purge: bool) -> None:
    """Remove the agent that `setup` put in place. Files that it wrote for the head, and services, stay as they are."""
    effects = options.effects(options.read(root))
    placement, services = Placement(effects.root), effects.services
    if not placement.current and not purge:
        raise errors.NotFound("there is no agent to remove", hint="--purge removes what an agent left behind")
    _told(asyncio.run(_ended(services)))
    placement.remove(purge=purge)
    asyncio.run(services.reload_units())
    click.echo(f"{SERVICE} is removed{' with all that it knew' if purge else '; its settings and state stay'}")


async def _ended(services: Services) -> str | None:
    return await services.stop(SERVICE) or await services.disable(SERVICE)


def _services(root: str) -> Services:
    return options.effects(options.read(root)).services


def _told(why: str | None) -> None:
    if why:
        click.echo(f"bedplate-agent: {why}", err=True)
        sys.exit(1)


COMMANDS = (setup, start, restart, stop, remove)
