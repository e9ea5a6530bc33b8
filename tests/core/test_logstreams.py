"""Split log streams: what goes where, and when what is buffered is written."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.waiting import wait_until

from bedplate.core import logging
from bedplate.core.logstreams import SplitStreams, parse_size


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    logging.configure(logging.LogOptions())


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("1k", 1000), ("1K", 1000), ("2Ki", 2048), ("3M", 3 * 10**6), ("1Gi", 2**30)],
)
def test_sizes_are_read_as_kubernetes_writes_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "zzz", "-1", "1.5", "1ki", "1KB", "1 k", "1T"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bytes"):
        parse_size(text)


@pytest.mark.parametrize("format_", ["json", "text"])
def test_errors_go_to_one_stream_and_everything_else_to_the_other(format_: str) -> None:
    err, out = io.StringIO(), io.StringIO()
    logging.configure(logging.LogOptions(format=format_, is_split=True, color=False), err, out)
    log = logging.get_logger("test")
    log.info("one")
    log.warning("two")
    log.error("three")
    assert "three" in err.getvalue() and "one" not in err.getvalue() and "two" not in err.getvalue()
    assert "one" in out.getvalue() and "two" in out.getvalue() and "three" not in out.getvalue()


def test_a_buffer_is_written_when_it_is_full_and_before_an_error() -> None:
    err, out = io.StringIO(), io.StringIO()
    streams = SplitStreams(out, err, size=10, flush_s=3600.0)
    streams.info("12345")
    assert out.getvalue() == ""
    streams.info("67890")
    assert out.getvalue() == "12345\n67890\n"
    streams.info("more")
    streams.error("bad")
    assert (out.getvalue(), err.getvalue()) == ("12345\n67890\nmore\n", "bad\n")
    streams.info("last")
    streams.close()
    assert out.getvalue().endswith("last\n")


def test_a_buffered_line_waits_no_longer_than_the_flush_frequency() -> None:
    out = io.StringIO()
    streams = SplitStreams(out, io.StringIO(), size=1000, flush_s=0.01)
    streams.info("line")
    wait_until(lambda: out.getvalue() == "line\n")
    streams.close()


def test_what_is_buffered_is_written_when_the_program_ends() -> None:
    program = (
        "from bedplate.core import logging\n"
        "logging.configure(logging.LogOptions(format='json', is_split=True, info_buffer=10**6, flush_s=3600.0))\n"
        "logging.get_logger('test').info('last')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(ended.stdout)["event"] == "last"
    assert not ended.stderr
