"""Checklist A, items 1 to 9: the prompt, its stars, where one stands, and what a commit makes of it."""

from __future__ import annotations

from pathlib import Path

from tests.ui.transcripts.driving import Desk, head_with, opened


async def test_item_001_a_new_shell_stands_at_the_top_of_the_head_node(desk: Desk) -> None:
    assert desk.prompt == "[basecm10]% "


async def test_item_002_use_in_one_line_selects_the_object(desk: Desk) -> None:
    await desk.do("category use default")
    assert desk.prompt == "[basecm10->category[default]]% "


async def test_item_003_a_submode_makes_the_prompt_longer(desk: Desk) -> None:
    await desk.do("category use default", "roles")
    assert desk.prompt == "[basecm10->category[default]->roles]% "


async def test_item_004_a_value_puts_stars_on_every_changed_level_and_nowhere_else(desk: Desk) -> None:
    await desk.do("configurationoverlay use kube-default-master", "roles", "use kubelet", "set maxpods 250")
    assert desk.prompt == "[basecm10->configurationoverlay*[kube-default-master*]->roles*[kubelet*]]% "
    await desk.do("..", "use generic::containerd")
    assert desk.prompt == "[basecm10->configurationoverlay*[kube-default-master*]->roles*[generic::containerd]]% "
    await desk.do("configurationoverlay use kube-default-worker")
    assert desk.prompt == "[basecm10->configurationoverlay*[kube-default-worker]]% "
    await desk.do("category use default")
    assert desk.prompt == "[basecm10->category[default]]% "


async def test_item_004_a_value_set_back_takes_the_stars_away(desk: Desk) -> None:
    await desk.do("kubernetes", "set notes changed")
    assert desk.prompt == "[basecm10->kubernetes*[default*]]% "
    await desk.do("set notes ''")
    assert desk.prompt == "[basecm10->kubernetes[default]]% "


async def test_item_005_an_unchanged_submode_below_a_changed_object_has_no_star(desk: Desk) -> None:
    await desk.do("kubernetes", "set notes changed", "appgroups")
    assert desk.prompt == "[basecm10->kubernetes*[default*]->appgroups]% "
    await desk.do("use system", "applications")
    assert desk.prompt == "[basecm10->kubernetes*[default*]->appgroups[system]->applications]% "


async def test_item_006_a_commit_takes_the_stars_away_and_keeps_the_place(desk: Desk) -> None:
    await desk.do("kubernetes", "set notes lasting")
    assert await desk.do("commit") == ""
    assert desk.prompt == "[basecm10->kubernetes[default]]% "
    desk.leave()
    assert await desk.do("kubernetes", "get notes") == "lasting\n"


async def test_item_006_what_was_committed_is_there_when_the_head_is_opened_again(tmp_path: Path) -> None:
    async with head_with("deployed", tmp_path) as head:
        await Desk(head).do("kubernetes", "set notes lasting", "commit")
    async with opened(tmp_path / "head.db") as again:
        assert await Desk(again).do("kubernetes", "get notes") == "lasting\n"


async def test_item_007_what_was_not_committed_is_not_there_in_a_new_session(desk: Desk) -> None:
    await desk.do("kubernetes", "set notes passing")
    desk.leave()
    assert (await desk.do("kubernetes", "get notes")).strip() == ""


async def test_item_008_two_dots_lead_from_object_to_list_to_parent_and_end_at_the_top(desk: Desk) -> None:
    await desk.do("category use default", "roles", "assign docker::host")
    seen = []
    for _ in range(6):
        await desk.do("..")
        seen.append(desk.prompt)
    assert seen == [
        "[basecm10->category*[default*]->roles*]% ",
        "[basecm10->category*[default*]]% ",
        "[basecm10->category*]% ",
        "[basecm10]% ",
        "[basecm10]% ",
        "[basecm10]% ",
    ]


async def test_item_009_commands_of_one_line_keep_their_place_and_one_that_fails_shows_in_the_code(desk: Desk) -> None:
    said = await desk.type("device use node001; get softwareimage")
    assert said == (0, "default-image (category:default)\n", "")
    said = await desk.type("device use node999; device use node001; get softwareimage")
    assert said.code == 1 and "node999" in said.err
    assert said.out == "default-image (category:default)\n", "the others still run"
