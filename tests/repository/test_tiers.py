"""The tiers of the tests: what belongs to which, what may be tried again, and what a run says in its last lines."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests import tiers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runner() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("runner", ROOT / "tools" / "test.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["runner"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["runner"]


# Marks


@pytest.mark.parametrize(
    ("marks", "tier"),
    [
        ((), "test"),
        (("parametrize", "xdist_group"), "test"),
        (("real",), "verify"),
        (("external",), "verify"),
        (("root",), "verify"),
        (("lab", "root"), "verify"),
        (("soak",), "soak"),
        (("real", "soak"), "soak"),
    ],
)
def test_marks_decide_the_tier(marks: tuple[str, ...], tier: str) -> None:
    assert tiers.tier(marks) == tier


@pytest.mark.parametrize(
    ("fixtures", "parameters", "marks"),
    [
        (("server", "client"), {"server": "embedded"}, set()),
        (("server", "client"), {"server": "real"}, {"real"}),
        (("own_server",), {"own_server": "real"}, {"real"}),
        (("backend", "store"), {"backend": "etcd"}, {"external"}),
        (("backend", "store"), {"backend": "sqlite"}, set()),
        (("server", "kubectl"), {"server": "embedded"}, {"external"}),
        (("chromium",), {}, {"external"}),
        ((), {"word": "real"}, set()),
    ],
)
def test_fixtures_and_parameters_give_marks(
    fixtures: tuple[str, ...], parameters: dict[str, object], marks: set[str]
) -> None:
    assert tiers.marks_for(fixtures, parameters) == marks


@pytest.mark.parametrize(
    "marks", [(), ("soak",), ("real",), ("external",), ("root",), ("lab", "root"), ("real", "soak")]
)
def test_the_runner_runs_every_test_in_exactly_one_pass(runner: ModuleType, marks: tuple[str, ...]) -> None:
    passes = {tier: runner.passes_of(tier, [], 2) for tier in ("test", "verify", "soak")}
    chosen = [
        (tier, name)
        for tier, options in passes.items()
        for name, words in options.items()
        if eval(words[words.index("-m") + 1], {}, {mark: mark in marks for mark in (*tiers.VERIFY_MARKS, "soak")})
    ]
    assert [tier for tier, _ in chosen] == [tiers.tier(marks)]


@pytest.mark.parametrize(("cores", "workers"), [(1, 2), (2, 4), (4, 8), (64, 8)])
def test_twice_as_many_workers_as_cores_but_never_more_than_eight(runner: ModuleType, cores: int, workers: int) -> None:
    assert runner.workers_for(cores) == workers


def test_bytecode_is_kept_where_it_does_not_disturb(runner: ModuleType) -> None:
    assert runner.with_bytecode({"A": "b"}) == {"A": "b"}
    kept = runner.with_bytecode({"PYTHONDONTWRITEBYTECODE": "1"})
    assert kept == {"PYTHONPYCACHEPREFIX": str(ROOT / "build" / "pycache")}
    own = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/elsewhere"}
    assert runner.with_bytecode(own) == {"PYTHONPYCACHEPREFIX": "/elsewhere"}


def test_folders_are_in_memory_only_where_they_fit(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ROOM_BYTES", 1)
    assert runner.has_room(tmp_path)
    assert not runner.has_room(tmp_path / "missing")
    monkeypatch.setattr(runner, "ROOM_BYTES", 1 << 60)
    assert not runner.has_room(tmp_path)


# Second tries


def failures(runner: ModuleType, *programs: bool) -> list[object]:
    return [runner.Failure(f"test_{at}", program, "", "") for at, program in enumerate(programs)]


def test_only_verify_tries_again(runner: ModuleType) -> None:
    failed = failures(runner, True)
    assert runner.second_tries("verify", failed, 0) == failed
    assert runner.second_tries("test", failed, 0) == []
    assert runner.second_tries("soak", failed, 0) == []


def test_at_most_two_tests_of_a_run_are_tried_again(runner: ModuleType) -> None:
    one, two, three = (failures(runner, *[True] * count) for count in (1, 2, 3))
    assert runner.second_tries("verify", two, 0) == two
    assert runner.second_tries("verify", three, 0) == []
    assert runner.second_tries("verify", one, 1) == one
    assert runner.second_tries("verify", two, 1) == []
    assert runner.second_tries("verify", one, 2) == []


def test_nothing_is_tried_again_beside_a_failure_of_our_own(runner: ModuleType) -> None:
    assert runner.second_tries("verify", failures(runner, False), 0) == []
    assert runner.second_tries("verify", failures(runner, True, False), 0) == []


def test_a_lab_is_tried_again_from_its_first_test(runner: ModuleType) -> None:
    failed = [
        runner.Failure(f"tests/lab/test_{name}", True, "", "") for name in ("a.py::one", "a.py::two", "b.py::three")
    ]
    assert runner.what_to_run_again("verify-side-by-side", failed) == [failure.test for failure in failed]
    again = runner.what_to_run_again("verify-one-by-one", failed)
    assert again == ["-m", runner.LABS, "tests/lab/test_a.py", "tests/lab/test_b.py"]
    assert "verify-one-by-one" in runner.passes_of("verify", [], 2)


def test_the_group_that_xdist_adds_is_no_part_of_a_test(runner: ModuleType) -> None:
    assert runner.without_group("tests/a.py::test_x[b@c]@lab") == "tests/a.py::test_x[b@c]"
    assert runner.without_group("tests/a.py::test_x@lab") == "tests/a.py::test_x"
    assert runner.without_group("tests/a.py::test_x[b@c]") == "tests/a.py::test_x[b@c]"


# Whole runs


SUITE = """
import os
import pathlib

import pytest
from tests import tiers

HERE = pathlib.Path(__file__).parent

