"""Rows of the head node's firewall for a cluster: its API server and its ingress, where they are exposed.

In: settings, the device of the head node. Out: the device with rows added or taken away; other rows stay as they are,
in their order. A head node without the role `firewall` lets everything in, and needs no rows.
"""

from __future__ import annotations

import copy
from typing import Any

from bedplate.api import headapi
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.addons import Addons, of_answers
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["close_ports", "open_ports", "rows", "with_rows", "without_rows"]


def _mark(cluster: str) -> str:
    return f"Kubernetes '{cluster}' "


def rows(settings: Settings, addons: Addons | None = None) -> list[dict[str, Any]]:
    """The rows of a cluster. Pure."""
    if not settings.is_exposed:
        return []
    ports = {"API server": settings.port}
    if addons is not None and addons.has_ingress:
        ports |= {"Ingress HTTP": addons.ingress.http_port, "Ingress HTTPS": addons.ingress.https_port}
        ports |= {"Ingress on 443": 443} if addons.is_on_443 else {}
    return [_row(settings.name, what, port) for what, port in ports.items()]


def _row(cluster: str, what: str, port: int) -> dict[str, Any]:
    values = {
        "action": "ACCEPT",
        "network": "net",
        "port": str(port),
        "protocol": "TCP",
        "destination": "fw",
        "description": f"{_mark(cluster)}{what}",
    }
    return {"type": "OpenPort", "values": values}


def without_rows(children: dict[str, Any], cluster: str) -> dict[str, Any]:
    """What a device has below it, without the rows of a cluster. Pure."""
    new = copy.deepcopy(children)
    role = new.get("roles", {}).get("firewall")
    if role is not None and "open_ports" in role.get("children", {}):
        kept = [row for row in role["children"]["open_ports"] if not _is_of(row, cluster)]
        role["children"]["open_ports"] = kept
    return new


def with_rows(children: dict[str, Any], settings: Settings, addons: Addons | None = None) -> dict[str, Any]:
    """What a device has below it, with the rows of a cluster at the end of its firewall's. Pure."""
    new = without_rows(children, settings.name)
    role = new.get("roles", {}).get("firewall")
    if role is not None:
        role.setdefault("children", {}).setdefault("open_ports", []).extend(rows(settings, addons))
    return new


def _is_of(row: dict[str, Any], cluster: str) -> bool:
    return str(row.get("values", {}).get("description", "")).startswith(_mark(cluster))


async def open_ports(context: Context, settings: Settings) -> None:
    """Add the rows of a cluster to the head node's firewall."""
    head = nodes.head_of(context)
    device = await head.get("device", settings.head)
    if "firewall" not in device.children.get("roles", {}):
        context.say(f"{settings.head} has no role firewall; nothing is closed")
        return
    addons = of_answers(context.answers, settings)
    await _write(context, device, with_rows(device.children, settings, addons), "open ports")


async def close_ports(context: Context, cluster: str) -> int:
    """Take the rows of a cluster away; how many there were."""
    device = await nodes.head_of(context).get("device", context.services.backend.name)
    role = device.children.get("roles", {}).get("firewall", {})
    count = sum(_is_of(row, cluster) for row in role.get("children", {}).get("open_ports", ()))
    if count:
        await _write(context, device, without_rows(device.children, cluster), "close ports")
    return count


async def _write(context: Context, device: headapi.Object, children: dict[str, Any], what: str) -> None:
    whole = {"type": device.type, "values": device.values, "extras": device.extras, "children": children}
    edit = headapi.Edit(mode="device", key=device.key, base=device.revision, object=whole)
    await nodes.commit(context, [edit], f"{what} of a Kubernetes cluster")
