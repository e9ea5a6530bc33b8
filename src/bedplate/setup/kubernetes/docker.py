"""Docker on the nodes of a cluster, where the answers ask for it: one overlay with the role Docker::Host.

In: settings. Out: the overlay `kube-<cluster>-docker`, pure; a stage that writes it and one that takes it back. Its
packages and services come with the roles of the cluster, which are waited for later.
"""

from __future__ import annotations

from typing import Any

from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["assign", "name_of", "overlay", "unassign"]

_PRIORITY = 500
_TYPES = {"overlay2": "overlay2", "devicemapper": "devicemapper"}


def name_of(cluster: str) -> str:
    return f"kube-{cluster}-docker"


def overlay(settings: Settings) -> dict[str, Any]:
    """For control plane nodes and workers, also for those that come by their category later."""
    masters, workers = settings.chosen["masters"], settings.chosen["workers"]
    backend = {"type": _TYPES[settings.docker]}
    return {
        "type": "ConfigurationOverlay",
        "values": {
            "priority": _PRIORITY,
            "nodes": list(dict.fromkeys([*masters.nodes, *workers.nodes])),
            "categories": list(dict.fromkeys([*masters.categories, *workers.categories])),
        },
        "children": {
            "roles": {
                "Docker::Host": {
                    "type": "DockerHostRole",
                    "children": {"storage_backends": {settings.docker: backend}},
                }
            }
        },
    }


async def assign(context: Context, settings: Settings) -> None:
    places = {("configurationoverlay", name_of(settings.name)): overlay(settings)}
    await nodes.create(context, places, f"Docker for the Kubernetes cluster {settings.name}", is_awaited=False)
    context.say(f"Docker with the storage backend {settings.docker}")


async def unassign(context: Context, settings: Settings) -> None:
    places = [("configurationoverlay", name_of(settings.name))]
    await nodes.withdraw(context, places, f"no Docker for the Kubernetes cluster {settings.name}")
