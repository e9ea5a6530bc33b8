"""Role-based access control: may this user do that?

In: Role, ClusterRole, RoleBinding and ClusterRoleBinding objects, and an `Attributes` of a request. Out: a verdict with
the sentence Kubernetes gives for it. A `Policy` is
pure; `RoleAuthorizer` builds one from the registry and keeps it until a role or binding changes. Also here: the rules a
user has (SelfSubjectRulesReview), the escalation check on writing roles and bindings, the aggregation of ClusterRoles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from bedplate.apiserver import selectors
from bedplate.apiserver.access.subjects import MASTERS, Attributes, Decision, User

if TYPE_CHECKING:
    # Only for annotations: `bedplate can` evaluates a `Policy` and does not pay for the whole server.
    from bedplate.apiserver import hooks

__all__ = ["Policy", "RoleAuthorizer", "Rule", "aggregate", "covers", "rules_of"]

GROUP = "rbac.authorization.k8s.io"
RBAC_RESOURCES = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


class Rule(NamedTuple):
    """A PolicyRule with its lists as sets, for quick matching."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: frozenset[str]

    def allows(self, wish: Attributes) -> bool:
        if not ("*" in self.verbs or wish.verb in self.verbs):
            return False
        if wish.path:
            return any(_path_matches(pattern, wish.path) for pattern in self.paths)
        if not ("*" in self.groups or wish.group in self.groups):
            return False
        return self._has_resource(wish.resource, wish.subresource) and (not self.names or wish.name in self.names)

    def _has_resource(self, resource: str, subresource: str) -> bool:
        if "*" in self.resources:
            return True
        if not subresource:
            return resource in self.resources
        return f"{resource}/{subresource}" in self.resources or f"*/{subresource}" in self.resources


def _path_matches(pattern: str, path: str) -> bool:
    return pattern == "*" or pattern == path or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def rules_of(role: Mapping[str, Any]) -> list[Rule]:
    """The rules of a Role or ClusterRole object."""
    return [
        Rule(
            frozenset(rule.get("verbs") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("resources") or ()),
            frozenset(rule.get("resourceNames") or ()),
            frozenset(rule.get("nonResourceURLs") or ()),
        )
        for rule in role.get("rules") or ()
    ]


@dataclass(slots=True)
class _Grant:
    rules: list[Rule]
    reason: str
    raw: list[dict[str, Any]]


