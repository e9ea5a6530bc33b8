"""Runs one tier of the tests and ends with what matters: times, counts, second tries, skips.

    python tools/test.py test|verify|soak [pytest arguments]

- `test` runs what needs nothing but Python. Nothing is tried again, and nothing may be skipped: a test that cannot run
  everywhere belongs to `verify`.
- `verify` runs what talks to other programs or needs root, side by side, and then the labs, which need the machine for
  themselves. A race in another program must not cost a whole run: a test that is marked as talking to one is tried a
  second time, see `second_tries`. What failed first is kept in `second-tries.txt` and named in the last lines.
- `soak` runs the tests with full counts.

The folders of the tests of `test` are in memory where there is room. With pytest arguments there is one pass with just
those, of the same tier, and nothing is tried again. `-m` and `-n` among them have the last word. Reports go to
`build/reports` (or `BEDPLATE_REPORTS`): what was skipped and what failed in `<pass>.json`, durations in `<pass>.xml`.
Exit code: that of the first pass that failed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST = "not real and not external and not root and not lab and not soak"
SIDE_BY_SIDE = "(real or external or root) and not lab and not soak"
LABS = "lab and not soak"
VERIFY = "(real or external or root or lab) and not soak"
LABS_PASS = "verify-one-by-one"
MOST_WORKERS = 8
SECOND_TRIES = 2
MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30
NOTHING_COLLECTED = 5
SOME_FAILED = 1


@dataclasses.dataclass(frozen=True)
class Failure:
    """A test that failed: whether it talks to an external program, its random seed, and pytest's account."""

    test: str
    program: bool
    seed: str
    text: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What `tests/outcomes.py` wrote about one pass; nothing when pytest did not get that far."""

    ran: int = 0
    skips: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failures: Sequence[Failure] = ()


def workers_for(cores: int) -> int:
    """Twice the cores, for a test often waits for a disk or another process; at most eight."""
    return min(2 * cores, MOST_WORKERS)


def passes_of(tier: str, arguments: Sequence[str], workers: int) -> dict[str, list[str]]:
    """The passes of a tier by name, each with pytest's arguments. A worker that has servers of its own waits for them
    more than one without: there are five for every four."""
    parallel = ["--dist", "loadgroup", "-n"]
    if tier == "soak":
        return {"soak": ["-m", "soak", *arguments]}
    if arguments:
        return {tier: ["-m", TEST if tier == "test" else VERIFY, *arguments]}
    if tier == "test":
        return {"test": [*parallel, str(workers), "-m", TEST]}
    return {
        "verify-side-by-side": [*parallel, str(5 * workers // 4), "-m", SIDE_BY_SIDE],
        LABS_PASS: ["-m", LABS],
    }


def second_tries(tier: str, failures: Sequence[Failure], spent: int) -> list[Failure]:
    """The failures to try again: all of this pass, or none.

    Only `verify` tries again, only tests that talk to an external program, and at most two in a run. One failure
    more, or one test of our own among them, and the run is red whatever a second try says.
    """
    is_allowed = tier == "verify" and len(failures) <= SECOND_TRIES - spent and all(each.program for each in failures)
    return list(failures) if is_allowed else []


def what_to_run_again(name: str, failures: Sequence[Failure]) -> list[str]:
    """The tests alone; of a lab the whole file, whose tests follow one another on the same nodes."""
    tests = [failure.test for failure in failures]
    if name != LABS_PASS:
        return tests
    return ["-m", LABS, *dict.fromkeys(test.partition("::")[0] for test in tests)]


def read_report(path: Path) -> Report:
    if not path.exists():
        return Report()
    document = json.loads(path.read_text())
    failures = [Failure(**{**each, "test": without_group(each["test"])}) for each in document["failures"]]
    return Report(document["ran"], document["skips"], failures)


def without_group(test: str) -> str:
    """The id of a test as pytest takes it: xdist puts the name of its group behind it."""
    return re.sub(r"@[^\]]*$", "", test)


def main(arguments: Sequence[str]) -> int:
    tier, *shared = arguments or ("",)
    if tier not in ("test", "verify", "soak"):
        print("usage: tools/test.py test|verify|soak [pytest arguments]", file=sys.stderr)
        return 2
    reports = ROOT / (os.environ.get("BEDPLATE_REPORTS") or "build/reports")
    reports.mkdir(parents=True, exist_ok=True)
    for old in [*reports.glob(f"{tier}*.json"), *reports.glob(f"{tier}*.xml"), reports / "second-tries.txt"]:
        old.unlink(missing_ok=True)
    worst, summary, retried = 0, [], list[tuple[Failure, bool]]()
    skips: Counter[str] = Counter()
    for name, options in passes_of(tier, shared, workers_for(os.cpu_count() or 1)).items():
        started = time.monotonic()
        code, report = run(name, options, reports)
        failures = second_tries(tier, report.failures, len(retried)) if code == SOME_FAILED and not shared else []
        if failures:
            code, again = run(f"{name}-second-try", what_to_run_again(name, failures), reports)
            still = {failure.test for failure in again.failures}
            completed = code in (0, SOME_FAILED)
            retried += [(failure, completed and failure.test not in still) for failure in failures]
        summary.append(f"{name}: {report.ran} tests in {(time.monotonic() - started) / 60:.1f} min")
        skips.update(report.skips)
        # No test at all is an error only when tests were asked for by name.
        worst = worst or (0 if code == NOTHING_COLLECTED and not shared else code)
    if retried:
        (reports / "second-tries.txt").write_text("\n".join(describe(failure) for failure, _ in retried))
    print("\n" + "\n".join([*summary, *retry_lines(retried, reports), *skip_lines(skips)]))
    if tier == "test" and skips and not shared:
        print("a test that can be skipped belongs to `make verify`: mark it `external`, `real` or `root`")
        worst = worst or 1
    return worst


def run(name: str, options: Sequence[str], reports: Path) -> tuple[int, Report]:
    """Run pytest once; its exit code and report."""
    target = reports / f"{name}.json"
    command = [sys.executable, "-m", "pytest", f"--junit-xml={reports / name}.xml", *options]
    print(f"=== {name}: pytest {' '.join(options)}", flush=True)
    environ = with_bytecode(os.environ) | {"BEDPLATE_TEST_REPORT": str(target)}
    if name == "test":
        # Programs that a test starts are out of sight of its guard: they find no built program, and may build none.
        environ |= {"BEDPLATE_NO_BUILD": "1", "BEDPLATE_CACHE": str(ROOT / "build" / "test-cache")}
    if name == "test" and has_room(MEMORY):
        # The folders of tests: what a program writes to disk there need not survive a loss of power.
        environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    code = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    return code, read_report(target)


def with_bytecode(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, but for the wish to keep no bytecode: it is kept below `build` then.

    Without any, every worker would compile all modules and rewrite the assertions of all tests, a quarter of a minute.
    """
    kept = dict(environ)
    if kept.pop("PYTHONDONTWRITEBYTECODE", ""):
        kept.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / "build" / "pycache"))
    return kept


