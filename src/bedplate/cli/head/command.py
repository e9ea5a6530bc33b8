"""`bedplate head`: make, serve and look after a head.

In: the command line. Out: what was done, and what to do next. The work is done by `head/folder` and
`daemon`, which are loaded when they are needed. Who is let in is the matter of the commands in `access`.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bedplate.cli import display
from bedplate.cli.head import access
from bedplate.cli.head.running import data_option, is_loopback, run
from bedplate.core import errors, openfiles
from bedplate.core.tasks import TaskGroup
from bedplate.head.folder.datafolder import Etcd, Folder
from bedplate.program import stopping

if TYPE_CHECKING:
    from bedplate.head.daemon import Daemon
    from bedplate.head.folder.backups import Content

__all__ = ["head"]

F = TypeVar("F", bound=Callable[..., Any])

EXAMPLES = """
\b
Examples:
  bedplate head init --data ./site --nodes 20         an authority, an admin credential, a first tree
  bedplate head serve --data ./site --port 8081       REST API and page; cmsh --data ./site
  bedplate head backup site.tar.gz --data ./site      the whole history, also while it is served
  bedplate head token create alice --data ./site      a bearer token for a user of the tree
"""
_STOPS_WITHIN_S = 15.0


@click.group(epilog=EXAMPLES)
def head() -> None:
    """The head node: one tree of objects, served to cmsh, programs, agents and browsers."""


@head.command(
    short_help="Create a data folder: authority, credentials, first tree.",
    epilog=display.examples(
        "bedplate head init --data ./site --nodes 20",
        "bedplate head init --data ./site --host head.example.org",
        "bedplate head init --data ./second --join ./site --name head2    a second head of the same site",
    ),
)
@data_option
@click.option("--name", default="", help="The head node's name.  [default: basecm10]")
@click.option("--nodes", type=int, default=None, help="Number of compute nodes in the first tree.  [default: 6]")
@click.option(
    "--join",
    type=click.Path(path_type=Path, file_okay=False),
    help="Create another head for the site of this data folder: same authority and keys, tree in a shared etcd.",
)
@click.option("--host", "hosts", multiple=True, help="Additional name or address of the head.")
def init(data: Path, name: str, nodes: int | None, join: Path | None, hosts: tuple[str, ...]) -> None:
    """Create a data folder, which must be missing or empty. Existing data is never touched."""
    from bedplate.head import site
    from bedplate.head.folder import creation

    if join is not None:
        if nodes is not None:
            raise click.UsageError("--nodes is for a new site; --join takes the tree of the other head")
        if not name:
            raise click.UsageError("--join needs --name: two head nodes cannot have one name")
        click.echo(access.joined(run(creation.join(data, join, name=name, hosts=hosts))))
        return
    count = site.NODES if nodes is None else nodes
    folder = run(creation.make(data, name=name or site.HEAD_NODE, nodes=count, hosts=hosts))
    click.echo(_begun(data, folder.settings.name, count))


def _begun(data: Path, name: str, nodes: int) -> str:
    where = shlex.quote(str(data))
    return "\n".join(
        [
            f"{data} holds the head {name}: an authority, the user admin, {nodes} nodes as revision 1",
            "",
            f"  admin.token, admin.crt, admin.key   credentials of the administrator, in {data}",
            f"  bedplate head serve --data {where}   serves it, with its page",
            f"  cmsh --data {where}   opens a shell, with or without a daemon",
            f"  bedplate head backup FILE --data {where} --with-keys   keeps a copy: these keys exist nowhere else",
        ]
    )


def _etcd_options(command: F) -> F:
    for option in (
        click.option("--etcd-prefix", default="", help="Prefix of the tree's keys in the etcd.  [default: /bedplate]"),
        click.option("--etcd-keyfile", default="", help="Key of that certificate."),
        click.option("--etcd-certfile", default="", help="Client certificate for the etcd."),
        click.option("--etcd-cafile", default="", help="Certificate authority of the etcd."),
        click.option("--etcd-endpoints", default="", help="URLs of the etcd's members, separated by commas."),
        click.option(
            "--store",
            type=click.Choice(["sqlite", "etcd"]),
            default=None,
            help="Where the tree is kept: in the folder, or in an etcd for two or more heads.  [default: as last time]",
        ),
    ):
        command = option(command)
    return command


@head.command(
    short_help="Serve a data folder: REST API, page, events.",
    epilog=display.examples(
        "bedplate head serve --data ./site",
        "bedplate head serve --data ./site --bind 0.0.0.0 --port 8443",
        "bedplate head serve --data ./site --bind 0.0.0.0 --store etcd --etcd-endpoints https://10.0.0.1:2379",
    ),
)
@data_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=None, help="Port; 0 chooses a free one.  [default: 8081]"
)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 (or ::) opens the head to other machines, such as agents.",
)
@click.option("--advertise", default="", metavar="URL", help="URL at which clients and other heads reach this one.")
@click.option(
    "--takeover-after",
    type=click.FloatRange(min=1.0),
    default=4.0,
    show_default=True,
    metavar="SECONDS",
    help="With an etcd: time without a renewal by the active head after which another one takes over.",
)
@click.option(
    "--images",
    type=click.Path(file_okay=False),
    default="/cm/images",
    show_default=True,
    metavar="DIR",
    help="Folder of the trees of software images; it stands for /cm/images in their paths.",
)
@click.option(
    "--transfers",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many nodes get or give an image at the same time; the others wait.",
)
@click.option(
    "--down-after",
    type=click.FloatRange(min=1.0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="A node that has not reported for so long is DOWN; agents report at least every 100 s (alive in agent.toml).",
)
@_etcd_options
def serve(
    data: Path,
    port: int | None,
    bind: str,
    advertise: str,
    takeover_after: float,
    images: str,
    transfers: int,
    down_after: float,
    store: str | None,
    **etcd: str,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    With --store etcd, two or more heads serve one tree: one is active, the others follow it, answer reads, and one of
    them takes its place within seconds when it is gone. The first one that is served with an empty etcd fills it from
    its folder.
    """
    from bedplate.head import daemon
    from bedplate.setup.serving import KubernetesSetups
    from bedplate.ui import web

    folder = Folder.find(data)
    settings = folder.settings
    if advertise and not advertise.startswith("https://"):
        raise errors.Invalid(f"--advertise {advertise} must be an https URL", hint="write https://HOST:PORT")
    chosen = _chosen_etcd(store, etcd, settings.etcd)
    at = port if port is not None else settings.port or daemon.PORT
    options = daemon.Options(bind, at, advertise, chosen, takeover_after, images, transfers, down_after)
    # Each agent has a connection, and systems give a process 1,024 unless it asks for more.
    openfiles.raise_limit()
    served = daemon.Daemon(folder, options, web.serve, setups=KubernetesSetups)
    stopping.run_until_stopped(_serve(served), stops_within_s=_STOPS_WITHIN_S)


