"""From a command line to an exit code: what is printed where, what is logged, what each failure ends with."""

# Flags are made by a function, and no value of them can be changed.

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from bedplate import __version__
from bedplate.core import errors, logging
from bedplate.core.flags import Group, flag
from bedplate.core.flags_global import Global
from bedplate.program import options, process
from bedplate.runtime.leaderelection import LeadershipLost


@dataclass(frozen=True, slots=True)
class Own:
    """Flags of a program."""

    server: str = flag("", "Where the server is.")
    old: bool = flag(False, "An old flag.", deprecated="use --server")


@dataclass(frozen=True, slots=True)
class Options(options.Options):
    GROUPS: ClassVar = (Group("own", "Own", Own), Group("globals", "Global", Global))

    own: Own = field(default_factory=Own)


async def _nothing() -> None:
    pass


def _validate(chosen: Options) -> Iterator[str]:
    if chosen.own.server == "wrong":
        yield "--server: must not be wrong"


PROGRAM: process.Program[Options] = process.Program(
    name="prog",
    log=logging.get_logger("prog"),
    part="thing",
    read=lambda words: options.read(
        Options, words, refuse=lambda word: f"unexpected argument {word!r}", validate=_validate
    ),
    usage=lambda: options.help_text("prog", ["Does things."], ["--server=a"], Options()),
    start=lambda chosen, environ: _nothing(),
    check=lambda chosen: ["--server: checked"] if chosen.own.server == "unchecked" else [],
    facts=lambda chosen: {"server": chosen.own.server},
    dry_run=lambda chosen: "nothing is written" if chosen.own.server == "dry" else "",
)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    yield
    logging.configure(logging.LogOptions())


def call(*words: str, ending: Callable[[], None] = lambda: None) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()

    def runner(work: Any) -> None:
        work.close()
        ending()

    return process.run(PROGRAM, words, {}, runner, out, err), out.getvalue(), err.getvalue()


def fail(error: Exception) -> Callable[[], None]:
    def ending() -> None:
        raise error

    return ending


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_printed_even_where_a_value_is_wrong(word: str) -> None:
    code, out, err = call(word, "--server=wrong")
    assert (code, err) == (0, "")
    assert "Own flags:" in out
    assert "  prog --server=a" in out


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_an_unknown_flag_fails_whatever_else_is_asked(word: str) -> None:
    code, out, err = call(word, "--bogus")
    assert (code, out) == (1, "")
    assert "Error: unknown flag: --bogus" in err


def test_the_version_is_printed() -> None:
    assert call("--version") == (0, f"prog v{__version__}\n", "")


def test_all_problems_are_printed_together() -> None:
    code, out, err = call("--bogus", "--server=wrong", "word")
    assert (code, out) == (1, "")
    assert err.count("Error: ") == 3
    assert "prog --help shows every flag" in err
    assert call("--server=unchecked")[2].startswith("Error: --server: checked\n")


def test_the_start_is_logged_with_flags_and_without_credentials() -> None:
    code, _, err = call("-v=1", "--old", "--server=https://user:planted@host")
    assert code == 0
    for event in ("thing.starting", "thing.flag", "thing.deprecated_flag", "thing.stopped"):
        assert event in err
    assert "planted" not in err.replace("server=https://user:planted@host", "", 1)
    assert "thing.dry_run" in call("--server=dry")[2]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LeadershipLost("not renewed"), "prog: leader election lost: not renewed\n"),
        (errors.Invalid("broken", hint="repair it"), "prog: broken"),
    ],
)
def test_a_failure_is_one_message_and_exit_code_1(error: Exception, text: str) -> None:
    code, _, err = call(ending=fail(error))
    assert code == 1
    assert text in err
    assert "thing.stopped" not in err
