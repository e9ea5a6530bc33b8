"""What NetQ needs of a site, looked at before anything is changed.

In: the nodes that NetQ is for, what their agents say of them, the port of the head, the answers. Out: a message for
each thing that does not fit, with the remedy (pure); a stage that stops the setup with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.daemon import PORT
from bedplate.head.schema import ranges
from bedplate.setup.answers.features import NETQ
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["DISK_GIB", "MEMORY_GIB", "Machine", "check", "chosen", "machine", "problems"]

DISK_GIB, MEMORY_GIB = 250, 64
COUNTS = (1, 3)
_OS = "ubuntu 20.04"
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Machine:
    """A node as its agent describes it; None is what it did not say."""

    name: str
    os: str | None = None
    memory: int | None = None
    disk: int | None = None


def chosen(answers: Mapping[str, Any], settings: Settings) -> tuple[str, ...]:
    """The nodes for NetQ: those that are named, else all regular nodes of the cluster; none without NetQ. Pure."""
    kubernetes = answers["kubernetes"]
    if NETQ not in kubernetes["operators"]:
        return ()
    named = {name for part in kubernetes["netq"]["nodes"] for name in ranges.expand(part)}
    regular = [name for name in settings.kubernetes_nodes if name not in settings.heads]
    return tuple(sorted(named, key=ranges.natural)) if named else tuple(regular)


def machine(name: str, system: headapi.System | None) -> Machine:
    """A node by what its agent says of it. Pure."""
    if system is None:
        return Machine(name)
    return Machine(name, f"{system.id} {system.version}".strip() or None, system.memory or None, system.disk or None)


def problems(machines: Sequence[Machine], heads: Sequence[str], port: int, *, has_kyverno: bool) -> list[str]:
    """Everything that NetQ does not bear. Pure."""
    texts = []
    if len(machines) not in COUNTS:
        texts.append(f"NetQ runs on 1 or 3 nodes, not on {len(machines)}: name them with kubernetes.netq.nodes")
    for each in machines:
        if each.name in heads:
            texts.append(f"{each.name} is a head node; NetQ needs regular nodes")
        if each.os != _OS:
            texts.append(f"{each.name} has {each.os or 'an unknown distribution'}; NetQ needs Ubuntu 20.04")
        if each.memory is None or each.memory < MEMORY_GIB * _GIB:
            texts.append(f"{each.name} has {_size(each.memory)} of memory; NetQ needs {MEMORY_GIB} GiB")
        if each.disk is None or each.disk < DISK_GIB * _GIB:
            texts.append(f"{each.name} has {_size(each.disk)} of disk; NetQ needs {DISK_GIB} GiB")
    if port == PORT:
        texts.append(
            f"the head serves port {PORT}, which NetQ uses: serve another one (bedplate head serve --port 8084)"
        )
    if has_kyverno:
        texts.append("NetQ does not run beside Kyverno: set kubernetes.kyverno.install to false")
    return texts


def _size(size: int | None) -> str:
    return "an unknown size" if size is None else f"{size / _GIB:.1f} GiB"


async def check(context: Context, settings: Settings) -> None:
    """Judge what the agents of the nodes say of them. Raises `Invalid` with everything that does not fit."""
    names = chosen(context.answers, settings)
    head = nodes.head_of(context)
    present = await nodes.systems(context, names)
    machines = [machine(name, present[name]) for name in names]
    has_kyverno = bool(context.answers["kubernetes"]["kyverno"]["install"])
    wrong = problems(machines, settings.heads, urlsplit(head.url).port or 443, has_kyverno=has_kyverno)
    if wrong:
        raise errors.Invalid(
            "the prerequisites of NetQ are not met",
            problems=wrong,
            hint="nothing was changed; --skip-netq-prerequisites-checks leaves this check out",
        )
    context.say(f"NetQ: {', '.join(names)}")
