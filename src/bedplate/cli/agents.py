"""`bedplate agent install` and `uninstall`: the agent onto machines over `ssh`, from wherever an administrator sits.

In: destinations, packages of the agent, a head to enrol at. Out: a table with one line for each machine, and exit code
1 when one of them failed; the others are done. `bedplate agent` is these two and the commands of the machine itself
(`cli/agent.py`), which the agent's packages bring alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import click
import msgspec

from bedplate.cli import display, overssh
from bedplate.cli.agent import Commands
from bedplate.cli.agent import agent as node_commands
from bedplate.cli.overssh import Host, Machine, Package, Ssh, Trouble
from bedplate.client import HeadClient
from bedplate.core import errors, logging

__all__ = ["agent"]

_Command = Callable[..., None]
_LOOK_S = 0.5
_path = click.Path(path_type=pathlib.Path)


class Done(msgspec.Struct, kw_only=True):
    """What became of one machine."""

    host: str
    node: str = ""
    version: str = ""
    result: Literal["installed", "unchanged", "removed", "failed", "planned"] = "failed"
    text: str = ""


def _reached(command: _Command) -> _Command:
    """The options of how machines are reached."""
    for option in reversed(
        (
            click.option(
                "--ssh", default="ssh", show_default=True, metavar="COMMAND", help="The program, with options."
            ),
            click.option("--user", default="", help="Log in as this user. [default: as ssh does]"),
            click.option("--port", type=click.IntRange(1, 65535), default=None, help="The port of sshd."),
            click.option("--identity", default="", metavar="FILE", help="The key to log in with."),
            click.option("--ssh-option", "options", multiple=True, metavar="NAME=VALUE", help="As for ssh -o."),
            click.option("--connect-timeout", type=click.IntRange(1), default=10, show_default=True, metavar="SECONDS"),
            click.option(
                "--parallel", type=click.IntRange(1, 500), default=10, show_default=True, help="Machines at a time."
            ),
            click.option(
                "--root", default="/", metavar="DIR", help="A folder there that counts as its root: for sandboxes."
            ),
            click.option("--dry-run", is_flag=True, help="Look at the machines, say what would be done, do nothing."),
        )
    ):
        command = option(command)
    return command


def _headed(command: _Command) -> _Command:
    """The options of which head; what is not given comes from where cmsh has it."""
    for option in reversed(
        (
            click.option("--url", "urls", multiple=True, metavar="URL", help="A head of the site; may be repeated."),
            click.option("--data", type=_path, default=None, metavar="DIR", help="The data folder of a head here."),
            click.option("--token-file", type=_path, default=None, metavar="FILE", help="An administrator's token."),
            click.option("--cert", type=_path, default=None, metavar="FILE", help="A certificate instead."),
            click.option("--key", type=_path, default=None, metavar="FILE", help="Its key."),
            click.option("--cacert", type=_path, default=None, metavar="FILE", help="The authority of the heads."),
        )
    ):
        command = option(command)
    return command


@contextlib.asynccontextmanager
async def _head(given: dict[str, Any]) -> AsyncIterator[HeadClient]:
    from bedplate.ui.cmsh import targets, usersettings

    identity = usersettings.Identity(given["token_file"], given["cert"], given["key"], given["cacert"])
    flags = usersettings.Flags(given["urls"], given["data"], identity)
    target = usersettings.choose(flags, os.environ, pathlib.Path.home())

    def say(text: str) -> None:
        click.echo(f"bedplate: {text}", err=True)

    async with targets.reach(target, say) as reached:
        yield reached.backend.fleet


def _ssh(given: dict[str, Any]) -> Ssh:
    words = shlex.split(given["ssh"])
    for flag, value in (("-l", given["user"]), ("-p", given["port"]), ("-i", given["identity"])):
        words += [flag, str(value)] if value else []
    for option in given["options"]:
        words += ["-o", option]
    return Ssh(tuple(words), given["connect_timeout"])


@click.command(
    short_help="Put the agent onto machines over ssh, and enrol them.",
    epilog=display.examples(
        "bedplate agent install node001 node002 --package dist/bedplate-agent-0.8.0-linux-amd64.tar.gz",
        "bedplate agent install node001=admin@10.0.0.1 --package agent.deb   a name that ssh does not know",
        "bedplate agent install new1 new2 --category default --package …     machines without a device",
        "bedplate agent install node001 --dry-run --package …                what would be done",
        "bedplate agent install node001 --ssh 'ssh -J bastion' --package …   through another machine",
    ),
)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option(
    "--package",
    "packages",
    type=click.Path(path_type=pathlib.Path, exists=True, dir_okay=False),
    multiple=True,
    required=True,
    metavar="FILE",
    help="The agent's archive, .deb or .rpm (make packages); may be repeated: each machine gets its own.",
)
@_headed
@click.option("--head", "heads", multiple=True, metavar="URL", help="Where agents find the head. [default: --url]")
@click.option("--category", default="", metavar="NAME", help="Enrol new nodes of this category.")
@click.option("--replace", is_flag=True, help="Enrol machines again that are enrolled, here or elsewhere.")
@click.option("--force", is_flag=True, help="Copy the package though its version is there.")
@click.option(
    "--wait",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For the first report.",
)
@_reached
@display.output_option
def install(hosts: tuple[str, ...], packages: tuple[pathlib.Path, ...], output: str, **given: Any) -> None:
    """Copy the agent's package to each HOST, enrol it with a one-time token, start it, wait until it reports.

    HOST is a destination of ssh, or NODE=DESTINATION. Logins, keys and jump hosts are those of your ssh settings; where
    the user is not root, sudo must not ask for a password. It may be repeated: what is there stays as it is.
    """
    read = [Package.read(path) for path in packages]
    machines = _machines(hosts, given, is_named=not given["category"])
    _show(output, _run(_install(machines, read, given)))


async def _install(machines: Sequence[Machine], packages: Sequence[Package], given: dict[str, Any]) -> list[Done]:
    async with _head(given) as client:
        urls = given["heads"] or given["urls"] or (client.url,)
        return await _each(machines, given, lambda item, say: _install_one(item, packages, client, urls, given, say))


async def _install_one(
    machine: Machine,
    packages: Sequence[Package],
    client: HeadClient,
    urls: Sequence[str],
    given: dict[str, Any],
    say: Callable[[str], None],
) -> Done:
    host = machine.host
    say("looks")
    facts = await machine.probe()
    todo = overssh.plan(
        host,
        facts,
        packages,
        urls,
        replace=given["replace"],
        force=given["force"],
        is_sandbox=machine.is_sandbox,
    )
    version = todo.package.version if todo.package else facts.version
    node = host.node or facts.node
    if given["dry_run"]:
        return Done(host=host.destination, node=node, version=version, result="planned", text=todo.text)
    if todo.package:
        say(f"copies {version}")
        await machine.copy(todo.package)
    if todo.is_enrolling:
        say("enrols")
        token = await _token(client, node, given)
        async with _approval_told(client, node):
            node = await machine.enrol(urls, token, timeout_s=given["wait"])
    before = await _heard(client, node)
    is_changed = todo.package is not None or todo.is_enrolling
    say("starts")
    await machine.start(again=is_changed)
    say("waits for its report")
    await _reported(client, node, before, is_changed=is_changed, wait_s=given["wait"])
    return Done(host=host.destination, node=node, version=version, result="installed" if is_changed else "unchanged")


async def _token(client: HeadClient, node: str, given: dict[str, Any]) -> str:
    """A token that works once, for this machine."""
    category = given["category"]
    kind, subject = ("enrol-category", category) if category else ("enrol", node)
    lasts_s = max(600.0, given["wait"])
    try:
        token = await client.create_token(
            subject, "agent install", kind=kind, lasts_s=lasts_s, replace=given["replace"]
        )
    except errors.NotFound as err:
        hint = "add the device in cmsh, or enrol it as a new node of a category: --category"
        raise Trouble(str(err), hint=hint) from err
    return token.token


@contextlib.asynccontextmanager
async def _approval_told(client: HeadClient, node: str) -> AsyncIterator[None]:
    """Say so while an enrolment waits for an administrator."""

    async def look() -> None:
        while True:
            await asyncio.sleep(4 * _LOOK_S)
            for item in await client.enrolments():
                if item.state == "pending" and item.node == (node or item.node):
                    why = "; ".join(item.reasons)
                    click.echo(
                        f"{item.node} waits for approval ({why}): cmsh -c 'device approve {item.node}'", err=True
                    )
                    return

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _heard(client: HeadClient, node: str) -> str:
    states = await client.nodes([node])
    return states[0].heard if states else ""


async def _reported(client: HeadClient, node: str, before: str, *, is_changed: bool, wait_s: float) -> None:
    """Wait for a report that is not the one before; a machine that nothing changed on need only be up."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    while True:
        states = await client.nodes([node])
        if states and states[0].state == "UP" and (states[0].heard != before or not is_changed):
            return
        if loop.time() > end_s:
            raise Trouble(
                f"{node} did not report within {wait_s:g} s",
                hint="look there: bedplate-agent status, journalctl -u bedplate-agent or /var/log/bedplate-agent",
            )
        await asyncio.sleep(_LOOK_S)


