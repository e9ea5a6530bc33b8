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


def checks_of(tree: Tree, held: Resolved) -> dict[str, Held[Check]]:
    """The checks of a node."""
    return {
        name: found
        for name, found in _enabled(tree).items()
        if CHECK_ROLES.get(name) is None or CHECK_ROLES[name] in held.roles
    }


def _enabled(tree: Tree) -> dict[str, Held[Check]]:
    if "checks" not in tree.derived:
        found = {}
        for name, obj in sorted(tree.mode("healthcheck").items()):
            if HealthCheck.enabled.value(obj):
                interval = HealthCheck.interval.value(obj)
                assert isinstance(interval, float | int)
                found[name] = Held(Check(name=name, interval_s=float(interval)), Source("healthcheck", name))
        tree.derived["checks"] = found
    enabled: dict[str, Held[Check]] = tree.derived["checks"]
    return enabled
