"""Reference pages of the head, out of its declarations: entities and roles, commands of the shell, the REST API.

In: `SCHEMA`, the shell's table of commands, the OpenAPI document. Out: Markdown, for `tools/docs.py` to write.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pagetext import NOTE, options, table
from rich.console import Console
from rich.text import Text

from bedplate.api.headapi import Notice
from bedplate.cli.up import demotree
from bedplate.head.entities import SCHEMA
from bedplate.head.entities.base import Role
from bedplate.head.folder import creation, datafolder
from bedplate.head.policy import Identity
from bedplate.head.schema.entity import Entity, Field, Row, Submode
from bedplate.head.schema.tables import describe
from bedplate.ui.cmsh import wording
from bedplate.ui.cmsh.commands import COMMANDS
from bedplate.ui.cmsh.program import cmsh
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend
from bedplate.ui.rest import document as openapi

__all__ = ["cmsh_page", "draw_session", "entities_page", "rest_page"]

# The kinds whose name does not say what to write.
FORMS = {
    "yes or no": "`yes` or `no`",
    "size": "a size such as `64MiB`",
    "duration": "a time such as `2m`",
    "nodes": "nodes, ranges such as `node001..node003`",
}
COMMON = ("400", "401", "403", "404", "409", "412", "413", "415", "503")
EXITS = (
    ("`0`", "success"),
    ("`1`", "a command failed, or no head could be reached"),
    ("`2`", "wrong usage"),
    ("`3`", "`plan` found something to do"),
)
# What is typed in the picture, and what a device tells of it.
TYPED = (
    "configurationoverlay",
    "list",
    "use builders",
    "roles use docker::host",
    "set iptables no",
    "plan",
    "commit",
)
TOLD = Notice(id=1, time="2026-01-01T12:00:00Z", severity="notice", host="node010", text="Service docker was restarted")
MORE = ("/", "device use node012", "explain generic::containerd", "explain -v /etc/kubernetes/kubelet.env")
# A number that large is not a bound of the domain.
FAR = 2**32


# Entities


def entities_page() -> str:
    """Every mode with its entities and what stands below them, then the roles; each type is told once."""
    told: set[str] = set()
    parts = [
        f"{NOTE}\n# Entities and roles of the head\n\n"
        "What `show` prints and `set` takes, in the order of `show`. A parameter's name in the shell is its label in "
        "lower case without spaces; the last column is the attribute in REST, exports and paths. A submode contains "
        "objects of its own.\n",
        table(("mode", "contains", "what"), [_mode_row(mode) for mode in SCHEMA.modes.values()]),
    ]
    for mode in SCHEMA.modes.values():
        parts += [f"## `{mode.shell}`\n", *_sections(mode, told)]
    parts.append("## Roles\n\nAssigned in the submode `roles` of a device, a category or an overlay.\n")
    overlay = SCHEMA.types["ConfigurationOverlay"].attributes["roles"]
    assert isinstance(overlay, Submode)
    return "\n".join([*parts, *_sections(overlay, told, with_roles=True)])


def _mode_row(mode: Submode) -> tuple[str, str, str]:
    return f"`{mode.shell}`", ", ".join(_link(entity.type_name()) for entity in mode.of), mode.doc


def _sections(submode: Submode, told: set[str], *, with_roles: bool = False) -> Iterator[str]:
    """What a list holds and what stands below that; roles have a chapter of their own."""
    for entity in submode.of:
        if entity.type_name() in told or (issubclass(entity, Role) and not with_roles):
            continue
        told.add(entity.type_name())
        yield from _section(entity)
        for below in entity.submodes:
            yield from _sections(below, told, with_roles=with_roles)


def _section(entity: type[Entity]) -> list[str]:
    about: dict[str, Any] = describe(entity)
    names = [f"`{name}`" for name in about["names"]]
    head = f"### {about['type']}\n\n{_sentence(entity)}"
    if names:
        head += f" Called {', '.join(names)}."
    if about["positional"]:
        head += f" `add {' '.join(about['positional'])}`."
    rows = [_row(row, entity.attributes[row["attribute"]]) for row in about["rows"]]
    return [head + "\n", table(("parameter", "value", "default", "meaning", "attribute"), rows)]


def _sentence(entity: type[Entity]) -> str:
    return " ".join((entity.__doc__ or "").split())


def _row(row: dict[str, Any], declared: Row) -> tuple[str, str, str, str, str]:
    if row["kind"] == "submode":
        holders = ", ".join(_link(name) for name in row["of"] if not issubclass(SCHEMA.types[name], Role))
        value = "list of " + (holders or "[roles](#roles)") + (", numbered" if row["indexed"] else "")
        return row["label"], value, "", row["doc"], f"`{row['attribute']}`"
    if "default" not in row:
        return row["label"], "", "", row["doc"], f"`{row['attribute']}`"
    meaning = row["doc"] + ("; secret" if row["secret"] else "")
    if row["inherits"]:
        meaning += f"; inherited from its {row['inherits']}"
    if row["readonly"]:
        meaning += "; not set by hand"
    return row["label"], _value(row), _default(declared), meaning, f"`{row['attribute']}`"


def _value(row: dict[str, Any]) -> str:
    if row["kind"] in FORMS:
        return FORMS[row["kind"]]
    if row["reference"]:
        return f"`{row['reference']}`" + (", several" if row["multiple"] else "")
    if row["choices"]:
        return ", ".join(f"`{choice}`" for choice in row["choices"] if choice)
    least, most = row["schema"].get("minimum"), row["schema"].get("maximum")
    if most is not None and most > FAR:
        most = None
    bounds = f", {least} to {most}" if most is not None else f", from {least}" if least is not None else ""
    return f"{row['kind']}{bounds}"


def _default(field: Row) -> str:
    assert isinstance(field, Field)
    shown = "" if field.default is None or field.kind.secret else field.kind.show(field.default)
    return f"`{shown}`" if shown else ""


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


# Commands of the shell


def cmsh_page() -> str:
    """Every command of the shell, by name, as its help page has it."""
    known = [COMMANDS[name] for name in sorted(COMMANDS)]
    ctx = click.Context(cmsh, info_name="cmsh")
    parts = [
        f"{NOTE}\n# cmsh\n\n"
        "The shell of the head: [modes](head-entities.md), objects in them, and submodes below objects. The name of a "
        "mode or of a submode in front of a command runs it there. `;` separates commands, `|` pipes their "
        "output to a program of the host, `>` and `>>` write it to a file, "
        "`!` runs a program of the host, `#` starts a comment.\n",
        "## Options of the program\n",
        table(("option", "default", "meaning"), options(cmsh, ctx)),
        "Without these options, the variables of [the environment](environment.md) are used, then "
        "`~/.config/bedplate/cmsh.yaml` with `url`, `data`, `token-file`, `cert`, `key` and `cacert`.\n",
        table(("exit code", "meaning"), EXITS),
        "## Commands\n\n`help COMMAND` prints the same.\n",
        table(("command", "what it does"), [(_command_link(command.name), command.about) for command in known]),
    ]
    for command in known:
        parts += [
            f"### `{command.name}`\n\n{_full_stop(command.about)}\n",
            "```\n" + "\n".join(command.usage) + "\n```\n",
        ]
        if command.options:
            parts.append(table(("option", "meaning"), [(f"`{each.shown()}`", each.doc) for each in command.options]))
        if command.examples:
            parts.append(table(("example", "what it does"), [(f"`{line}`", about) for line, about in command.examples]))
    return "\n".join(parts)


def _command_link(name: str) -> str:
    """A name of signs alone has no anchor."""
    return f"[`{name}`](#{name})" if name.isalnum() else f"`{name}`"


# The REST API


def rest_page() -> str:
    """Every address of the OpenAPI document, with parameters and answers; what all refuse alike is told once."""
    document = openapi.document(SCHEMA)
    operations = list(_operations(document))
    refusals = {
        status: _found(document, answer).get("description", "")
        for _, _, each in operations
        for status, answer in each["responses"].items()
        if status in COMMON
    }
    parts = [
        f"{NOTE}\n# REST API of the head\n\n"
        "The head serves this as an OpenAPI document at `/openapi.json`, with all kinds of bodies. Callers send "
        "`Authorization: Bearer TOKEN` or a client certificate. The typed Python client is "
        "`bedplate.client.HeadClient`. Every [mode](head-entities.md) has the addresses with `{mode}`, with values of "
        "its own kinds.\n",
        table(
            ("address", "what it does"),
            [(f"`{method} {path}`", each.get("summary", "")) for method, path, each in operations],
        ),
        "Errors are `application/problem+json` with `detail`, `hint` and, where they apply, `problems`, `author` and "
        "`revision`:\n",
        table(("status", "when"), [(f"`{status}`", text) for status, text in sorted(refusals.items())]),
    ]
    for method, path, each in operations:
        parts += _operation(document, method, path, each)
    return "\n".join(parts)


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All operations; what every mode has alike is told once."""
    told: set[tuple[str, str]] = set()
    for path, item in document["paths"].items():
        shared = item.get("parameters", [])
        name = re.sub(rf"/objects/(?:{'|'.join(SCHEMA.modes)})\b", "/objects/{mode}", path)
        for method in ("get", "post", "put", "patch", "delete"):
            if method in item and (method, name) not in told:
                told.add((method, name))
                each = item[method]
                yield method.upper(), name, {**each, "parameters": [*shared, *each.get("parameters", [])]}


