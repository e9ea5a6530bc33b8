"""May this pod run in this namespace?

In: the rules of the namespace, a pod, the operation, what its claims lead to. Out: a `Verdict`: the changes that make
the pod comply, or every reason why it cannot. Pure: the one decision that the webhook, `bedplate can` and the tests
of the policies share.

`decide` first sets what the pod leaves open, then checks the result. `check` alone judges a pod as it is: what the
ValidatingAdmissionPolicy does, to which pods come after all changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from bedplate.operators.permissions import baseline, mutation, pods, refusals, volumes
from bedplate.operators.permissions.pods import Container
from bedplate.operators.permissions.refusals import Refusal
from bedplate.operators.permissions.rules import ALL_UIDS, ESCALATION, PRIVILEGED, NamespaceRules, RuleSet
from bedplate.operators.permissions.volumes import Claim

__all__ = ["LARGEST", "MOST_REASONS", "Operation", "Verdict", "check", "decide", "has_host_path"]

Claims = Mapping[str, Claim]
LARGEST = 500
"""How many volumes, or containers of one kind, a pod may have. No node runs as many; and whoever may create pods could
keep the webhook busy with a pod of a hundred thousand, which is one small request."""
MOST_REASONS = 100
_RULES = {
    pods.CONTAINERS: refusals.IDENTITY_CONTAINERS,
    pods.INIT: refusals.IDENTITY_INIT,
    pods.EPHEMERAL: refusals.IDENTITY_EPHEMERAL,
}


class Operation(StrEnum):
    """What is asked for."""

    CREATE = "create"
    DEBUG = "debug"
    """Add ephemeral containers to a pod that runs."""


class Verdict(msgspec.Struct, frozen=True):
    """Admitted with changes (a JSON patch, and the pod with them), or refused."""

    refusals: tuple[Refusal, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()
    pod: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_admitted(self) -> bool:
        return not self.refusals

    @property
    def message(self) -> str:
        """Why it is refused."""
        return refusals.summary(self.refusals)


def decide(
    rules: NamespaceRules,
    pod: Mapping[str, Any],
    operation: Operation = Operation.CREATE,
    claims: Claims | None = None,
) -> Verdict:
    """Decide about a pod. `claims`: what is known of the claims of the namespace, by name."""
    if not rules.is_restricted:
        return Verdict(pod=pod)
    too_large = _size(rules, pod)
    if too_large is not None:
        return Verdict((too_large,), pod=pod)
    known = claims if claims is not None else {}
    identity = _identity(rules, has_host_path(pod, known))
    patch = mutation.patch(pod, identity, is_debug=operation is Operation.DEBUG)
    changed = mutation.applied(pod, patch)
    return Verdict(tuple(itertools.islice(check(rules, changed, known), MOST_REASONS)), tuple(patch), changed)


def check(rules: NamespaceRules, pod: Mapping[str, Any], claims: Claims | None = None) -> Iterator[Refusal]:
    """Everything that is wrong with a pod as it is."""
    if not rules.is_restricted:
        return
    if not rules.sets:
        message = "the namespace has lost its rules"
        yield Refusal("pod-rules", "metadata.namespace", message, "wait for the permission manager to restore them")
        return
    too_large = _size(rules, pod)
    if too_large is not None:
        yield too_large
        return
    known = claims if claims is not None else {}
    has_host = has_host_path(pod, known)
    for rule_set in rules.sets:
        yield from _host_paths(rule_set, pod, known)
    yield from _repositories(rules, pod)
    yield from _identities(rules, pod, has_host)
    yield from _privileges(rules, pod, has_host)
    first = rules.sets[0]
    for finding in baseline.findings(pod):
        yield msgspec.structs.replace(finding, rule=first.rule(finding.rule))


def _size(rules: NamespaceRules, pod: Mapping[str, Any]) -> Refusal | None:
    """Why a pod is not looked at."""
    name, count = pods.largest_list(pod)
    if count <= LARGEST:
        return None
    rule = rules.sets[0].rule(refusals.SIZE) if rules.sets else refusals.SIZE
    return Refusal(rule, f"spec.{name}", f"there are {count}, and at most {LARGEST} are allowed", "use several pods")


def has_host_path(pod: Mapping[str, Any], claims: Claims) -> bool:
    """Whether the pod uses files of its node, or may."""
    for _, volume in pods.volumes(pod):
        if volume.get("hostPath") is not None:
            return True
        claim = claim_in(pod, volume, claims)
        if claim is not None and claim.may_be_host_path:
            return True
    return False


def claim_in(pod: Mapping[str, Any], volume: Mapping[str, Any], claims: Claims) -> Claim | None:
    """The claim of a volume; one that is not known may be anything."""
    if volume.get("ephemeral") is None and volume.get("persistentVolumeClaim") is None:
        return None
    return claims.get(volumes.name_of(pod, volume), volumes.UNKNOWN)


def _host_paths(rule_set: RuleSet, pod: Mapping[str, Any], claims: Claims) -> Iterator[Refusal]:
    rule = rule_set.rule(refusals.HOST_PATHS)
    for field, volume in pods.volumes(pod):
        source = volume.get("hostPath")
        if source is not None:
            path, kind = str(pods.mapped(source).get("path", "")), pods.mapped(source).get("type")
            yield from _host_path(rule_set, rule, f"{field}.hostPath", path, kind)
        claim = claim_in(pod, volume, claims)
        if claim is not None and claim.path:
            yield from _host_path(rule_set, rule, f"{field}.persistentVolumeClaim", claim.path, None)


def _repositories(rules: NamespaceRules, pod: Mapping[str, Any]) -> Iterator[Refusal]:
    """The kubelet runs git for such a volume, as root, on whatever the repository says."""
    for field, volume in pods.volumes(pod):
        if volume.get("gitRepo") is not None:
            rule, message = rules.sets[0].rule(refusals.VOLUMES), "the node would run git on the repository as root"
            yield Refusal(rule, f"{field}.gitRepo", message, "clone it in an init container")


def _host_path(rule_set: RuleSet, rule: str, field: str, path: str, kind: Any) -> Iterator[Refusal]:
    place = f"{field}.path" if field.endswith("hostPath") else field
    if not rule_set.has_path(path):
        message = f"the path {path!r} of the node is not one of {rule_set.user}"
        yield Refusal(rule, place, message, volumes.remedy(rule_set.paths))
    elif not rule_set.has_identity:
        message = f"the UID and GIDs of {rule_set.user} are not known"
        yield Refusal(rule, place, message, f"set spec.uid and spec.gids of {rule_set.release}")
    elif kind in volumes.CREATING:
        # The kubelet would create it as root, and follow a link on the way.
        yield Refusal(rule, f"{field}.type", f"{kind} creates files as root", "create it first and use another type")


def _identity(rules: NamespaceRules, has_host: bool) -> mutation.Identity:
    """What to set where the pod leaves it open."""
    bound = _bound(rules, has_host)
    with_uid = next((each for each in bound if each.uid >= 0), None)
    with_gids = next((each for each in bound if each.gids), None)
    return mutation.Identity(
        uid=with_uid.uid if with_uid is not None else None,
        gids=with_gids.gids if with_gids is not None else (),
        is_strict=has_host and rules.needs_strict_groups,
        no_escalation=bool(bound) and not _all_allow(rules, ESCALATION),
    )


def _bound(rules: NamespaceRules, has_host: bool) -> list[RuleSet]:
    """The rule sets that prescribe who the pod runs as."""
    return [each for each in rules.sets if has_host or ALL_UIDS not in each.allows]


def _all_allow(rules: NamespaceRules, word: str) -> bool:
    return all(word in each.allows for each in rules.sets)


def _identities(rules: NamespaceRules, pod: Mapping[str, Any], has_host: bool) -> Iterator[Refusal]:
    bound, context = _bound(rules, has_host), pods.security(pod)
    if any(each.uid >= 0 for each in bound):
        choices = _choices(rules, has_host, lambda each: (each.uid,) if each.uid >= 0 else ())
        yield from _numbers(rules, pod, "runAsUser", choices)
        if pods.mapped(pods.spec_of(pod).get("os")).get("name") == "windows":
            rule, message = rules.sets[0].rule(refusals.IDENTITY), "pods of Windows have no UID"
            yield Refusal(rule, "spec.os.name", message, "use linux")
    if any(each.gids for each in bound):
        choices = _choices(rules, has_host, lambda each: each.gids)
        yield from _numbers(rules, pod, "runAsGroup", choices)
        yield from _groups(rules, context, choices)
    strict = context.get("supplementalGroupsPolicy")
    if has_host and rules.needs_strict_groups and strict != "Strict":
        rule, field = rules.sets[0].rule(refusals.IDENTITY), "spec.securityContext.supplementalGroupsPolicy"
        yield Refusal(rule, field, "groups of the image would open files of the node", "set it to Strict")


def _choices(rules: NamespaceRules, has_host: bool, numbers: Any) -> tuple[int, ...]:
    """Which numbers a pod may have: with files of the node those that every user has, otherwise those of any."""
    sets = [tuple(numbers(each)) for each in rules.sets]
    every = tuple(dict.fromkeys(number for each in sets for number in each))
    return tuple(number for number in every if all(number in each for each in sets)) if has_host else every


def _numbers(rules: NamespaceRules, pod: Mapping[str, Any], name: str, choices: tuple[int, ...]) -> Iterator[Refusal]:
    """`runAsUser` and `runAsGroup`, of the pod if it is set there, and as it is in effect for every container."""
    whole = pods.security(pod).get(name)
    if whole is not None and whole not in choices:
        yield _foreign(rules, refusals.IDENTITY, f"spec.securityContext.{name}", whole, choices)
    for container in pods.containers(pod):
        own = container.security.get(name)
        if own is not None and own not in choices:
            yield _foreign(rules, _RULES[container.list], f"{container.field}.securityContext.{name}", own, choices)
        elif own is None and whole is None:
            yield _foreign(rules, _RULES[container.list], f"{container.field}.securityContext.{name}", None, choices)


def _groups(rules: NamespaceRules, context: Mapping[str, Any], choices: tuple[int, ...]) -> Iterator[Refusal]:
    group = context.get("fsGroup")
    if group is not None and group not in choices:
        yield _foreign(rules, refusals.IDENTITY, "spec.securityContext.fsGroup", group, choices)
    for index, number in enumerate(pods.listed(context.get("supplementalGroups"))):
        if number not in choices:
            field = f"spec.securityContext.supplementalGroups[{index}]"
            yield _foreign(rules, refusals.IDENTITY, field, number, choices)


def _foreign(rules: NamespaceRules, rule: str, field: str, value: Any, choices: tuple[int, ...]) -> Refusal:
    shown = " or ".join(map(str, choices))
    message = f"must be set to {shown}" if value is None else f"{value} is not an ID of {_users(rules)}"
    remedy = f"set it to {shown} or remove it" if choices else "remove the volumes with paths of the node"
    return Refusal(rules.sets[0].rule(rule), field, message, remedy)


def _users(rules: NamespaceRules) -> str:
    return ", ".join(each.user for each in rules.sets)


def _privileges(rules: NamespaceRules, pod: Mapping[str, Any], has_host: bool) -> Iterator[Refusal]:
    is_bound = bool(_bound(rules, has_host))
    may_escalate, may_be_privileged = _all_allow(rules, ESCALATION), _all_allow(rules, PRIVILEGED)
    for container in pods.containers(pod):
        is_privileged = container.security.get("privileged") is True
        if is_privileged and not may_be_privileged:
            yield _privilege(rules, container, "privileged", "privileged containers are not allowed", "remove it")
        elif not is_privileged and not may_escalate:
            yield from _escalation(rules, container, is_bound)


def _escalation(rules: NamespaceRules, container: Container, is_bound: bool) -> Iterator[Refusal]:
    value = container.security.get("allowPrivilegeEscalation")
    if value is True or (is_bound and value is not False):
        message = "a process must not gain more privileges than its parent"
        yield _privilege(rules, container, "allowPrivilegeEscalation", message, "set it to false")


def _privilege(rules: NamespaceRules, container: Container, name: str, message: str, remedy: str) -> Refusal:
    rule = rules.sets[0].rule(refusals.PRIVILEGES)
    return Refusal(rule, f"{container.field}.securityContext.{name}", message, remedy)
