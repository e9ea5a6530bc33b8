"""`bedplate ccm explain`: looks at the live cluster and the clouds, and says why an object is as it is.

In: a command line with the manager's own flags (which cloud, which file, which cluster); what it does not say is taken
from the manager that works for the cluster (`deployed`). Out: an `Explanation`, which `core.explanation` shows.
Raises `Invalid` for a wrong command line or configuration, `NotFound` when there is no such object. It reads, and
writes nothing anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bedplate.api import core, names
from bedplate.api.resources import ENDPOINT_SLICES, EVENTS, NODES, SERVICES
from bedplate.cloud import registry
from bedplate.cloud.controllers import lifecycle, service_plan
from bedplate.cloud.explain_objects import explain_node, explain_service
from bedplate.cloud.interface import Provider
from bedplate.cloud.manager import deployed, leading, selection, validation, wiring
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager.assembly import create_clouds
from bedplate.cloud.manager.options import Options
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors, logging
from bedplate.core.explanation import Explanation
from bedplate.core.flags import Flag
from bedplate.kube import config
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache

__all__ = ["Request", "explain", "read"]

log = logging.get_logger("cloud.explaining")
_CANNOT = "this object cannot be explained"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUTPUT = Flag("output", "output", "string", "table", "table or json.", short="o")


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What to explain: `kind` is node or service, `name` its name (a Service's with its namespace)."""

    kind: str
    name: str
    output: str
    options: Options
    words: tuple[str, ...] = ()


def read(kind: str, words: Sequence[str]) -> Request:
    """The request on a command line; raises `Invalid` with every problem."""
    command = reading.read(words, extra=(OUTPUT,), takes_arguments=True)
    options, problems = command.options, list(command.problems)
    if len(command.arguments) != 1:
        problems.append(
            f"name one {kind}" if not command.arguments else f"name one {kind}, not {len(command.arguments)}"
        )
    if command.extra["output"] not in ("table", "json"):
        problems.append(f"--output: {command.extra['output']!r} is neither table nor json")
    name = command.arguments[0] if command.arguments else ""
    if kind == "service" and name and name.count("/") != 1:
        problems.append(f"{name!r} is not NAMESPACE/NAME")
    if options.generic.cloud_provider:
        problems += validation.problems(options, registry.names())
    if problems:
        raise errors.Invalid(_CANNOT, problems=problems)
    return Request(kind, name, command.extra["output"], options, tuple(words))


async def explain(request: Request, environ: Mapping[str, str]) -> Explanation:
    """Look at everything, and say why."""
    options = request.options
    settings = config.load(options.misc.kubeconfig or None, environ=environ).with_rate(-1, 1)
    async with Client(settings.with_user_agent("bedplate-explain")) as client:
        if options.generic.cloud_config:
            return await _explain(client, request, environ)
        manager = await _manager(client, options, environ)
        if manager is None:
            return await _explain(client, request, environ)
        async with deployed.taken_over(client, manager) as (defaults, more):
            command = reading.read(request.words, defaults, extra=(OUTPUT,), takes_arguments=True)
            request = dataclasses.replace(request, options=command.options)
            return await _explain(client, request, {**more, **environ})


async def _manager(client: Client, options: Options, environ: Mapping[str, str]) -> deployed.Manager | None:
    """The manager whose flags apply; None when the command line says which cloud, and none works for that."""
    providers = options.generic.cloud_provider
    file = deployed.kubeconfig_file(options.misc.kubeconfig, environ)
    try:
        manager = deployed.choose(await deployed.find(client, file), providers)
    except (errors.Denied, errors.Unavailable):
        if not providers:
            raise
        return None
    if manager is None and not providers:
        text = "--cloud-provider is required: no Deployment, DaemonSet or static pod here runs a manager"
        leader = await deployed.leaders_seen(client)
        problems = [f"{text}, but {leader}, from elsewhere" if leader else text]
        raise errors.Invalid(_CANNOT, problems=problems, hint="give the flags of the manager that works for it")
    return manager


