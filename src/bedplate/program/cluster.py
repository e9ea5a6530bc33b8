"""Which cluster a program works for.

In: its flags and the environment. Out: how to reach the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bedplate.core import errors
from bedplate.kube import config as kube_config
from bedplate.kube import incluster, kubeconfig
from bedplate.kube.config import ClientConfig

__all__ = ["find", "find_named"]


def find(path: str, environ: Mapping[str, str]) -> ClientConfig:
    """As controller-runtime does: the flag, KUBECONFIG, the pod's service account, the user's own file."""
    if path:
        return kubeconfig.read([Path(path)], environ=environ)
    if not environ.get("KUBECONFIG") and incluster.is_available(environ):
        return incluster.load(environ)
    return kube_config.load(environ=environ)


def find_named(path: str, master: str, environ: Mapping[str, str]) -> ClientConfig:
    """As Kubernetes' managers do: the kubeconfig and the server that flags name, else the pod's service account.

    No other place is looked at: a program that deletes nodes must not find a cluster by chance.
    """
    server = master.rstrip("/")
    if path:
        connection = kubeconfig.read([Path(path)], environ=environ)
        return replace(connection, server=server) if server else connection
    if server:
        return ClientConfig(server=server, environ=environ)
    if incluster.is_available(environ):
        return incluster.load(environ)
    raise errors.Invalid(
        "no cluster to manage: no --kubeconfig, no --master, and this is not a pod with a service account",
        hint="pass --kubeconfig=FILE",
    )
