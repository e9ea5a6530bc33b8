"""Every block of the manual that needs no node, typed into a shell: prompts as they are, tables by their fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.ui.transcripts.blocks import PAGE, Block, Line, blocks, page
from tests.ui.transcripts.driving import Desk, Said, head_with, read_table, sized_files
from tests.ui.transcripts.living import Site, living, serving

BLOCKS = blocks()


def has_notice(block: Block) -> bool:
    return any("notice" in line.expected for line in block.session)


YUM = """#!/bin/sh
echo 'Name         : kubeadm'
echo 'Version      : 1.28.9'
echo 'Release      : 150500.2.1'
echo 'Source       : kubeadm-1.28.9-150500.2.1.src.rpm'
"""


TESTED = [block for block in BLOCKS if not block.waits]


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in TESTED])
async def test_manual_block(block: Block, tmp_path: Path) -> None:
    async with head_with(block.site, tmp_path) as head:
        await follow(block, Desk(head, files=sized_files(tmp_path / "files")), tmp_path)


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in TESTED if not has_notice(block)])
async def test_manual_block_against_a_daemon(block: Block, tmp_path: Path) -> None:
    async with serving(block.site, tmp_path) as site:
        await follow(block, site.desk, tmp_path)


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in TESTED if has_notice(block)])
async def test_manual_block_with_devices_that_carry_it_out(block: Block, tmp_path: Path) -> None:
    async with living(block.site, tmp_path) as site:
        await follow(block, site.desk, tmp_path, site)


async def follow(block: Block, desk: Desk, folder: Path, site: Site | None = None) -> None:
    """Type the block; only where devices carry commits out, notices are waited for."""
    desk.path = str(programs(folder / "bin"))
    await desk.do(*block.given)
    if site is not None and "commit" in block.given:
        await site.settles("basecm10")
    if block.top:
        desk.leave()
    for line in block.session:
        assert desk.prompt == line.prompt
        await read(desk, line)
        if site is not None and "notice" in line.expected:
            line_said = await site.hears(line.expected["notice"], line.expected.get("times", 1))
            assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} \[notice\] .*", line_said)


def programs(folder: Path) -> Path:
    """What the manual's host has and this one may lack."""
    folder.mkdir()
    (folder / "yum").write_text(YUM)
    (folder / "yum").chmod(0o755)
    return folder


async def read(desk: Desk, line: Line) -> None:
    expected = dict(line.expected)
    if "completes" in expected:
        assert desk.completes(line.command) == expected.pop("completes")
    elif line.command:
        said = await desk.type(line.command)
        assert (said.code, said.err) == (0, ""), line.command
        assert desk.shell.is_over == expected.pop("ends", False)
        compare(expected, said, desk)
    for name in ("notice", "times"):
        expected.pop(name, None)
    assert not {name for name in expected if name not in FIELDS}, "every expectation is looked at"


def compare(expected: dict[str, Any], said: Said, desk: Desk) -> None:
    kind = next((name for name in expected if name in FIELDS), "")
    if not kind:
        assert said.out == ""
    elif kind == "says":
        assert said.out.splitlines() == str(expected[kind]).splitlines()
    elif kind == "says_file":
        assert said.out == (desk.files / expected[kind]).read_text()
    elif kind == "help":
        compare_help(cells(expected[kind]), said.out)
    elif kind.startswith("show"):
        compare_rows(kind, cells(expected[kind]), read_table(said.out).rows)
    else:
        headers, *rows = cells(expected[kind])
        compare_list(kind, headers, rows, said.out)


FIELDS = {"show", "show_begin", "show_some", "list", "list_some", "says", "says_file", "help"}


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.rstrip("\n").split("\n")]


def compare_rows(kind: str, wanted: list[list[str]], found: list[list[str]]) -> None:
    if kind == "show_begin":
        found = found[: len(wanted)]
    elif kind == "show_some":
        labels = [label for label, _ in wanted]
        found = [row for row in found if row[0] in labels]
    assert found == wanted


def compare_list(kind: str, headers: list[str], rows: list[list[str]], out: str) -> None:
    table = read_table(out)
    assert all(header in table.headers for header in headers), table.headers
    if kind == "list":
        assert table.headers == headers
    places = [table.headers.index(header) for header in headers]
    found = [[row[place] for place in places] for row in table.rows]
    if kind == "list_some":
        names = [row[0] for row in rows]
        found = [row for row in found if row[0] in names]
    assert len(found) == len(rows), out
    for row, wanted in zip(found, rows, strict=True):
        assert all(map(fits, row, wanted)), f"{row} is not {wanted}"


def fits(cell: str, wanted: str) -> bool:
    if wanted.startswith("<") and wanted.endswith(">") and "submode" not in wanted:
        return bool(cell) if wanted == "<any>" else cell.startswith(wanted[1:-1])
    return cell == wanted


def compare_help(wanted: list[list[str]], out: str) -> None:
    """Each line stands in its section, and the sections in their order."""
    sections: dict[str, list[str]] = {}
    for line in out.splitlines():
        if line and not line[0].isspace():
            sections[line.strip()] = []
        elif line.strip():
            sections[list(sections)[-1]].append(line.strip())
    order = [name for name in ("Name:", "Usage:", "Options:", "Examples:") if name in sections]
    assert list(sections) == order
    for name, text in wanted:
        held = sections[name]
        assert text in held or any(line.startswith(text) for line in held), f"{name} lacks {text!r}: {held}"


def test_the_manual_has_sixty_blocks_and_each_has_a_test_or_waits_for_something_named() -> None:
    assert [block.number for block in BLOCKS] == list(range(1, 61))
    assert all(bool(block.session) != bool(block.waits) for block in BLOCKS)
    assert len([block for block in BLOCKS if block.session]) >= 45


def test_the_page_of_transcripts_is_the_table_of_the_tests() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.ui.transcripts.blocks"
