"""Every flag of `permissions-manager` as one typed value, and what is wrong with them.

In: the words of a command line. Out: `Options` and every problem found. Pure.
"""

# Flags are made by a function, and no value of them can be changed.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bedplate.core import flags_global
from bedplate.core.flags import Group, flag
from bedplate.core.flags_global import Global
from bedplate.operators.permissions import manifests
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = ["GROUPS", "Options", "read"]

POLICIES = ("auto", "off")


@dataclass(frozen=True, slots=True)
class Managing:
    """The program's own flags."""

    kubeconfig: str = flag("", "Kubeconfig of the cluster; default: KUBECONFIG, then the pod's service account.")
    webhook_port: int = flag(manifests.PORT, "Port of the webhook, of /readyz, /healthz and /metrics; all HTTPS.")
    leader_elect: bool = flag(True, "Let only one of several replicas write; every replica answers reviews.")
    admission_policies: str = flag(
        "auto",
        "auto: rules about pods are also a ValidatingAdmissionPolicy where the API server has them. off: the webhook "
        "alone checks pods.",
    )


GROUPS = (Group("managing", "Manager", Managing), Group("globals", "Logging and information", Global))


@dataclass(frozen=True, slots=True)
class Options(program.Options):
    """What the program was told."""

    GROUPS: ClassVar = GROUPS

    managing: Managing = field(default_factory=Managing)


def read(words: Sequence[str]) -> Reading[Options]:
    """Parse a command line; every problem of syntax and values is reported."""
    return program.read(
        Options, words, refuse=lambda word: f"takes no arguments, but was given {word!r}", validate=_problems
    )


def _problems(options: Options) -> Iterator[str]:
    chosen = options.managing
    if not 0 <= chosen.webhook_port <= 65535:
        yield f"--webhook-port: {chosen.webhook_port} must be a port from 1 to 65535"
    if chosen.admission_policies not in POLICIES:
        yield f"--admission-policies: {chosen.admission_policies!r} is not one of {', '.join(POLICIES)}"
    yield from flags_global.problems(options.globals)
