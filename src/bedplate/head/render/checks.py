"""Which health checks run on a node: those of its roles, and those that are for every node.

In: a tree and a resolved node. Out: the enabled checks by name.
"""

from __future__ import annotations

from bedplate.api.desired import Check
from bedplate.head.entities.site import CHECK_ROLES, HealthCheck
from bedplate.head.render.values import Held
from bedplate.head.resolve import Resolved, Source
from bedplate.head.tree import Tree

__all__ = ["checks_of"]


def checks_of(tree: Tree, resolved: Resolved) -> dict[str, Held[Check]]:
    """The checks of a node."""
    return {
        name: check
        for name, check in _enabled(tree).items()
        if CHECK_ROLES.get(name) is None or CHECK_ROLES[name] in resolved.roles
    }


def _enabled(tree: Tree) -> dict[str, Held[Check]]:
    if "checks" not in tree.derived:
        checks = {}
        for name, obj in sorted(tree.mode("healthcheck").items()):
            if HealthCheck.enabled.value(obj):
                interval = HealthCheck.interval.value(obj)
                assert isinstance(interval, float | int)
                checks[name] = Held(Check(name=name, interval_s=float(interval)), Source("healthcheck", name))
        tree.derived["checks"] = checks
    enabled: dict[str, Held[Check]] = tree.derived["checks"]
    return enabled