@click.command(
    short_help="Remove the agent from machines over ssh.",
    epilog=display.examples(
        "bedplate agent uninstall node001",
        "bedplate agent uninstall node001 --purge --revoke --url https://head:8081    its certificate counts no more",
    ),
)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option("--purge", is_flag=True, help="Its settings, certificate, state and logs as well.")
@click.option("--revoke", is_flag=True, help="The certificates that the head gave its node count no more.")
@_headed
@_reached
@display.output_option
def uninstall(hosts: tuple[str, ...], output: str, **given: Any) -> None:
    """Stop the agent on each HOST and remove it. Files that it wrote for the head, and services, stay as they are."""
    _show(output, _run(_uninstall(_machines(hosts, given, is_named=False), given)))


async def _uninstall(machines: Sequence[Machine], given: dict[str, Any]) -> list[Done]:
    async with contextlib.AsyncExitStack() as opened:
        client = await opened.enter_async_context(_head(given)) if given["revoke"] else None
        return await _each(machines, given, lambda item, say: _uninstall_one(item, client, given, say))


async def _uninstall_one(
    machine: Machine, client: HeadClient | None, given: dict[str, Any], say: Callable[[str], None]
) -> Done:
    host = machine.host
    say("looks")
    facts = await machine.probe()
    done = Done(host=host.destination, node=host.node or facts.node, version=facts.version, result="unchanged")
    is_there = bool(facts.version or facts.packager)
    if given["dry_run"]:
        done.result, done.text = "planned", f"remove {facts.version}" if is_there else "nothing"
        return done
    if is_there:
        if facts.rights == "no" and not machine.is_sandbox:
            raise Trouble("no sudo: this user is not root, and sudo asks for a password", hint="use root, or NOPASSWD")
        say("removes")
        await machine.remove(purge=given["purge"])
        done.result = "removed"
    else:
        done.text = "there is no agent"
    if client is not None and done.node:
        await client.revoke_certificates(done.node, kind="node")
        done.text = "its certificates are revoked"
    return done


