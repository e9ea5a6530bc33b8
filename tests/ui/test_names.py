"""Names, reports and notices in hostile hands: what cannot be a name is refused at every door, whatever the text is;
what a node reports comes out as one line that can be printed."""

from __future__ import annotations

import pathlib
import re
import shlex
import sys
import unicodedata
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.ui import commit_doors as doors
from tests.ui.commit_doors import NORMAL, Refused, Step, World

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.health import Measured, _taken, news
from bedplate.head.notices import one_line
from bedplate.head.objects import Obj
from bedplate.head.policy import Identity
from bedplate.head.schema import codec
from bedplate.head.session import Edit, Session

NOTES = Step("category", "default", "notes", "words")
NAMES = (
    *(".", "..", "-", "-rf", "--help", "a/b", "../x", "a b", "a\nb", "a\x1b[2Jb", "a\x7fb", "a\x85b", "a\x9bb"),
    *("a\u202eb", "a\u2066b", "a\u200fb", "a\u061cb", "a\u200bb", "a\ufeffb", "a\u2028b", "a\U000e0041b", "x" * 254),
)
SUSPECT = st.text("-./\\\x00\x1b\x7f\x85\x9b\u200b\u200f\u202e\u2066\ufeff\U000e0041 \nab:_é", max_size=6)


