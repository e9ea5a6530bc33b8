"""Checklist A, items 28 to 32 and 35: the host's commands, filters, comments, completion, help, slips."""

from __future__ import annotations

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.ui.cmsh.commands import COMMANDS


async def test_item_028_a_command_of_the_host_prints_inline(desk: Desk) -> None:
    assert await desk.do("!echo hi | tr a-z A-Z") == "HI\n"
    assert (await desk.type("!exit 7")).code == 7 or (await desk.type("!exit 7")).code == 1
    assert desk.prompt == "[basecm10]% "


async def test_item_029_the_output_of_a_command_can_be_filtered(desk: Desk) -> None:
    out = await desk.do("device", "list | grep node00")
    assert len(out.splitlines()) == 6
    assert all(line.startswith("node00") for line in out.splitlines())
    assert (await desk.do("list | grep node00 | wc -l")).strip() == "6"


async def test_item_030_a_comment_at_the_end_of_a_line_is_ignored(desk: Desk) -> None:
    await desk.do("category use default # it's the one")
    assert desk.prompt == "[basecm10->category[default]]% "
    assert await desk.do("# nothing at all") == ""
    await desk.do("set notes 'a # b' # the first is a value")
    assert await desk.do("get notes") == "a # b\n"


async def test_item_031_tab_completes_commands_modes_objects_parameters_and_types(desk: Desk) -> None:
    assert "category" in desk.completes("cat")
    assert {"commit", "configurationoverlay"} <= set(desk.completes("co"))
    assert desk.completes("device use node00") == [f"node00{number}" for number in range(1, 7)]
    await desk.do("kubernetes")
    assert desk.completes("set trust") == ["trusteddomains"]
    assert set(desk.completes("get kubernetesapi")) == {"kubernetesapiserver", "kubernetesapiserverproxyport"}
    assert desk.completes("set external ") == ["yes", "no"] or desk.completes("set external ") == ["no", "yes"]
    assert "kube-default" in desk.completes("set etcdcluster ")
    assert "labelsets" in desk.completes("lab")
    await desk.do("category use default", "roles")
    assert "Docker::Host" in desk.completes("assign ") or "docker::host" in desk.completes("assign ")
    await desk.do("assign docker::host", "storagebackends")
    assert desk.completes("add ") == ["aufs", "devicemapper", "overlay2"]
    assert desk.completes("add over") == ["overlay2"]


@pytest.mark.parametrize("name", sorted(COMMANDS))
async def test_item_032_every_help_page_has_its_sections_in_order(desk: Desk, name: str) -> None:
    said = await desk.type(f"help {name}")
    assert said.code == 0, said.err
    headings = [line for line in said.out.splitlines() if line and not line[0].isspace()]
    assert headings in (["Name:", "Usage:", "Options:", "Examples:"], ["Name:", "Usage:", "Examples:"])
    assert said.out.splitlines()[1].strip().startswith(f"{name} - ")


async def test_item_032_help_alone_lists_what_can_be_typed_here(desk: Desk) -> None:
    out = await desk.do("help")
    assert all(f"        {name} " in out for name in ("commit", "history", "device", "category"))
    out = await desk.do("kubernetes", "help")
    assert all(f"        {name} " in out for name in ("list", "show", "set", "append", "clone", "appgroups", "device"))


@pytest.mark.parametrize(
    ("way", "line", "named"),
    [
        ("", "planets", "planets"),
        ("", "devices", "device"),
        ("device", "use node999", "node999"),
        ("device", "use node01", "node001"),
        ("kubernetes", "set trusteddomain x", "trusteddomains"),
        ("kubernetes", "get nothing", "nothing"),
        ("kubernetes", "nosubmode", "nosubmode"),
        ("category use default", "show gone", "gone"),
        ("category", "remove gone", "gone"),
    ],
)
async def test_item_035_what_is_unknown_gives_a_short_error_with_its_name(
    desk: Desk, way: str, line: str, named: str
) -> None:
    if way:
        await desk.do(way)
    before = desk.prompt
    said = await desk.fails(line)
    assert named in said.err
    assert 1 <= len(said.err.splitlines()) <= 2, "the error, and at most a line of what to do"
    assert desk.prompt == before
