"""How the manager reaches the API server.

In: options and environment. Out: `ClientConfig`s, and the clients of controllers: each service account has a client,
and thereby a rate, of its own, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bedplate.cloud.manager.accounts import AccountTokens
from bedplate.cloud.manager.options import Options
from bedplate.kube import kubeconfig
from bedplate.kube.client import Client
from bedplate.kube.config import AuthConfig, ClientConfig, TLSConfig
from bedplate.program import cluster
from bedplate.program.clients import Clients

__all__ = ["USER_AGENT", "controller_client", "find", "review_config"]

USER_AGENT = "cloud-controller-manager"


def find(options: Options, environ: Mapping[str, str]) -> ClientConfig:
    """The cluster to manage."""
    generic = options.generic
    connection = cluster.find_named(options.misc.kubeconfig, options.misc.master, environ)
    return connection.with_rate(generic.kube_api_qps, generic.kube_api_burst).with_user_agent(USER_AGENT)


def review_config(path: str, main: ClientConfig, environ: Mapping[str, str]) -> ClientConfig:
    """The cluster that reviews tokens or access: that of a kubeconfig, else the managed one."""
    if not path:
        return main
    return replace(kubeconfig.read([Path(path)], environ=environ), user_agent=main.user_agent, qps=-1.0)


async def controller_client(clients: Clients, options: Options, account: str) -> Client:
    """For what a controller writes: as this service account when the flag says so, else as this program."""
    if not options.generic.use_service_account_credentials or clients.is_dry_run:
        return await clients.leading()
    tokens = AccountTokens(await clients.leading(), account, clients.time)
    auth, tls = AuthConfig(token_source=tokens.get), _without_certificate(clients.config.tls)
    return await clients.leading(replace(clients.config, auth=auth, tls=tls))


def _without_certificate(tls: TLSConfig) -> TLSConfig:
    # A client certificate would win over the account's token.
    return replace(tls, cert_file="", cert_data=b"", key_file="", key_data=b"")
