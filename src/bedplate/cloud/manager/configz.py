"""`/configz` and the log of flags: what the manager was told, without anything secret.

In: `Options`. Out: a mapping that JSON can hold. No flag takes a secret (tokens stand in files and in the environment,
which are not shown); addresses lose what may stand before an `@`. Pure.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bedplate.cloud.manager.options import GROUPS, Options
from bedplate.core import flags

__all__ = ["KEY", "configz", "shown_flags"]

KEY = "cloudcontrollermanager.config.k8s.io"


def configz(options: Options) -> dict[str, Any]:
    """The configuration by group, in the words of Kubernetes' configuration files (durations as text)."""
    groups: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(options, group.field)
        groups[_camel(group.field)] = {
            _camel(one.field): _value(one, getattr(chosen, one.field))
            for one in flags.flags_of(group.kind)
            if one.name not in ("help", "version")
        }
    return {KEY: groups}


def shown_flags(options: Options) -> list[tuple[str, str]]:
    """Every flag as it would be written, for the log."""
    return [(one.name, flags.render(one, _redacted(value))) for one, value in options.items()]


def _value(one: flags.Flag, value: Any) -> Any:
    if one.kind == "duration":
        return flags.render(one, value)
    return [_redacted(part) for part in value] if isinstance(value, tuple) else _redacted(value)


def _redacted(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return value
    parts = urlsplit(value)
    return urlunsplit(parts._replace(netloc="…@" + parts.netloc.rpartition("@")[2]))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
