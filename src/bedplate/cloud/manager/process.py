"""The manager as a program: its options, its `--help`, its assembly.

In: the name it is started by, and the cloud that it works for when `--cloud-provider` is absent. Out: a `Program`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bedplate.cloud import registry
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager import validation
from bedplate.cloud.manager.options import Options
from bedplate.core import logging
from bedplate.program import options, process
from bedplate.program.process import Program

__all__ = ["defaults_for", "help_text", "main", "program"]

_ABOUT = (
    "The cloud controller manager: initialises nodes from what their cloud knows of them (provider ID, addresses, "
    "type, zone, region), taints those whose machine is switched off, deletes those whose machine is gone, and "
    "keeps load balancers for Services, for one or several clouds at once."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one stops it immediately), 1 for everything else: a wrong "
    "command line or configuration, lost leadership, an API server that does not answer at start."
)
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
        usage=lambda: help_text(name, provider, defaults),
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


def help_text(program: str, provider: str = "", defaults: Options | None = None) -> str:
    """The whole help text."""
    about = [_ABOUT]
    if provider:
        about.append(f"Without --cloud-provider this program works for {provider}; `bedplate ccm run` works for any.")
    notes = ["", "Feature gates (accepted; the behaviour of each is fixed):", ""]
    notes += [f"      {name}: {text}" for name, text in validation.GATES.items()]
    return options.help_text(program, [*about, _EXITS], _examples(provider or "oxide"), defaults or Options(), notes)


def _examples(provider: str) -> list[str]:
    return [
        f"--cloud-provider={provider} --kubeconfig=admin.conf -v=2",
        f"--cloud-provider {provider} --cloud-config /etc/cloud/config.yaml --dry-run",
        "--cloud-provider=nvidia-bmm,oxide --cloud-config=nvidia-bmm=bmm.yaml,oxide=oxide.yaml",
        f"--cloud-provider={provider} --controllers='*,-service' --node-selector=pool=metal",
    ]
