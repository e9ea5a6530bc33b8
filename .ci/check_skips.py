"""Fails when a test was skipped for a reason that is not on the list (one regular expression per line)."""

import json
import re
import sys
from pathlib import Path

reports, allowed = Path(sys.argv[1]), Path(sys.argv[2])
lines = (line.strip() for line in allowed.read_text().splitlines())
patterns = [re.compile(line) for line in lines if line and not line.startswith("#")]
files = sorted(reports.glob("skips-*.json"))
if not files:
    sys.exit(f"no report of skips in {reports}: did the tests run?")
found = [reason for path in files for reason in json.loads(path.read_text())]
surprises = sorted({reason for reason in found if not any(pattern.search(reason) for pattern in patterns)})
if surprises:
    print("skips that are not on .ci/allowed-skips.txt:", *surprises, sep="\n  ")
    sys.exit(1)
