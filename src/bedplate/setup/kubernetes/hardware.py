"""Nodes that are smaller than recommended: 16 GB of memory and 2 cores. Below that a deployment may succeed, and what
comes later fails without saying why.

In: the capacity that each kubelet reports, and what agents say of their machines. Out: a warning for each value that is
too small, with node and value; with `--strict` an error, before anything is changed where agents say it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bedplate.api import headapi
from bedplate.api.resources import NODES
from bedplate.core import errors
from bedplate.kube import Client
from bedplate.setup.engine.stage import Context

__all__ = ["MIN_CORES", "MIN_MEMORY_GIB", "known", "read", "tell", "warnings"]

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


def known(present: Mapping[str, headapi.System | None]) -> list[str]:
    """The warnings for nodes whose agents say how large they are. Pure."""
    texts = []
    for node, system in present.items():
        sizes = {"memory": system.memory, "cpu": system.cores} if system is not None else {}
        texts += warnings(node, {name: str(size) for name, size in sizes.items() if size})
    return texts


def tell(context: Context, texts: Sequence[str]) -> None:
    """Warn of small nodes. Raises `Invalid` with them where the answers are strict."""
    if texts and context.answers["kubernetes"]["strict"]:
        raise errors.Invalid("nodes are too small", problems=list(texts), hint="choose others, or leave out --strict")
    for text in texts:
        context.say(f"Warning: {text}")


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
