"""`bedplate agent`: the node agent as a program, and what people ask of it on its node.

In: the agent's settings. Out: the agent, until Ctrl-C; or a table of what holds, of the steps that are pending, of what
the checks say. `bedplate-agent` is the same group by another name.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TextIO, TypeVar

import click

import bedplate
from bedplate.agent import settings as options
from bedplate.agent.apply import Effects
from bedplate.agent.observe import unwanted
from bedplate.agent.settings import Settings
from bedplate.api.desired import Desired
from bedplate.api.steps import Step
from bedplate.cli import display
from bedplate.cli.agentsetup import COMMANDS, root_option
from bedplate.core import errors, logging
from bedplate.core.clock import SystemClock
from bedplate.core.tasks import TaskGroup

__all__ = ["Commands", "agent"]

_LOG = logging.get_logger("agent")
T = TypeVar("T")
_Command = Callable[..., None]


class Commands(click.Group):
    """The group: `--dry-run` in front is the command of that name, whose options follow."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["dry-run", *args[1:]] if args[:1] == ["--dry-run"] else args)


@click.group(
    cls=Commands,
    epilog=display.examples(
        "bedplate agent run                                     with /etc/bedplate/agent.toml",
        "bedplate agent run --root ./node001 --url http://127.0.0.1:8081 --token ./node001.token",
        "bedplate agent dry-run                                 the steps that are pending",
        "bedplate agent status -o json",
        "bedplate agent check",
        "bedplate-agent run                                     the same, as a program of its own",
    ),
)
@click.option("--dry-run", is_flag=True, expose_value=False, help="The same as the command dry-run; options follow it.")
@click.version_option(bedplate.__version__, prog_name="bedplate-agent")
def agent() -> None:
    """The node agent: makes true on this machine what the head decides, and keeps it true."""


for _command in COMMANDS:
    agent.add_command(_command)


def _place(command: _Command) -> _Command:
    """The options that every command has: where."""
    for option in reversed(
        (
            root_option,
            click.option("--config", default="", metavar="FILE", help="Settings. [default: /etc/bedplate/agent.toml]"),
        )
    ):
        command = option(command)
    return command


def _head(command: _Command) -> _Command:
    """The options of commands that ask a head."""
    for option in reversed(
        (
            click.option("--node", default="", help="This node's name in the head. [default: the host name]"),
            click.option("--url", "urls", multiple=True, metavar="URL", help="A head of the site; may be repeated."),
            click.option("--ca", default="", metavar="FILE", help="The authority of the heads: no other is trusted."),
            click.option("--cert", default="", metavar="FILE", help="The node's certificate."),
            click.option("--key", default="", metavar="FILE", help="Its key."),
            click.option("--token", default="", metavar="FILE", help="A file with a token, instead of a certificate."),
        )
    ):
        command = option(command)
    return command


_services_option = click.option(
    "--services",
    type=click.Choice(["auto", "systemd", "supervisor"]),
    default=None,
    help="Who runs services. [default: auto: systemd where it is PID 1]",
)
_packages_option = click.option(
    "--packages", default="", metavar="KIND", help="apt, dnf, zypper, none or folder:/path. [default: auto]"
)


