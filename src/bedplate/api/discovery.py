"""discovery.k8s.io/v1: EndpointSlice."""

from __future__ import annotations

from bedplate.api import meta

__all__ = ["Endpoint", "EndpointConditions", "EndpointPort", "EndpointSlice"]


class EndpointConditions(meta.Model, frozen=True):
    """Absent means unknown, which consumers treat as ready."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(meta.Model, frozen=True):
    """One backend of a service."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    target_ref: meta.ObjectReference | None = None


class EndpointPort(meta.Model, frozen=True):
    """A port that all endpoints of a slice share."""

    name: str | None = None
    protocol: str | None = None
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(meta.Object, frozen=True):
    """A part of the endpoints of a service; the label `kubernetes.io/service-name` names the service."""

    address_type: str = ""
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None
