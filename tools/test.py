"""Runs the tests in two passes and says at the end what was skipped, and why.

    python tools/test.py [--soak] [pytest arguments]

First everything that may run side by side, two at a time; then what needs the machine for itself (the lab). With
pytest arguments, one pass with just those. `--soak` runs the tests with full counts instead. Exit code: that of the
first pass that failed.

Of a whole run, a handful of failures gets a second try, one test after another on the machine that is quiet then. A
fault of the code fails again; what passes is listed by name in the last lines, because it means that a test depends on
something it should not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASSES = {
    "side by side": ["-n", "2", "--dist", "loadgroup", "-m", "not lab and not soak"],
    "one by one": ["-m", "lab and not soak"],
}
NOTHING_COLLECTED = 5
SOME_FAILED = 1
# More than this many failures are no accident.
SECOND_TRIES = 5


def choose(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The passes to make, each with its options, and the arguments they share."""
    rest = [argument for argument in arguments if argument != "--soak"]
    if "--soak" in arguments:
        return {"soak": ["-m", "soak"]}, rest
    return ({"chosen": ["-m", "not soak"]}, rest) if rest else (PASSES, [])


def main(arguments: list[str]) -> int:
    passes, shared = choose(arguments)
    reports = Path(os.environ.get("BEDPLATE_REPORTS") or "build/reports")
    reports = ROOT / reports
    reports.mkdir(parents=True, exist_ok=True)
    for old in reports.glob("skips-*.json"):
        old.unlink()
    worst, times, accidents = 0, {}, []
    for name, options in passes.items():
        started = time.monotonic()
        cache = reports / f"cache-{name.replace(' ', '-')}"
        shutil.rmtree(cache, ignore_errors=True)
        environ = os.environ | {"BEDPLATE_SKIP_REPORT": str(reports / f"skips-{name.replace(' ', '-')}.json")}
        # The options come first, so that whoever gives `-m` or `-n` has the last word.
        kept = [] if shared else ["-o", f"cache_dir={cache}"]
        code = run(name, [*kept, *options, *shared], environ)
        failed = failures(cache)
        if code == SOME_FAILED and 0 < len(failed) <= SECOND_TRIES:
            code = run(f"{name}, second try", failed, os.environ)
            accidents += failed if code == 0 else []
        times[name] = time.monotonic() - started
        # No test at all is an error only when tests were asked for by name.
        worst = worst or (0 if code == NOTHING_COLLECTED and not shared else code)
    print("\n" + "; ".join(f"{name}: {seconds / 60:.1f} min" for name, seconds in times.items()))
    for test in accidents:
        print(f"passed on the second try only: {test}")
    show_skips(reports)
    return worst


def run(name: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    print(f"=== {name}: pytest {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environ, check=False).returncode


def failures(cache: Path) -> list[str]:
    """The tests that failed in the pass that kept its results in this folder; none when the pass broke off."""
    try:
        return list(json.loads((cache / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def show_skips(reports: Path) -> None:
    """The last lines: each reason with the number of tests it kept from running."""
    reasons: Counter[str] = Counter()
    for path in sorted(reports.glob("skips-*.json")):
        reasons.update(json.loads(path.read_text()))
    if not reasons:
        print("skipped: nothing")
        return
    print(f"skipped: {sum(reasons.values())} tests")
    for reason, count in sorted(reasons.items()):
        print(f"  {count:4d}  {reason}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
