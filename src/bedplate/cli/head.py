"""`bedplate head`: make, serve and look after a head.

In: the command line. Out: what was done, and what to do next. The work is done by `head/folder` and
`daemon`, which are loaded when they are needed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from bedplate.cli import display
from bedplate.core import errors, logging
from bedplate.head.folder.datafolder import Etcd, Folder
from bedplate.program import stopping
from bedplate.ui.cmsh.usersettings import DEFAULT_DATA

if TYPE_CHECKING:
    from bedplate.head.daemon import Daemon
    from bedplate.head.folder.backups import Content

__all__ = ["head"]

T = TypeVar("T")
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

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="BEDPLATE_DATA",
    default=DEFAULT_DATA,
    show_default=True,
    help="The head's data folder.",
)


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
        _run(creation.join(data, join, name=name, hosts=hosts))
        click.echo(_joined(data, name))
        return
    count = site.NODES if nodes is None else nodes
    folder = _run(creation.make(data, name=name or site.HEAD_NODE, nodes=count, hosts=hosts))
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


def _joined(data: Path, name: str) -> str:
    where = shlex.quote(str(data))
    return "\n".join(
        [
            f"{data} holds the head {name}, with the authority and the keys of its site",
            "",
            f"  bedplate head serve --data {where} --bind 0.0.0.0 --store etcd --etcd-endpoints ...   the same etcd",
            f'  cmsh --url URL -c "device; add headnode {name}; commit"   makes it known in the tree',
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
@_etcd_options
def serve(
    data: Path, port: int | None, bind: str, advertise: str, takeover_after: float, store: str | None, **etcd: str
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    With --store etcd, two or more heads serve one tree: one is active, the others follow it, answer reads, and one of
    them takes its place within seconds when it is gone. The first one that is served with an empty etcd fills it from
    its folder.
    """
    from bedplate.head import daemon
    from bedplate.ui import web

    folder = Folder.find(data)
    settings = folder.settings
    if advertise and not advertise.startswith("https://"):
        raise errors.Invalid(f"--advertise {advertise} must be an https URL", hint="write https://HOST:PORT")
    chosen = _chosen_etcd(store, etcd, settings.etcd)
    at = port if port is not None else settings.port or daemon.PORT
    served = daemon.Daemon(folder, daemon.Options(bind, at, advertise, chosen, takeover_after), web.serve)
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
    async with asyncio.TaskGroup() as tasks:
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
        if _is_loopback(daemon.options.bind):
            click.echo("  only this machine can reach it; --bind 0.0.0.0, or one of its addresses, opens it to others")
        sys.stdout.flush()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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

    status = _run(administration.status(Folder.find(data)))
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

    content = _run(backups.backup(Folder.find(data), file, with_keys=with_keys))
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

    content = _run(backups.restore(file, data, keys=keys))
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


@head.group(
    epilog=display.examples(
        "bedplate head token create anna --data ./site --days 90",
        "bedplate head token list --data ./site",
    ),
)
def token() -> None:
    """Bearer tokens of users and nodes. The head keeps digests only: a token's text is shown once."""


@token.command(
    short_help="Make a token.",
    epilog=display.examples(
        "bedplate head token create anna --data ./site --name laptop --days 90 > token",
        "bedplate head token create node001 --node --data ./site",
        "bedplate head token create head2 --join --data ./site > join.token    for bedplate head join",
    ),
)
@click.argument("subject")
@data_option
@click.option("--node", "is_node", is_flag=True, help="SUBJECT is a node: the token is for its agent only.")
@click.option("--join", "is_join", is_flag=True, help="SUBJECT is a new head node: the token is for one `head join`.")
@click.option("--name", default="", help="What it is for.")
@click.option("--days", type=click.IntRange(0, 36500), default=0, help="How long it is valid; 0: until it is revoked.")
@display.output_option
def create(subject: str, data: Path, is_node: bool, is_join: bool, name: str, days: int, output: str) -> None:
    """Create a token for the user (or node) SUBJECT and print only the token on standard output."""
    from bedplate.head.folder import administration

    if is_join and (is_node or days):
        raise click.UsageError("--join is not for a node, and its token is good for a day")
    kind = "join" if is_join else "node" if is_node else "user"
    about, text = _run(administration.create_token(Folder.find(data), subject, kind=kind, name=name, days=days))
    if output == "json":
        display.show(output, (), (), {"token": text, "about": about})
        return
    click.echo(text)
    until = f"until {about.expires}" if about.expires else "until revoked"
    owner = f"for {subject} to join, once" if is_join else f"of {kind} {subject}"
    click.echo(f"token {about.id} {owner}, good {until}", err=True)


