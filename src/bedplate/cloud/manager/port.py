"""Opens the HTTPS port: who may ask (clients for reviews, authorities of certificates), what is shown, what is checked.

In: options, clients, checks. Out: a `ManagerServer` ready to be opened, and the tasks that keep it up to date.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from bedplate.cloud.manager import access, connection
from bedplate.cloud.manager.certificates import ServingCertificates
from bedplate.cloud.manager.options import Options
from bedplate.cloud.manager.profiling import Contention
from bedplate.cloud.manager.serving import ManagerServer
from bedplate.core import clock, errors, logging
from bedplate.kube.client import Client
from bedplate.program.clients import Clients
from bedplate.runtime.delegation import DelegatedGate, Keep

__all__ = ["Port", "prepare"]

log = logging.get_logger("cloud.port")


@dataclass(frozen=True, slots=True)
class Port:
    """A server that is not open yet, and what runs beside it."""

    server: ManagerServer
    tasks: tuple[Callable[[], Awaitable[None]], ...]


async def prepare(
    options: Options,
    environ: Mapping[str, str],
    clients: Clients,
    registry: CollectorRegistry,
    time: clock.Clock,
) -> Port:
    """Everything but opening it. Raises when a certificate cannot be used, or the lookup of authorities is refused."""
    login = options.authentication
    reviews = await clients.plain(connection.review_config(login.authentication_kubeconfig, clients.config, environ))
    gate = access.RequestGate(await _delegate(options, environ, clients, reviews, time))
    certificates = ServingCertificates(options.secure_serving, time)
    flags = access.from_flags(login)

    def apply(authorities: access.Authorities) -> None:
        gate.authorities = authorities
        certificates.trust(authorities.all)

    apply(await _first_authorities(reviews, options, flags))
    contention = Contention() if options.debugging.contention_profiling else None
    server = ManagerServer(options, registry, gate, certificates, contention=contention)
    tasks = [server.maintain, lambda: access.follow(reviews, login, flags, apply, time)]
    return Port(server, (*tasks, contention.run) if contention is not None else tuple(tasks))


async def _delegate(
    options: Options,
    environ: Mapping[str, str],
    clients: Clients,
    reviews: Client,
    time: clock.Clock,
) -> DelegatedGate:
    rights = options.authorization
    config = connection.review_config(rights.authorization_kubeconfig, clients.config, environ)
    keep = Keep(
        options.authentication.authentication_token_webhook_cache_ttl,
        rights.authorization_webhook_cache_authorized_ttl,
        rights.authorization_webhook_cache_unauthorized_ttl,
    )
    return DelegatedGate(reviews, access_client=await clients.plain(config), keep=keep, time=time)


async def _first_authorities(client: Client, options: Options, flags: access.Authorities) -> access.Authorities:
    try:
        return await access.look_up(client, options.authentication, flags)
    except errors.Retryable as err:
        # Whether the API server lives is judged later; here it only means: no client certificates yet.
        log.warning("access.lookup_failed", error=str(err))
        return flags