def _operation(document: dict[str, Any], method: str, path: str, each: dict[str, Any]) -> list[str]:
    about = _full_stop(each.get("description") or each.get("summary", ""))
    parts = [f"## `{method} {path}`\n", re.sub(r" Mode `\w+`: [^.]*\.", "", about) + "\n"]
    rows = [_parameter(_found(document, parameter)) for parameter in each["parameters"]]
    if body := each.get("requestBody"):
        kinds = _found(document, body)["content"]
        words = _schema_words(path, next(iter(kinds.values())))
        rows.append(("body", ", ".join(f"`{name}`" for name in kinds), words))
    if rows:
        parts.append(table(("parameter", "where", "meaning"), rows))
    answers = []
    for status, answer in each["responses"].items():
        found = _found(document, answer)
        if status not in COMMON:
            content: dict[str, Any] = next(iter(found.get("content", {}).values()), {})
            answers.append((f"`{status}`", _schema_words(path, content), found.get("description", "")))
    parts.append(table(("answer", "body", "when"), answers))
    return parts


def _found(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for."""
    while "$ref" in node:
        target: Any = document
        for word in node["$ref"].removeprefix("#/").split("/"):
            target = target[word]
        node = target
    return node


def _parameter(parameter: dict[str, Any]) -> tuple[str, str, str]:
    return f"`{parameter['name']}`", parameter["in"], parameter.get("description", "")


def _schema_words(path: str, content: dict[str, Any]) -> str:
    schema = content.get("schema", {})
    if "$ref" not in schema:
        return str(schema.get("type", ""))
    name = schema["$ref"].rsplit("/", 1)[1]
    return f"`{name.replace('Device', 'Mode') if '{mode}' in path else name}`"


def _full_stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# Picture


def draw_session(console: Console) -> None:
    """A session of the shell on the demonstration's tree: what it prints, printed here."""
    for prompt, rest in asyncio.run(_session()):
        line = Text(prompt, style="bold green")
        line.append(rest.partition("\n")[0], style="bold white")
        console.print(line, soft_wrap=True)
        if said := rest.partition("\n")[2]:
            console.print(Text(said.removesuffix("\n")), no_wrap=True, overflow="crop")


async def _session() -> list[tuple[str, str]]:
    """Prompts, each with what was typed and what was answered."""
    found: list[tuple[str, str]] = []
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "head"
        await creation.make(data, name="basecm10", nodes=20)
        async with datafolder.open_head(data) as opened:
            session = opened.head.session()
            demotree.stage(session)
            await opened.head.commit_as(Identity.local("admin"), session.edits())
            seat = Shell(
                LocalBackend(opened.head, name="basecm10", identity=Identity.local("admin")), said.append, said.append
            )
            for line in (*TYPED, *MORE):
                prompt = seat.prompt()
                said.clear()
                await seat.run_line(line)
                told = wording.line(TOLD) + "\n" if line == "commit" else ""
                found.append((prompt, f"{line}\n{''.join(said)}{told}"))
            found.append((seat.prompt(), ""))
    return found
