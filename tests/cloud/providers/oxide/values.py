"""Values of the Oxide provider for tests of pure code: an owner, a floating IP, a Service."""

from __future__ import annotations

from typing import Any

from bedplate.api import core, meta
from bedplate.cloud.providers.oxide import models, ownership

UUID = "0a0b0c0d-1111-4222-8333-444455556666"


def owner(**changes: str) -> ownership.Owner:
    values = {"cluster": "c1", "service": "u1", "namespace": "shop", "name": "web"} | changes
    return ownership.Owner(**values)


def floating(name: str = "prod-shop-web", **changes: Any) -> models.FloatingIp:
    values: dict[str, Any] = {
        "id": f"id-{name}",
        "name": name,
        "description": ownership.write(ownership.Record(owner(), "managed")),
        "ip": "198.18.0.1",
        "ip_pool_id": "pool-1",
    }
    return models.FloatingIp(**{**values, **changes})


def service(annotations: dict[str, str] | None = None, **spec: Any) -> core.Service:
    return core.Service(
        metadata=meta.ObjectMeta(name="web", namespace="shop", uid="u1", annotations=annotations or {}),
        spec=core.ServiceSpec(type="LoadBalancer", **spec),
    )
