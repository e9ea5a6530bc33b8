"""`cmsh` in a real terminal: prompt, stars, TAB, history, keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.apps import tmux
from tests.apps.tmux import Screen
from tests.waiting import DEADLINE_S

from bedplate.head.folder import creation

pytestmark = pytest.mark.external

TOP = "[basecm10]%"


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "data"
    asyncio.run(creation.make(folder, name="basecm10", nodes=3))
    return folder


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def own(home: pathlib.Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_HOME": "", "TZ": "UTC", "BEDPLATE_URL": "", "BEDPLATE_DATA": ""}


@contextlib.contextmanager
def shell(home: pathlib.Path, *words: str | pathlib.Path, **variables: str) -> Iterator[Screen]:
    """A shell of a user who has nothing but this home."""
    command = [sys.executable, "-m", "bedplate.apps.cmsh", *map(str, words)]
    with tmux.terminal(command, own(home) | variables) as screen:
        screen.wait_prompt(TOP)
        yield screen


def history(home: pathlib.Path) -> str:
    return (home / ".config" / "bedplate" / "cmsh_history").read_text()


def test_prompt_and_stars_follow_what_is_typed(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        assert screen.text().splitlines()[1:] == [TOP]
        screen.enter("category use default")
        screen.wait_prompt("[basecm10->category[default]]%")
        screen.enter("roles")
        screen.wait_prompt("[basecm10->category[default]->roles]%")
        screen.enter("assign docker::host")
        screen.wait_prompt("[basecm10->category*[default*]->roles*[Docker::Host*]]%")
        screen.enter("storagebackends")
        screen.wait_prompt("[basecm10->category*[default*]->roles*[Docker::Host*]->storagebackends]%")
        screen.enter("..")
        screen.enter("commit")
        screen.wait_prompt("[basecm10->category[default]->roles[Docker::Host]]%")
        screen.enter("quit")
        screen.wait("[left with 0]")


def test_a_selection_that_fails_leaves_nothing_selected_and_its_line_commits_nothing(
    data: pathlib.Path, home: pathlib.Path
) -> None:
    with shell(home, "--data", data) as screen:
        screen.enter("device use node001; device use nodeTYPO; set notes x; commit")
        screen.wait("2 commands have failed since the last commit")
        screen.wait_prompt("[basecm10->device]%")
        screen.enter("use node001; set notes y; commit; get notes")
        screen.wait_prompt("[basecm10->device[node001]]%")
        assert "\ny\n" in screen.text()


def test_a_shell_that_quits_at_a_failure_tells_its_code(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "-q", "--data", data) as screen:
        screen.enter("device use nodeTYPO")
        screen.wait("[left with 1]")


def test_tab_completes_and_twice_shows_columns(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.type("categ")
        screen.press("Tab")
        screen.wait_prompt(f"{TOP} category")
        screen.type("use d")
        screen.press("Tab")
        screen.wait_prompt(f"{TOP} category use default")
        screen.press("Enter")
        screen.wait_prompt("[basecm10->category[default]]%")
        screen.enter("roles; assign Docker::Host; storagebackends")
        prompt = "[basecm10->category*[default*]->roles*[Docker::Host*]->storagebackends]%"
        screen.wait_prompt(prompt)
        screen.type("add ")
        screen.press("Tab")
        screen.press("Tab")
        screen.wait("\naufs          devicemapper  overlay2\n")
        screen.wait_prompt(f"{prompt} add")
        screen.type("d")
        screen.press("Tab")
        screen.wait_prompt(f"{prompt} add devicemapper")


def test_tab_completes_parameters_and_objects(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.type("device use node00")
        screen.press("Tab")
        screen.press("Tab")
        screen.wait("\nnode001  node002  node003\n")
        screen.enter("2")
        screen.wait_prompt("[basecm10->device[node002]]%")
        screen.type("set softw")
        screen.press("Tab")
        screen.wait_prompt("[basecm10->device[node002]]% set softwareimage")
        screen.type("def")
        screen.press("Tab")
        screen.wait_prompt("[basecm10->device[node002]]% set softwareimage default-image")


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.type("device list")
        screen.wait_prompt(f"{TOP} device list")
        screen.press("C-c")
        screen.wait_prompt(TOP)
        assert "Hostname" not in screen.text()
        screen.press("C-d")
        screen.wait("[left with 0]")


def test_ctrl_d_asks_before_it_drops_what_is_staged(data: pathlib.Path, home: pathlib.Path) -> None:
    starred = "[basecm10->category*[default*]]%"
    with shell(home, "--data", data) as screen:
        screen.enter("category use default; set notes mine")
        screen.wait_prompt(starred)
        screen.press("C-d")
        screen.wait("leave and drop these changes? [y/N]")
        assert "category[default]" in screen.text()
        screen.enter("n")
        screen.wait_prompt(starred)
        screen.press("C-d")
        screen.wait(lambda shown: shown.last().startswith("leave and drop"), "the question again")
        screen.enter("y")
        screen.wait("[left with 0]")


def test_ctrl_d_twice_leaves(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.enter("category use default; set notes mine")
        screen.wait_prompt("[basecm10->category*[default*]]%")
        screen.press("C-d")
        screen.wait("leave and drop these changes?")
        screen.press("C-c")
        screen.wait_prompt("[basecm10->category*[default*]]%")
        screen.press("C-d", "C-d")
        screen.wait("[left with 0]")


def test_ctrl_c_ends_a_command_and_keeps_the_session(data: pathlib.Path, home: pathlib.Path) -> None:
    starred = "[basecm10->category*[default*]]%"
    with shell(home, "--data", data) as screen:
        screen.enter("category use default; set notes mine")
        screen.wait_prompt(starred)
        screen.enter("!sh -c 'echo waiting; sleep 600'")
        screen.wait("\nwaiting")
        screen.press("C-c")
        screen.wait_prompt(starred)
        screen.enter("get notes")
        screen.wait("\nmine\n")


def test_lines_are_recalled_in_the_next_shell_but_no_secret(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.enter("user use admin")
        screen.wait_prompt("[basecm10->user[admin]]%")
        screen.enter("set token hush-Hush-0123-hush-token")
        screen.wait_prompt("[basecm10->user*[admin*]]%")
        screen.enter("set token")
        screen.wait("Token:")
        screen.enter("asked-for-Secret-0123-words")
        screen.wait_prompt("[basecm10->user*[admin*]]%")
        screen.enter("show")
        screen.wait("\nToken       *****")
        screen.wait_prompt("[basecm10->user*[admin*]]%")
        assert "asked-for" not in screen.text()
        screen.press("Up", "Up")
        screen.wait_prompt("[basecm10->user*[admin*]]% user use admin")
        screen.press("C-c")
        screen.enter("quit -f")
        screen.wait("[left with 0]")
    assert "user use admin\n" in history(home)
    assert "hush" not in history(home)
    assert "asked-for" not in history(home)
    with shell(home, "--data", data) as screen:
        screen.press("Up", "Up")
        screen.wait_prompt(f"{TOP} show")


def test_errors_are_red_stars_yellow_and_nothing_where_colour_is_not_wanted(
    data: pathlib.Path, home: pathlib.Path
) -> None:
    def coloured(**variables: str) -> str:
        with shell(home, "--data", data, **variables) as screen:
            screen.enter("frobnicate")
            screen.wait("no command")
            screen.enter("category use default; set notes x")
            screen.wait_prompt("[basecm10->category*[default*]]%")
            return screen.text(with_colours=True)

    shown = coloured()
    assert "\x1b[31merror:" in shown
    assert "\x1b[33m*" in shown or "\x1b[1m\x1b[33m*" in shown
    assert "\x1b[" not in coloured(NO_COLOR="1").replace("\x1b[39m", "").replace("\x1b[0m", "")


def test_a_shell_that_is_asked_to_end_puts_the_terminal_back(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.enter("!echo pid $PPID")
        shown = screen.wait(lambda seen: "\npid " in seen.text() and seen.last() == TOP, "the shell's number")
        number = next(line for line in shown.splitlines() if line.startswith("pid "))
        os.kill(int(number.split()[1]), signal.SIGTERM)
        screen.wait("[left with 143]")
        screen.enter("echoed by the terminal itself")
        screen.wait("echoed by the terminal itself\nechoed by the terminal itself")


def test_pasted_lines_run_one_after_the_other(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.type("device use node001\nget ip\n")
        screen.wait_prompt("[basecm10->device[node001]]%")
        screen.wait("\n10.141.0.1\n")


def test_a_long_list_is_not_paged(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.enter("foreach -n node001 (get ip); " + "device list; " * 12)
        screen.wait(lambda shown: shown.text().count("Hostname (key)") == 12, "twelve lists")
        screen.wait_prompt(TOP)


def test_a_filter_has_the_terminal(data: pathlib.Path, home: pathlib.Path) -> None:
    with shell(home, "--data", data) as screen:
        screen.enter("device list | less -X")
        screen.wait(lambda shown: shown.last().startswith(("(END)", ":")), "the pager")
        screen.press("q")
        screen.wait_prompt(TOP)


def test_an_editor_has_the_terminal(data: pathlib.Path, home: pathlib.Path) -> None:
    editor = home / "editor"
    editor.write_text('#!/bin/sh\nprintf "your text: "; read line; printf "%s" "$line" > "$1"\n')
    editor.chmod(0o755)
    with shell(home, "--data", data, EDITOR=str(editor)) as screen:
        screen.enter("kubernetes; add default; appgroups; add mine; applications; add one")
        screen.wait(lambda shown: shown.last().endswith("->applications*[one*]]%"), "the application")
        screen.enter("set config")
        screen.wait("your text:")
        screen.enter("from the editor")
        screen.wait(lambda shown: shown.last().endswith("->applications*[one*]]%"), "the prompt")
        screen.enter("get config")
        screen.wait("\nfrom the editor")


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_program_that_acts_as_a_terminal_sees_whole_prompts(
    data: pathlib.Path, home: pathlib.Path, term: str
) -> None:
    command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(data)]
    environment = {**os.environ, **own(home), "TERM": term, "NO_COLOR": "1"}
    parent, child = pty.openpty()
    with subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True
    ) as cmsh:
        os.close(child)
        try:
            seen = typed(parent, b"", b"[basecm10]% ")
            seen = typed(parent, b"category use default\r", b"[basecm10->category[default]]% ")
            seen = typed(parent, b"set notes x; get notes\r", b"[basecm10->category*[default*]]% ")
            assert b"\nx\r\n" in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen)
            assert term != "dumb" or b"\x1b" not in seen
        finally:
            cmsh.kill()
            os.close(parent)


def typed(terminal: int, keys: bytes, until: bytes) -> bytes:
    """Everything a terminal gets after some keys, up to a text."""
    os.write(terminal, keys)
    seen = b""
    while until not in seen:
        assert select.select([terminal], [], [], DEADLINE_S)[0], f"never seen: {until!r} in {seen!r}"
        seen += os.read(terminal, 65536)
    return seen
