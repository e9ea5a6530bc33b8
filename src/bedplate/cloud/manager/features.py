"""Feature gates: the names that a manager's `--feature-gates` may hold, and what each does here.

A table only. None of them changes what this manager does: what is behind a gate upstream is
either always on here or does not exist, and the table says which.
"""

from __future__ import annotations

__all__ = ["GATES"]

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
