"""Which labels a Node gets from its cloud, and the label that keeps a Node out of our hands.

In: a Node's labels and what the cloud says. Out: the labels to set (never to remove) and warnings about those that
were left out. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.api import names
from bedplate.cloud.interface import InstanceMetadata

__all__ = ["LABEL_EXCLUDE_FROM_LIFECYCLE", "Wanted", "at_refresh", "from_beta", "from_cloud", "is_excluded"]

LABEL_EXCLUDE_FROM_LIFECYCLE = "node.kubernetes.io/exclude-from-lifecycle-management"

_PAIRS = (
    (names.LABEL_ZONE_BETA, names.LABEL_ZONE),
    (names.LABEL_REGION_BETA, names.LABEL_REGION),
    (names.LABEL_INSTANCE_TYPE_BETA, names.LABEL_INSTANCE_TYPE),
)
_RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Labels to set, and why some that the cloud gave are not among them."""

    labels: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def is_excluded(labels: Mapping[str, str]) -> bool:
    """Whether a Node asks not to be deleted or tainted: the label is there, with any value but `false`."""
    return labels.get(LABEL_EXCLUDE_FROM_LIFECYCLE, "false") != "false"


def from_beta(labels: Mapping[str, str]) -> dict[str, str]:
    """For each old label whose new twin is missing or differs: the new one, with the old one's value."""
    return {new: labels[old] for old, new in _PAIRS if old in labels and labels.get(new) != labels[old]}


def at_refresh(labels: Mapping[str, str], metadata: InstanceMetadata) -> Wanted:
    """As the cloud says now, additional labels too; where it says nothing, the old labels speak for the new ones."""
    desired = from_cloud(labels, metadata, overwrites_additional=True)
    return Wanted({**from_beta({**labels, **desired.labels}), **desired.labels}, desired.warnings)


def from_cloud(labels: Mapping[str, str], metadata: InstanceMetadata, *, overwrites_additional: bool = False) -> Wanted:
    """Type, zone and region as the cloud says; additional labels, by default, only where the Node has no such key."""
    desired: dict[str, str] = {}
    warnings: list[str] = []
    for (old, new), value in zip(_PAIRS, (metadata.zone, metadata.region, metadata.instance_type), strict=True):
        if not value:
            continue
        if problems := names.label_value_problems(value):
            warnings.append(f"label {new} is left out: {problems[0]}")
            continue
        desired |= {new: value, old: value}
    for key, value in metadata.labels.items():
        if problem := _additional_problem(key, value):
            warnings.append(f"label {key} is left out: {problem}")
        elif key not in labels or overwrites_additional:
            desired[key] = value
        elif labels[key] != value:
            warnings.append(f"label {key} stays {labels[key]!r}; the cloud says {value!r}")
    return Wanted({key: value for key, value in desired.items() if labels.get(key) != value}, tuple(warnings))


def _additional_problem(key: str, value: str) -> str:
    if _RESERVED.search(key):
        return "a cloud must not set keys of kubernetes.io and k8s.io"
    # One bad label would have the server refuse the whole write, and the node would never be initialised.
    return next(iter((*names.label_key_problems(key), *names.label_value_problems(value))), "")
