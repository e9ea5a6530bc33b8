"""Runs the commands of docs/proof.md and writes down what they printed.

    python tools/proof.py                the cheap ones
    python tools/proof.py --all          also those that take minutes, and as root those that need it
    python tools/proof.py --only NAME    one, whatever it costs (repeatable)

In: docs/proof.md, where `<!-- proof: NAME COST -->` stands above each block of commands (`$ …`) and output, and a line
that says when they ran below it. Out: the same page with new output and dates; exit code 1 when a command failed. A
block runs as one script in the checkout's folder, `.venv/bin` first on the PATH, then the kubectl of the cache.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bedplate.lab import binaries

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "proof.md"
SCRATCH = ROOT / "build" / "proof"
BLOCK = re.compile(
    r"<!-- proof: (?P<name>[a-z0-9-]+) (?P<cost>cheap|long|root) -->\n```console\n(?P<body>.*?)```\n(?P<when>[^\n]*)\n",
    re.DOTALL,
)
FIRST, LAST = 8, 8
TIMEOUT_S = 3600
# `timeout` says this when it ended a program that runs until it is stopped.
TIMEOUT_FIRED = 124


@dataclass(frozen=True, slots=True)
class Proof:
    name: str
    cost: str
    commands: tuple[str, ...]
    output: str
    when: str


def read(text: str) -> list[Proof]:
    found = []
    for match in BLOCK.finditer(text):
        lines = match["body"].splitlines()
        commands = tuple(line[2:] for line in lines if line.startswith("$ "))
        output = "\n".join(line for line in lines if not line.startswith("$ "))
        found.append(Proof(match["name"], match["cost"], commands, output, match["when"]))
    return found


def write(text: str, done: dict[str, Proof]) -> str:
    def one(match: re.Match[str]) -> str:
        proof = done.get(match["name"])
        if proof is None:
            return match[0]
        body = "".join(f"$ {line}\n" for line in proof.commands) + proof.output + "\n"
        return f"<!-- proof: {proof.name} {proof.cost} -->\n```console\n{body}```\n{proof.when}\n"

    return BLOCK.sub(one, text)


def tidy(output: str, places: dict[str, str]) -> str:
    """Output as it is kept: no colours, no places of this machine, the middle of long output left out."""
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", output)
    for place, name in sorted(places.items(), key=lambda item: -len(item[0])):
        output = output.replace(place, name)
    output = re.sub(r"/tmp/[\w./-]+", "$TMPDIR/…", output)
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    if len(lines) > FIRST + LAST + 1:
        lines = [*lines[:FIRST], f"… {len(lines) - FIRST - LAST} more lines", *lines[-LAST:]]
    return "\n".join(line[:160] for line in lines).replace("```", "'''")


def run(proof: Proof) -> tuple[Proof, bool]:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "MAKE", "MFLAGS"))}
    programs = [str(ROOT / ".venv" / "bin"), *map(str, binaries.cache_folder().glob("kubernetes/v1.35.*/bin"))]
    environ |= {"PATH": ":".join([*programs, environ["PATH"]]), "NO_COLOR": "1", "COLUMNS": "120"}
    for name in ("KUBECONFIG", "ARGS"):
        environ.pop(name, None)
    started = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", "set -o pipefail\nexec 2>&1\n" + "\n".join(proof.commands)],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    places = {str(ROOT): "~/bedplate", str(Path.home()): "~"}
    when = f"Ran on {time.strftime('%Y-%m-%d', time.gmtime())}, {time.monotonic() - started:.0f} s."
    output = tidy(done.stdout, places)
    is_good = done.returncode in (0, TIMEOUT_FIRED)
    if not is_good:
        output += f"\n(exit code {done.returncode})"
    return Proof(proof.name, proof.cost, proof.commands, output, when), is_good


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the commands of docs/proof.md and keep what they print.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments)
    proofs = read(PAGE.read_text())
    if unknown := set(options.only) - {proof.name for proof in proofs}:
        parser.error(f"no proof is called {', '.join(sorted(unknown))}")
    failed = []
    for proof in proofs:
        is_possible = proof.cost != "root" or os.geteuid() == 0
        if proof.name not in options.only and (
            options.only or not is_possible or (proof.cost != "cheap" and not options.all)
        ):
            continue
        print(f"proof: {proof.name}", file=sys.stderr, flush=True)
        result, is_good = run(proof)
        # Read again: the page may have been edited while the command ran.
        PAGE.write_text(write(PAGE.read_text(), {proof.name: result}))
        if not is_good:
            failed.append(proof.name)
            print(result.output, file=sys.stderr)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    if failed:
        print(f"proof: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
