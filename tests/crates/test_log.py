"""The plugin's log: who is told what, and what becomes of a log that grows."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import time
from concurrent import futures
from datetime import datetime
from pathlib import Path

import pytest
from tests.crates.conftest import Bench

FULL = 100 * 1024 * 1024
DAY_S = 86_400.0


def lines(path: Path) -> list[tuple[str, str]]:
    """Level and text of each line, whose times are times."""
    found = []
    for line in path.read_text().splitlines():
        when, level, text = re.fullmatch(r"(\S+) \[(\w+)\] (.*)", line).groups()  # type: ignore[union-attr]
        assert datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", when)).tzinfo is not None
        found.append((level, text))
    return found


def test_a_call_leaves_two_lines_here_and_on_standard_error(bench: Bench) -> None:
    answer = bench.call("ADD")
    found = lines(bench.log)
    assert [level for level, _ in found] == ["info", "info"]
    assert all(part in found[0][1] for part in ("ADD", "c1", "/no/such/netns", "net1"))
    assert answer.stderr == bench.log.read_text()


def test_debug_shows_what_came_in_and_what_was_made_of_it(bench: Bench) -> None:
    bench.conf["logLevel"] = "debug"
    bench.write_conf()
    bench.call("ADD", bench.network(deviceID="some device"))
    text = bench.log.read_text()
    assert "[debug]" in text and "K8S_POD_NAME=pod" in text and "some device" in text and "daemon.sock" in text


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("panic", set()),
        ("error", {"error"}),
        ("Warning", {"error", "warning"}),
        ("INFO", {"error", "warning", "info"}),
        ("verbose", {"error", "warning", "info", "debug"}),
    ],
)
def test_a_level_leaves_out_what_is_below(bench: Bench, level: str, wanted: set[str]) -> None:
    bench.conf["logLevel"] = level
    bench.write_conf()
    bench.call("ADD", CNI_ARGS="K8S_POD_NAME=pod;K8S_POD_NAMESPACE=ns")
    bench.call("ADD", bench.network(ipam={"poolType": "nonsense"}))
    found = lines(bench.log) if bench.log.exists() else []
    assert {one for one, _ in found} == wanted


def test_local_time_has_its_offset(bench: Bench) -> None:
    bench.call("ADD", TZ="XYZ-5:45")
    assert re.match(r"\S+\+05:45 \[info\]", bench.log.read_text())


def test_folders_are_made_and_links_are_not_followed(bench: Bench) -> None:
    deep = bench.folder / "a" / "b" / "c.log"
    bench.conf["logFile"] = str(deep)
    bench.write_conf()
    bench.call("ADD")
    assert len(lines(deep)) == 2
    link, target = bench.folder / "link", bench.folder / "target"
    target.touch()
    link.symlink_to(target)
    bench.conf["logFile"] = str(link)
    bench.write_conf()
    answer = bench.call("ADD")
    assert answer.exit == 0
    assert "symbolic link" in answer.stderr
    assert target.read_text() == ""


@pytest.mark.parametrize("place", ["folder", "pipe", "unwritable"])
def test_a_log_that_cannot_be_written_changes_nothing_else(bench: Bench, place: str) -> None:
    path = bench.folder / place
    if place == "folder":
        path.mkdir()
    elif place == "pipe":
        os.mkfifo(path)
    else:
        path = Path("/proc/no/such/log")
    bench.conf["logFile"] = str(path)
    bench.write_conf()
    answer = bench.call("ADD")
    assert answer.exit == 0
    assert "no log file" in answer.stderr


def old_logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("cni-*"))


def test_a_full_log_is_set_aside_and_compressed(bench: Bench) -> None:
    head = b"first line\n" * 1000
    bench.log.write_bytes(head)
    os.truncate(bench.log, FULL)
    bench.log.chmod(0o640)
    answer = bench.call("ADD")
    assert answer.exit == 0
    assert len(lines(bench.log)) == 2
    assert stat.S_IMODE(bench.log.stat().st_mode) == 0o640
    (old,) = old_logs(bench.folder)
    assert re.fullmatch(r"cni-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.log\.gz", old.name)
    with gzip.open(old) as unpacked:
        assert unpacked.read(len(head)) == head
        assert unpacked.seek(0, os.SEEK_END) == FULL
    assert old.stat().st_size < FULL / 50


def test_of_many_calls_one_sets_the_log_aside_and_no_line_is_lost(bench: Bench) -> None:
    bench.log.touch()
    os.truncate(bench.log, FULL)
    with futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: bench.call("ADD", CNI_CONTAINERID=f"many{number}"), range(64)))
    assert {answer.exit for answer in answers} == {0}
    text = bench.log.read_bytes().decode()
    (old,) = old_logs(bench.folder)
    with gzip.open(old) as unpacked:
        unpacked.seek(FULL)
        text += unpacked.read().decode()
    assert set(re.findall(r"many(\d+)", text)) == {str(number) for number in range(64)}


def test_old_logs_go_after_five_days_and_beyond_five(bench: Bench) -> None:
    bench.call("ADD")
    now = time.time()
    for age in range(9):
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S.000", time.gmtime(now - age * DAY_S))
        (bench.folder / f"cni-{stamp}.log").write_text("old")
    # The first call of a day looks after them.
    os.utime(bench.log, (now - DAY_S, now - DAY_S))
    bench.call("ADD")
    found = old_logs(bench.folder)
    assert len(found) == 5
    assert {gzip.decompress(path.read_bytes()) for path in found} == {b"old"}
    (bench.folder / f"cni-{stamp}.log").write_text("old")
    bench.call("ADD")
    assert len(old_logs(bench.folder)) == 6


def test_secrets_of_a_configuration_do_not_reach_the_log_by_default(bench: Bench) -> None:
    bench.call("ADD", json.dumps(bench.network(password="hush")).encode())
    assert "hush" not in bench.log.read_text()
