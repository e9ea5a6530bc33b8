"""Etcd nodes as data nodes: a full installation, which would wipe etcd's data, needs the node's name as confirmation.

In: the members of a cluster's etcd. Out: `data_node` of their devices, and in the extra parameter `data_nodes` of the
EtcdCluster which devices the tool set it on: one revision changes both, so that an undone deployment and a removal
change no device that was a data node before. `--skip-disksetup-changes` leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api import headapi
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["EXTRA", "protect", "released", "unprotect"]

EXTRA = "data_nodes"
_FIELD = "data_node"


async def protect(context: Context, settings: Settings) -> None:
    """Make the etcd nodes data nodes; those that are stay whose they are. Head nodes are never installed."""
    head = nodes.head_of(context)
    etcd = await head.get("etcd", settings.etcd)
    edits, names = [], etcd.extras.get(EXTRA, "").split()
    for name in settings.members.etcd:
        device = await head.get("device", name)
        if device.type == "PhysicalNode" and not device.values.get(_FIELD):
            whole = {**nodes.whole(device), "values": {**device.values, _FIELD: True}}
            edits.append(headapi.Edit(mode="device", key=name, base=device.revision, object=whole))
            names.append(name)
    if edits:
        whole = {**nodes.whole(etcd), "extras": {**etcd.extras, EXTRA: " ".join(dict.fromkeys(names))}}
        edits.append(headapi.Edit(mode="etcd", key=etcd.key, base=etcd.revision, object=whole))
        message = f"etcd nodes of the Kubernetes cluster {settings.name} are data nodes"
        await nodes.commit(context, edits, message, is_awaited=False)
    context.say(f"Data nodes: {', '.join(settings.members.etcd)}; a full installation needs their names")


async def unprotect(context: Context, settings: Settings) -> None:
    """Give the devices back what they were."""
    head = nodes.head_of(context)
    etcd = await nodes.find(head, "etcd", settings.etcd)
    if etcd is None or EXTRA not in etcd.extras:
        return
    edits = list(await released(context, etcd))
    extras = {name: text for name, text in etcd.extras.items() if name != EXTRA}
    whole = {**nodes.whole(etcd), "extras": extras}
    edits.append(headapi.Edit(mode="etcd", key=etcd.key, base=etcd.revision, object=whole))
    await nodes.commit(context, edits, f"etcd nodes of the Kubernetes cluster {settings.name} are what they were")


async def released(context: Context, etcd: headapi.Object) -> Sequence[headapi.Edit]:
    """What makes the devices that the tool made data nodes what they were; devices that are gone are left out."""
    head, edits = nodes.head_of(context), []
    for name in etcd.extras.get(EXTRA, "").split():
        device = await nodes.find(head, "device", name)
        if device is not None and device.values.get(_FIELD):
            values = {key: value for key, value in device.values.items() if key != _FIELD}
            edits.append(
                headapi.Edit(
                    mode="device", key=name, base=device.revision, object={**nodes.whole(device), "values": values}
                )
            )
    return edits
