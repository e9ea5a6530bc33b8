"""What single kinds do beyond being stored; `built_in` puts them together."""

from __future__ import annotations

import ipaddress
import random

from bedplate.apiserver import hooks
from bedplate.apiserver.access import identity, rbac, tokens
from bedplate.apiserver.behaviours import (
    credentials,
    namespaces,
    permissions,
    pods,
    records,
    reviews,
    serviceips,
    workloads,
)

__all__ = ["SERVICE_RANGE", "built_in"]

SERVICE_RANGE = ipaddress.IPv4Network("10.96.0.0/16")

# Kinds that a PUT creates when they are absent, as in Kubernetes.
_CREATED_BY_UPDATE = (
    ("", "endpoints"),
    ("", "limitranges"),
    ("", "podtemplates"),
    ("scheduling.k8s.io", "priorityclasses"),
)


class _CreatedByUpdate(hooks.Behaviour):
    create_on_update = True


def built_in(
    identities: identity.Identities,
    authorizer: rbac.RoleAuthorizer,
    signer: tokens.Signer,
    rng: random.Random,
) -> dict[tuple[str, str], hooks.Behaviour]:
    """The behaviours of all built-in kinds that have any, by group and resource."""
    behaviours: dict[tuple[str, str], hooks.Behaviour] = {key: _CreatedByUpdate() for key in _CREATED_BY_UPDATE}
    pod = pods.PodBehaviour(rng)
    replicated = workloads.WorkloadBehaviour({"replicas": 0})
    behaviours |= {
        ("", "namespaces"): namespaces.NamespaceBehaviour(),
        ("", "services"): serviceips.ServiceBehaviour(SERVICE_RANGE, rng),
        ("", "pods"): pod,
        ("", "serviceaccounts"): credentials.AccountBehaviour(signer),
        ("", "configmaps"): records.ConfigMapBehaviour(),
        ("", "secrets"): records.SecretBehaviour(),
        ("", "events"): records.EventBehaviour(),
        ("events.k8s.io", "events"): records.EventBehaviour(),
        ("coordination.k8s.io", "leases"): records.LeaseBehaviour(),
        ("", "bindings"): pods.BindingBehaviour(pod),
        ("", "nodes"): workloads.NodeBehaviour(),
        ("", "persistentvolumes"): workloads.PlainStatus({"phase": "Pending"}),
        ("", "persistentvolumeclaims"): workloads.PlainStatus({"phase": "Pending"}),
        ("apps", "deployments"): workloads.WorkloadBehaviour({}),
        ("apps", "replicasets"): replicated,
        ("apps", "statefulsets"): workloads.WorkloadBehaviour({"replicas": 0, "availableReplicas": 0}),
        ("apps", "daemonsets"): workloads.WorkloadBehaviour(
            {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}
        ),
        ("batch", "jobs"): workloads.JobBehaviour(),
        (credentials.GROUP, credentials.RESOURCE): credentials.SigningRequestBehaviour(),
        ("policy", "poddisruptionbudgets"): workloads.BudgetBehaviour(
            {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
        ),
    }
    return behaviours | reviews.reviews(identities, authorizer) | permissions.permissions(authorizer)
