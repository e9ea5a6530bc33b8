"""Feature gates: the names that a manager's `--feature-gates` may hold, and what each does here.

In: `Name=true` texts. Out: problems. None of them changes what this manager does: what is behind a gate upstream is
either always on here or does not exist, and the table says which.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.cloud.manager.flags import parse_bool

__all__ = ["GATES", "problems"]

_LOGGING = "log lines are structured always"
_CLIENT = "how client-go reads; another client is used here"
GATES: dict[str, str] = {
    "AllAlpha": "no gate of this list is left to switch",
    "AllBeta": "no gate of this list is left to switch",
    "CloudControllerManagerWatchBasedRoutesReconciliation": "routes are reconciled on changes always",
    "CloudControllerManagerWebhook": "no webhook exists",
    "CloudDualStackNodeIPs": "dual-stack node IPs are honoured always",
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


def problems(words: Sequence[str]) -> list[str]:
    """What is wrong with a list of gates."""
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            found.append(f"--feature-gates: {word!r} lacks a value (write {word}=true)")
            continue
        if name not in GATES:
            found.append(f"--feature-gates: unrecognized feature gate: {name}")
        try:
            parse_bool(value)
        except ValueError:
            found.append(f"--feature-gates: {name}: {value!r} is neither true nor false")
    return found
