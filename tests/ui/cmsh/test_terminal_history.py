"""Lines typed before: kept for the next shell, without secrets, readable by their owner alone."""

from __future__ import annotations

import pathlib

import pytest

from bedplate.ui.cmsh.terminal import Lines, sounds_secret


def _holds_secret(line: str) -> bool:
    return "kubecakey" in line


def _loaded(path: pathlib.Path) -> list[str]:
    return list(Lines(path, _holds_secret).load_history_strings())


def test_lines_are_there_for_the_next_shell_newest_first(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "deep" / "history"
    lines = Lines(path, _holds_secret)
    lines.append_string("device")
    lines.append_string("list")
    assert _loaded(path) == ["list", "device"]


def test_a_line_with_a_secret_is_neither_kept_nor_recalled(tmp_path: pathlib.Path) -> None:
    lines = Lines(tmp_path / "history", _holds_secret)
    lines.append_string("device")
    lines.append_string("set kubecakey Tr0ub4dor")
    lines.append_string("set -e registry_token abcdef")
    assert lines.get_strings() == ["device"]
    assert (tmp_path / "history").read_text() == "device\n"


def test_a_file_that_grew_long_is_shortened(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"line {number}\n" for number in range(5000)))
    assert _loaded(path)[0] == "line 4999"
    assert path.read_text().splitlines() == [f"line {number}" for number in range(3000, 5000)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_the_owner_reads_the_file(tmp_path: pathlib.Path) -> None:
    Lines(tmp_path / "history", _holds_secret).append_string("device")
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    lines = Lines(tmp_path / "file" / "history", _holds_secret)
    lines.append_string("device")
    assert lines.get_strings() == ["device"]


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("set -e api_token xyz", True),
        ("device use node001; set --extra dbPassword 'a b'", True),
        ("set -e ingress_host example.org", False),
        ("get token", False),
        ("set password", False),
        ("set password Tr0ub4dor", True),
    ],
)
def test_what_follows_a_word_that_sounds_like_a_secret_is_not_kept(line: str, secret: bool) -> None:
    assert sounds_secret(line) is secret
