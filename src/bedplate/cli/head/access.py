"""The commands of `bedplate head` about who is let in: tokens, certificates, the authority, another head of the site.

In: the command line. Out: what was done, and what to do next.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import click

from bedplate.cli import display
from bedplate.cli.head.running import data_option, is_loopback, run
from bedplate.head.folder.datafolder import Folder

__all__ = ["COMMANDS", "joined"]

_LONGEST_TOKEN_S = 31 * 86400


@click.group(
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
        "bedplate head token create --enrol node001 --data ./site > node001.token    for its agent, once",
        "bedplate head token create --enrol-category default --uses 20 --lasts 1h --data ./site > new.token",
    ),
)
@click.argument("subject", default="")
@data_option
@click.option("--node", "is_node", is_flag=True, help="SUBJECT is a node: the token is for its agent only.")
@click.option("--join", "is_join", is_flag=True, help="SUBJECT is a new head node: the token is for one `head join`.")
@click.option("--enrol", default="", metavar="NODE", help="The token enrols the agent of this device, once.")
@click.option("--enrol-category", default="", metavar="CATEGORY", help="The token enrols new nodes of this category.")
@click.option(
    "--uses",
    type=click.IntRange(1, 100_000),
    default=None,
    help="With --enrol-category: how many nodes it enrols.  [default: 1]",
)
@click.option("--lasts", default="", metavar="DURATION", help="How long it enrols, such as 30m or 24h.  [default: 1h]")
@click.option("--replace", is_flag=True, help="Also enrol a device that has a certificate; that one is revoked.")
@click.option("--name", default="", help="What it is for.")
@click.option("--days", type=click.IntRange(0, 36500), default=0, help="How long it is valid; 0: until it is revoked.")
@display.output_option
def create(
    subject: str,
    data: Path,
    is_node: bool,
    is_join: bool,
    enrol: str,
    enrol_category: str,
    uses: int | None,
    lasts: str,
    replace: bool,
    name: str,
    days: int,
    output: str,
) -> None:
    """Create a token for the user (or node) SUBJECT and print only the token on standard output.

    With --enrol or --enrol-category it is for the agent of a machine that is to become a node: it names the site's
    authority, and is spent by the enrolment that it is used for.
    """
    from bedplate.head.folder import administration

    enrols = enrol or enrol_category
    if is_join and (is_node or days):
        raise click.UsageError("--join is not for a node, and its token is good for a day")
    if sum(map(bool, (subject, enrol, enrol_category))) != 1:
        raise click.UsageError("give one of SUBJECT, --enrol NODE and --enrol-category CATEGORY")
    if enrols and (is_join or is_node or days):
        raise click.UsageError("--node, --join and --days are not for enrolments; --lasts says how long a token enrols")
    if (uses is not None and not enrol_category) or ((lasts or replace) and not enrols):
        raise click.UsageError("--uses is for --enrol-category; --lasts and --replace are for enrolments")
    kind = "enrol" if enrol else "enrol-category" if enrol_category else ""
    kind = kind or ("join" if is_join else "node" if is_node else "user")
    subject = subject or enrols
    about, text = run(
        administration.create_token(
            Folder.find(data),
            subject,
            kind=kind,
            name=name,
            days=days,
            uses=uses or 1,
            lasts_s=_seconds(lasts),
            replace=replace,
        )
    )
    if output == "json":
        display.show(output, (), (), {"token": text, "about": about})
        return
    click.echo(text)
    until = f"until {about.expires}" if about.expires else "until revoked"
    times = f"{about.uses} times" if about.uses > 1 else "once"
    owner = f"for {subject} to join, once" if is_join else f"of {kind} {subject}"
    if enrols:
        owner = f"to enrol {'new nodes of ' if enrol_category else ''}{subject}, {times}"
    click.echo(f"token {about.id} {owner}, good {until}", err=True)


def _seconds(text: str) -> float:
    from bedplate.core.duration import parse_duration

    try:
        seconds = parse_duration(text) if text else 0.0
    except ValueError as wrong:
        raise click.UsageError(f"--lasts: {wrong}") from None
    if text and not 1 <= seconds <= _LONGEST_TOKEN_S:
        raise click.UsageError(f"--lasts {text} must be from 1s to {_LONGEST_TOKEN_S // 3600:.0f}h")
    return seconds


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

    tokens = run(administration.list_tokens(Folder.find(data)))
    rows = [
        (
            *(record.id, record.kind, record.subject, record.name, record.created, record.expires or "never"),
            *(record.used, f"{record.left} of {record.uses}" if record.uses else ""),
        )
        for record in tokens
    ]
    headers = ("id", "kind", "subject", "name", "created", "expires", "last used", "uses left")
    display.show(output, headers, rows, tokens)


@token.command(
    short_help="Revoke a token.",
    epilog=display.examples("bedplate head token revoke ID --data ./site    with an ID of `bedplate head token list`"),
)
@click.argument("id_", metavar="ID")
@data_option
def revoke(id_: str, data: Path) -> None:
    """Revoke the token ID; every head of the site refuses it from now on."""
    from bedplate.head.folder import administration

    run(administration.revoke_token(Folder.find(data), id_))
    click.echo(f"token {id_} is revoked")


@click.command(
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

    recovered = run(administration.recover_admin(Folder.find(data), name))
    since = f"since revision {recovered.revision}" if recovered.revision else "as before"
    click.echo(f"{recovered.name} is an enabled administrator, {since}")
    click.echo(f"  admin.token, admin.crt, admin.key   new credentials of {recovered.name}, in {data}")


@click.command(
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

    issued = run(administration.issue_certificate(Folder.find(data), name, out, is_node=is_node, days=days))
    click.echo(f"{issued.certificate} and {issued.key}, good until {issued.ends}")
    click.echo(f"  fingerprint {issued.fingerprint}")


@click.command(
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
        revocations = run(administration.list_revocations(folder))
        rows = [(item.time, item.kind, item.subject, item.fingerprint, item.by) for item in revocations]
        display.show(output, ("time", "kind", "subject", "fingerprint", "by"), rows, revocations)
        return
    if sum(map(bool, (name, file, fingerprint))) != 1:
        raise click.UsageError("give one of NAME, --file and --fingerprint")
    digest = fingerprint if file is None else administration.fingerprint_of(file)
    kind = "node" if is_node else "user"
    revocation = run(administration.revoke_certificates(folder, name, kind=kind, fingerprint=digest))
    what = f"the certificates of {kind} {name}" if name else f"the certificate {revocation.fingerprint}"
    click.echo(f"{what} issued before {revocation.time} no longer count" if name else f"{what} no longer counts")


@click.command(
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

    state = run(administration.rotate_authority(Folder.find(data), finish=finish))
    if finish:
        click.echo(f"the authority {state.fingerprint} is the only one now")
        return
    click.echo(f"the next authority {state.next} is trusted beside {state.fingerprint}")
    click.echo(f"  {data / 'ca.crt'}   both; clients need it before the next step: curl --cacert OLD URL/ca.crt")
    click.echo("  bedplate head certificate NAME   issues certificates of the next authority")
    click.echo(f"  bedplate head rotate-authority --data {shlex.quote(str(data))} --finish   ends it")


@click.command(
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
    and for one head node; an interrupted join is run again with it. Nothing is sent to a head with another authority.
    """
    from bedplate.head.folder import creation

    folder = run(creation.join_over_network(data, url, token_file.read(), name=name, hosts=hosts))
    click.echo(joined(folder))


def joined(folder: Folder) -> str:
    """What to say about a folder that was made for another head of a site."""
    where, settings = shlex.quote(str(folder.path)), folder.settings
    etcd = settings.etcd
    serve = f"  bedplate head serve --data {where} --bind 0.0.0.0"
    if etcd is None:
        serving = [f"{serve} --store etcd --etcd-endpoints ...   with the etcd that the first head is served with"]
    else:
        serving = [f"{serve}   with the etcd {','.join(etcd.endpoints)}"]
        if any(is_loopback(urlsplit(endpoint).hostname or "") for endpoint in etcd.endpoints):
            serving.append("    on another machine add --etcd-endpoints: the addresses above are those of this machine")
    return "\n".join(
        [
            f"{folder.path} holds the head {settings.name}, with the authority and the keys of its site",
            "",
            *serving,
            f'  cmsh --url URL -c "device; add headnode {settings.name}; commit"   makes it known in the tree',
        ]
    )


COMMANDS = (token, recover_admin, certificate, revoke_certificate, rotate_authority, join)
