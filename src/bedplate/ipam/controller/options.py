"""Every flag of `ipam-controller` as one typed value, and what is wrong with them.

In: the words of a command line. Out: `Options` and every problem found, grammar and values together. Pure. The first
group holds the original's flags; the others are ours, and their defaults ask for nothing.
"""

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bedplate.api import names
from bedplate.core import duration
from bedplate.core.flags import Duration, Group, flag
from bedplate.ipam import commonflags
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = [
    "GROUPS",
    "Allocating",
    "Controlling",
    "Options",
    "Webhook",
    "read",
]

MODES = ("stable", "upstream")
QUARANTINES = ("pods", "always", "off")


@dataclass(frozen=True, slots=True)
class Controlling:
    """The original's flags."""

    health_probe_bind_address: str = flag(":8081", "Address of /healthz and /readyz; 0 disables them.")
    ippools_namespace: str = flag("kube-system", "The namespace whose IPPools and CIDRPools are served.")
    kubeconfig: str = flag("", "Kubeconfig of the cluster; default: KUBECONFIG, then the pod's service account.")
    leader_elect: bool = flag(False, "Let only one of several replicas work at a time.")
    leader_elect_namespace: str = flag("kube-system", "Namespace of the leader election Lease.")
    metrics_bind_address: str = flag(":8080", "Address of /metrics; 0 disables it.")
    webhook: bool = flag(False, "Serve the validating webhook.")


@dataclass(frozen=True, slots=True)
class Allocating:
    """How blocks are given."""

    allocation_mode: str = flag(
        "stable",
        "stable: every block that still fits its pool's spec stays with its node, and an invalid spec changes nothing. "
        "upstream: as the original; a changed gatewayIndex or an invalid spec removes every block.",
    )
    quarantine: str = flag(
        "pods",
        "Hold back the block of a removed node from other nodes for a while: pods (while pods of that node are still "
        "recorded), always, or off. Needs the rights to list pods and to patch pools; without them it is off.",
    )
    quarantine_duration: Duration = flag(600.0, "Longest time that a block is kept.")
    dry_run: bool = flag(False, "Write nothing: log what would be written. Does not take part in leader election.")


@dataclass(frozen=True, slots=True)
class Webhook:
    """How the webhook is served."""

    webhook_port: int = flag(9443, "Port of the webhook.")
    webhook_cert_dir: str = flag(
        "/tmp/k8s-webhook-server/serving-certs", "The folder of tls.crt and tls.key; read again when they change."
    )
    webhook_self_signed: bool = flag(
        False,
        "Create the certificate, keep it in a Secret that all replicas share, and renew it: for clusters with neither "
        "cert-manager nor OpenShift. Its authority is written to the ValidatingWebhookConfiguration if the account "
        "may patch it; otherwise an administrator does that.",
    )
    webhook_secret_name: str = flag("nv-ipam-webhook-server-cert", "With --webhook-self-signed: the Secret.")
    webhook_service_name: str = flag("nv-ipam-webhook-service", "With --webhook-self-signed: the Service.")
    webhook_configuration_name: str = flag(
        "nv-ipam-validating-webhook-configuration", "With --webhook-self-signed: the ValidatingWebhookConfiguration."
    )


GROUPS = (
    Group("controlling", "Controller", Controlling),
    Group("allocating", "Allocation", Allocating),
    Group("webhook", "Webhook", Webhook),
    *commonflags.GROUPS,
)


@dataclass(frozen=True, slots=True)
class Options(commonflags.Options):
    """What the program was told."""

    GROUPS: ClassVar = GROUPS

    controlling: Controlling = field(default_factory=Controlling)
    allocating: Allocating = field(default_factory=Allocating)
    webhook: Webhook = field(default_factory=Webhook)


def read(words: Sequence[str]) -> Reading[Options]:
    """Parse a command line; every problem of syntax and values is reported."""
    return commonflags.read(Options, words, _problems)


def _problems(options: Options) -> Iterator[str]:
    chosen = options.controlling
    yield from program.listener_problems(
        {
            "metrics-bind-address": chosen.metrics_bind_address,
            "health-probe-bind-address": chosen.health_probe_bind_address,
        }
    )
    for name, value in (
        ("ippools-namespace", chosen.ippools_namespace),
        ("leader-elect-namespace", chosen.leader_elect_namespace),
    ):
        yield from (f"--{name}: {text}" for text in names.dns_label_problems(value))
    yield from _choice_problems(options)


def _choice_problems(options: Options) -> Iterator[str]:
    chosen, webhook = options.allocating, options.webhook
    for name, value, known in (
        ("allocation-mode", chosen.allocation_mode, MODES),
        ("quarantine", chosen.quarantine, QUARANTINES),
    ):
        if value not in known:
            yield f"--{name}: {value!r} is not one of {', '.join(known)}"
    if chosen.quarantine_duration <= 0:
        shown = duration.format_duration(chosen.quarantine_duration)
        yield f"--quarantine-duration: must be longer than 0s, is {shown} (--quarantine=off switches it off)"
    if not 0 <= webhook.webhook_port <= 65535:
        yield f"--webhook-port: {webhook.webhook_port} must be a port from 1 to 65535"
    if webhook.webhook_self_signed and not options.controlling.webhook:
        yield "--webhook-self-signed: needs --webhook"
    for name, value in (
        ("webhook-secret-name", webhook.webhook_secret_name),
        ("webhook-service-name", webhook.webhook_service_name),
        ("webhook-configuration-name", webhook.webhook_configuration_name),
    ):
        yield from (f"--{name}: {text}" for text in names.dns_subdomain_problems(value))
