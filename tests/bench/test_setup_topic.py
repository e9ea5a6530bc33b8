"""The topic `setup`: what is read of kubeadm's runs, and what it says where it cannot run."""

from __future__ import annotations

import pathlib

import pytest

from bedplate.core import errors
from bench import __main__ as bench
from bench import setup


def test_the_time_of_a_command_is_that_on_its_node() -> None:
    assert setup.seconds("began 10.500\n[init] took 3.000\nended 12.750\n") == 2.25
    with pytest.raises(errors.Terminal, match="no space left"):
        setup.seconds("began 10.500\nno space left\n")


async def test_without_root_it_says_so_and_measures_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    topic = await setup.run(tmp_path, is_quick=True, tell=print)
    assert (topic.rows, topic.notes) == ([], ["the labs need root and were left out"])
    assert "setup" in bench.TOPICS
