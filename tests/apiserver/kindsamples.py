"""A new object of every kind of built-in resource that people create, to compare who owns its fields."""

from __future__ import annotations

import copy
from typing import Any

POD_SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "image": "i:1",
            "command": ["a"],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "name": "dns"}],
            "resources": {"requests": {"cpu": "0.1", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
            "readinessProbe": {"tcpSocket": {"port": 80}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "e", "mountPath": "/e", "readOnly": True}],
            "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}, "runAsUser": 0},
            "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
        }
    ],
    "initContainers": [{"name": "init", "image": "i:1"}],
    "volumes": [
        {"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
        {"name": "e", "emptyDir": {}},
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {}},
        }
    ],
    "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}],
    "imagePullSecrets": [{"name": "s"}],
    "securityContext": {"fsGroup": 1, "sysctls": [{"name": "n", "value": "v"}]},
    "nodeSelector": {"a": "b"},
    "overhead": {},
    "readinessGates": [{"conditionType": "x.io/y"}],
}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "x"}}, "spec": POD_SPEC}
JOB_TEMPLATE: dict[str, Any] = {"spec": {**POD_SPEC, "restartPolicy": "Never"}}
SELECTOR = {"matchLabels": {"app": "x"}}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://example.com/x"},
    "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
}

SAMPLES: dict[tuple[str, str, str], dict[str, Any]] = {
    ("", "v1", "configmaps"): {"data": {"a": "1"}, "binaryData": {"b": "AA=="}, "immutable": False},
    ("", "v1", "secrets"): {"data": {"a": "AA=="}, "stringData": {"b": "x"}, "type": "Opaque"},
    ("", "v1", "namespaces"): {},
    ("", "v1", "nodes"): {
        "spec": {
            "podCIDR": "10.1.0.0/24",
            "podCIDRs": ["10.1.0.0/24"],
            "taints": [{"key": "k", "effect": "NoSchedule"}],
        },
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    ("", "v1", "serviceaccounts"): {"secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "p"}]},
    ("", "v1", "services"): {"spec": {"type": "NodePort", "ports": [{"port": 80}], "selector": {"a": "b"}}},
    ("", "v1", "endpoints"): {"subsets": [{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 80}]}]},
    ("", "v1", "persistentvolumes"): {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    },
    ("", "v1", "persistentvolumeclaims"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("", "v1", "limitranges"): {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    ("", "v1", "resourcequotas"): {"spec": {"hard": {"pods": "1"}}},
    ("", "v1", "events"): {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R",
        "message": "m",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "c"},
    },
    ("", "v1", "replicationcontrollers"): {"spec": {"selector": {"app": "x"}, "template": TEMPLATE}},
    ("apps", "v1", "deployments"): {"spec": {"selector": SELECTOR, "template": TEMPLATE, "replicas": 0}},
    ("apps", "v1", "replicasets"): {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ("apps", "v1", "daemonsets"): {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    ("apps", "v1", "statefulsets"): {
        "spec": {
            "selector": SELECTOR,
            "template": TEMPLATE,
            "serviceName": "s",
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "d"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }
            ],
        }
    },
    ("apps", "v1", "controllerrevisions"): {"data": {"spec": {"a": [1]}}, "revision": 1},
    ("batch", "v1", "cronjobs"): {
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}
    },
    ("autoscaling", "v2", "horizontalpodautoscalers"): {
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}},
                }
            ],
        }
    },
    ("policy", "v1", "poddisruptionbudgets"): {"spec": {"minAvailable": "50%", "selector": SELECTOR}},
    ("networking.k8s.io", "v1", "ingresses"): {
        "spec": {
            "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
            "tls": [{"hosts": ["h.example.com"]}],
            "rules": [
                {
                    "host": "h.example.com",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "s", "port": {"name": "http"}}},
                            }
                        ]
                    },
                }
            ],
        }
    },
    ("networking.k8s.io", "v1", "ingressclasses"): {"spec": {"controller": "example.com/c"}},
    ("networking.k8s.io", "v1", "networkpolicies"): {
        "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": SELECTOR}], "ports": [{"port": 80}]}]}
    },
    ("rbac.authorization.k8s.io", "v1", "roles"): {"rules": RULES},
    ("rbac.authorization.k8s.io", "v1", "clusterroles"): {
        "rules": RULES,
        "aggregationRule": {"clusterRoleSelectors": [SELECTOR]},
    },
    ("rbac.authorization.k8s.io", "v1", "rolebindings"): {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
    },
    ("coordination.k8s.io", "v1", "leases"): {
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 3, "renewTime": "2026-01-01T00:00:00.000000Z"}
    },
    ("discovery.k8s.io", "v1", "endpointslices"): {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["1.2.3.4"], "conditions": {"ready": True}}],
        "ports": [{"port": 80, "name": ""}],
    },
    ("events.k8s.io", "v1", "events"): {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "a",
        "reason": "r",
        "type": "Normal",
        "note": "n",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    },
    ("scheduling.k8s.io", "v1", "priorityclasses"): {"value": 3},
    ("storage.k8s.io", "v1", "storageclasses"): {"provisioner": "p", "parameters": {"a": "b"}},
    ("storage.k8s.io", "v1", "csidrivers"): {"spec": {"attachRequired": False}},
    ("storage.k8s.io", "v1", "csinodes"): {
        "spec": {"drivers": [{"name": "d.io", "nodeID": "n", "topologyKeys": ["z"]}]}
    },
    ("storage.k8s.io", "v1", "volumeattachments"): {
        "spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "p"}}
    },
    ("node.k8s.io", "v1", "runtimeclasses"): {"handler": "h"},
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"): {"webhooks": [WEBHOOK]},
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"): {"webhooks": [WEBHOOK]},
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"): {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
                            },
                        }
                    },
                }
            ],
        },
    },
}

FILLED_IN: dict[str, tuple[tuple[str, ...], ...]] = {
    "services": (
        ("spec", "clusterIP"),
        ("spec", "clusterIPs"),
        ("spec", "ipFamilies"),
        ("spec", "ipFamilyPolicy"),
        ("spec", "ports", "0", "nodePort"),
    ),
    "namespaces": (("spec",),),
    "persistentvolumes": (("metadata", "finalizers"),),
    "persistentvolumeclaims": (("metadata", "finalizers"),),
}
"""what the server adds after it has recorded the owners."""


def without_filled_in(resource: str, obj: dict[str, Any]) -> dict[str, Any]:
    """The object as it was when the owners were recorded."""
    out: dict[str, Any] = copy.deepcopy(obj)
    for path in FILLED_IN.get(resource, ()):
        node: Any = out
        for key in path[:-1]:
            node = node[int(key)] if key.isdigit() else node[key]
        node.pop(path[-1], None)
    return out
