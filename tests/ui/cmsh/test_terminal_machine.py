"""The machine under a shell: children and editors."""

from __future__ import annotations

import asyncio
import os
import pathlib

import pytest

from bedplate.ui.cmsh.machine import Machine


def _machine(*, attended: bool = False, **more: str) -> Machine:
    kept = {"PATH": os.environ["PATH"]}
    return Machine(kept | more, is_attended=attended)


async def test_a_command_of_the_host_prints_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert await _machine().run("echo hi | tr a-z A-Z", None) == (0, "")
    assert capfd.readouterr().out == "HI\n"


async def test_a_filter_reads_the_text_it_is_given(capfd: pytest.CaptureFixture[str]) -> None:
    assert await _machine().run("grep two", "one\ntwo\n") == (0, "")
    assert capfd.readouterr().out == "two\n"


async def test_the_exit_code_of_a_child_is_told() -> None:
    assert await _machine().run("exit 7", None) == (7, "")


async def test_a_filter_that_leaves_early_is_no_failure() -> None:
    assert await _machine().run("true", "line\n" * 200_000) == (0, "")


async def test_a_child_of_a_script_does_not_read_the_script() -> None:
    assert await _machine().run('test -z "$(cat)"', None) == (0, "")


async def test_an_editor_gives_the_text_as_it_was_saved(tmp_path: pathlib.Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nstat -c %a "$1" > mode\necho more >> "$1"\n'.replace("mode", str(tmp_path / "mode")))
    editor.chmod(0o755)
    assert await _machine(EDITOR=str(editor)).edit("text\n", ".yaml") == "text\nmore\n"
    assert (tmp_path / "mode").read_text() == "600\n"


async def test_an_editor_that_fails_gives_nothing() -> None:
    assert await _machine(EDITOR="false").edit("text", "") is None


async def test_without_a_person_and_without_an_editor_nothing_is_edited() -> None:
    assert await _machine().edit("text", "") is None


async def test_a_file_with_a_secret_is_gone_after_editing(tmp_path: pathlib.Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "name"}\n')
    editor.chmod(0o755)
    await _machine(EDITOR=str(editor)).edit("text", ".conf")
    named = pathlib.Path((tmp_path / "name").read_text().strip())
    assert named.suffix == ".conf"
    assert not named.exists()


@pytest.mark.parametrize("turns", [1, 2, 5, 20, 200])
async def test_a_child_is_gone_when_its_command_is_given_up(turns: int, tmp_path: pathlib.Path) -> None:
    named = tmp_path / "pid"
    running = asyncio.create_task(
        _machine().run(f"echo $$ > {named}.new; mv {named}.new {named}; exec sleep 600", None)
    )
    for _ in range(turns):
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    if named.exists():
        stat = pathlib.Path(f"/proc/{named.read_text().strip()}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
