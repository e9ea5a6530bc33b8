"""Are the options usable together? Every problem is found before anything is refused.

In: `Options`. Out: a list of problems, each naming its flag. Pure but for the files that flags name, which are opened.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bedplate.api import names
from bedplate.cloud.controllers import service_plan
from bedplate.cloud.manager import options_serving, selection
from bedplate.cloud.manager.options import Options
from bedplate.core import duration, errors, flags_global
from bedplate.runtime.leaderelection import Timing

__all__ = ["GATES", "parse_cidrs", "problems", "selector_problems"]

_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(.*)")
_LOGGING = "log lines are always structured"
_CLIENT = "how client-go reads; this program uses another client"
# The names that `--feature-gates` may hold. None of them changes what this manager does: what is behind a gate upstream
# is either always on here or does not exist.
GATES: dict[str, str] = {
    "AllAlpha": "no feature gate in this list exists any more",
    "AllBeta": "no feature gate in this list exists any more",
    "CloudControllerManagerWatchBasedRoutesReconciliation": "routes are always reconciled on changes",
    "CloudControllerManagerWebhook": "no webhook exists",
    "CloudDualStackNodeIPs": "dual-stack node IPs are always honoured",
    "ClientsAllowCBOR": _CLIENT,
    "ClientsPreferCBOR": _CLIENT,
    "ContextualLogging": _LOGGING,
    "ControllerManagerLeaderMigration": "see --enable-leader-migration",
    "InOrderInformers": _CLIENT,
    "InformerResourceVersion": _CLIENT,
    "LoggingAlphaOptions": _LOGGING,
    "LoggingBetaOptions": _LOGGING,
    "StableLoadBalancerNodeSet": "readiness does not change the set of nodes, as since Kubernetes 1.30",
    "WatchListClient": _CLIENT,
}


def problems(options: Options, providers: Collection[str]) -> list[str]:
    """All that is wrong; `providers` are the clouds that exist."""
    return [
        *_clouds(options, providers),
        *selection.enabled_controllers(options.generic.controllers)[1],
        *flags_global.gate_problems(options.generic.feature_gates, GATES),
        *_numbers(options),
        *_leader_election(options),
        *_cluster(options),
        *_serving(options),
        *flags_global.problems(options.globals),
    ]


def _clouds(options: Options, providers: Collection[str]) -> Iterator[str]:
    chosen, texts = selection.choose_clouds(options.generic.cloud_provider, options.generic.cloud_config, providers)
    yield from texts
    for cloud in chosen:
        if cloud.config is not None:
            yield from _unreadable("--cloud-config", str(cloud.config))


def _unreadable(flag: str, path: str) -> Iterator[str]:
    try:
        with Path(path).open("rb"):
            return
    except OSError as err:
        yield f"{flag}: {path} cannot be opened: {err.strerror}"


def _numbers(options: Options) -> Iterator[str]:
    for flag, value in options.items():
        if flag.name in _AT_LEAST and value < _AT_LEAST[flag.name]:
            shown = duration.format_duration(value) if flag.kind == "duration" else f"{value:g}"
            least = _AT_LEAST[flag.name]
            yield f"--{flag.name}: must be at least {least:g}{'s' if flag.kind == 'duration' else ''}, is {shown}"
        if flag.name in _POSITIVE and value <= 0:
            yield f"--{flag.name}: must be greater than 0, is {duration.format_duration(value)}"
    if options.lifecycle.max_node_deletions_percent > 100:
        yield f"--max-node-deletions-percent: must be at most 100, is {options.lifecycle.max_node_deletions_percent}"


_AT_LEAST: dict[str, float] = {
    "concurrent-node-syncs": 1,
    "concurrent-node-status-updates": 0,
    "concurrent-node-lifecycle-checks": 1,
    "concurrent-service-syncs": 1,
    "node-deletion-confirmations": 1,
    "max-node-deletions-percent": 0,
    "kube-api-burst": 0,
    "cloud-api-burst": 1,
    "controller-start-interval": 0,
    "node-startup-grace-period": 0,
    "mass-deletion-hold": 0,
    "node-terminated-grace-period": 0,
    "lb-failover-delay": 0,
    "cloud-cache-ttl": 0,
    "authentication-token-webhook-cache-ttl": 0,
    "authorization-webhook-cache-authorized-ttl": 0,
    "authorization-webhook-cache-unauthorized-ttl": 0,
    "http2-max-streams-per-connection": 0,
    "v": 0,
}
_POSITIVE = {
    "node-monitor-period",
    "node-status-update-frequency",
    "min-resync-period",
    "route-reconciliation-period",
    "route-full-resync-period",
    "cloud-api-timeout",
}


def _leader_election(options: Options) -> Iterator[str]:
    generic = options.generic
    if options.leader_migration.enable_leader_migration or options.leader_migration.leader_migration_config:
        yield (
            "--enable-leader-migration: leader migration is not offered; start "
            "this manager after the other one has stopped"
        )
    if not generic.leader_elect:
        return
    try:
        Timing(
            generic.leader_elect_lease_duration, generic.leader_elect_renew_deadline, generic.leader_elect_retry_period
        )
    except errors.Invalid as err:
        yield from (f"--leader-elect-*: {text}" for text in err.problems)
    if generic.leader_elect_resource_lock != "leases":
        yield f"--leader-elect-resource-lock: only leases is supported, not {generic.leader_elect_resource_lock!r}"
    for flag, check, value in (
        ("--leader-elect-resource-name", names.dns_subdomain_problems, generic.leader_elect_resource_name),
        ("--leader-elect-resource-namespace", names.dns_label_problems, generic.leader_elect_resource_namespace),
    ):
        yield from (f"{flag}: {text}" for text in check(value))


def _cluster(options: Options) -> Iterator[str]:
    generic = options.generic
    if not generic.cluster_name:
        yield "--cluster-name: must not be empty"
    if generic.cidr_allocator_type not in ("RangeAllocator", "CloudAllocator", "IPAMFromCluster", "IPAMFromCloud"):
        yield f"--cidr-allocator-type: unknown {generic.cidr_allocator_type!r}"
    if generic.cluster_cidr:
        try:
            parse_cidrs(generic.cluster_cidr)
        except ValueError as err:
            yield f"--cluster-cidr: {err}"
    yield from (f"--node-selector: {text}" for text in selector_problems(generic.node_selector))
    if options.misc.kubeconfig:
        yield from _unreadable("--kubeconfig", options.misc.kubeconfig)
    if options.misc.master:
        address = urlsplit(options.misc.master)
        if address.scheme not in ("http", "https"):
            yield "--master: must begin with https:// or http://"
        if "@" in address.netloc:
            yield "--master: put credentials in the kubeconfig, not in the address, which appears in logs and metrics"
    try:
        service_plan.parse_classes(options.service_lb.load_balancer_class)
    except errors.Invalid as err:
        yield from (f"--load-balancer-class: {text}" for text in err.problems)


def parse_cidrs(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """One network, or one per IP family; raises ValueError."""
    networks = tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(","))
    if len(networks) > 2:
        raise ValueError("at most two networks")
    if len(networks) == 2 and networks[0].version == networks[1].version:
        raise ValueError("two networks must be of different IP families")
    return networks


def selector_problems(text: str) -> list[str]:
    """What is wrong with a label selector: `a=b`, `a!=b`, `a`, `!a`, `a in (b,c)`, `a notin (b)`, joined by commas."""
    texts: list[str] = []
    for part in filter(None, (word.strip() for word in re.split(r",(?![^(]*\))", text))):
        if member := _SET.fullmatch(part):
            key, values = member[1], [word.strip() for word in member[3].split(",")]
        elif equality := _EQUALITY.fullmatch(part):
            key, values = equality[1], [equality[3].strip()]
        else:
            key, values = part.removeprefix("!").strip(), []
        texts += names.label_key_problems(key)
        texts += [problem for value in values for problem in names.label_value_problems(value)]
    return texts


def _serving(options: Options) -> Iterator[str]:
    serving, webhook, login = options.secure_serving, options.webhook_serving, options.authentication
    for flag, port in (("--secure-port", serving.secure_port), ("--webhook-secure-port", webhook.webhook_secure_port)):
        if not 0 <= port <= 65535:
            yield f"{flag}: {port} must be a port (0 to 65535)"
    if serving.secure_port and serving.secure_port == webhook.webhook_secure_port:
        yield "--webhook-secure-port: must differ from --secure-port"
    for flag, address in (
        ("--bind-address", serving.bind_address),
        ("--webhook-bind-address", webhook.webhook_bind_address),
    ):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield f"{flag}: {address!r} is not an IP address"
    yield from (f"--webhooks: there is no webhook {name!r}" for name in options.webhook.webhooks)
    yield from options_serving.tls_problems(serving)
    for flag, path in (
        ("--client-ca-file", login.client_ca_file),
        ("--requestheader-client-ca-file", login.requestheader_client_ca_file),
        ("--authentication-kubeconfig", login.authentication_kubeconfig),
        ("--authorization-kubeconfig", options.authorization.authorization_kubeconfig),
    ):
        if path:
            yield from _unreadable(flag, path)
    for path in options.authorization.authorization_always_allow_paths:
        if "*" in path.rstrip("*") or not path:
            yield f"--authorization-always-allow-paths: {path!r} may contain * only at its end"
