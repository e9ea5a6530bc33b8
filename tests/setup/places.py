"""Sites and answers for tests of the setup tools."""

from __future__ import annotations

import copy
import ipaddress
from typing import Any

from bedplate.setup.answers import document
from bedplate.setup.answers.site import Cluster, Node, Site

MINIMAL = """\
kubernetes:
  nodes:
    masters:
      nodes: [node001]
    workers:
      nodes: [node002, node003]
  skip:
    dns_check: true
    package_manager_check: true
"""


def answers(**changes: Any) -> dict[str, Any]:
    """Answers for three nodes; a change is named by its path below `kubernetes`, with __ in place of dots."""
    values = copy.deepcopy(document.load(MINIMAL).values)
    for name, value in changes.items():
        values = document.with_value(values, f"kubernetes.{name.replace('__', '.')}", value)
    return values


def site(
    *,
    head: str = "basecm10",
    passive: str = "",
    networks: dict[str, str] | None = None,
    clusters: dict[str, int] | None = None,
    members: dict[str, str] | None = None,
    category: str = "default",
    nodes: int = 6,
) -> Site:
    names = {"internalnet": "10.141.0.0/16", **(networks or {})}
    devices = {
        f"node{number:03}": Node(
            f"node{number:03}", category, False, f"10.141.0.{number}", (members or {}).get(f"node{number:03}", "")
        )
        for number in range(1, nodes + 1)
    }
    heads = {name: Node(name, "", True, "10.141.255.254") for name in (head, passive) if name}
    return Site(
        head=head,
        fqdn=f"{head}.cm.cluster",
        networks={name: ipaddress.IPv4Network(text) for name, text in names.items()},
        network_names=tuple(sorted(names)),
        nodes={**heads, **devices},
        categories=(category,),
        clusters={name: Cluster(name, port) for name, port in (clusters or {}).items()},
    )
