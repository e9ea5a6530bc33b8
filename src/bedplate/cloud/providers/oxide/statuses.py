"""The status a Service shows: its floating IPs, then the private addresses of the node that has them. Pure.

The fabric translates a floating IP to the node's private address, so kube-proxy has to answer there: that is why the
private ones are listed. The floating IP has `ipMode: Proxy`, or kube-proxy would short-circuit traffic to it.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.api import core
from bedplate.cloud.providers.oxide import models

__all__ = ["is_same", "status_of", "unless_same"]

_DEFAULT_MODE = "VIP"


def status_of(
    ips: Iterable[models.FloatingIp], node: core.Node | None, *, hides_internal: bool = False
) -> core.LoadBalancerStatus:
    """The status for these floating IPs on that node (None: on none that we know)."""
    ingress = [core.LoadBalancerIngress(ip=item.ip, ip_mode="Proxy") for item in ips]
    if node is not None and not hides_internal:
        ingress += [
            core.LoadBalancerIngress(ip=item.address) for item in node.status.addresses if item.type == "InternalIP"
        ]
    return core.LoadBalancerStatus(ingress=tuple(ingress))


def is_same(left: core.LoadBalancerStatus, other: core.LoadBalancerStatus) -> bool:
    """Whether both say the same: the API server writes the default mode where none was given."""
    return _plain(left) == _plain(other)


def unless_same(status: core.LoadBalancerStatus, published: core.LoadBalancerStatus) -> core.LoadBalancerStatus:
    """What is published, to the letter, when it says the same: then nobody has a reason to write it again."""
    return published if is_same(status, published) else status


def _plain(status: core.LoadBalancerStatus) -> list[tuple[str, str, str]]:
    return [
        (ingress.ip, ingress.hostname, ingress.ip_mode or (_DEFAULT_MODE if ingress.ip else ""))
        for ingress in status.ingress
    ]
