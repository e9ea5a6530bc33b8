"""Which cluster a program works for.

In: its flag and the environment. Out: how to reach the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bedplate.kube import config as connections
from bedplate.kube import incluster, kubeconfig
from bedplate.kube.config import ClientConfig

__all__ = ["find"]

QPS, BURST = 50.0, 100


def find(path: str, environ: Mapping[str, str], program: str) -> ClientConfig:
    """The cluster, in the original's order: the flag, KUBECONFIG, the pod's service account, the user's own file."""
    if path:
        found = kubeconfig.read([Path(path)], environ=environ)
    elif not environ.get("KUBECONFIG") and incluster.is_available(environ):
        found = incluster.load(environ)
    else:
        found = connections.load(environ=environ)
    return found.with_rate(QPS, BURST).with_user_agent(program)
