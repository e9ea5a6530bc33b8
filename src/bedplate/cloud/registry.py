"""Providers by name.

In: the name given to `--cloud-provider`, and what a factory needs. Out: a `Provider`. Factories are found by module
name and imported when asked for, so that one provider's program does not load another's code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from bedplate.api import core
from bedplate.cloud.interface import Provider
from bedplate.core import clock, errors
from bedplate.runtime.cache import Cache
from bedplate.runtime.leaderelection import Recorder

__all__ = ["Setting", "create", "names", "register"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a provider's factory may use. `config` is its file (None: none was given); caches fill once the manager
    runs."""

    config: Path | None
    environ: Mapping[str, str] = field(repr=False)
    qps: float = 0.0
    """A ceiling of calls a second; 0: none, as fast as the cloud answers."""
    burst: int = 200
    timeout_s: float = 30.0
    cache_ttl_s: float = 30.0
    terminated_grace_s: float = 3600.0
    """How long a machine that is listed as terminated still counts as there; 0: permanently."""
    is_dry_run: bool = False
    cluster_name: str = "kubernetes"
    nodes: Cache[core.Node] = field(default_factory=Cache)
    services: Cache[core.Service] = field(default_factory=Cache)
    recorder: Recorder | None = None
    guard: Callable[[], None] = lambda: None
    """Raises when this process may not write to the cloud now; called before every mutating call."""
    cluster_id: Callable[[], str] = lambda: ""
    """The UID of the namespace kube-system: marks what belongs to this cluster."""
    cluster_aliases: Callable[[], frozenset[str]] = frozenset
    """What else may mark it, from times when that UID could not be read."""
    time: clock.Clock = field(default_factory=clock.SystemClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    version: str = ""


Factory = Callable[[Setting], Provider]

_BUILT_IN = {
    "nvidia-bmm": "bedplate.cloud.providers.nvidia_bmm.provider",
    "oxide": "bedplate.cloud.providers.oxide.provider",
    "cloudlycke": "bedplate.cloud.providers.cloudlycke.provider",
}
_added: dict[str, Factory] = {}


def names() -> list[str]:
    """All providers one may name."""
    return sorted({*_BUILT_IN, *_added})


def register(name: str, factory: Factory) -> None:
    """Add a provider; a name is given once."""
    if name in _BUILT_IN or name in _added:
        raise errors.AlreadyExists(f"cloud provider {name!r} is already registered")
    _added[name] = factory


def create(name: str, setting: Setting) -> Provider:
    """The provider of that name; every problem of its configuration is reported at once."""
    if name in _added:
        return _added[name](setting)
    if name not in _BUILT_IN:
        known = ", ".join(names())
        raise errors.Invalid(
            f"unknown cloud provider {name!r}", hint=f"--cloud-provider takes one or several of: {known}"
        )
    factory: Factory = importlib.import_module(_BUILT_IN[name]).create
    return factory(setting)
