"""The manager as a program: its options, its help, its assembly.

In: the name it is started by, and the cloud that it works for when `--cloud-provider` is absent. Out: a `Program`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bedplate.cloud import registry
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager import usage, validation
from bedplate.cloud.manager.options import Options
from bedplate.core import logging
from bedplate.program import process
from bedplate.program.process import Program

__all__ = ["defaults_for", "main", "program"]

_DRY_RUN = "nothing is written, neither to Kubernetes nor to a cloud"


def defaults_for(provider: str) -> Options:
    """The defaults of the flags for a program named after a cloud, or (empty) for one that works for any."""
    base = Options()
    if not provider:
        return base
    return dataclasses.replace(base, generic=dataclasses.replace(base.generic, cloud_provider=(provider,)))


def program(name: str, provider: str = "") -> Program[Options]:
    """The manager under this name."""
    defaults = defaults_for(provider)
    return Program(
        name=name,
        log=logging.get_logger("cloud.manager"),
        part="manager",
        read=lambda words: reading.read(words, defaults),
        usage=lambda: usage.full(name, provider, defaults),
        start=_start,
        check=lambda options: validation.problems(options, registry.names()),
        facts=lambda options: {"program": name},
        dry_run=lambda options: _DRY_RUN if options.generic.dry_run else "",
        leadership_lost="leaderelection lost",
    )


def _start(options: Options, environ: Mapping[str, str]) -> Coroutine[Any, Any, None]:
    from bedplate.cloud.manager.assembly import Assembly

    return Assembly(options, environ).run()


def main(name: str, provider: str, words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(program(name, provider), words)
