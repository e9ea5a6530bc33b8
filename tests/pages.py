"""Runs the commands of a page of the documentation as a reader would, and holds what they print against the page.

In: a page, the folder to be in, an environment. Out: what each command printed. A command that fails ends it, and the
test with it; what the page started and did not stop is ended. A page shows output below its command: every line of it
must be printed, in this order; `…` stands for lines that are left out, and what differs from run to run (times, ports,
generated names) may differ. With BEDPLATE_UPDATE_GOLDEN=1 the run writes what was printed into the page instead, where
the page does not show it already: an excerpt that was chosen by hand stays as long as it is true.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import servers

MOST_LINES = 12
COLUMNS = 100
LEFT_OUT = "…"
MARK = "\x1e"
BLOCK = re.compile(r"(?m)^( *)```console\n(.*?)^ *```", re.DOTALL)
# What differs from run to run, and what stands for it in a comparison.
CHANGING = (
    (re.compile(r"export KUBECONFIG=\S+"), "KUBECONFIG"),
    (re.compile(r"\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b|@if\d+"), "LINK"),
    (re.compile(r"[\w.-]+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "HOLDER"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?( UTC)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b[IWE]\d{4} TIME\S*"), "TIME"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|seconds?)\b"), "TIME"),
    (re.compile(r"(?<![\w.])\d+(\.\d+)?[dhms](\d+[hms])?\b"), "AGE"),
    (re.compile(r"-(?=[a-z]*\d)[0-9a-z]{8,10}-[a-z0-9]{5}\b"), "-POD"),
    (re.compile(r"-[a-z0-9]{5}(?= condition met)"), "-POD"),
    (re.compile(r"pod-template-hash=\w+"), "HASH"),
    (re.compile(r":3[0-2]\d{3}/(?=TCP|UDP)"), ":NODE-PORT/"),
    (re.compile(r'"client":"[^"]+"'), "CLIENT"),
    (re.compile(r"\b\w{3}, \d\d \w{3} \d{4} TIME [+-]\d{4}"), "TIME"),
    (re.compile(r"\b10\.128\.\d+\.\d+\b"), "POD-IP"),
    (re.compile(r"\b10\.96\.\d+\.\d+\b"), "SERVICE-IP"),
    (re.compile(r"\b172\.30\.0\.\d+\b"), "NODE-IP"),
    (re.compile(r"\bprocess \d+"), "PROCESS"),
    (re.compile(r"\b\d+ bytes|\b\d+(\.\d)? MB"), "SIZE"),
    (re.compile(r'"id": \d+'), '"id": N'),
    (re.compile(r"\b\d+\b(?= calls| more\.\.\.)"), "N"),
    (re.compile(r"\[\d+\] \d+"), "[JOB]"),
    (re.compile(r"-{4,}"), "----"),
    (re.compile(r"\s+"), " "),
)
# Lines that come in another number each time: how far something is, and what happens to generated names.
PASSING = re.compile(r"Waiting for |evicting pod |pod/\S+ evicted")


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page, and the output that the page shows for it."""

    command: str
    shown: tuple[str, ...] = ()


def steps(page: Path) -> list[Step]:
    """The commands of a page."""
    commands: list[Step] = []
    for _, block in BLOCK.findall(page.read_text()):
        for line in block.splitlines():
            if line.strip().startswith("$ "):
                commands.append(Step(line.strip()[2:]))
            elif commands:
                commands[-1] = Step(commands[-1].command, (*commands[-1].shown, line.strip()))
    return commands


def console_lines(page: Path) -> list[str]:
    """The commands of a page, without what they print."""
    return [step.command for step in steps(page)]


def run(page: Path, folder: Path, environ: Mapping[str, str], ports: Iterable[str], deadline_s: float) -> str:
    """Run the page's commands, with free ports for those it names; what they printed, each after its
    command. The page must show the same."""
    chosen = {port: str(servers.free_port()) for port in ports}

    def with_ports(line: str) -> str:
        for port, free in chosen.items():
            line = re.sub(rf"\b{port}\b", free, line)
        return line

    printed = run_lines([with_ports(line) for line in console_lines(page)], folder, environ, deadline_s)
    for port, free in chosen.items():
        printed = [text.replace(free, port) for text in printed]
    hold(page, printed, folder)
    return "\n".join(f"+ {line}\n{text}" for line, text in zip(console_lines(page), printed, strict=True))


