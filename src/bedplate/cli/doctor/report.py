"""What a doctor's visit comes to: findings in order of their weight, as text or JSON, and an exit code.

In: findings. Out: text on standard output. 0 all checks passed, 1 something is wrong, 2 nothing wrong was seen but
something could not be checked."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from bedplate.cloud.doctor import Finding

__all__ = ["exit_code", "show"]

_MARKS = {"ok": "ok", "note": "note", "problem": "WRONG", "unknown": "?"}
_COLOURS = {"ok": "green", "note": "cyan", "problem": "red", "unknown": "yellow"}
_ORDER = ("problem", "unknown", "note", "ok")


def exit_code(findings: Sequence[Finding]) -> int:
    """0 well, 1 wrong, 2 something could not be checked."""
    levels = {finding.level for finding in findings}
    return 1 if "problem" in levels else 2 if "unknown" in levels else 0


def show(findings: Sequence[Finding], output: str) -> None:
    """Print them, the gravest first."""
    ranked = sorted(findings, key=lambda finding: _ORDER.index(finding.level))
    if output == "json":
        data = {"exitCode": exit_code(findings), "findings": ranked}
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        return
    for finding in ranked:
        mark = click.style(f"{_MARKS[finding.level]:<6}", fg=_COLOURS[finding.level])
        click.echo(f"{mark} {finding.check:<15} {finding.about}: {_indented(finding.message)}")
        if finding.fix:
            click.echo(f"{'':<22} → {_indented(finding.fix)}")
    counts = {level: sum(finding.level == level for finding in findings) for level in _ORDER}
    click.echo(
        f"\n{counts['problem']} wrong, {counts['unknown']} could not be checked, {counts['note']} notes, "
        f"{counts['ok']} in order"
    )


def _indented(text: str) -> str:
    """Lines after the first one under the column of the first."""
    return text.replace("\n", f"\n{'':<23}")
