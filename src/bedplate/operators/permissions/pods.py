"""A look at a pod in raw form: its containers and volumes, each with the path of its field.

In: a Pod as JSON, from a request or a file. Out: what the checks ask for. Pure. What has the wrong type counts as
absent: the API server refuses such a pod by itself, and a file that a person wrote must not end in a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CONTAINERS",
    "COUNTED",
    "EPHEMERAL",
    "INIT",
    "Container",
    "containers",
    "largest_list",
    "listed",
    "mapped",
    "security",
    "spec_of",
    "volumes",
]

CONTAINERS, INIT, EPHEMERAL = "containers", "initContainers", "ephemeralContainers"
LISTS = (CONTAINERS, INIT, EPHEMERAL)
VOLUMES = "volumes"
COUNTED = (*LISTS, VOLUMES)
"""The lists whose length is limited."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container with its place in the pod."""

    list: str
    index: int
    value: Mapping[str, Any]

    @property
    def field(self) -> str:
        return f"spec.{self.list}[{self.index}]"

    @property
    def name(self) -> str:
        return str(self.value.get("name", ""))

    @property
    def security(self) -> Mapping[str, Any]:
        return mapped(self.value.get("securityContext"))


def mapped(value: Any) -> Mapping[str, Any]:
    """The mapping, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> Sequence[Any]:
    """The list, or an empty one."""
    return value if isinstance(value, list | tuple) else ()


def spec_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapped(pod.get("spec"))


def security(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The security context of the whole pod."""
    return mapped(spec_of(pod).get("securityContext"))


def containers(pod: Mapping[str, Any]) -> Iterator[Container]:
    """All containers: ordinary, init and ephemeral ones."""
    spec = spec_of(pod)
    for name in LISTS:
        for index, value in enumerate(listed(spec.get(name))):
            yield Container(name, index, mapped(value))


def volumes(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All volumes with their fields."""
    for index, value in enumerate(listed(spec_of(pod).get(VOLUMES))):
        yield f"spec.volumes[{index}]", mapped(value)


def largest_list(pod: Mapping[str, Any]) -> tuple[str, int]:
    """Which of the lists of containers and volumes is the longest, and its length."""
    spec = spec_of(pod)
    return max(((name, len(listed(spec.get(name)))) for name in COUNTED), key=lambda each: each[1])