def _chosen_etcd(store: str | None, options: dict[str, str], known: Etcd | None) -> Etcd | None:
    """The etcd to use: what the command line says over what the folder remembers."""
    given = {name.removeprefix("etcd_"): value for name, value in options.items() if value}
    if store is None and not given:
        return known
    if store == "sqlite":
        if given:
            raise click.UsageError("--store sqlite and options of an etcd are mutually exclusive")
        return None
    endpoints = tuple(endpoint for endpoint in given.pop("endpoints", "").split(",") if endpoint) or (
        known.endpoints if known else ()
    )
    if not endpoints:
        raise errors.Invalid(
            "--store etcd needs --etcd-endpoints", hint="give the URLs of the etcd's members, separated by commas"
        )
    base = known or Etcd()
    files = {name: str(Path(path).absolute()) for name, path in given.items() if name != "prefix"}
    return Etcd(
        endpoints,
        files.get("cafile", base.cafile),
        files.get("certfile", base.certfile),
        files.get("keyfile", base.keyfile),
        given.get("prefix", base.prefix),
    )


async def _serve(daemon: Daemon) -> None:
    async with TaskGroup() as tasks:
        serving = tasks.create_task(daemon.run())
        started = tasks.create_task(daemon.started.wait())
        await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            started.cancel()
            return
        settings = daemon.folder.settings
        other = daemon.standing.active_url if daemon.standing is not None else ""
        is_active = daemon.standing is None or daemon.standing.is_active
        standing = "active" if is_active else f"passive; active is {other or 'none yet'}"
        click.echo(f"head {settings.name} serves at {daemon.url} (revision {daemon.revision()}, {standing})")
        click.echo(f"  page: {daemon.url}/   shell: cmsh --data {shlex.quote(str(daemon.folder.path))}")
        if is_loopback(daemon.options.bind):
            click.echo("  only this machine can reach it; --bind 0.0.0.0, or one of its addresses, opens it to others")
        sys.stdout.flush()


