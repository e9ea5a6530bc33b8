"""`bedplate sim devices`: simulated machines under a head, for those who want to see what a commit does.

In: the data folder of a head that serves, or where it serves and how to prove who one is. Out: every device of its tree
keeps to its desired state and reports, until Ctrl-C; what they tell is printed.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import click

from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.tasks import TaskGroup
from bedplate.head.folder import datafolder
from bedplate.program import stopping
from bedplate.sim.agents import Devices

__all__ = ["devices"]

EXAMPLES = """
\b
Examples:
  bedplate sim devices --data ./site            all devices of the head that serves this folder
  bedplate sim devices --data ./site --names node001,node002
"""


@click.command(epilog=EXAMPLES)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Data folder of a head on this machine.")
@click.option(
    "--url", "urls", multiple=True, metavar="URL", help="URL of a head; repeat it for every head of the site."
)
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), help="Bearer token.")
@click.option("--cacert", type=click.Path(path_type=Path, dir_okay=False), help="The authority of the head.")
@click.option("--names", default="", metavar="LIST", help="Only these devices, separated by commas.  [default: all]")
def devices(data: Path | None, urls: tuple[str, ...], token_file: Path | None, cacert: Path | None, names: str) -> None:
    """Simulate the devices of a head: they apply what is committed, report it, and run their checks."""
    only = [name for name in names.split(",") if name] or None
    if data is not None:
        folder = datafolder.Folder.find(data)
        urls = urls or (_served(folder),)
        token_file, cacert = token_file or folder.file("admin.token"), cacert or folder.file("ca.crt")
    if not urls:
        raise click.UsageError("give the head: --data DIR or --url URL")
    token = "" if token_file is None else _text(token_file)
    client = HeadClient(urls, token=token, ca_file="" if cacert is None else str(cacert))
    stopping.run_until_stopped(_run(client, only))


def _served(folder: datafolder.Folder) -> str:
    url = folder.daemon_url()
    if not url:
        raise errors.Unavailable(
            f"no head serves {folder.path}", hint=f"bedplate head serve --data {shlex.quote(str(folder.path))}"
        )
    return url


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        raise errors.Invalid(f"the token file {file} cannot be read: {err}") from err


async def _run(client: HeadClient, only: list[str] | None) -> None:
    async with client:
        known = {entity.key for entity in await client.list("device")} if only is not None else set()
        if lost := sorted(set(only or ()) - known):
            raise errors.NotFound(f"the head has no device {', '.join(lost)}", hint="cmsh -c 'device list' shows them")
        simulated, listens = Devices(client, only), asyncio.Event()
        async with TaskGroup() as tasks:
            tasks.create_task(_tell(client, listens))
            tasks.create_task(simulated.run())
            await simulated.ready.wait()
            await listens.wait()
            click.echo(f"{len(simulated.devices)} simulated devices hold their state; Ctrl-C stops them", err=True)


async def _tell(client: HeadClient, listens: asyncio.Event) -> None:
    """Print what devices report once their state is settled."""

    def linked(is_up: bool, words: str) -> None:
        if is_up:
            listens.set()
        else:
            click.echo(f"the head is unavailable: {words}", err=True)

    async for event in client.events(types=("notice",), on_link=linked):
        if (told := event.notice) is not None:
            click.echo(f"{told.time} [{told.severity}] {told.host}: {told.text}")