@dataclass(slots=True)
class Policy:
    """All grants, indexed by subject: `cluster` ones hold everywhere, `local` ones in their namespace."""

    roles: Mapping[tuple[str, str], Mapping[str, Any]]
    """(namespace, name) -> Role; ("", name) -> ClusterRole."""
    cluster: dict[str, list[_Grant]] = field(default_factory=dict)
    local: dict[tuple[str, str], list[_Grant]] = field(default_factory=dict)

    @classmethod
    def build(cls, roles: Iterable[Mapping[str, Any]], bindings: Iterable[Mapping[str, Any]]) -> Policy:
        """Index Roles, ClusterRoles, RoleBindings and ClusterRoleBindings."""
        policy = cls({(role["metadata"].get("namespace", ""), role["metadata"]["name"]): role for role in roles})
        for binding in bindings:
            policy._add(binding)
        return policy

    def _add(self, binding: Mapping[str, Any]) -> None:
        namespace, name = binding["metadata"].get("namespace", ""), binding["metadata"]["name"]
        ref = binding["roleRef"]
        role = self.role(ref, namespace)
        if role is None:
            return
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        where = f"{name}/{namespace}" if namespace else name
        for subject in binding.get("subjects") or ():
            key = _subject_key(subject, namespace)
            reason = f'RBAC: allowed by {kind} "{where}" of {ref["kind"]} "{ref["name"]}" to {_subject_text(subject)}'
            grant = _Grant(rules_of(role), reason, list(role.get("rules") or ()))
            if namespace:
                self.local.setdefault((namespace, key), []).append(grant)
            else:
                self.cluster.setdefault(key, []).append(grant)

    def role(self, ref: Mapping[str, Any], namespace: str) -> Mapping[str, Any] | None:
        """The role a binding in `namespace` refers to."""
        return self.roles.get(("" if ref["kind"] == "ClusterRole" else namespace, ref["name"]))

    def _grants(self, user: User, namespace: str) -> Iterable[_Grant]:
        keys = ["u:" + user.name, *("g:" + group for group in user.groups)]
        for key in keys:
            yield from self.cluster.get(key, ())
        if namespace:
            for key in keys:
                yield from self.local.get((namespace, key), ())

    def decide(self, user: User, wish: Attributes) -> Decision:
        """May `user` do it?"""
        if MASTERS in user.groups:
            return Decision(True)
        for grant in self._grants(user, wish.namespace):
            if any(rule.allows(wish) for rule in grant.rules):
                return Decision(True, grant.reason)
        return Decision(False)

    def rules_for(self, user: User, namespace: str) -> list[dict[str, Any]]:
        """Every rule that holds for the user in that namespace, as objects."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [rule for grant in self._grants(user, namespace) for rule in grant.raw]

    def escalation(self, user: User, rules: Iterable[Mapping[str, Any]], namespace: str) -> list[Mapping[str, Any]]:
        """Those of the rules that the user does not hold and so may not hand out."""
        if MASTERS in user.groups:
            return []
        granted = rules_of({"rules": self.rules_for(user, namespace)})
        return [rule for rule in rules if not covers(granted, rule)]


def covers(granted: list[Rule], rule: Mapping[str, Any]) -> bool:
    """Does every single permission in `rule` follow from one of the granted rules?"""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            if not any(
                _holds(grant.verbs, verb) and any(_path_matches(p, path) for p in grant.paths) for grant in granted
            ):
                return False
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    if not any(_covers_one(grant, verb, group, resource, name) for grant in granted):
                        return False
    return True


def _holds(values: frozenset[str], value: str) -> bool:
    return "*" in values or value in values


def _covers_one(rule: Rule, verb: str, group: str, resource: str, name: str) -> bool:
    main, _, sub = resource.partition("/")
    has_resource = _holds(rule.resources, resource) or (bool(sub) and f"*/{sub}" in rule.resources)
    named = not rule.names or (bool(name) and name in rule.names)
    return bool(main) and _holds(rule.verbs, verb) and _holds(rule.groups, group) and has_resource and named


def _subject_key(subject: Mapping[str, Any], namespace: str) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"u:system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
    return ("g:" if subject["kind"] == "Group" else "u:") + str(subject["name"])


def _subject_text(subject: Mapping[str, Any]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace", "")}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def aggregate(role: Mapping[str, Any], roles: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The rules an aggregated ClusterRole should have: those its selectors find. None if it is not one."""
    rule = role.get("aggregationRule")
    if not rule:
        return None
    aggregated: list[dict[str, Any]] = []
    for label_selector in rule.get("clusterRoleSelectors") or ():
        selector = selectors.of_label_selector(label_selector)
        for other in sorted(roles, key=lambda role: str(role["metadata"]["name"])):
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if selector(other["metadata"].get("labels") or {}):
                aggregated += [grant for grant in other.get("rules") or () if grant not in aggregated]
    return aggregated


class RoleAuthorizer:
    """RBAC over the registry. `touch` is called on every change of a role or binding."""

    def __init__(self, list_objects: Callable[[str, str], list[hooks.Object]]) -> None:
        self._list = list_objects
        self._policy: Policy | None = None
        self._generation = 0

    @property
    def generation(self) -> int:
        return self._generation

    def touch(self) -> None:
        """A role or binding changed: cached decisions are dropped."""
        self._policy = None
        self._generation += 1

    @property
    def policy(self) -> Policy:
        if self._policy is None:
            objects = {name: self._list(GROUP, name) for name in RBAC_RESOURCES}
            roles = [*objects["roles"], *objects["clusterroles"]]
            self._policy = Policy.build(roles, [*objects["rolebindings"], *objects["clusterrolebindings"]])
        return self._policy

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)
        return self.policy.decide(user, attributes)