@head.command(
    name="status",
    short_help="Show the state of the head of a data folder.",
    epilog=display.examples(
        "bedplate head status --data ./site",
        "bedplate head status --data ./site -o json",
    ),
)
@data_option
@display.output_option
def status_(data: Path, output: str) -> None:
    """Show whether it is served, where, at which revision, whether it is active, and when its certificates expire."""
    from bedplate.head.folder import administration

    status = run(administration.status(Folder.find(data)))
    rows = [
        ("name", status.name),
        ("data", status.data),
        ("store", status.store),
        ("daemon", status.daemon),
        ("url", status.url),
        ("revision", "" if status.revision is None else status.revision),
        ("standing", status.standing + (f" (active: {status.active})" if status.active else "")),
        ("trouble", status.trouble),
        *((f"{name}.crt ends", end) for name, end in status.certificates.items()),
    ]
    display.show(output, ("what", "value"), [row for row in rows if row[1] != ""], status)


@head.command(
    short_help="Write the whole history to one file.",
    epilog=display.examples(
        "bedplate head backup site.backup --data ./site",
        "bedplate head backup site.backup --data ./site --with-keys",
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@data_option
@click.option("--with-keys", is_flag=True, help="Include the keys of the authority and of the secrets.")
def backup(file: Path, data: Path, with_keys: bool) -> None:
    """Write a backup of the head to FILE, even while it is served.

    It holds every revision and token, as of one moment. Secrets stay sealed; the keys open them, so
    protect a backup made --with-keys like the keys.
    """
    from bedplate.head.folder import backups

    content = run(backups.backup(Folder.find(data), file, with_keys=with_keys))
    keys = "with the keys" if with_keys else "without the keys: a restore needs --keys DIR"
    click.echo(f"{file} holds {_content(content)}, {keys}")


@head.command(
    short_help="Create a data folder from a backup.",
    epilog=display.examples("bedplate head restore site.backup --data ./new"),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@data_option
@click.option(
    "--keys", type=click.Path(path_type=Path, file_okay=False), help="Data folder of the site, to read its keys from."
)
def restore(file: Path, data: Path, keys: Path | None) -> None:
    """Create a data folder, which must be missing or empty, from the backup FILE, after verifying it."""
    from bedplate.head.folder import backups

    content = run(backups.restore(file, data, keys=keys))
    click.echo(f"{data} holds {_content(content)}, as they were at {content.made}")
    if content.recovered is not None:
        name, revision = content.recovered
        since = f", an enabled administrator since revision {revision}" if revision else ""
        click.echo(f"  admin.token, admin.crt, admin.key   new credentials of {name}{since}")
    click.echo(f"  bedplate head serve --data {shlex.quote(str(data))}   serves it")


def _content(content: Content) -> str:
    return (
        f"the head {content.name}: revisions 1 to {content.revision}, {content.objects} objects, "
        f"{content.tokens} tokens"
    )


@head.command(
    name="agent-archive",
    short_help="Let nodes fetch an archive of the agent.",
    epilog=display.examples(
        "bedplate head agent-archive dist/bedplate-agent-0.9.0-linux-amd64.tar.gz --data ./site",
        "bedplate head agent-archive dist/bedplate-agent-0.9.0-linux-*.tar.gz --data ./site",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@data_option
@display.output_option
def agent_archive(files: tuple[Path, ...], data: Path, output: str) -> None:
    """Copy archives of one version of the agent into the data folder, and print what to set for nodes to run it.

    Nothing changes on any node before that is set. Each head node needs the archives.
    """
    from bedplate.head.agentarchives import ARCHIVES, Archives

    store = Archives(Folder.find(data).file(ARCHIVES))
    added = [store.add(file) for file in files]
    if len({archive.version for archive in added}) > 1:
        raise click.UsageError("give archives of one version")
    if output == "json":
        display.show(output, (), (), [archive._asdict() for archive in added])
        return
    archives = ",".join(f"{archive.architecture}={archive.digest}" for archive in added)
    click.echo(
        f"category use default; set agentversion {added[0].version}; set agentarchives {archives}; commit --wait"
    )


for _command in access.COMMANDS:
    head.add_command(_command)
