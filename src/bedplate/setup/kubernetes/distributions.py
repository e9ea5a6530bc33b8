"""The check of the distribution: the system of every node must be one that the tool knows.

In: what agents say of their machines, and `ds.json`, the supported systems with their versions. Out: `judged`, pure; a
stage that only looks. A node whose system is unknown or unsupported stops the setup before anything is changed; one
that says nothing of itself, as a simulated one, is warned about. `--no-distro-checks` leaves the stage out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["Judged", "System", "check", "judged", "supported"]


class System(NamedTuple):
    """A supported distribution; a version stands for what follows it as well: 9 for 9.4."""

    name: str
    versions: tuple[str, ...]

    def has(self, version: str) -> bool:
        return any(version == each or version.startswith(f"{each}.") for each in self.versions)


class Judged(NamedTuple):
    """Problems with their nodes, and the nodes of which nothing is known."""

    problems: tuple[str, ...]
    silent: tuple[str, ...]


@functools.cache
def supported() -> Mapping[str, System]:
    """The systems of `ds.json`, by their ID."""
    data = json.loads(resources.files(__package__).joinpath("ds.json").read_text())
    return {each["id"]: System(each["name"], tuple(each["versions"])) for each in data["systems"]}


def judged(present: Mapping[str, headapi.System | None]) -> Judged:
    """What is wrong with the systems of nodes. Pure."""
    problems, silent = [], []
    for node, system in present.items():
        if system is None or not system.id:
            silent.append(node)
            continue
        known = supported().get(system.id)
        if known is None:
            problems.append(f"{node}: the system {system.id} {system.version}".rstrip() + " is not supported")
        elif not known.has(system.version):
            versions = ", ".join(known.versions)
            problems.append(f"{node}: {known.name} {system.version or 'without a version'} is not one of {versions}")
    return Judged(tuple(problems), tuple(silent))


async def check(context: Context, settings: Settings) -> None:
    """Raises `Invalid` with every node whose system is not supported."""
    present = await nodes.systems(context, settings.members.nodes)
    problems, silent = judged(present)
    if problems:
        raise errors.Invalid(
            "the distribution of some nodes is not supported",
            problems=list(problems),
            hint="choose other nodes, or give --no-distro-checks",
        )
    kinds = sorted({f"{system.id} {system.version}" for system in present.values() if system is not None and system.id})
    if kinds:
        context.say(f"Distributions: {', '.join(kinds)}")
    if silent:
        context.say(f"Warning: the distribution of {', '.join(silent)} is not known")