@agent.command(
    short_help="Run the agent until it is stopped.",
    epilog=display.examples(
        "bedplate agent run",
        "bedplate agent run --url https://head:8081 --ca ca.crt --cert node001.crt --key node001.key",
        "bedplate agent run --root ./node001 --node node001 --url http://127.0.0.1:8081 --token node001.token",
        "bedplate agent run --edits report                      changes by hand are told, not undone",
    ),
)
@_place
@_head
@_services_option
@_packages_option
@click.option(
    "--edits",
    type=click.Choice(["restore", "report", "keep"]),
    default=None,
    help="What is done about files that were changed by hand. [default: restore]",
)
@click.option("--drift", type=click.FloatRange(1), default=None, help="Seconds between two looks. [default: 30]")
@click.option("--dry-run", is_flag=True, help="Print the steps that are pending, and do nothing.")
def run(root: str, config: str, dry_run: bool, **given: Any) -> None:
    """Follow the head: apply what it decides, keep it so, run checks, report.

    Everything comes from the settings file; options say it instead. Without a head the last state is kept. A second
    agent on the same root is refused. SIGTERM ends it; services go on.
    """
    settings = options.read(root, config, given)
    login = options.login(settings)
    if dry_run:
        _show_plan(settings, "table", False)
        return

    async def main() -> None:
        from bedplate.agent.enrol import keep_renewed
        from bedplate.agent.link import Link
        from bedplate.agent.loop import Agent
        from bedplate.agent.placement import Placement, own_home
        from bedplate.agent.update import Updates

        renew = [sys.executable, "-m", "bedplate.apps.agent", "renew", "--root", root, "--config", config]
        async with Link(login) as link, TaskGroup() as tasks:
            updates = Updates(
                Placement(effects.root),
                effects.state,
                link,
                version=bedplate.__version__,
                home=own_home(),
                is_kept=any(name in os.environ for name in ("INVOCATION_ID", "BEDPLATE_SERVICE")),
            )
            background = []
            if settings.cert and not settings.key:
                renewing = keep_renewed(settings.cert, renew, clock=SystemClock(), rng=random.Random())
                background.append(tasks.create_task(renewing))
            await Agent(replace(effects, turns=link), link, pace=options.pace(settings), updates=updates).run()
            for task in background:
                task.cancel()

    for sentence in options.loose(settings):
        _LOG.warning("agent.loose_mode", file=sentence)
    effects = options.effects(settings)
    effects.state.open()
    with _alone(effects):
        _until_stopped(main())


@agent.command(
    name="dry-run",
    short_help="Show the steps that are pending.",
    epilog=display.examples(
        "bedplate agent dry-run",
        "bedplate agent dry-run --exit-code || echo there is something to do",
        "bedplate agent dry-run -o json --root ./node001",
    ),
)
@_place
@_head
@_services_option
@_packages_option
@click.option("--exit-code", is_flag=True, help="End with 1 when there is something to do.")
@display.output_option
def dry_run_command(root: str, config: str, exit_code: bool, output: str, **given: Any) -> None:
    """Ask the head what this node should be, look at what it is, and print the steps between the two."""
    settings = options.read(root, config, given)
    options.login(settings)
    if _show_plan(settings, output, True) and exit_code:
        sys.exit(1)


@agent.command(
    short_help="Show what holds on this node.",
    epilog=display.examples("bedplate agent status", "bedplate agent status -o json --root ./node001"),
)
@_place
@_services_option
@_packages_option
@display.output_option
def status(root: str, config: str, output: str, **given: Any) -> None:
    """Show which state this node holds, its services, and what is not as it should be.

    The head is not asked, and the agent need not run. Ends with 1 when something is not as it should be.
    """
    settings = options.read(root, config, given)
    effects = options.effects(settings)
    about = _quietly(_status(settings, effects))
    if output == "json":
        display.show(output, (), (), about)
    else:
        click.echo(_status_text(about))
    if about["differences"] or about["pending"]:
        sys.exit(1)


@agent.command(
    short_help="Run the health checks once.",
    epilog=display.examples("bedplate agent check", "bedplate agent check disk-space load -o json"),
)
@click.argument("names", nargs=-1, metavar="[CHECK]...")
@_place
@_services_option
@display.output_option
def check(names: tuple[str, ...], root: str, config: str, output: str, **given: Any) -> None:
    """Run the checks of this node, or those named, and print what they say. Ends with 1 when one fails."""
    settings = options.read(root, config, given)
    results = _quietly(_measured(options.effects(settings), names))
    rows = [
        (result.check, result.status, "" if result.value is None else f"{result.value:g}", result.info)
        for result in results
    ]
    display.show(output, ("check", "status", "value", "info"), rows, results)
    if any(result.status == "FAIL" for result in results):
        sys.exit(1)


