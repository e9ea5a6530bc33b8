"""Logging: levels as in Kubernetes components, text for people, JSON for machines."""

import errno
import io
import json
from collections.abc import Iterator

import pytest

from bedplate.core import logging


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    logging.configure(logging.LogOptions())


def test_json_lines_carry_event_level_time_and_values() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(format="json"), out)
    logging.get_logger("test").bind(node="n1").info("node.initialized", provider_id="p")
    line = json.loads(out.getvalue())
    assert line["event"] == "node.initialized"
    assert (line["level"], line["logger"], line["node"], line["provider_id"]) == ("info", "test", "n1", "p")
    assert line["timestamp"].endswith("Z")


def test_detail_is_written_only_at_its_verbosity() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(verbosity=2, format="json"), out)
    log = logging.get_logger("test")
    log.v(2).info("shown")
    log.v(4).info("hidden")
    log.debug("hidden too")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["shown"]


def test_a_quiet_program_writes_warnings_and_errors_only() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(format="json", is_quiet=True), out)
    log = logging.get_logger("test")
    log.info("hidden")
    log.warning("shown")
    log.error("shown too")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["shown", "shown too"]


def test_single_loggers_have_levels_of_their_own() -> None:
    out = io.StringIO()
    levels = (("runtime.*", 4), ("kube", 6))
    logging.configure(logging.LogOptions(verbosity=1, format="json", vmodule=levels), out)
    for name, level in (
        ("runtime.cache", 4),
        ("runtime.cache", 5),
        ("kube", 6),
        ("x.kube", 6),
        ("store", 1),
        ("store", 2),
    ):
        logging.get_logger(name).v(level).info(f"{name} {level}")
    shown = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert shown == ["runtime.cache 4", "kube 6", "x.kube 6", "store 1"]


def test_the_level_can_be_changed_while_the_program_runs() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(format="json"), out)
    log = logging.get_logger("test")
    log.v(3).info("hidden")
    logging.set_verbosity(3)
    log.v(3).info("shown")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["shown"]


def test_text_has_no_colour_codes_unless_it_is_a_terminal() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(), out)
    logging.get_logger("test").warning("cloud.slow", seconds=3)
    assert "\x1b[" not in out.getvalue()
    assert "cloud.slow" in out.getvalue() and "seconds=3" in out.getvalue()


def test_a_bug_is_logged_with_its_traceback() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(), out)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logging.get_logger("test").exception("controller.bug")
    assert "ZeroDivisionError" in out.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_shows_no_values_of_variables(form: str) -> None:
    """A bug in code that holds a token must not carry the token into the log."""
    out = io.StringIO()
    logging.configure(logging.LogOptions(format=form), out)

    def fail(token: str) -> None:
        raise ZeroDivisionError

    try:
        fail("".join(("hunter", "2")))
    except ZeroDivisionError:
        logging.get_logger("test").exception("controller.bug")
    assert "fail" in out.getvalue()
    assert "hunter2" not in out.getvalue()


class Failing(io.StringIO):
    """A file on a disk that is full until told otherwise, or a pipe without a reader."""

    error: OSError | None = None

    def flush(self) -> None:
        if self.error is not None:
            raise self.error


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    out = Failing()
    logging.configure(logging.LogOptions(), out)
    out.error = OSError(errno.ENOSPC, "No space left on device")
    logging.get_logger("test").info("node.lost")
    out.error = None
    logging.get_logger("test").info("node.found")
    assert "node.found" in out.getvalue()


def test_a_reader_of_the_log_that_goes_away_ends_the_program() -> None:
    out = Failing()
    out.error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    logging.configure(logging.LogOptions(), out)
    with pytest.raises(BrokenPipeError):
        logging.get_logger("test").info("node.lost")
