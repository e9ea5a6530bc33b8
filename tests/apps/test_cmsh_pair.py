"""A shell of a site with two heads on a real etcd: the active one is killed, the session goes on with the other."""

from __future__ import annotations

import asyncio
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.apps import tmux
from tests.apps.test_head_pair import SHARE, Pair, commit_through_a_kill, etcd, folders, pair

__all__ = ["etcd", "folders", "pair"]

pytestmark = pytest.mark.external


def test_a_session_goes_on_with_the_other_head_and_keeps_what_is_staged_while_others_commit(
    pair: Pair,
    tmp_path: pathlib.Path,
) -> None:
    command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(pair.a)]
    command += ["--url", pair.one.url, "--url", pair.second.url]
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "TZ": "UTC"}
    names = [f"c{number}" for number in range(SHARE)]
    with ThreadPoolExecutor(1) as aside, tmux.terminal(command, environment) as screen:
        screen.wait_prompt("[basecm10]%")
        screen.enter("category use default; set notes survived")
        screen.wait_prompt("[basecm10->category*[default*]]%")
        others = aside.submit(lambda: asyncio.run(commit_through_a_kill(pair, names)))
        screen.wait("the connection to the head was lost")
        screen.wait("reconnected")
        # The prompt names the head that answers; which one is active is settled by the election meanwhile.
        screen.wait_prompt("[basecm11->category*[default*]]%")
        screen.enter("commit -m 'after the loss'")
        screen.wait_prompt("[basecm11->category[default]]%")
        acknowledged, dead, _ = others.result()
        assert dead is pair.one
        assert len(acknowledged) == SHARE
        screen.enter("history -n 500 | grep loss")
        screen.wait("after the loss")
        screen.enter("quit")
        screen.wait("[left with 0]")


def test_a_shell_that_knows_the_passive_head_alone_is_led_to_the_active_one(
    pair: Pair,
    tmp_path: pathlib.Path,
) -> None:
    command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(pair.b), "--url", pair.second.url]
    with tmux.terminal(command, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "TZ": "UTC"}) as screen:
        screen.wait(lambda shown: shown.last() in ("[basecm10]%", "[basecm11]%"), "the prompt")
        screen.enter("category use default; set notes led; commit; get notes")
        screen.wait("\nled\n")
