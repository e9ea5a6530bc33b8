"""How the manager reaches the API server, and the clients that its parts use.

In: options and environment. Out: `ClientConfig`s and open clients. Every write of a controller goes through a fenced
client (S8) or, in a dry run, through one that only records. Each service account has a client, and thereby a rate, of
its own, as in Kubernetes; events have a rate of theirs; renewing the Lease waits for nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from bedplate.cloud.manager.accounts import AccountTokens
from bedplate.cloud.manager.options import Options
from bedplate.core import clock, errors
from bedplate.core.metrics import shared
from bedplate.kube import incluster, kubeconfig
from bedplate.kube.client import Client
from bedplate.kube.config import AuthConfig, ClientConfig, TLSConfig
from bedplate.kube.metrics import RequestMetrics
from bedplate.kube.recording import Mode, RecordingClient
from bedplate.runtime.leaderelection import FencedClient

__all__ = ["USER_AGENT", "Clients", "find", "review_config"]

USER_AGENT = "cloud-controller-manager"


def find(options: Options, environ: Mapping[str, str]) -> ClientConfig:
    """The cluster to manage: `--kubeconfig` and `--master`, else the pod's service account. No other place is looked
    at: a manager deletes nodes, and must not find a cluster by chance."""
    path, master = options.misc.kubeconfig, options.misc.master
    if path:
        found = kubeconfig.read([Path(path)], environ=environ)
        if master:
            found = replace(found, server=master.rstrip("/"))
    elif master:
        found = ClientConfig(server=master.rstrip("/"), environ=environ)
    elif incluster.is_available(environ):
        found = incluster.load(environ)
    else:
        raise errors.Invalid(
            "no cluster to manage: no --kubeconfig, no --master, and this is not a pod with a service account",
            hint="pass --kubeconfig=FILE",
        )
    generic = options.generic
    return found.with_rate(generic.kube_api_qps, generic.kube_api_burst).with_user_agent(USER_AGENT)


def review_config(path: str, main: ClientConfig, environ: Mapping[str, str]) -> ClientConfig:
    """The cluster that reviews tokens or access: that of a kubeconfig, else the managed one."""
    if not path:
        return main
    return replace(kubeconfig.read([Path(path)], environ=environ), user_agent=main.user_agent, qps=-1.0)


@dataclass(slots=True)
class Clients:
    """Opens clients, each once, and closes them all. `guard` raises when this process may not write (S8)."""

    config: ClientConfig
    options: Options
    guard: Callable[[], None]
    time: clock.Clock
    registry: CollectorRegistry
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def is_dry_run(self) -> bool:
        return self.options.generic.dry_run

    async def plain(self, config: ClientConfig | None = None) -> Client:
        """A client that no guard watches: for watches, reviews and the Lease. It is given nothing else to write."""
        made = Client(config if config is not None else self.config, time=self.time, metrics=self._metrics())
        return await self._stack.enter_async_context(made)

    async def election(self) -> Client:
        """For the Lease: no answer may take longer than the leader has to renew it."""
        deadline_s = self.options.generic.leader_elect_renew_deadline
        return await self.plain(replace(self.config, timeout_s=deadline_s, connect_timeout_s=deadline_s))

    async def events(self) -> Client:
        """For events, at their own rate."""
        qps = self.options.generic.event_qps
        return await self._writing(self.config.with_rate(qps, max(1, int(qps))))

    async def controller(self, account: str) -> Client:
        """For what a controller writes: as this service account when that is asked for, else as this program."""
        config = self.config
        if self.options.generic.use_service_account_credentials and not self.is_dry_run:
            tokens = AccountTokens(await self._writing(config), account, self.time)
            config = replace(config, auth=AuthConfig(token_source=tokens.get), tls=_without_certificate(config.tls))
        return await self._writing(config)

    async def _writing(self, config: ClientConfig) -> Client:
        made: Client
        if self.is_dry_run:
            made = RecordingClient(config, mode=Mode.LOCAL, time=self.time, metrics=self._metrics())
        else:
            made = FencedClient(config, self.guard, time=self.time, metrics=self._metrics())
        return await self._stack.enter_async_context(made)

    def _metrics(self) -> RequestMetrics:
        return shared(self.registry, RequestMetrics)


def _without_certificate(tls: TLSConfig) -> TLSConfig:
    # A client certificate would win over the account's token.
    return replace(tls, cert_file="", cert_data=b"", key_file="", key_data=b"")
