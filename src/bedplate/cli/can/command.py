"""`bedplate can`: the command line.

In: a user and a file with pods, or `--matrix`; where the objects come from. Out: the answer; exit code 0 for yes, 3 for
no, 1 for an error, 2 for a wrong command line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bedplate.cli import cluster, display
from bedplate.core import errors

if TYPE_CHECKING:
    from bedplate.cli.can.answer import Answer
    from bedplate.cli.can.objects import Objects

__all__ = ["can"]

NO, ERROR = 3, 1


@click.command(
    short_help="May this user run that pod? Who may do what where?",
    epilog=display.examples(
        "bedplate can john -f pod.yaml",
        "bedplate can john -f pod.yaml --cluster-kubeconfig admin.conf -n dev",
        "bedplate can john -f pod.yaml --objects objects.yaml    offline",
        "bedplate can --matrix --resource deployments.apps -n dev -n john-restricted",
    ),
)
@click.argument("user", required=False, default="")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Pods or workloads; - is standard input."
)
@click.option("--matrix", is_flag=True, help="Print users × namespaces × verbs.")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Where it is to run; for --matrix repeatable.")
@click.option("--group", "groups", multiple=True, help="A group of the user, repeatable (O of the certificate).")
@click.option("--resource", default="pods", show_default=True, help="With --matrix: such as pods/log, jobs.batch.")
@click.option("--verb", "verbs", multiple=True, help="With --matrix: this verb only, repeatable.")
@click.option("--cluster-kubeconfig", default="", metavar="FILE", help="Read the objects from this cluster.")
@click.option("--cluster", "name", default="", help="Read the objects from this cluster of the head, with --data.")
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Data folder of the head, for --cluster.")
@click.option(
    "--objects", "objects_file", default="", metavar="FILE", help="Objects as kubectl get -o yaml prints them."
)
@display.output_option
def can(**options: Any) -> None:
    """May USER run the pods of a file? The answer is made of objects alone: roles and bindings, namespaces with their
    rules, permission objects, claims and volumes. Nothing is created, and no user is impersonated.

    Exit codes: 0 yes, 3 no, 1 error, 2 wrong usage.
    """
    try:
        code = _run(**options)
    except errors.BedplateError as err:
        # Its own exit code could be the one for "no".
        click.echo("bedplate: " + errors.describe(err), err=True)
        code = ERROR
    sys.exit(code)


def _run(
    user: str,
    files: Sequence[str],
    matrix: bool,
    namespaces: Sequence[str],
    groups: Sequence[str],
    resource: str,
    verbs: Sequence[str],
    cluster_kubeconfig: str,
    name: str,
    data: Path | None,
    objects_file: str,
    output: str,
) -> int:
    if matrix and files:
        raise errors.Invalid("--matrix and --filename are mutually exclusive")
    if not matrix and not (user and files):
        raise errors.Invalid("give a USER and a file with --filename, or --matrix")
    if not matrix and len(namespaces) > 1:
        raise errors.Invalid("a pod runs in one namespace; several are for --matrix")
    if sum(map(bool, (cluster_kubeconfig, name, objects_file))) > 1:
        raise errors.Invalid("--cluster-kubeconfig, --cluster and --objects are mutually exclusive")
    if [*files, objects_file].count("-") > 1:
        raise errors.Invalid("only one file can be standard input")
    objects = _objects(cluster_kubeconfig, name, data, objects_file)
    if matrix:
        return _matrix(objects, resource, [user] if user else [], namespaces, verbs, output)
    return _answers(objects, user, groups, files, namespaces[0] if namespaces else "", output)


def _objects(kubeconfig: str, name: str, data: Path | None, file: str) -> Objects:
    from bedplate.cli.can import objects
    from bedplate.kube import Client

    if file:
        return objects.from_text(_read(file), file)
    if name:
        kubeconfig = _of_head(name, data)
    connection = cluster.connection(kubeconfig).with_rate(-1, 1)

    async def read() -> Objects:
        async with Client(connection) as client:
            return await objects.from_cluster(client)

    return asyncio.run(read())


def _of_head(name: str, data: Path | None) -> str:
    from bedplate.head import kubenodes

    if data is None:
        raise errors.Invalid("--cluster needs the head's data folder", hint="name it with --data")
    if "/" in name or name in (".", ".."):
        raise errors.Invalid(f"{name!r} is not the name of a cluster")
    path = kubenodes.file_of(data, name)
    if not path.is_file():
        raise errors.NotFound(f"the head has no kubeconfig for the cluster {name!r}", hint=f"put one at {path}")
    return str(path)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as err:
        raise errors.Invalid(f"{file} cannot be read: {err}") from err


def _answers(
    objects: Objects, name: str, groups: Sequence[str], files: Sequence[str], namespace: str, output: str
) -> int:
    from bedplate.cli.can import answer
    from bedplate.cli.can.objects import documents

    user, policy = answer.user_of(name, tuple(groups)), answer.policy_of(objects)
    pods = [(file, obj) for file in files for obj in documents(_read(file), file)]
    if not pods:
        raise errors.Invalid(f"{', '.join(files)}: there is no object in it")
    try:
        answers = [answer.may_run(user, obj, objects, namespace, policy) for _, obj in pods]
    except msgspec.ValidationError as err:
        raise errors.Invalid(f"an object has a field of the wrong type: {err}") from err
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode([_record(each) for each in answers]), indent=2).decode())
    else:
        click.echo("\n".join(_text(each) for each in answers))
    return 0 if all(each.is_yes for each in answers) else NO


def _record(each: Answer) -> dict[str, Any]:
    return {
        "allowed": each.is_yes,
        "user": each.user,
        "kind": each.kind,
        "name": each.name,
        "namespace": each.namespace,
        "because": each.because,
        "reasons": [
            {"rule": reason.rule, "field": reason.field, "message": reason.message, "change": reason.remedy}
            for reason in each.reasons
        ],
    }


def _text(each: Answer) -> str:
    about = f"{each.kind} {each.name or '(without a name)'} in namespace {each.namespace}"
    if each.is_yes:
        context = (each.pod.get("spec") or {}).get("securityContext") or {}
        uid = f"\n  runs as UID {context['runAsUser']}" if "runAsUser" in context else ""
        return f"yes: {each.user} may run {about}\n  {each.because or 'member of system:masters'}{uid}"
    lines = [f"no: {each.user} may not run {about}"]
    for reason in each.reasons:
        lines += [
            f"  rule:   {reason.rule}",
            f"  field:  {reason.field}",
            f"  reason: {reason.message}",
            f"  change: {reason.remedy}",
        ]
    return "\n".join(lines)


def _matrix(
    objects: Objects,
    resource: str,
    users: Sequence[str],
    namespaces: Sequence[str],
    verbs: Sequence[str],
    output: str,
) -> int:
    from bedplate.cli.can import matrix

    rows = matrix.rows(objects, resource, users, namespaces, tuple(verbs) or matrix.VERBS)
    columns = ("user", "namespace", *(verbs or matrix.VERBS))
    cells = [(row.user, row.namespace, *("yes" if allowed else "-" for allowed in row.verbs.values())) for row in rows]
    display.show(output, columns, cells, [msgspec.to_builtins(row) for row in rows])
    return 0
