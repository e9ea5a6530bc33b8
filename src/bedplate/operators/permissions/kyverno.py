"""The rules of a user as Kyverno ClusterPolicies, and the values of Kyverno's own two charts.

In: a rule set and its namespace; for the charts the features of the cluster. Out: objects and values in raw form. Pure.
The policies say what `decision` says about host paths and identities; everything else holds by our own rules alone.
"""

from __future__ import annotations

from typing import Any

from bedplate.api.resources import RawObject
from bedplate.operators.permissions import refusals, volumes
from bedplate.operators.permissions.rules import ALL_UIDS, RuleSet

__all__ = ["engine_values", "policies", "policy_values"]

API_VERSION = "kyverno.io/v1"
HA_REPLICAS = 3
CONTROLLERS = ("admissionController", "backgroundController", "cleanupController", "reportsController")
ALWAYS = {
    "disallow-host-namespaces": ("default",),
    "disallow-host-path": ("default", "*-restricted", "kube-system"),
    "disallow-host-ports": ("default",),
}
FEATURES = {
    "prometheus": {
        "disallow-host-namespaces": "prometheus",
        "disallow-host-path": "prometheus",
        "disallow-host-ports": "prometheus",
    },
    "local-path": {"disallow-host-path": "local-path-storage"},
    "gpu-operator": {"disallow-host-path": "gpu-operator"},
}
"""Which feature needs an exception from which policy, and for which namespace."""
_ORDER = ("default", "local-path-storage", "*-restricted", "prometheus", "kube-system", "gpu-operator")
# Kyverno refuses every pod for which a query has no answer, as for a list that the pod does not have.
_HOST_PATHS = "request.object.spec.volumes[?hostPath] || `[]`"
_HAS_HOST_PATH = f"{{{{ {_HOST_PATHS} | length(@) }}}}"
_HAS_INIT = "{{ request.object.spec.initContainers[] || `[]` | length(@) }}"


def engine_values(*, is_ha: bool) -> dict[str, Any]:
    """Values of the release `kyverno`. Charts since 3.0 count the replicas of each controller and ignore the rest."""
    if not is_ha:
        return {}
    return {"replicaCount": HA_REPLICAS} | {name: {"replicas": HA_REPLICAS} for name in CONTROLLERS}


def policy_values(features: frozenset[str]) -> dict[str, Any]:
    """Values of the release `kyverno-policies`: what is enforced, and which namespaces are left out."""
    unknown = features - FEATURES.keys()
    if unknown:
        raise ValueError(f"unknown features {', '.join(sorted(unknown))}: choose from {', '.join(sorted(FEATURES))}")
    excluded = {}
    for policy, always in ALWAYS.items():
        namespaces = {*always, *(FEATURES[each][policy] for each in features if policy in FEATURES[each])}
        chosen = [name for name in _ORDER if name in namespaces]
        excluded[policy] = {"any": [{"resources": {"kinds": ["Pod"], "namespaces": chosen}}]}
    # Definitions of today refuse `enforce`; older ones accept both forms. Charts of today make ValidatingPolicies,
    # which have no `policyExclude`, unless they are told otherwise; older charts do not know the word.
    return {"policyType": "ClusterPolicy", "validationFailureAction": "Enforce", "policyExclude": excluded}


def policies(rule_set: RuleSet, namespace: str, labels: dict[str, str]) -> list[RawObject]:
    """The four policies of a user."""
    match = {"any": [{"resources": {"kinds": ["Pod"], "namespaces": [namespace], "operations": ["CREATE"]}}]}
    rendered = [
        _policy(rule_set, refusals.HOST_PATHS, labels, {"match": match, "validate": _host_paths(rule_set)}),
    ]
    if not rule_set.has_identity:
        return rendered
    user = {"+(runAsUser)": rule_set.uid, "+(runAsGroup)": rule_set.gids[0]}
    groups = {"+(fsGroup)": rule_set.gids[0], "+(supplementalGroups)": list(rule_set.gids)}
    of_pod = {"spec": {"securityContext": {**user, **groups}}}
    for name, pattern in (
        (refusals.IDENTITY, of_pod),
        (refusals.IDENTITY_CONTAINERS, _in_all("containers", user)),
        (refusals.IDENTITY_INIT, _in_all("initContainers", user)),
    ):
        rule: dict[str, Any] = {"match": match, "mutate": {"patchStrategicMerge": pattern}}
        if name == refusals.IDENTITY_INIT:
            rule["preconditions"] = _all(_condition(_HAS_INIT))
        if ALL_UIDS in rule_set.allows:
            rule["preconditions"] = _all(_condition(_HAS_HOST_PATH), *rule.get("preconditions", {}).get("all", ()))
        rendered.append(_policy(rule_set, name, labels, rule))
    return rendered


def _policy(rule_set: RuleSet, name: str, labels: dict[str, str], rule: dict[str, Any]) -> RawObject:
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterPolicy",
        "metadata": {
            "name": rule_set.rule(name),
            "labels": dict(labels),
            "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"},
        },
        "spec": {"background": False, "validationFailureAction": "Enforce", "rules": [{"name": name, **rule}]},
    }


def _host_paths(rule_set: RuleSet) -> dict[str, Any]:
    element = "{{ element.hostPath.path }}"
    # Without an identity nobody could tell whose files are read.
    paths = rule_set.paths if rule_set.has_identity else ()
    allowed = [part for path in paths for part in (path.rstrip("/") or "/", f"{path}*")]
    shown = ", ".join(path.rstrip("/") or "/" for path in paths) or "none"
    condition = {"key": element, "operator": "AnyNotIn", "value": allowed}
    climbing = {"key": "{{ element.hostPath.path | contains(@, '..') }}", "operator": "Equals", "value": True}
    # The kubelet would create it, as root.
    creating = {"key": "{{ element.hostPath.type || '' }}", "operator": "AnyIn", "value": list(volumes.CREATING)}
    return {
        "message": f"{rule_set.rule(refusals.HOST_PATHS)}: the host paths of {rule_set.user} are {shown}",
        "foreach": [
            {
                "list": _HOST_PATHS,
                "deny": {"conditions": {"any": [condition, climbing, creating]}},
            }
        ],
    }


def _in_all(name: str, context: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {name: [{"(name)": "*", "securityContext": context}]}}


def _condition(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "GreaterThan", "value": 0}


def _all(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"all": list(conditions)}
