"""`/configz`: what the manager was told, without anything secret.

In: `Options`. Out: a mapping that JSON can hold. No flag takes a secret (tokens stand in files and in the environment,
which are not shown); addresses lose what may stand before an `@`. Pure.
"""

from __future__ import annotations

from typing import Any

from bedplate.cloud.manager.options import GROUPS, Options
from bedplate.core import flags
from bedplate.program.options import redacted

__all__ = ["KEY", "configz"]

KEY = "cloudcontrollermanager.config.k8s.io"


def configz(options: Options) -> dict[str, Any]:
    """The configuration by group, in the words of Kubernetes' configuration files (durations as text)."""
    groups: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(options, group.field)
        groups[_camel(group.field)] = {
            _camel(flag.field): _value(flag, getattr(chosen, flag.field))
            for flag in flags.flags_of(group.kind)
            if flag.name not in ("help", "version")
        }
    return {KEY: groups}


def _value(flag: flags.Flag, value: Any) -> Any:
    if flag.kind == "duration":
        return flags.render(flag, value)
    return [redacted(part) for part in value] if isinstance(value, tuple) else redacted(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
