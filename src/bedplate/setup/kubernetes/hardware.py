"""Nodes that are smaller than recommended: 16 GB of memory and 2 cores. Below that a deployment may succeed, and what
comes later fails without saying why.

In: the capacity that each kubelet reports. Out: a warning for each value that is too small, with node and value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bedplate.api.resources import NODES
from bedplate.kube import Client

__all__ = ["MIN_CORES", "MIN_MEMORY_GIB", "read", "warnings"]

MIN_MEMORY_GIB = 16
MIN_CORES = 2
_GIB = 2**30
_NEAR = 0.9
"""A machine that is sold with 16 GB has less than 16 GiB to use."""
_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_QUANTITY = re.compile(r"([0-9]+)([A-Za-z]*)")


async def read(client: Client, nodes: tuple[str, ...]) -> list[str]:
    """The warnings for these nodes of a cluster."""
    listed = {node.metadata.name: node.status.capacity for node in (await client.list(NODES)).items}
    return [text for name in nodes if name in listed for text in warnings(name, listed[name])]


def warnings(node: str, capacity: Mapping[str, str]) -> list[str]:
    """What is too small of a node with this capacity. Pure."""
    memory, cores = _number(capacity.get("memory", "")), _number(capacity.get("cpu", ""))
    texts = []
    if memory is not None and memory < _NEAR * MIN_MEMORY_GIB * _GIB:
        texts.append(f"{node} has {memory / _GIB:.1f} GiB of memory; {MIN_MEMORY_GIB} GB are recommended")
    if cores is not None and cores < MIN_CORES:
        texts.append(f"{node} has {cores} core{'s' * (cores != 1)}; {MIN_CORES} are recommended")
    return texts


def _number(quantity: str) -> int | None:
    match = _QUANTITY.fullmatch(quantity)
    if match is None or match[2] not in _UNITS:
        return None
    return int(match[1]) * _UNITS[match[2]]
