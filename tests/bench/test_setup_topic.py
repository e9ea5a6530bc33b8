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


def test_the_time_between_stages_is_that_of_the_journal() -> None:
    rows = [
        {"name": "A", "began": "2026-01-01T00:00:00.500+00:00", "ended": "2026-01-01T00:00:02.000+00:00"},
        {"name": "B", "began": "2026-01-01T00:00:01.000+00:00", "ended": "2026-01-01T00:01:00.750+00:00"},
        {"name": "C", "began": "", "ended": ""},
    ]
    assert setup.span({"stages": rows}, "A", "B") == 60.25


async def test_without_root_it_says_so_and_measures_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    topic = await setup.run(tmp_path, is_quick=True, tell=print)
    assert (topic.rows, topic.notes) == ([], ["the labs need root and were left out"])
    assert "setup" in bench.TOPICS
