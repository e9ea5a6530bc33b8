"""How the manager reaches the API server.

In: options and environment. Out: `ClientConfig`s, and the clients of controllers: each service account has a client,
and thereby a rate, of its own, as in Kubernetes. An account's token (`--use-service-account-credentials`) is asked for
when it is first needed (by then this process leads), renewed after four fifths of its life, and at once when the server
refuses it. A renewal that fails leaves the old token in use while it lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bedplate.api import auth
from bedplate.api.names import NAMESPACE_SYSTEM
from bedplate.api.resources import SERVICE_ACCOUNTS
from bedplate.cloud.manager.options import Options
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube import kubeconfig, subresources
from bedplate.kube.client import Client
from bedplate.kube.config import AuthConfig, ClientConfig, TLSConfig, find_named
from bedplate.program.clients import Clients

__all__ = ["USER_AGENT", "AccountTokens", "controller_client", "event_client", "find", "review_config"]

USER_AGENT = "cloud-controller-manager"
log = logging.get_logger("cloud.accounts")
LIFETIME_S = 3600
RENEW_AFTER = 0.8


def find(options: Options, environ: Mapping[str, str]) -> ClientConfig:
    """The cluster to manage."""
    generic = options.generic
    connection = find_named(options.misc.kubeconfig, options.misc.master, environ)
    return connection.with_rate(generic.kube_api_qps, generic.kube_api_burst).with_user_agent(USER_AGENT)


def review_config(path: str, main: ClientConfig, environ: Mapping[str, str]) -> ClientConfig:
    """The cluster that reviews tokens or access: that of a kubeconfig, else the managed one."""
    if not path:
        return main
    return replace(kubeconfig.read([Path(path)], environ=environ), user_agent=main.user_agent, qps=-1.0)


async def controller_client(
    clients: Clients, options: Options, account: str, config: ClientConfig | None = None
) -> Client:
    """For what a controller writes: as this service account when the flag says so, else as this program."""
    config = config or clients.config
    if not options.generic.use_service_account_credentials or clients.is_dry_run:
        return await clients.leading(config)
    tokens = AccountTokens(await clients.leading(), account, clients.time)
    auth, tls = AuthConfig(token_source=tokens.get), _without_certificate(config.tls)
    return await clients.leading(replace(config, auth=auth, tls=tls))


async def event_client(clients: Clients, options: Options, account: str) -> Client:
    """For Events, at their own rate; likewise as this service account when the flag says so."""
    qps = options.generic.event_qps
    return await controller_client(clients, options, account, clients.config.with_rate(qps, max(1, int(qps))))


def _without_certificate(tls: TLSConfig) -> TLSConfig:
    # A client certificate would win over the account's token.
    return replace(tls, cert_file="", cert_data=b"", key_file="", key_data=b"")


class AccountTokens:
    """The tokens of one service account of kube-system."""

    def __init__(self, client: Client, account: str, time: clock.Clock) -> None:
        self._client = client
        self._account = account
        self._time = time
        self._token = ""
        self._renew_at = 0.0
        self._ends_at = 0.0
        self._asking = asyncio.Lock()

    async def get(self, refused: str) -> str:
        """A token; another one than `refused`, if that is the present one."""
        async with self._asking:
            now = self._time.monotonic()
            if self._token and self._token != refused and now < self._renew_at:
                return self._token
            try:
                await self._request(now)
            except errors.BedplateError as err:
                if not self._token or self._token == refused or now >= self._ends_at:
                    raise
                log.warning("accounts.not_renewed", account=self._account, error=str(err))
                self._renew_at = now + 10.0
            return self._token

    async def _request(self, now: float) -> None:
        try:
            status = await self._ask()
        except kube_errors.NotFound:
            try:
                await self._client.create(
                    SERVICE_ACCOUNTS, {"metadata": {"name": self._account, "namespace": NAMESPACE_SYSTEM}}
                )
            except kube_errors.AlreadyExists:
                # Another replica, or the cluster itself, was quicker.
                log.v(4).info("accounts.exists", account=self._account)
            status = await self._ask()
        lifetime_s = float(LIFETIME_S)
        if status.expiration_timestamp:
            lifetime_s = max(0.0, (status.expiration_timestamp - self._time.now()).total_seconds())
        self._token, self._ends_at = status.token, now + lifetime_s
        self._renew_at = now + RENEW_AFTER * lifetime_s
        log.v(2).info("accounts.token", account=self._account, lifetime_s=round(lifetime_s))

    async def _ask(self) -> auth.TokenRequestStatus:
        return await subresources.request_token(self._client, self._account, NAMESPACE_SYSTEM, lifetime_s=LIFETIME_S)