@agent.command(
    short_help="Get this node's certificate with a one-time token.",
    epilog=display.examples(
        "bedplate agent enrol --url https://head:8081 --token-file node001.token",
        "ssh head bedplate head token create --enrol node001 --data /site | bedplate agent enrol --url https://head:8081",
        "bedplate agent enrol --root ./node001 --url https://127.0.0.1:8081 --token-file node001.token",
    ),
)
@_place
@click.option("--url", "urls", multiple=True, required=True, metavar="URL", help="A head of the site; may be repeated.")
@click.option(
    "--token-file", type=click.File(errors="replace"), default="-", show_default=True, help="The token; - is stdin."
)
@display.output_option
def enrol(root: str, config: str, urls: tuple[str, ...], token_file: TextIO, output: str) -> None:
    """Ask the head for the certificate of this machine's node, and write the agent's settings.

    The token names the site's authority: nothing is sent to a head that has another one. Where the site wants an
    administrator to approve it, this waits. It may be repeated, and goes on where it was interrupted.
    """
    from bedplate.agent import enrol as enrolment

    def waits(answer: Any) -> None:
        why = f" ({'; '.join(answer.reasons)})" if answer.reasons else ""
        click.echo(f"{answer.node} waits for an administrator{why}: cmsh -c 'device approve {answer.node}'", err=True)

    place = config or options.place(root)
    folder = os.path.dirname(place)
    answer = _quietly(enrolment.enrol(urls, token_file.read(), folder, told=waits))
    options.write(
        place, answer.node, urls, os.path.join(folder, enrolment.AUTHORITY), os.path.join(folder, enrolment.PAIR)
    )
    if output == "json":
        display.show(output, (), (), {"node": answer.node, "ends": answer.ends, "settings": place})
    else:
        click.echo(f"this machine is {answer.node}, with a certificate until {answer.ends}; settings are in {place}")


@agent.command(
    short_help="Get the next certificate of this node.",
    epilog=display.examples("bedplate agent renew", "bedplate agent renew --root ./node001"),
)
@_place
def renew(root: str, config: str) -> None:
    """Ask the head for the next certificate, with the present one. The agent does this when it is time."""
    from bedplate.agent import enrol as enrolment

    settings = options.read(root, config)
    login = options.login(settings)
    if not login.cert_file:
        raise errors.Invalid(f"{login.node} has no certificate to renew", hint="bedplate agent enrol gets one")
    answer = _quietly(enrolment.renew(login.node, login.urls, os.path.dirname(login.cert_file)))
    click.echo(f"{login.node} has a certificate until {answer.ends}")


# Inside


def _show_plan(settings: Settings, output: str, is_quiet: bool) -> bool:
    steps, revision = _quietly(_plan(settings))
    rows = [(step.verb, step.kind, step.name, ", ".join(step.because)) for step in steps]
    data = {
        "node": settings.name,
        "revision": revision,
        "steps": [
            {"verb": step.verb, "kind": step.kind, "name": step.name, "because": list(step.because)} for step in steps
        ],
    }
    if output == "json" or rows:
        display.show(output, ("verb", "kind", "name", "because of"), rows, data)
    else:
        click.echo(f"{settings.name} is what revision {revision} says: there is nothing to do")
    return bool(steps)


async def _plan(settings: Settings) -> tuple[list[Step], int]:
    from bedplate.agent.link import Link
    from bedplate.agent.loop import Agent

    async with Link(options.login(settings)) as link:
        answer = await link.desired("", 0.0)
        assert answer is not None, "no ETag was sent"
        steps = await Agent(options.effects(settings), link).plan(answer.state)
    return steps, answer.state.revision


