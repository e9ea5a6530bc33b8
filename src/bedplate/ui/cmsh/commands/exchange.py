"""The tree as a file: export, import."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.core import errors
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.commands.commits import diff_table
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.machine import read_file, write_file

__all__: list[str] = []


def _files(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.files(args.partial) if not args.words else ()


@command(
    "export",
    "Write the committed tree as YAML, without secrets",
    "export [OPTIONS] [<path>]",
    options=[
        Option("", "--with-secrets", "Write secrets in clear text, after confirmation"),
        Option("", "--yes", "Confirm without a prompt"),
        Option("-f", "--force", "Replace a file that exists"),
    ],
    examples=[
        ("export", "Print it"),
        ("export site.yaml", "Write it to a file that only you can read"),
    ],
    words=_files,
    most=1,
)
async def _export(desk: Desk, args: Arguments) -> None:
    secrets = args.flag("with-secrets")
    if secrets and not args.flag("yes"):
        answer = await desk.host.ask("Write all secrets in clear text? (yes/no) ")
        if (answer or "").strip().lower() not in ("y", "yes"):
            raise errors.Invalid(
                "nothing was exported: secrets in clear text were not confirmed", hint="--yes confirms it"
            )
    text = await desk.backend.export_document(with_secrets=secrets)
    if not args.words:
        desk.write(text)
        return
    write_file(args.words[0], text, replace=args.flag("force"))


@command(
    "import",
    "Stage the objects of an exported file; commit applies them",
    "import [OPTIONS] <file>",
    options=[
        Option("", "--dry-run", "Show what would change, and stage nothing"),
        Option("", "--prune", "Also stage the removal of objects that the file does not name"),
        VERBOSE,
        DELIMITER,
    ],
    examples=[
        ("import site.yaml", "Stage it; diff shows what it changes"),
        ("import site.yaml --dry-run", "Only look"),
    ],
    words=_files,
    least=1,
    most=1,
)
async def _import(desk: Desk, args: Arguments) -> None:
    from bedplate.head import (
        Session,
        exchange,  # YAML is needed by nothing else here
    )

    text = read_file(args.words[0])
    is_dry = args.flag("dry-run")
    session = Session(desk.backend.tree) if is_dry else desk.session
    try:
        exchange.stage(session, text, prune=args.flag("prune"))
    except errors.Invalid as wrong:
        hint = wrong.hint or "nothing was staged"
        raise errors.Invalid(f"{args.words[0]}: {wrong.message}", hint=hint, problems=wrong.problems) from None
    if is_dry:
        desk.table(diff_table(desk, session.staged()), args)
        await desk.backend.check(session.edits())
        return
    if desk.is_interactive:
        desk.note(f"{len(session.edits())} objects are staged; diff shows them, commit applies them")
