"""`bedplate sim nvidia-bmm` and `bedplate sim oxide`: a simulated cloud to point a manager at.

In: how large it is, how it behaves, a fault script. Out: the cloud's API on a port, and on standard output the
environment variables a manager needs, until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from bedplate.core import duration, errors
from bedplate.program import stopping
from bedplate.sim.clouds import BmmCloud, Churn, Conditions, OxideCloud, Schedule, SimulatedCloud, faults
from bedplate.sim.clouds.admin import ROOT as ADMIN

__all__ = ["bmm", "oxide"]


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        seconds = duration.parse_duration(value)
    except ValueError as err:
        raise click.BadParameter(str(err)) from err
    if seconds < 0:
        raise click.BadParameter(f"{value!r} must not be negative")
    return seconds


def _script(ctx: click.Context, param: click.Parameter, value: Path | None) -> faults.Script:
    if value is None:
        return faults.Script()
    try:
        return faults.parse(value.read_bytes())
    except OSError as err:
        raise click.BadParameter(f"cannot read {value}: {err.strerror}") from err
    except errors.Invalid as err:
        raise click.BadParameter(str(err)) from err


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What both commands take."""

    host: str
    port: int
    seed: int
    prefix: str
    script: faults.Script
    conditions: Conditions
    churn: Churn
    config: Path | None

    def arguments(self) -> dict[str, Any]:
        """For the constructor of either cloud."""
        return {
            "host": self.host,
            "port": self.port,
            "seed": self.seed,
            "prefix": self.prefix,
            "faults": self.script,
            "conditions": self.conditions,
        }


def _span(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, metavar="DURATION", default="0s", show_default=True, callback=_seconds, help=help_text)


_OPTIONS = [
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 chooses a free one."),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same identifiers."),
    click.option(
        "--faults",
        "script",
        type=click.Path(path_type=Path),
        metavar="FILE",
        callback=_script,
        help="Fault script (YAML, see below).",
    ),
    _span("--latency", "Delay of every response."),
    _span("--list-lag", "Staleness of lists (single objects are always current)."),
    _span("--transition", "Time a machine takes to change its state."),
    _span("--token-life", "How long a token is valid; 0s: it never expires."),
    click.option("--rate-limit", is_flag=True, help="Respond with 429 above 10 requests per second or 30 at once."),
    _span("--stop-every", "Stop a random machine about this often; 0s: never. It starts again after a minute."),
    _span(
        "--terminate-every", "Terminate a random machine about this often; 0s: never. It is replaced after a minute."
    ),
    click.option("--write-config", "config", type=click.Path(path_type=Path), help="Also write the cloud-config file."),
]


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _behaviour(given: Mapping[str, Any], prefix: str) -> Behaviour:
    conditions = Conditions(
        latency_s=given["latency"],
        list_lag_s=given["list_lag"],
        transition_s=given["transition"],
        token_life_s=given["token_life"] or None,
        rate_limit=(10.0, 30) if given["rate_limit"] else None,
    )
    churn = Churn(stop_every_s=given["stop_every"], terminate_every_s=given["terminate_every"])
    return Behaviour(
        given["host"], given["port"], given["seed"], prefix, given["script"], conditions, churn, given["config"]
    )


def _epilog(examples: str) -> str:
    # The description of scripts where they are read, from the example on, and unwrapped: it is a table.
    text = (faults.__doc__ or "").partition("reported together.\n\n")[2].rstrip()
    blocks = "\n\n".join(f"\b\n{block}" for block in text.split("\n\n"))
    return f"\b\nExamples:\n{examples}\n\n\b\nA fault script:\n\n{blocks}"


