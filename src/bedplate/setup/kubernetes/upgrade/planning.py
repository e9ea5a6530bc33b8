"""Which nodes of a cluster are upgraded, from which version to which, in which order. Pure.

In: the version that is asked for, and what runs on each node. Out: a `Plan`, or a refusal: a minor version is never
skipped, nothing goes back, and no kubelet is left newer than the API servers. The first control plane node comes first
(`kubeadm upgrade apply`), then each of the others alone, then workers in batches (`kubeadm upgrade node`). Nodes that
have the version already are left out, so that an upgrade that was given up can be asked for again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from bedplate.core import errors
from bedplate.head.schema.ranges import natural
from bedplate.lab import versions
from bedplate.setup.answers.declaration import minors

__all__ = ["Member", "Plan", "Step", "Version", "described", "plan", "plan_of", "saved", "target"]

_FORM = re.compile(r"v?1\.(\d{1,3})\.(\d{1,3})(?:[-+].*)?", re.ASCII)
_MINOR = re.compile(r"v?(\d+\.\d+)(?:\.\d+)?", re.ASCII)


class Version(NamedTuple):
    """1.`minor`.`patch`."""

    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Raises `Invalid`; what follows the three numbers does not matter."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise errors.Invalid(f"{text!r} is not a Kubernetes version", hint="write it as 1.35 or 1.35.4")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"1.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster, the version of its kubelet and, on a control plane node, that of its API server."""

    name: str
    is_plane: bool
    kubelet: Version
    server: Version | None = None

    @property
    def version(self) -> Version:
        """The older one: a node that was left halfway is not done."""
        return min(self.kubelet, self.server) if self.server is not None else self.kubelet


@dataclass(frozen=True, slots=True)
class Step:
    """One node. Those of one `batch` are upgraded at the same time; control plane nodes have 0, and are alone."""

    node: str
    kind: Literal["apply", "plane", "worker"]
    current: str
    batch: int = 0

    @property
    def action(self) -> Literal["upgrade-apply", "upgrade-node"]:
        return "upgrade-apply" if self.kind == "apply" else "upgrade-node"


@dataclass(frozen=True, slots=True)
class Plan:
    """An upgrade of a cluster to a version; without steps there is nothing to do."""

    cluster: str
    version: str
    steps: tuple[Step, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(step.node for step in self.steps)


def target(text: str) -> Version:
    """The version that is asked for: an exact one, or the newest that is known of a minor. Raises `Invalid`."""
    supported = minors()
    minor = _MINOR.fullmatch(text.strip())
    if minor is not None and minor[1] not in supported:
        raise errors.Invalid(
            f"Kubernetes {text.strip().removeprefix('v')} is not supported",
            hint=f"supported: {', '.join(supported)} (--list-versions)",
        )
    return Version.parse(versions.resolve(text))


def plan(cluster: str, version: Version, members: Iterable[Member], batch: int = 1) -> Plan:
    """What is done to which node, in order. Raises `Invalid` with every node that is in the way."""
    ordered = sorted(members, key=lambda member: natural(member.name))
    planes = [member for member in ordered if member.is_plane]
    if not planes:
        raise errors.Invalid(f"the cluster {cluster} has no control plane node", hint="see cmsh: configurationoverlay")
    problems = [text for member in ordered if (text := _refusal(member, version))]
    if problems:
        raise errors.Invalid(f"the cluster {cluster} cannot be upgraded to {version}", problems=problems)
    steps = [
        Step(member.name, "apply" if member is planes[0] else "plane", str(member.version))
        for member in planes
        if member.version != version
    ]
    workers = [member for member in ordered if not member.is_plane and member.version != version]
    steps += [
        Step(member.name, "worker", str(member.version), 1 + place // batch) for place, member in enumerate(workers)
    ]
    return Plan(cluster, str(version), tuple(steps))


def _refusal(member: Member, version: Version) -> str:
    """Why a node keeps its cluster from that version."""
    newest = max(member.kubelet, member.server or member.kubelet)
    if newest > version:
        return f"{member.name} runs {newest}: there is no way back to {version}"
    if version.minor > member.version.minor + 1:
        after = f"1.{member.version.minor + 1}"
        return f"{member.name} runs {member.version}: a minor version is never skipped, upgrade to {after} first"
    return ""


def described(going: Plan) -> list[str]:
    """The plan for people: each node with its versions, and what is done to it."""
    if not going.steps:
        return [f"Every node of the cluster {going.cluster} runs {going.version}: there is nothing to do"]
    lines = [f"Upgrade of the cluster {going.cluster} to {going.version}"]
    width = max(len(step.node) for step in going.steps)
    number = len(str(len(going.steps)))
    for place, step in enumerate(going.steps, 1):
        what = "control plane" if step.kind != "worker" else f"worker, batch {step.batch}"
        command = "kubeadm upgrade apply" if step.kind == "apply" else "kubeadm upgrade node"
        lines.append(
            f"{place:>{number}}. {step.node:<{width}}  {step.current} -> {going.version}  {what}: "
            f"drain, {command}, kubelet, uncordon"
        )
    return lines


def saved(going: Plan) -> dict[str, Any]:
    """The plan as the journal keeps it: a run that is resumed has the same stages."""
    return asdict(going)


def plan_of(values: Mapping[str, Any]) -> Plan:
    """The plan of a journal."""
    steps: Sequence[Mapping[str, Any]] = values["steps"]
    return Plan(values["cluster"], values["version"], tuple(Step(**step) for step in steps))
