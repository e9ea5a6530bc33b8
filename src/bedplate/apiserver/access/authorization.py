"""Which request is allowed, as of now: RBAC over the roles and bindings in the registry.

In: a user and the attributes of a request. Out: decisions. The policy built from roles and bindings is kept until one
of them changes; the rules themselves are in `rbac`.
"""

from __future__ import annotations

from collections.abc import Callable

from bedplate.apiserver import hooks
from bedplate.apiserver.access import rbac, subjects

__all__ = ["RoleAuthorizer"]

RBAC_RESOURCES = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


class RoleAuthorizer:
    """RBAC over the registry. `touch` is called on every change of a role or binding."""

    def __init__(self, list_objects: Callable[[str, str], list[hooks.Object]]) -> None:
        self._list = list_objects
        self._policy: rbac.Policy | None = None
        self._generation = 0

    @property
    def generation(self) -> int:
        return self._generation

    def touch(self) -> None:
        """A role or binding changed: cached decisions are dropped."""
        self._policy = None
        self._generation += 1

    @property
    def policy(self) -> rbac.Policy:
        if self._policy is None:
            objects = {name: self._list(rbac.GROUP, name) for name in RBAC_RESOURCES}
            roles = [*objects["roles"], *objects["clusterroles"]]
            self._policy = rbac.Policy.build(roles, [*objects["rolebindings"], *objects["clusterrolebindings"]])
        return self._policy

    def authorize(self, user: subjects.User, attributes: subjects.Attributes) -> subjects.Decision:
        if subjects.MASTERS in user.groups:
            return subjects.Decision(True)
        return self.policy.decide(user, attributes)
