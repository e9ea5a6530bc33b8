"""What a doctor's visit comes to: findings in order of their weight, as text or JSON, and an exit code.

In: findings, and which cluster they are about. Out: text on standard output, whose commands can be pasted. 0 all checks
passed, 1 something is wrong, 2 nothing wrong was seen but something could not be checked."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Sequence

import click
import msgspec

from bedplate.cli import cluster
from bedplate.cloud.doctor import Finding
from bedplate.core import errors

__all__ = ["exit_code", "pasteable", "remedy", "show"]

_MARKS = {"ok": "ok", "note": "note", "problem": "WRONG", "unknown": "?"}
_COLOURS = {"ok": "green", "note": "cyan", "problem": "red", "unknown": "yellow"}
_ORDER = ("problem", "unknown", "note", "ok")
_KUBECTL = re.compile(r"(?<![\w./-])kubectl (?=[a-z-])")
_ASKS_FOR_POOLS = re.compile(r"bedplate ipam explain \S+")
_ASKS_THE_DOCTOR = re.compile(r"bedplate doctor --cloud-provider \S+")


def pasteable(findings: Sequence[Finding], kubeconfig: str, pools: str = "kube-system") -> list[Finding]:
    """The same findings with commands that are about the same cluster, and the same namespace of pools."""
    named = f"--kubeconfig={shlex.quote(kubeconfig)}" if kubeconfig else ""
    kubectl = "bedplate kubectl " if not named and cluster.is_of_up() else f"kubectl {named} " if named else "kubectl "
    place = f" -n {shlex.quote(pools)}" if pools != "kube-system" else ""

    def completed(text: str) -> str:
        text = _KUBECTL.sub(lambda _: kubectl, text)
        text = _ASKS_FOR_POOLS.sub(lambda match: f"{match[0]}{place} {named}".rstrip(), text)
        return _ASKS_THE_DOCTOR.sub(lambda match: f"{match[0]} {named}".rstrip(), text)

    return [dataclasses.replace(finding, fix=completed(finding.fix)) for finding in findings]


def remedy(error: errors.BedplateError) -> str:
    """What to do where no API server was found, or its kubeconfig is not one."""
    return error.hint or "correct the kubeconfig, or pass another with --kubeconfig"


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