@click.command(
    "nvidia-bmm",
    epilog=_epilog(
        "  bedplate sim nvidia-bmm --machines 200 --faults faults.yaml\n"
        "  bedplate sim nvidia-bmm --machines 20 --stop-every 30s --terminate-every 2m --transition 10s"
    ),
)
@click.option("--machines", type=click.IntRange(0, 100_000), default=20, show_default=True, help="How many instances.")
@click.option("--sites", type=click.IntRange(1, 50), default=1, show_default=True, help="How many sites.")
@click.option("--org", default="acme", show_default=True, help="The organisation's name.")
@click.option("--prefix", default="bmm-", show_default=True, help="Names are PREFIX001, PREFIX002, …")
@_shared
def bmm(machines: int, sites: int, org: str, prefix: str, **given: Any) -> None:
    """Run a simulated NVIDIA Bare Metal Manager."""
    behaviour = _behaviour(given, prefix)
    stopping.run_until_stopped(_run_bmm(machines, sites, org, behaviour))


@click.command(
    "oxide",
    epilog=_epilog(
        "  bedplate sim oxide --instances 200 --faults faults.yaml\n"
        "  bedplate sim oxide --instances 20 --transition 5s --list-lag 10s"
    ),
)
@click.option("--instances", type=click.IntRange(0, 60_000), default=20, show_default=True, help="How many instances.")
@click.option("--project", default="bedplate", show_default=True, help="The project's name.")
@click.option("--v6-pool", is_flag=True, help="Also a default pool of IPv6 addresses.")
@click.option("--prefix", default="oxide-", show_default=True, help="Names are PREFIX001, PREFIX002, …")
@_shared
def oxide(instances: int, project: str, v6_pool: bool, prefix: str, **given: Any) -> None:
    """Run a simulated Oxide rack (Region API)."""
    behaviour = _behaviour(given, prefix)
    stopping.run_until_stopped(_run_oxide(instances, project, v6_pool, behaviour))


async def _run_bmm(machines: int, sites: int, org: str, behaviour: Behaviour) -> None:
    cloud = BmmCloud(machines=machines, sites=sites, org=org, **behaviour.arguments())
    async with cloud:
        values = {
            "endpoint": cloud.url,
            "orgName": cloud.org,
            "token": cloud.token,
            "siteId": cloud.site_id,
            "tenantId": cloud.tenant_id,
        }
        names = ("ENDPOINT", "ORG_NAME", "TOKEN", "SITE_ID", "TENANT_ID")
        environ = {f"NVIDIA_BMM_{name}": value for name, value in zip(names, values.values(), strict=True)}
        oidc = f"OIDC: token URL {cloud.token_url}, client {cloud.client_id}, secret {cloud.client_secret}"
        _announce(cloud, environ, values, behaviour.config, f"{machines} instances", oidc)
        await _live(cloud, behaviour)


async def _run_oxide(instances: int, project: str, has_v6_pool: bool, behaviour: Behaviour) -> None:
    cloud = OxideCloud(instances=instances, project=project, has_v6_pool=has_v6_pool, **behaviour.arguments())
    async with cloud:
        values = {"host": cloud.url, "token": cloud.token, "project": cloud.project}
        environ = {f"OXIDE_{name.upper()}": value for name, value in values.items()}
        _announce(cloud, environ, values, behaviour.config, f"{instances} instances")
        await _live(cloud, behaviour)


async def _live(cloud: SimulatedCloud, behaviour: Behaviour) -> None:
    await Schedule(cloud, behaviour.churn, seed=behaviour.seed).run()
    await asyncio.Event().wait()


def _announce(
    cloud: SimulatedCloud, environ: Mapping[str, str], values: Mapping[str, str], config: Path | None, *notes: str
) -> None:
    if config is not None:
        try:
            config.touch(mode=0o600)
            config.write_text(yaml.safe_dump(dict(values), sort_keys=False))
        except OSError as err:
            raise errors.Invalid(f"cannot write {config}: {err.strerror}", hint="choose another file") from err
    lines = [f"# simulated {cloud.kind}: {notes[0]} at {cloud.url}", *(f"# {note}" for note in notes[1:])]
    lines += [f"# admin (machines, faults, counters): curl {cloud.url}{ADMIN}"]
    lines += [f"# cloud-config: {config}"] if config is not None else []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environ.items()]
    click.echo("\n".join(lines))
    click.echo("serving; Ctrl-C stops", err=True)
