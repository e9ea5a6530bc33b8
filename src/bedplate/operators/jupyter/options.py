"""Every flag of `jupyter-kernel-operator` as one typed value, and what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bedplate import __version__
from bedplate.api import names
from bedplate.core import flags_global
from bedplate.core.flags import Group, flag
from bedplate.core.flags_global import Global
from bedplate.operators.jupyter.names import NAMESPACE
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = ["GROUPS", "IMAGE", "Operating", "Options", "read"]

IMAGE = f"registry.example/bedplate:{__version__}"
"""The image with every program; the registry does not exist, as nothing is published yet."""
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True, slots=True)
class Operating:
    """The operator's flags."""

    health_probe_bind_address: str = flag(":8081", "Address of /healthz and /readyz; 0 disables them.")
    kubeconfig: str = flag("", "Kubeconfig of the cluster; default: KUBECONFIG, then the pod's service account.")
    leader_elect: bool = flag(False, "Let only one of several replicas work at a time.")
    leader_elect_namespace: str = flag(NAMESPACE, "Namespace of the leader election Lease.")
    metrics_bind_address: str = flag(":8080", "Address of /metrics; 0 disables it.")
    namespace: str = flag("", "Serve kernels of this namespace alone; default: of all.")
    sidecar_image: str = flag(IMAGE, "Image of the sidecar of every kernel.")
    sidecar_pull_policy: str = flag("IfNotPresent", "When the sidecar's image is pulled: Always, IfNotPresent, Never.")


GROUPS = (Group("operating", "Operator", Operating), Group("globals", "Logging and information", Global))


@dataclass(frozen=True, slots=True)
class Options(program.Options):
    """What the program was told."""

    GROUPS: ClassVar = GROUPS

    operating: Operating = field(default_factory=Operating)


def read(words: Sequence[str]) -> Reading[Options]:
    """Parse a command line; every problem of syntax and values is reported."""
    return program.read(Options, words, refuse=_refuse, validate=_problems)


def _refuse(word: str) -> str | None:
    return f"takes no arguments, but was given {word!r}"


def _problems(options: Options) -> Iterator[str]:
    chosen = options.operating
    yield from program.listener_problems(
        {
            "metrics-bind-address": chosen.metrics_bind_address,
            "health-probe-bind-address": chosen.health_probe_bind_address,
        }
    )
    for name, value in (
        ("leader-elect-namespace", chosen.leader_elect_namespace),
        *((("namespace", chosen.namespace),) if chosen.namespace else ()),
    ):
        yield from (f"--{name}: {text}" for text in names.dns_label_problems(value))
    if not chosen.sidecar_image:
        yield "--sidecar-image: must not be empty"
    if chosen.sidecar_pull_policy not in PULL_POLICIES:
        yield f"--sidecar-pull-policy: {chosen.sidecar_pull_policy!r} is not one of {', '.join(PULL_POLICIES)}"
    yield from flags_global.problems(options.globals)