# Many machines


def _machines(hosts: Sequence[str], given: dict[str, Any], *, is_named: bool) -> list[Machine]:
    ssh = _ssh(given)
    return [Machine(Host.parse(text, is_named=is_named), ssh, given["root"]) for text in dict.fromkeys(hosts)]


async def _each(
    machines: Sequence[Machine], given: dict[str, Any], work: Callable[[Machine, Callable[[str], None]], Any]
) -> list[Done]:
    """Do it on each machine, so many at a time; what fails on one is told in its line."""
    done: dict[int, Done] = {}
    with display.progress() as shown:

        async def one(number: int, machine: Machine) -> None:
            def say(text: str) -> None:
                shown(f"{len(done)} of {len(machines)} machines; {machine.host.destination} {text}")

            try:
                done[number] = await work(machine, say)
            except errors.BedplateError as err:
                host, hint = machine.host, f" ({err.hint})" if err.hint else ""
                done[number] = Done(
                    host=host.destination,
                    node=host.node or machine.facts.node,
                    version=machine.facts.version,
                    text=f"{err}{hint}",
                )

        await overssh.at_once(given["parallel"], [_piece(one, number, item) for number, item in enumerate(machines)])
    return [done[number] for number in range(len(machines))]


def _piece(work: Callable[[int, Machine], Any], number: int, machine: Machine) -> Callable[[], Any]:
    return lambda: work(number, machine)


def _run(work: Any) -> list[Done]:
    if logging.verbosity() == 0:
        logging.configure(logging.LogOptions(is_quiet=True))
    done: list[Done] = asyncio.run(work)
    return done


def _show(output: str, done: Sequence[Done]) -> None:
    rows = [(item.host, item.node, item.version, item.result, item.text) for item in done]
    display.show(output, ("host", "node", "version", "result", "detail"), rows, list(done))
    if any(item.result == "failed" for item in done):
        sys.exit(1)


agent = Commands(
    "agent",
    commands={**node_commands.commands, "install": install, "uninstall": uninstall},
    params=node_commands.params,
    callback=node_commands.callback,
    help=node_commands.help,
    epilog=node_commands.epilog,
)