async def _explain(client: Client, request: Request, environ: Mapping[str, str]) -> Explanation:
    options, time = request.options, clock.SystemClock()
    if problems := validation.problems(options, registry.names()):
        raise errors.Invalid(_CANNOT, problems=problems)
    caches = wiring.Caches()
    identity = leading.ClusterIdentity(client, time, caches.services)
    await identity.look()
    clouds = create_clouds(
        _reading_only(options),
        environ,
        nodes=caches.nodes,
        services=caches.services,
        guard=_refuse,
        cluster_id=lambda: identity.uid,
        time=time,
    )
    try:
        await _fill(client, NODES, caches.nodes, options.generic.node_selector)
        for provider in clouds:
            await _check(provider)
        if request.kind == "node":
            return await _node(client, request, caches, clouds, time)
        return await _service(client, request, caches, clouds)
    finally:
        for provider in clouds:
            await provider.close()


def _reading_only(options: Options) -> Options:
    return dataclasses.replace(options, generic=dataclasses.replace(options.generic, dry_run=True))


def _refuse() -> None:
    raise errors.Denied("an explanation changes nothing in a cloud")


async def _check(provider: Provider) -> None:
    """Verify the credentials, as the manager does at its start: some answers count only after that."""
    try:
        await provider.check_ready()
    except errors.BedplateError as err:
        log.warning("provider.not_ready", provider=provider.name, reason=str(err))


async def _fill(client: Client, ref: Any, cache: Cache[Any], selector: str = "") -> None:
    listed = await client.list(ref, label_selector=selector)
    cache.replace(listed.items, listed.resource_version)


async def _node(
    client: Client, request: Request, caches: wiring.Caches, clouds: Clouds, time: clock.Clock
) -> Explanation:
    node = await client.get(NODES, request.name)
    if node.name not in caches.nodes:
        selector = request.options.generic.node_selector
        raise errors.Invalid(f"node {node.name} is ignored: --node-selector={selector} does not match its labels")
    return await explain_node(
        node,
        caches.nodes,
        clouds,
        rules=wiring.lifecycle_options(request.options).rules,
        reconciles_labels=request.options.cloud_node.reconcile_node_labels,
        time=time,
        blocked=await _told(client, node, lifecycle.REASON_BLOCKED),
    )


async def _told(client: Client, node: core.Node, reason: str) -> str:
    """What the newest event of that reason says of a node; empty when there is none or it may not be read."""
    chosen = f"involvedObject.kind=Node,involvedObject.uid={node.metadata.uid},reason={reason}"
    try:
        events = (await client.list(EVENTS, field_selector=chosen)).items
    except errors.BedplateError as err:
        log.info("events.unreadable", node=node.name, error=errors.describe(err))
        return ""
    return max(events, key=lambda event: event.last_timestamp or EPOCH).message if events else ""


async def _service(client: Client, request: Request, caches: wiring.Caches, clouds: Clouds) -> Explanation:
    namespace, name = request.name.split("/")
    service = await client.get(SERVICES, name, namespace)
    await _fill(client, SERVICES, caches.services)
    slices = await client.list(ENDPOINT_SLICES, namespace, label_selector=f"{names.LABEL_SERVICE_NAME}={name}")
    flags = request.options.service_lb
    enabled, _ = selection.enabled_controllers(request.options.generic.controllers)
    with_balancers = tuple(cloud.name for cloud in clouds if cloud.load_balancers is not None)
    ownership = service_plan.Ownership(
        with_balancers if selection.SERVICE in enabled else (),
        service_plan.parse_classes(flags.load_balancer_class),
        flags.load_balancer_default_class,
    )
    return await explain_service(
        service,
        list(caches.nodes),
        slices.items,
        clouds,
        ownership=ownership,
        cluster=request.options.generic.cluster_name,
    )
