"""Fails when a test of a tier was skipped for a reason that is not on its list (one regular expression per line).

    check_skips.py <folder with reports> test|verify [<list>]

The list of a tier is `.ci/allowed-skips-<tier>.txt`; without such a file nothing may be skipped.
"""

import json
import re
import sys
from pathlib import Path

reports, tier = Path(sys.argv[1]), sys.argv[2]
allowed = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(__file__).with_name(f"allowed-skips-{tier}.txt")
lines = [line.strip() for line in allowed.read_text().splitlines()] if allowed.exists() else []
patterns = [re.compile(line) for line in lines if line and not line.startswith("#")]
files = sorted(reports.glob(f"{tier}*.json"))
if not files:
    sys.exit(f"no report of `make {tier}` in {reports}: did the tests run?")
reasons = {reason for path in files for reason in json.loads(path.read_text())["skips"]}
surprises = sorted(reason for reason in reasons if not any(pattern.search(reason) for pattern in patterns))
if surprises:
    print(f"skips of `make {tier}` that are not on {allowed.name}:", *surprises, sep="\n  ")
    sys.exit(1)
