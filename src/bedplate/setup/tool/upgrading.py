"""`--upgrade`: from the flags and a look at the cluster to the stages of an upgrade.

In: the flags, the tree of the head, the cluster itself. Out: what the journal keeps, of which the stages are made,
and what `--plan` prints: each node with its versions and what is done to it, and what stands in the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head import Tree
from bedplate.head.clusters.draining import Consent
from bedplate.setup.engine.stage import Stage
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes import repositories
from bedplate.setup.kubernetes.upgrade import planning, seeing
from bedplate.setup.kubernetes.upgrade import stages as upgrade

__all__ = ["CONSENTS", "Seen", "look", "merged", "refuse_flags", "stages", "target"]

CONSENTS = {"delete_emptydir_data": "emptydir", "delete_unmanaged_pods": "unmanaged", "disable_eviction": "budgets"}
"""Flags that accept a loss, with the consent that each gives."""
_DRAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """An upgrade that could be: what its journal keeps, and its plan for people."""

    answers: dict[str, Any]
    lines: tuple[str, ...]
    has_work: bool
    is_blocked: bool


def target(values: Mapping[str, Any]) -> planning.Version:
    """The version that is asked for. Raises `Invalid`."""
    return planning.target(values["upgrade"])


def stages(answers: Mapping[str, Any]) -> list[Stage]:
    """The stages of an upgrade."""
    return upgrade.stages(answers)


async def look(
    tree: Tree, cluster: str, version: planning.Version, folder: Path, values: Mapping[str, Any], clock: Clock
) -> Seen:
    """See what an upgrade would do. Raises `Invalid` for one that cannot be, `Unavailable` where nothing answers."""
    if not clusters.kubeconfig(folder, cluster).is_file():
        raise errors.NotFound(
            f"there is no {clusters.kubeconfig(folder, cluster)}, with which the cluster {cluster} is asked",
            hint="run this on the head node that deployed it, or name its data folder with --data",
        )
    consent = _consent(Consent(), values)
    async with clusters.connected(folder, cluster) as client:
        members = await seeing.members(client, tree, cluster)
        going = planning.plan(cluster, version, members, values["batch"] or 1)
        results = (
            await seeing.look(client, tree, cluster, version, going.nodes, consent, clock.now())
            if values["plan"] and going.steps
            else []
        )
    lines = [*planning.described(going)]
    lines += [f"{'In the way' if finding.blocks else 'Warning'}: {finding}" for finding in results]
    answers = upgrade.answers(
        going,
        consent,
        values["drain_timeout"] or _DRAIN_S,
        has_repositories=bool(repositories.overlays_of(tree, cluster)),
        skips_images=bool(values["skip_image_update"]),
    )
    return Seen(answers, tuple(lines), bool(going.steps), any(finding.blocks for finding in results))


def merged(answers: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a journal has, with what the flags of `--resume` add: a drain that was refused continues with its flag."""
    consent = _consent(upgrade.consent_of(answers), values)
    timeout_s = values["drain_timeout"] or answers["drain_timeout"]
    same = upgrade.answers(planning.plan_of(answers["plan"]), consent, timeout_s)
    return {**answers, **{key: same[key] for key in ("consent", "drain_timeout")}}


def refuse_flags(values: Mapping[str, Any], operation: str) -> None:
    """Flags of an upgrade mean nothing to another run. Raises `Invalid`."""
    given = [f"--{name.replace('_', '-')}" for name in (*CONSENTS, "drain_timeout") if values[name]]
    if given:
        raise errors.Invalid(f"{given[0]} is for an upgrade; what is resumed is a {operation}", hint="leave it out")


def _consent(before: Consent, values: Mapping[str, Any]) -> Consent:
    return replace(before, **{field: True for flag, field in CONSENTS.items() if values[flag]})