def run_lines(lines: Sequence[str], folder: Path, environ: Mapping[str, str], deadline_s: float) -> list[str]:
    """Run these lines in one shell; what each of them printed."""
    script = "".join(f"printf '{MARK}'\n{_allowed(line)}\n" for line in lines)
    out = folder / "out"
    with out.open("wb") as target:
        shell = subprocess.Popen(
            ["bash", "-c", f"set -o pipefail -e\n{script}printf '{MARK}'\n"],
            cwd=folder,
            stdout=target,
            stderr=subprocess.STDOUT,
            # Pictures are as wide as this.
            env={**environ, "COLUMNS": str(COLUMNS)},
            start_new_session=True,
            preexec_fn=servers._die_with_parent,
        )
    try:
        code = shell.wait(deadline_s)
    finally:
        # The shell's own session, nobody else's.
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shell.wait()
    printed = out.read_text().split(MARK)[1:]
    logs = "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in folder.rglob("*.log"))
    assert code == 0, f"$ {lines[min(len(printed), len(lines)) - 1]}\n{printed[-1][-4000:]}\n{logs}"
    return printed[: len(lines)]


def _allowed(line: str) -> str:
    """A plan that found something to do ends with 3."""
    return f"{line} || test $? = 3" if re.search(r"cmsh .*\bplan\b", line) and "||" not in line else line


def hold(page: Path, printed: Sequence[str], folder: Path, chosen: Callable[[Step], bool] = lambda step: True) -> None:
    """Hold what was printed against the page, or write it there. `chosen`: those of its commands that were run."""
    # Asked once a step: it may count them.
    there = {place: step for place, step in enumerate(steps(page)) if chosen(step)}
    texts = [_local(text, folder) for text in printed]
    if os.environ.get("BEDPLATE_UPDATE_GOLDEN"):
        _write(page, dict(zip(there, texts, strict=True)))
        return
    for step, text in zip(there.values(), texts, strict=True):
        missing = first_missing(step.shown, text)
        assert missing is None, f"{page.name}: $ {step.command}\nthe page shows\n  {missing}\nit printed\n{text}"


def first_missing(shown: Sequence[str], printed: str) -> str | None:
    """The first line that was not printed where the page has it; None when all were."""
    lines = iter([comparable(line) for line in printed.splitlines()])
    for line in shown:
        if line.strip() in ("", LEFT_OUT) or PASSING.match(line.strip()):
            continue
        if comparable(line) not in lines:
            return line
    return None


def comparable(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, text in CHANGING:
        line = pattern.sub(text, line)
    return line.strip()


def _local(text: str, folder: Path) -> str:
    """What was printed, without the folder of this run."""
    return text.replace(str(folder.resolve()), "~").replace(str(folder), "~").replace(shlex.quote(str(folder)), "~")


def _write(page: Path, printed: Mapping[int, str]) -> None:
    """Write below the commands of a page, by their number, what they printed."""
    there = steps(page)
    places = itertools.count()

    def block(match: re.Match[str]) -> str:
        indent = match[1]
        kept: list[str] = []
        is_replaced = False
        for line in match[2].splitlines():
            if line.strip().startswith("$ "):
                kept.append(line)
                place = next(places)
                shown, text = there[place].shown, printed.get(place)
                is_replaced = text is not None and (not shown or first_missing(shown, text) is not None)
                if text is not None and is_replaced:
                    kept += [f"{indent}{each}".rstrip() for each in _excerpt(text)]
            elif not is_replaced:
                kept.append(line)
        return "\n".join([f"{indent}```console", *kept, f"{indent}```"])

    page.write_text(BLOCK.sub(block, page.read_text()))


def _excerpt(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.strip("\n").splitlines() if not line.startswith("Waiting for ")]
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], LEFT_OUT]