@token.command(
    name="list",
    short_help="Show tokens, without their texts.",
    epilog=display.examples("bedplate head token list --data ./site"),
)
@data_option
@display.output_option
def list_(data: Path, output: str) -> None:
    """List all tokens: owner, purpose, expiry, last use."""
    from bedplate.head.folder import administration

    tokens = _run(administration.list_tokens(Folder.find(data)))
    rows = [
        (record.id, record.kind, record.subject, record.name, record.created, record.expires or "never", record.used)
        for record in tokens
    ]
    display.show(output, ("id", "kind", "subject", "name", "created", "expires", "last used"), rows, tokens)


@token.command(
    short_help="Revoke a token.",
    epilog=display.examples("bedplate head token revoke ID --data ./site    with an ID of `bedplate head token list`"),
)
@click.argument("id_", metavar="ID")
@data_option
def revoke(id_: str, data: Path) -> None:
    """Revoke the token ID; every head of the site refuses it from now on."""
    from bedplate.head.folder import administration

    _run(administration.revoke_token(Folder.find(data), id_))
    click.echo(f"token {id_} is revoked")


@head.command(
    name="recover-admin",
    short_help="Regain access as an administrator.",
    epilog=display.examples(
        "bedplate head recover-admin --data ./site", "bedplate head recover-admin anna --data ./site"
    ),
)
@click.argument("name", default="admin")
@data_option
def recover_admin(name: str, data: Path) -> None:
    """Make the user NAME (default: admin) an enabled administrator and write new credentials for it.

    For a site whose administrators have all lost their access. It needs the data folder, not a credential. With the
    tree in the folder, stop the daemon first; with the tree in an etcd, the heads may be running or not.
    """
    from bedplate.head.folder import administration

    recovered = _run(administration.recover_admin(Folder.find(data), name))
    since = f"since revision {recovered.revision}" if recovered.revision else "as before"
    click.echo(f"{recovered.name} is an enabled administrator, {since}")
    click.echo(f"  admin.token, admin.crt, admin.key   new credentials of {recovered.name}, in {data}")


@head.command(
    short_help="Issue a client certificate.",
    epilog=display.examples(
        "bedplate head certificate anna --data ./site --out .",
        "bedplate head certificate node001 --node --data ./site --days 30",
    ),
)
@click.argument("name")
@data_option
@click.option("--node", "is_node", is_flag=True, help="NAME is a node: the certificate is for its agent only.")
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long it is valid.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("."), help="Folder to write to.")
def certificate(name: str, data: Path, is_node: bool, days: int, out: Path) -> None:
    """Write NAME.crt and NAME.key, a client certificate for the user (or node) NAME.

    Its rights come from the user's object: its role, whether it is enabled, and, if its Certificate sets a
    fingerprint, only the certificate with that fingerprint.
    """
    from bedplate.head.folder import administration

    issued = administration.issue_certificate(Folder.find(data), name, out, is_node=is_node, days=days)
    click.echo(f"{issued.certificate} and {issued.key}, good until {issued.ends}")
    click.echo(f"  fingerprint {issued.fingerprint}")


