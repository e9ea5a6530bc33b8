"""Ranges for Services and pods that overlap no known network. Pure.

In: the networks that are taken. Out: the first free range: 10.150.0.0/16 for Services, then on from there;
172.29.0.0/16 for pods, then the others of 172.16.0.0/12, then of 10.0.0.0/8.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from bedplate.core import errors

__all__ = ["Range", "dns_address", "free_pods", "free_services", "overlapping"]

Range = ipaddress.IPv4Network

_SERVICES = 150
_PODS = 29


def free_services(taken: Iterable[Range]) -> Range:
    """Raises `Invalid` when every candidate overlaps something."""
    return _first_free(_tens(_SERVICES), taken, "kubernetes.networks.service")


def free_pods(taken: Iterable[Range]) -> Range:
    """Raises `Invalid` when every candidate overlaps something."""
    return _first_free(_pods(), taken, "kubernetes.networks.pod")


def overlapping(range_: Range, known: Mapping[str, Range]) -> str:
    """The name of a known network that overlaps the range, or nothing."""
    return next((name for name, other in known.items() if other.overlaps(range_)), "")


def dns_address(services: Range) -> str:
    """The Service address of the cluster's DNS: the last usable one."""
    return str(services[-2])


def _first_free(candidates: Iterator[Range], taken: Iterable[Range], key: str) -> Range:
    ranges = list(taken)
    for candidate in candidates:
        if not any(candidate.overlaps(other) for other in ranges):
            return candidate
    raise errors.Invalid("no free range of addresses was found", hint=f"choose one with {key}")


def _tens(first: int) -> Iterator[Range]:
    for number in (*range(first, 256), *range(first)):
        yield Range(f"10.{number}.0.0/16")


def _pods() -> Iterator[Range]:
    for number in (*range(_PODS, 32), *range(16, _PODS)):
        yield Range(f"172.{number}.0.0/16")
    yield from _tens(_SERVICES)
