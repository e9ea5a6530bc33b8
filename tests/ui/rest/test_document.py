"""The OpenAPI document, and the API fuzzed against it by schemathesis with all of its checks."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.head.committing import commit
from tests.ui.rest.serving import Served, served

from bedplate.api.headapi import Result
from bedplate.head.entities import SCHEMA
from bedplate.head.session import Edit
from bedplate.ui.rest.addresses import OPERATIONS
from bedplate.ui.rest.document import document
from bedplate.ui.rest.operations import Parameter

SMALL = "network|user|healthcheck|softwareimage|etcd"
DEADLINE_S = 900


def references(data: object) -> set[str]:
    if isinstance(data, dict):
        own = {data["$ref"]} if isinstance(data.get("$ref"), str) else set()
        return own.union(*(references(part) for part in data.values()))
    return set().union(*(references(part) for part in data)) if isinstance(data, list) else set()


def test_the_document_names_every_address_once_and_nothing_that_is_not_there() -> None:
    made = document(SCHEMA)
    assert made["openapi"] == "3.1.0"
    for path in ("/api/v1/tree", "/api/v1/commits", "/api/v1/nodes/{name}/desired", "/api/v1/events", "/openapi.json"):
        assert path in made["paths"]
    for mode in SCHEMA.modes:
        assert set(made["paths"][f"/api/v1/objects/{mode}/{{key}}"]) == {"get", "put", "patch", "delete"}
    names = [one["operationId"] for path in made["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names)
    held = {f"#/components/{part}/{name}" for part, found in made["components"].items() for name in found}
    assert references(made) <= held
    assert len(OPERATIONS) < len(names)


def test_every_field_of_every_entity_is_in_the_document() -> None:
    schemas = document(SCHEMA)["components"]["schemas"]
    for name, entity in SCHEMA.types.items():
        described = schemas[f"Type{name[0].upper()}{name[1:]}"]
        values = described["properties"]["values"]["properties"]
        assert set(values) == {field.attribute for field in entity.fields}
        assert all(values[field.attribute]["description"] for field in entity.fields)
    docker = schemas["TypeDockerHostRole"]["properties"]["values"]["properties"]
    assert docker["log_level"]["enum"] == ["fatal", "error", "warn", "info", "debug"]
    assert (docker["mtu"]["minimum"], docker["mtu"]["maximum"], docker["mtu"]["default"]) == (0, 65535, 0)


CONTROLS = [*map(chr, range(0x20)), "\x7f", "\x85", "\xa0", "\u2028", "\u202e", "\ufeff"]


def agree(schema: dict[str, Any], takes: Callable[[str], bool]) -> None:
    """Texts that follow the schema, with a control character before, in and behind them: taken if they still do."""
    validator = jsonschema_rs.Draft202012Validator(schema)

    @settings(max_examples=10, deadline=None)
    @given(st.from_regex(schema["pattern"]), st.integers(0, 14))
    def check(text: str, place: int) -> None:
        for letter in ("", *CONTROLS):
            for spoilt in (letter + text, text[:place] + letter + text[place:], text + letter):
                assert validator.is_valid(spoilt) == takes(spoilt), (schema, spoilt)

    check()


def test_the_document_and_the_head_agree_about_control_characters_in_addresses() -> None:
    def takes(parameter: Parameter, text: str) -> bool:
        try:
            parameter.parse(text)
        except ValueError:
            return False
        return True

    parameters = {repr(entry): entry for operation in OPERATIONS for entry in operation.parameters}
    patterned = [entry for entry in parameters.values() if "pattern" in entry.schema()]
    assert len(patterned) > 10
    for parameter in patterned:
        agree(parameter.schema(), functools.partial(takes, parameter))


def patterns(data: object) -> Iterator[str]:
    if isinstance(data, dict):
        yield from [data["pattern"]] if isinstance(data.get("pattern"), str) else []
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from patterns(part)


def is_found(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def test_the_document_and_the_head_agree_about_control_characters_in_bodies() -> None:
    """The fields of objects are those of `test_json_schemas`; all others are matched by msgspec, which searches."""
    schemas = document(SCHEMA)["components"]["schemas"]
    objects = {
        f"{mode.label.replace(' ', '')}{part}" for mode in SCHEMA.modes.values() for part in ("", "Write", "New")
    }
    apart = {*objects, "Edit"}
    bodies = {name: schema for name, schema in schemas.items() if not name.startswith("Type") and name not in apart}
    assert "ReportRequest" in bodies
    for pattern in set(patterns(bodies)):
        assert not re.search(r"\\[dsw]", pattern), f"{pattern} means other letters to Python than to readers"
        agree({"type": "string", "pattern": pattern}, functools.partial(is_found, pattern))


async def test_the_document_is_served_to_everybody(server: Served) -> None:
    async with aiohttp.ClientSession(server.url) as http, http.get("/openapi.json") as answer:
        assert await answer.json() == json.loads(msgspec.json.encode(document(SCHEMA)))


async def fuzz(server: Served, folder: pathlib.Path, *arguments: str) -> None:
    """Run schemathesis against a served head; whatever it finds fails the test with its report."""
    program = pathlib.Path(sysconfig.get_path("scripts")) / "schemathesis"
    # 428 is for a well-formed PUT that does not say what it replaces.
    accepted = ["2xx", "3xx", "401", "403", "404", "409", "428", "429", "5xx"]
    (folder / "schemathesis.toml").write_text(
        f"max-stream-events = 1\n[checks]\npositive_data_acceptance.expected-statuses = {json.dumps(accepted)}\n"
    )
    command = [
        *(sys.executable, str(program), "--config-file", str(folder / "schemathesis.toml")),
        *("run", f"{server.url}/openapi.json", "--checks", "all", "--mode", "all", "--no-color"),
        *("--header", f"Authorization: Bearer {server.tokens['admin']}"),
        *("--generation-deterministic", "--suppress-health-check", "all"),
        # Machines ask these, with credentials that people do not have; test_enrolment fuzzes them.
        *("--exclude-operation-id", "enrol", "--exclude-operation-id", "renew"),
        *("--exclude-operation-id", "transfer_image", "--exclude-operation-id", "transfer_snapshot"),
        *("--request-timeout", "60", *arguments),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "CI": "true"},
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    report = "\n".join(line[:600] for line in out.decode(errors="replace").splitlines())
    assert process.returncode == 0, report
    assert "❌" not in report, report
    assert "Authentication failed" not in report, report


async def test_nothing_that_follows_the_document_or_breaks_it_surprises_the_head(
    server: Served, tmp_path: pathlib.Path
) -> None:
    await fuzz(
        server,
        tmp_path,
        *("--max-examples", "2", "--phases", "examples,fuzzing,stateful", "--exclude-path", "/api/v1/events"),
        *("--exclude-path-regex", r"/objects/(?!category|network|user)"),
    )
    assert server.head.tree.find("user", "admin") is not None


async def test_the_event_stream_follows_the_document(server: Served, tmp_path: pathlib.Path) -> None:
    async def happen() -> None:
        for number in itertools.count():
            await server.notices.add("node001", f"notice {number}")
            await server.health.record("node001", [Result("a", "PASS", float(number))])
            base = server.head.tree.get(("category", "default"))
            await commit(
                server.head, [Edit("category", "default", base, base.with_value("notes", str(number)))], "anna"
            )
            await asyncio.sleep(0.1)

    happening = asyncio.create_task(happen())
    try:
        await fuzz(server, tmp_path, "--include-path", "/api/v1/events", "--phases", "fuzzing", "--max-examples", "5")
    finally:
        happening.cancel()
        await asyncio.gather(happening, return_exceptions=True)


@pytest.mark.soak
@pytest.mark.parametrize(
    "addresses",
    [
        r"^(?!/api/v1/(objects|events)).*",
        rf"/objects/({SMALL})",
        r"/objects/(category|configurationoverlay)",
        r"/objects/(device|kubernetes)",
    ],
)
async def test_every_address_withstands_many_examples(tmp_path: pathlib.Path, addresses: str) -> None:
    async with served(tmp_path) as server:
        phases = "examples,coverage,fuzzing,stateful"
        await fuzz(server, tmp_path, "--include-path-regex", addresses, "--phases", phases, "--max-examples", "50")