@head.command(
    name="revoke-certificate",
    short_help="Revoke client certificates.",
    epilog=display.examples(
        "bedplate head revoke-certificate anna --data ./site         all that anna has so far",
        "bedplate head revoke-certificate node001 --node --data ./site",
        "bedplate head revoke-certificate --file lost.crt --data ./site",
        "bedplate head revoke-certificate --list --data ./site",
    ),
)
@click.argument("name", default="")
@data_option
@click.option("--node", "is_node", is_flag=True, help="NAME is a node.")
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="Revoke the certificate in this file.")
@click.option("--fingerprint", default="", help="Revoke the certificate with this SHA-256 fingerprint.")
@click.option("--list", "is_list", is_flag=True, help="Show what was revoked.")
@display.output_option
def revoke_certificate(
    name: str, data: Path, is_node: bool, file: Path | None, fingerprint: str, is_list: bool, output: str
) -> None:
    """Refuse the client certificates that the user (or node) NAME has so far, or a single one.

    Every head of the site refuses them from now on; event streams that use one end. A certificate that is issued
    later counts again: bedplate head certificate NAME.
    """
    from bedplate.head.folder import administration

    folder = Folder.find(data)
    if is_list:
        revocations = _run(administration.list_revocations(folder))
        rows = [(item.time, item.kind, item.subject, item.fingerprint, item.by) for item in revocations]
        display.show(output, ("time", "kind", "subject", "fingerprint", "by"), rows, revocations)
        return
    if sum(map(bool, (name, file, fingerprint))) != 1:
        raise click.UsageError("give one of NAME, --file and --fingerprint")
    digest = fingerprint if file is None else administration.fingerprint_of(file)
    kind = "node" if is_node else "user"
    revocation = _run(administration.revoke_certificates(folder, name, kind=kind, fingerprint=digest))
    what = f"the certificates of {kind} {name}" if name else f"the certificate {revocation.fingerprint}"
    click.echo(f"{what} issued before {revocation.time} no longer count" if name else f"{what} no longer counts")


@head.command(
    name="rotate-authority",
    short_help="Replace the certificate authority.",
    epilog=display.examples(
        "bedplate head rotate-authority --data ./site             the next authority, trusted beside the present one",
        "bedplate head rotate-authority --data ./site --finish    the present one is forgotten",
    ),
)
@data_option
@click.option("--finish", is_flag=True, help="Let the next authority take the present one's place.")
def rotate_authority(data: Path, finish: bool) -> None:
    """Replace the site's certificate authority, in two steps, while it is served.

    The first makes the next authority. All heads trust both, and client certificates are issued by the next one from
    then on. Give every client the new ca.crt (GET /ca.crt) and a new certificate; then --finish lets the next authority
    sign the heads' certificates, and forgets the former one with all it has signed.
    """
    from bedplate.head.folder import administration

    state = _run(administration.rotate_authority(Folder.find(data), finish=finish))
    if finish:
        click.echo(f"the authority {state.fingerprint} is the only one now")
        return
    click.echo(f"the next authority {state.next} is trusted beside {state.fingerprint}")
    click.echo(f"  {data / 'ca.crt'}   both; clients need it before the next step: curl --cacert OLD URL/ca.crt")
    click.echo("  bedplate head certificate NAME   issues certificates of the next authority")
    click.echo(f"  bedplate head rotate-authority --data {shlex.quote(str(data))} --finish   ends it")


@head.command(
    short_help="Create a data folder for another head of a site.",
    epilog=display.examples(
        "bedplate head join --url https://head1:8081 --token-file join.token --name head2 --data ./second",
    ),
)
@data_option
@click.option("--url", required=True, metavar="URL", help="A head of the site that serves.")
@click.option(
    "--token-file",
    type=click.File(),
    required=True,
    help="One-time token of `head token create NAME --join`; - is stdin.",
)
@click.option("--name", required=True, help="The new head node's name.")
@click.option("--host", "hosts", multiple=True, help="Additional name or address of the new head.")
def join(data: Path, url: str, token_file: TextIO, name: str, hosts: tuple[str, ...]) -> None:
    """Create a data folder, which must be missing or empty, with the keys of a site that another head serves.

    The token is made there: bedplate head token create NAME --join. It names the site's authority, is good for a day,
    and for one head node. Nothing is sent to a head with another authority.
    """
    from bedplate.head.folder import creation

    folder = _run(creation.join_over_network(data, url, token_file.read(), name=name, hosts=hosts))
    click.echo(_joined(data, name))
    if folder.settings.etcd is not None:
        click.echo(f"  its etcd: {','.join(folder.settings.etcd.endpoints)}")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Do it and give its answer, without the log lines that are a daemon's to write.

    Who is told to end cleans up first: a folder half made must not stay behind.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if logging.verbosity() == 0:
        logging.configure(logging.LogOptions(is_quiet=True))
    return asyncio.run(work)
