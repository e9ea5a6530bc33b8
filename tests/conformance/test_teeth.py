"""The suite has teeth: with a fault planted in the embedded server, the cases of the fault's own topic turn red.

Each topic's cases, up to the first that fails, run in a pytest of their own against `faulty_server` with the fault of
the topic (`CONFORMANCE_FAULT=<topic>`, which only this suite's conftest reads). A named few run always, all of them in
the soak.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from tests.conformance import faulty_server

HERE = pathlib.Path(__file__).parent
TOPICS = sorted(path.stem.removeprefix("test_") for path in HERE.glob("test_*.py") if path.stem != "test_teeth")
ALWAYS = ("apply", "crud", "finalizers", "pagination", "rbac", "watch_resume", "watch_selectors")
PATIENCE_S = "5"
TIMEOUT_S = 600


def run_topic(topic: str) -> tuple[int, str]:
    """The exit code and the last words of a pytest run of one topic with its fault planted."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "BEDPLATE_SKIP"))}
    environment |= {
        "CONFORMANCE_FAULT": topic,
        "CONFORMANCE_SERVER": "embedded",
        "BEDPLATE_TEST_PATIENCE": PATIENCE_S,
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(HERE / f"test_{topic}.py"), "-qx", "--tb=line", "-p", "no:cacheprovider"],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout


def test_every_topic_has_a_fault() -> None:
    assert sorted(faulty_server.FAULTS) == TOPICS


@pytest.mark.parametrize(
    "topic", [topic if topic in ALWAYS else pytest.param(topic, marks=pytest.mark.soak) for topic in TOPICS]
)
def test_a_planted_fault_turns_its_topic_red(topic: str) -> None:
    code, output = run_topic(topic)
    last = output.strip().splitlines()[-1]
    assert code == 1, f"the fault went unnoticed: {last}"
    assert re.search(r"\d+ failed", last), last
    assert "error" not in last, output[-3000:]