def has_room(folder: Path) -> bool:
    """Whether the folders of all tests fit; a container often has a few megabytes."""
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= ROOM_BYTES


def describe(failure: Failure) -> str:
    seed = failure.seed or "none"
    return f"{failure.test}\nseed: {seed}\nfirst failure:\n{failure.text}\n"


def retry_lines(retried: Sequence[tuple[Failure, bool]], reports: Path) -> list[str]:
    """Every second try by name, with its seed and the cause of the first failure."""
    if not retried:
        return []
    lines = []
    for failure, passed in retried:
        seed = f", seed {failure.seed}" if failure.seed else ""
        lines_of_text = failure.text.strip().splitlines() or ["no text"]
        causes = [line.removeprefix("E").strip() for line in lines_of_text if line.startswith("E ")]
        cause = (causes or lines_of_text[-1:])[0]
        lines.append(f"second try {'passed' if passed else 'failed'}: {failure.test}{seed}: {cause}")
    return [*lines, f"first failures: {reports / 'second-tries.txt'}"]


def skip_lines(skips: Mapping[str, int]) -> list[str]:
    """Each reason with the number of tests it kept from running."""
    if not skips:
        return ["skipped: nothing"]
    reasons = [f"  {count:4d}  {reason}" for reason, count in sorted(skips.items())]
    return [f"skipped: {sum(skips.values())} tests", *reasons]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