@pytest.mark.parametrize("number", range(3))
@pytest.mark.external
def test_skips(number):
    pytest.skip("no flux capacitor here")

@pytest.mark.root
@pytest.mark.skipif(True, reason="the moon is not full")
def test_skips_too():
    pass

@pytest.mark.soak
def test_takes_long():
    raise AssertionError("only make soak runs this")

def test_runs(seed):
    assert "flaky" not in os.environ or seed > 5, "the seed is small"

@pytest.mark.external
def test_asks_for_a_program(seed):
    tiers.guard("a program")
    assert "broken" not in os.environ, "a fault"
    if "race" in os.environ and not (HERE / "raced").exists():
        (HERE / "raced").touch()
        raise AssertionError("lost a race")

def test_asks_for_a_program_by_accident():
    if "careless" in os.environ:
        tiers.guard("nginx")
"""


class Suite:
    """A folder with a few tests, and the runner on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "test_suite.py").write_text(SUITE)
        (folder / "conftest.py").write_text('pytest_plugins = ("tests.hooks", "tests.seeds")\n')
        (folder / "tools").mkdir()
        for file in ("tools/test.py", "pyproject.toml"):
            shutil.copy(ROOT / file, folder / file)

    def run(self, tier: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """One run of the tests of the folder; without arguments a whole one."""
        outside = ("PYTEST_", "BEDPLATE_", "CI")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(outside)} | env
        environ["BEDPLATE_REPORTS"] = str(self.folder / "reports")
        environ["PYTHONPATH"] = str(ROOT)
        # The tests of a whole run are those of the folder. Plugins that they do not need take time to load.
        unused = ("schemathesis", "hypothesispytest", "asyncio", "anyio", "cacheprovider")
        environ["PYTEST_ADDOPTS"] = " ".join(
            ["-o testpaths=. -o filterwarnings=", *(f"-p no:{name}" for name in unused)]
        )
        command = [sys.executable, str(self.folder / "tools/test.py"), tier, *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)

    def check(self, tier: str, *patterns: str) -> subprocess.CompletedProcess[str]:
        allowed = self.folder / "allowed.txt"
        allowed.write_text("# reasons\n" + "".join(f"{pattern}\n" for pattern in patterns))
        words = (ROOT / ".ci/check_skips.py", self.folder / "reports", tier, allowed)
        command = [sys.executable, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_the_last_lines_list_every_skip_with_its_reason(suite: Suite) -> None:
    done = suite.run("verify", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-4].startswith("verify: 1 tests in ")
    assert done.stdout.splitlines()[-3:] == [
        "skipped: 4 tests",
        "     3  no flux capacitor here",
        "     1  the moon is not full",
    ]


def test_the_list_is_complete_when_tests_run_side_by_side(suite: Suite) -> None:
    assert "skipped: 4 tests" in suite.run("verify", "-n", "2").stdout


def test_long_tests_run_in_soak_only(suite: Suite) -> None:
    done = suite.run("soak", "-q")
    assert done.returncode == 1
    assert "only make soak runs this" in done.stdout


def test_a_failure_prints_the_seed_which_can_be_given_back(suite: Suite) -> None:
    done = suite.run("test", "-q", flaky="1")
    assert done.returncode == 1
    assert "BEDPLATE_TEST_SEED=1 runs this test with the same numbers" in done.stdout
    assert suite.run("test", "-q", flaky="1", BEDPLATE_TEST_SEED="77").returncode == 0


def test_a_test_without_a_mark_may_not_look_for_a_program(suite: Suite) -> None:
    done = suite.run("test", "-q", careless="1")
    assert done.returncode == 1
    assert "a test of `make test` asks for nginx: mark it `external`, or `real`" in done.stdout


def test_a_whole_run_tries_a_lost_race_again_and_keeps_what_failed_first(suite: Suite) -> None:
    done = suite.run("verify", race="1")
    assert done.returncode == 0, done.stdout + done.stderr
    line = "second try passed: test_suite.py::test_asks_for_a_program, seed 1: "
    assert any(line in each and "lost a race" in each for each in done.stdout.splitlines()[-8:]), done.stdout
    kept = (suite.folder / "reports" / "second-tries.txt").read_text()
    assert "seed: 1" in kept and "AssertionError: lost a race" in kept


def test_what_fails_twice_fails_the_run(suite: Suite) -> None:
    done = suite.run("verify", broken="1")
    assert done.returncode == 1
    assert "second try failed: " in done.stdout


def test_a_whole_run_of_the_first_tier_tries_nothing_again(suite: Suite) -> None:
    done = suite.run("test", flaky="1")
    assert done.returncode == 1
    assert "second try" not in done.stdout


def test_ci_fails_on_a_reason_that_is_not_on_the_list_of_the_tier(suite: Suite) -> None:
    suite.run("verify", "-q")
    refused = suite.check("verify", "flux capacitor")
    assert refused.returncode == 1
    assert "the moon is not full" in refused.stdout
    assert "flux" not in refused.stdout.replace("not on", "")
    assert suite.check("verify", "flux capacitor", "moon").returncode == 0


def test_ci_fails_when_there_is_no_report_to_look_at(suite: Suite) -> None:
    (suite.folder / "reports").mkdir()
    assert suite.check("test").returncode == 1


def test_ci_and_the_release_look_at_the_skips_of_both_tiers() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line.startswith(("make ", ".venv/bin/python .ci/check_skips.py"))]
    look = '.venv/bin/python .ci/check_skips.py "$BEDPLATE_REPORTS"'
    assert commands == ["make lint", "make test", f"{look} test", "make verify", f"{look} verify"]
    assert ".ci/run" in (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    assert not (ROOT / ".ci" / "allowed-skips-test.txt").exists()