async def _status(settings: Settings, effects: Effects) -> dict[str, Any]:
    from bedplate.agent.loop import Agent

    memory = effects.state.held()
    looking = Agent(effects, _NoHead())
    differences = unwanted(await looking.differences(), looking.edits) if memory.state is not None else []
    services = await effects.services.status(
        [service.name for service in memory.state.services] if memory.state else []
    )
    outbox = effects.state.outbox()
    return {
        "node": memory.state.node if memory.state is not None else settings.name,
        "root": settings.root,
        "running": _holder(effects) != 0,
        "applied": memory.applied,
        "wanted": memory.wanted.revision if memory.wanted is not None else 0,
        "pending": memory.wanted is not None and not memory.is_whole,
        "files": len(memory.state.files) if memory.state is not None else 0,
        "services": [
            {"name": item.name, "state": item.condition, "pid": item.pid, "restarts": item.restarts, "why": item.why}
            for item in services.values()
        ],
        "differences": [{"kind": item.kind, "name": item.name, "what": item.what} for item in differences],
        "untold": len(outbox.actions) + len(outbox.failures) + len(outbox.results),
    }


def _status_text(about: dict[str, Any]) -> str:
    agent_state = "runs" if about["running"] else "does not run"
    holds = f"revision {about['applied']}" if about["applied"] else "no state yet"
    lines = [f"{about['node']}: the agent {agent_state}, {holds} holds, {about['files']} files"]
    if about["pending"]:
        lines.append(f"revision {about['wanted']} is not applied as a whole: see bedplate agent dry-run")
    if about["untold"]:
        lines.append(f"{about['untold']} results and events have not been reported yet")
    if about["services"]:
        rows = [
            (item["name"], item["state"], item["pid"] or "", item["restarts"], item["why"])
            for item in about["services"]
        ]
        lines += ["", display.table(("service", "state", "pid", "restarts", "why"), rows)]
    if about["differences"]:
        changes = [(item["kind"], item["name"], item["what"]) for item in about["differences"]]
        lines += ["", display.table(("not as it should be", "name", "what"), changes)]
    return "\n".join(lines)


async def _measured(effects: Effects, names: tuple[str, ...]) -> list[Any]:
    from bedplate.agent.checks import FILES, OWN, Checks
    from bedplate.agent.loop import Agent

    memory = effects.state.held()
    checks = Checks(effects.root, effects.services, effects.run)
    looking = Agent(effects, _NoHead(), checks=checks)
    try:
        asked = names or tuple(item.name for item in (*_checks(memory.state), *OWN))
        if FILES in asked and memory.state is not None:
            checks.differences = unwanted(await looking.differences(), looking.edits)
        results = [await checks.measure(name, memory.state) for name in dict.fromkeys(asked)]
    finally:
        await checks.close()
    return [result for result in results if result is not None]


def _checks(state: Desired | None) -> tuple[Any, ...]:
    return state.checks if state is not None else ()


class _NoHead:
    """For commands that ask no head."""

    async def desired(self, etag: str, wait_s: float) -> Any:
        raise errors.Unavailable("no head is asked")

    async def report(self, report: Any) -> int:
        raise errors.Unavailable("no head is asked")

    def image(self, id_: str) -> Any:
        raise errors.Unavailable("no head is asked")

    def snapshot(self, id_: str) -> Any:
        raise errors.Unavailable("no head is asked")

    def archive(self, digest: str) -> Any:
        raise errors.Unavailable("no head is asked")


@contextlib.contextmanager
def _alone(effects: Effects) -> Iterator[None]:
    """Hold the lock of the state: two agents on one root would undo each other's work."""
    handle = os.open(os.path.join(effects.state.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise errors.AlreadyExists(
            f"an agent already runs on {effects.root.folder}", hint="stop it first; bedplate agent status shows it"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def _holder(effects: Effects) -> int:
    """Whether an agent runs on this root."""
    from bedplate.agent.services.supervisor import holder

    return holder(os.path.join(effects.state.folder, "lock"))


def _quietly(work: Coroutine[Any, Any, T]) -> T:
    if logging.verbosity() == 0:
        logging.configure(logging.LogOptions(is_quiet=True))
    return asyncio.run(work)


def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT; with asyncio's own loop, which costs a node less memory than a faster one."""

    async def guarded() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(guarded())
    except BaseExceptionGroup as group:
        error = errors.only(group)
        if error is None:
            raise
        raise error from error.__cause__
