"""The runner of pages notices what a page shows and a command does not print, and what a command does not do."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from tests import pages

PAGE = """# A page

```console
$ echo one; echo two
one
$ printf 'a  b 3.2 s\\n'
a b 0.1 s
```

1. Indented:

   ```console
   $ seq 30
   1
   …
   30
   ```
"""


def page(folder: Path, text: str = PAGE) -> Path:
    file = folder / "page.md"
    file.write_text(text)
    return file


def run(file: Path, folder: Path) -> str:
    return pages.run(file, folder, os.environ, (), 60)


def test_output_that_fits_is_accepted(tmp_path: Path) -> None:
    assert "two" in run(page(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"), [("\none\n", "\nthree\n"), ("   1\n", "   31\n"), ("   …\n   30", "   …\n   1")]
)
def test_output_that_differs_or_is_in_another_order_is_refused(tmp_path: Path, old: str, new: str) -> None:
    assert old in PAGE
    with pytest.raises(AssertionError, match="the page shows"):
        run(page(tmp_path, PAGE.replace(old, new, 1)), tmp_path)


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"\$ false"):
        run(page(tmp_path, "```console\n$ true\n$ false\n$ echo never\n```\n"), tmp_path)


def test_the_run_writes_what_was_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = page(tmp_path, PAGE.replace("one\n$", "$").replace("   1\n   …\n   30\n", ""))
    monkeypatch.setenv("BEDPLATE_UPDATE_GOLDEN", "1")
    run(file, tmp_path)
    text = file.read_text()
    assert "$ echo one; echo two\none\ntwo\n$ printf" in text
    assert "   $ seq 30\n   1\n   2\n" in text and "   11\n   …\n   ```" in text
    monkeypatch.delenv("BEDPLATE_UPDATE_GOLDEN")
    run(file, tmp_path)


def test_commands_that_stand_twice_keep_an_output_each_and_an_excerpt_that_is_true_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "$ echo x >> file; cat file\n"
    file = page(tmp_path, f"```console\n{line}{line}$ seq 30\n…\n7\n…\n```\n")
    monkeypatch.setenv("BEDPLATE_UPDATE_GOLDEN", "1")
    run(file, tmp_path)
    assert file.read_text() == f"```console\n{line}x\n{line}x\nx\n$ seq 30\n…\n7\n…\n```\n"


def test_the_first_commands_alone_are_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = page(tmp_path, "```console\n$ echo one\n$ echo two\n```\n")
    numbers = itertools.count()
    monkeypatch.setenv("BEDPLATE_UPDATE_GOLDEN", "1")
    pages.hold(file, ["one\n"], tmp_path, lambda _step: next(numbers) < 1)
    assert file.read_text() == "```console\n$ echo one\none\n$ echo two\n```\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("web-78539bfb57-59dhg   0/1   Pending   0   1s", "web-6d9f7c8b5d-x2k4z  0/1  Pending  0  2m10s"),
        ("Start Time:  Mon, 16 Nov 2026 13:10:11 +0000", "Start Time:  Tue, 01 Dec 2026 01:02:03 +0000"),
        ("since 2026-11-16", "since 2027-01-02"),
        ("  11.5s  waiting for nodes", "   3.0s  waiting for nodes"),
        ("daemon            process 27140", "daemon            process 9"),
        ("link/ether 8a:11:22:33:44:55 eth0@if12", "link/ether 00:aa:22:33:44:56 eth0@if7"),
        ("2026-11-16T13:14:46.909257272Z [info] ADD", "2026-11-17T00:00:00Z [info] ADD"),
        ("pod/manager-mqb6t condition met", "pod/manager-x2k4z condition met"),
        ("10.96.128.44   192.168.20.202   80:30826/TCP   3s", "10.96.1.2   192.168.20.202   80:32001/TCP   11s"),
        ('{"client":"10.151.0.1:19725","host":"a"}', '{"client":"10.151.0.7:5","host":"a"}'),
        ("bedplate-0.8.0.tar: 23.5 MB", "bedplate-0.8.0.tar: 24.1 MB"),
    ],
)
def test_what_differs_from_run_to_run_is_not_compared(one: str, other: str) -> None:
    assert pages.comparable(one) == pages.comparable(other)


def test_figures_and_names_are_compared() -> None:
    lines = ("2 of 3 ready", "3 of 3 ready", "node001 Ready", "node002 Ready", "192.168.0.2/16", "192.168.0.3/16")
    assert len({pages.comparable(line) for line in lines}) == len(lines)