async def rest(world: World, method: str, path: str, body: object = None, **headers: str) -> int:
    sent = {"Authorization": f"Bearer {world.tokens['admin']}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    async with aiohttp.ClientSession(world.url, headers=sent) as http:
        arguments = {"data": body} if isinstance(body, str) else {"json": body}
        async with http.request(method, f"/api/v1/{path}", **arguments) as answer:  # type: ignore[arg-type]
            return answer.status


def document(name: str) -> str:
    objects = {name: {"type": "Category"}}
    return str(yaml.safe_dump({"format": "bedplate/head/v1", "category": objects}, allow_unicode=True))


async def shell(world: World, door: type[doors.ShellDoor], line: str) -> None:
    seat = door(world, "admin")
    await seat.stage(())
    await seat._run(line)
    await seat.commit()


async def page(world: World, where: str, action: str, name: str) -> None:
    seat = doors.PageDoor(world, "admin")
    await seat.stage(())
    await seat._taken(await seat.reader.get(where))
    await seat._taken(await seat.reader.submit(action, name=name))
    await seat.commit()


async def over_rest(world: World, name: str) -> None:
    edit = {"mode": "category", "key": name, "object": {"type": "Category"}}
    child = {"children": {"services": {name: {"type": "Service"}}}}
    merge = {"Content_Type": "application/merge-patch+json"}
    for status in (
        await rest(world, "POST", "objects/category", {"key": name}),
        await rest(world, "POST", "commits", {"edits": [edit]}),
        await rest(world, "POST", "commits", {"edits": [{**edit, "key": "fine", "was": name}]}),
        await rest(world, "POST", "import", document(name), Content_Type="application/yaml"),
        await rest(world, "PUT", "objects/category/fine", child),
        await rest(world, "PATCH", "objects/category/default", child, **merge),
        await rest(world, "PATCH", "objects/category/default", {"extras": {name: "x"}}, **merge)
        if name not in ("a b", "a/b", "../x")
        else 400,
    ):
        assert status in (400, 404, 405, 409), (name, status)
    raise Refused


async def imported(world: World, door: type[doors.ShellDoor], name: str) -> None:
    file = world.folder / "names.yaml"
    file.write_text(document(name))
    await shell(world, door, f"import {file}")


async def in_the_head(world: World, name: str) -> None:
    """Whatever a front end forgets."""
    obj = Obj("Category", "fine", children={"services": {name: Obj("Service", name)}})
    for edit in (Edit("category", name, None, Obj("Category", name)), Edit("category", "fine", None, obj)):
        with pytest.raises(errors.Invalid):
            await world.head.commit_as(Identity.local("admin"), [edit])
    raise Refused


DOORS: dict[str, Callable[[World, str], Awaitable[None]]] = {
    "head": in_the_head,
    "REST": over_rest,
    "page add": lambda world, name: page(world, "/add/category", "/add/category", name),
    "page clone": lambda world, name: page(world, "/show/category/default", "/clone/category/default", name),
}
for _door in (doors.ShellDoor, doors.RemoteShellDoor):
    for _verb in ("add -- {}", "add {}", "clone default {}", "use default; rename {}", "use default; services; add {}"):
        DOORS[f"{_door.__name__} {_verb}"] = lambda world, name, door=_door, verb=_verb: shell(  # type: ignore[misc]
            world, door, f"category; {verb.format(shlex.quote(name))}"
        )
    DOORS[f"{_door.__name__} import"] = lambda world, name, door=_door: imported(world, door, name)  # type: ignore[misc]


@pytest.mark.parametrize("door", DOORS)
async def test_what_cannot_be_a_name_is_refused_at_every_door(door: str, tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, (NOTES,)) as world:
        names = NAMES if "page" not in door else [name for name in NAMES if name.strip() == name and "\n" not in name]
        for name in names:
            with pytest.raises(Refused):
                await DOORS[door](world, name)
            assert world.head.revision == NORMAL, f"{door} took {name!r}"


async def test_names_of_an_older_version_are_read_and_can_be_removed(tmp_path: pathlib.Path) -> None:
    seal = codec.encode(SCHEMA, Obj("Category", "-old", extras={"\u202e": "x"}), codec.left_out)
    obj = codec.decode(SCHEMA, SCHEMA.mode("category"), "-old", seal, lambda sealed: sealed)
    async with doors.world(tmp_path, (NOTES,)) as world:
        head = world.head
        head._ledger.tree = head.tree.with_object("category", "-old", obj)
        session = Session(head.tree)
        session.set(("category", "-old"), "notes", "edited")
        assert await head.commit_as(Identity.local("admin"), session.edits(), force=True) is not None
        session = Session(head.tree)
        session.put(("category", "-new"), Obj("Category", "-new"))
        session.put(("category", "default"), head.tree.get(("category", "default")).with_extra("\u202e", "x"))
        with pytest.raises(errors.Invalid) as refused:
            await head.commit_as(Identity.local("admin"), session.edits())
        assert len(refused.value.problems) == 2
        session = Session(head.tree)
        session.remove(("category", "-old"))
        assert await head.commit_as(Identity.local("admin"), session.edits(), force=True) is not None
        assert head.tree.find("category", "-old") is None


def test_no_letter_that_cannot_be_seen_is_part_of_a_name() -> None:
    unseen = {"Cc", "Cf", "Zs", "Zl", "Zp"}
    letters = [letter for letter in map(chr, range(sys.maxunicode)) if unicodedata.category(letter) in unseen]
    assert [letter for letter in letters if re.fullmatch(headapi.NAME, f"a{letter}")] == []


@given(st.one_of(SUSPECT, st.text(max_size=8)), st.sampled_from(sorted(SCHEMA.modes)))
def test_a_name_that_is_taken_is_printable_and_stays_in_its_folder(name: str, mode: str) -> None:
    submode = SCHEMA.mode(mode)
    try:
        codec.decode(SCHEMA, submode, name, {"type": submode.of[0].type_name()})
    except errors.Invalid:
        return
    assert not {unicodedata.category(letter) for letter in name} & {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}
    assert not name.startswith("-")
    assert (pathlib.PurePosixPath("/folder") / name).parts == ("/", "folder", name)
    assert name not in (".", "..")


LINES = st.one_of(SUSPECT, st.text(max_size=40))


@given(LINES, LINES, LINES, LINES, LINES)
def test_whatever_a_node_reports_is_one_printable_line(kind: str, name: str, text: str, check: str, info: str) -> None:
    body = {
        "actions": [{"kind": kind, "name": name, "verb": "reloaded"}],
        "failures": [{"kind": "service", "name": name, "verb": kind, "text": text}],
        "results": [{"check": check, "status": "FAIL", "info": info}],
    }
    for part in ("actions", "failures", "results"):
        try:
            report = msgspec.json.decode(msgspec.json.encode({part: body[part]}), type=headapi.ReportRequest)
        except (msgspec.ValidationError, UnicodeEncodeError):
            continue
        measured: list[Measured]
        condition, measured = _taken("node001", None, report.results, "2026-01-01T00:00:00.000Z", 0, "")
        for item in news("node001", report.actions, report.failures, measured):
            line = one_line(item.text)
            assert line.isprintable() and len(line) <= 500
        assert all(verdict.last.info.isprintable() for verdict in condition.checks.values())
        assert all(re.fullmatch(headapi.NAME, name) for name in condition.checks)


@given(st.text(), st.integers(1, 50))
def test_one_line_is_printable_short_and_stays_as_it_is(text: str, longest: int) -> None:
    line = one_line(text, longest)
    assert line.isprintable() and len(line) <= longest
    assert one_line(line, longest) == line
