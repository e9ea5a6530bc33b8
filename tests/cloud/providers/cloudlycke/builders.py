"""Nodes, Services and settings for the tests of the provider `cloudlycke`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from bedplate.api import core, meta
from bedplate.cloud import registry
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.cloudlycke.provider import Cloudlycke
from bedplate.runtime.cache import Cache


def node(name: str, provider_id: str = "") -> core.Node:
    return core.Node(metadata=meta.ObjectMeta(name=name, uid=f"u-{name}"), spec=core.NodeSpec(provider_id=provider_id))


def target(name: str) -> Target:
    return Target(node(name))


def service(
    name: str, *, address: str = "", asks: str = "", namespace: str = "shop", kind: str = "LoadBalancer", age: int = 0
) -> core.Service:
    """A Service; `address` is what its status says, `asks` its spec.loadBalancerIP."""
    ingress = (core.LoadBalancerIngress(ip=address, ip_mode="VIP"),) if address else ()
    made = datetime.fromtimestamp(1_800_000_000 - age, UTC)
    return core.Service(
        metadata=meta.ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", creation_timestamp=made),
        spec=core.ServiceSpec(type=kind, load_balancer_ip=asks),
        status=core.ServiceStatus(load_balancer=core.LoadBalancerStatus(ingress=ingress)),
    )


def services(*items: core.Service) -> Cache[core.Service]:
    cache: Cache[core.Service] = Cache()
    cache.replace(items, "1")
    return cache


def provider(config: Path | None = None, **setting: object) -> Cloudlycke:
    made = registry.create("cloudlycke", registry.Setting(config, {}, **setting))  # type: ignore[arg-type]
    assert isinstance(made, Cloudlycke)
    return made


_moments = iter(range(1, 1_000_000))


def write(path: Path, text: str) -> Path:
    """Replace a file, at once as a whole, with a change time that no earlier version had, however fast the test is."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    moment = 1_700_000_000 + next(_moments)
    os.utime(new, (moment, moment))
    return new.replace(path)
