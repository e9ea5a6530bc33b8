"""Defaults that hang on other fields, one small function per type. Constant ones are data (see `facts`).

A rule sees the struct with its constant defaults filled in and its members not yet visited: what it adds is defaulted
in turn. Values may have a wrong type (validation comes later), so each rule looks before it reaches in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["RULES"]

Object = dict[str, Any]

_RBAC_GROUP = "rbac.authorization.k8s.io"
_CLIENT_IP_TIMEOUT_S = 10800
_MAX_INT32 = 2**31 - 1
# host, which needs a dot, a port, a capital letter or to be localhost; path in small letters; tag; digest
_IMAGE = re.compile(
    r"(?:(?:localhost|[\w-]*[A-Z][\w-]*|[\w-]+(?:\.[\w-]+)+|[\w.-]+(?=:))(?::\d+)?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@[\w+.-]+:[0-9a-fA-F]+)?"
)


def _dict(obj: Object, key: str) -> Object:
    value = obj.get(key)
    return value if isinstance(value, dict) else {}


def _dicts(obj: Object, key: str) -> Iterator[Object]:
    value = obj.get(key)
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _image_tag(image: Any) -> str:
    """The tag of an image reference; `latest` where neither tag nor digest is given, empty where there is none."""
    match = _IMAGE.fullmatch(image) if isinstance(image, str) else None
    if match is None:
        return ""
    return match["tag"] or ("" if match["digest"] else "latest")


def _pull_policy(image: Any) -> str:
    return "Always" if _image_tag(image) == "latest" else "IfNotPresent"


def _container(obj: Object) -> None:
    if not obj.get("imagePullPolicy"):
        obj["imagePullPolicy"] = _pull_policy(obj.get("image"))


def _image_volume(obj: Object) -> None:
    if not obj.get("pullPolicy"):
        obj["pullPolicy"] = _pull_policy(obj.get("reference"))


def _volume(obj: Object) -> None:
    if not obj.keys() - {"name"}:
        obj["emptyDir"] = {}


def _pod(obj: Object) -> None:
    spec = _dict(obj, "spec")
    spec.setdefault("enableServiceLinks", True)
    containers = [*_dicts(spec, "containers"), *_dicts(spec, "initContainers")]
    for container in containers:
        resources = _dict(container, "resources")
        limits = _dict(resources, "limits")
        if limits:
            resources["requests"] = {**limits, **_dict(resources, "requests")}
    if spec.get("hostNetwork") is True:
        for container in containers:
            for port in _dicts(container, "ports"):
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort", 0)


def _service(obj: Object) -> None:
    spec = _dict(obj, "spec")
    kind = spec.get("type") or "ClusterIP"
    affinity = spec.get("sessionAffinity") or "None"
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = _dict(_dict(spec, "sessionAffinityConfig"), "clientIP")
        if config.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _CLIENT_IP_TIMEOUT_S}}
    for port in _dicts(spec, "ports"):
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    is_external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if is_external and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("ClusterIP", "NodePort", "LoadBalancer") and spec.get("internalTrafficPolicy") is None:
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for ingress in _dicts(_dict(_dict(obj, "status"), "loadBalancer"), "ingress"):
            if ingress.get("ip") and not ingress.get("ipMode"):
                ingress["ipMode"] = "VIP"


def _namespace(obj: Object) -> None:
    metadata = _dict(obj, "metadata")
    if metadata.get("name"):
        metadata["labels"] = {**_dict(metadata, "labels"), "kubernetes.io/metadata.name": metadata["name"]}


def _node_status(obj: Object) -> None:
    if obj.get("allocatable") is None and obj.get("capacity"):
        obj["allocatable"] = dict(_dict(obj, "capacity"))


def _limit_range_item(obj: Object) -> None:
    if obj.get("type") != "Container":
        return
    default = {**_dict(obj, "max"), **_dict(obj, "default")}
    request = {**_dict(obj, "min"), **default, **_dict(obj, "defaultRequest")}
    if default:
        obj["default"] = default
    if request:
        obj["defaultRequest"] = request


def _replication_controller(obj: Object) -> None:
    spec = _dict(obj, "spec")
    labels = _dict(_dict(_dict(spec, "template"), "metadata"), "labels")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    _labels_of_template(obj, labels)


def _labels_of_template(obj: Object, labels: Object) -> None:
    metadata = _dict(obj, "metadata")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _persistent_volume(obj: Object) -> None:
    spec = _dict(obj, "spec")
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"


def _rolling_update(max_unavailable: int | str, max_surge: int | str) -> Callable[[Object], None]:
    def rule(obj: Object) -> None:
        if obj.get("type") == "RollingUpdate" and isinstance(obj.setdefault("rollingUpdate", {}), dict):
            obj["rollingUpdate"].setdefault("maxUnavailable", max_unavailable)
            obj["rollingUpdate"].setdefault("maxSurge", max_surge)

    return rule


def _stateful_set(obj: Object) -> None:
    # Unlike its siblings, a strategy whose type the user wrote is not completed.
    strategy = _dict(_dict(obj, "spec"), "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
        _dict(obj, "spec").setdefault("updateStrategy", strategy)
    if strategy["type"] == "RollingUpdate" and isinstance(strategy.get("rollingUpdate"), dict):
        strategy["rollingUpdate"].setdefault("partition", 0)


def _job(obj: Object) -> None:
    spec = _dict(obj, "spec")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    values = {
        "parallelism": 1,
        "backoffLimit": 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed",
        "manualSelector": False,
    }
    for key, value in values.items():
        if spec.get(key) is None:
            spec[key] = value
    _labels_of_template(obj, _dict(_dict(_dict(spec, "template"), "metadata"), "labels"))


def _autoscaler_behavior(obj: Object) -> None:
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    up = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, dict(percent)],
    }
    down = {"selectPolicy": "Max", "policies": [dict(percent)]}
    for key, rules in (("scaleUp", up), ("scaleDown", down)):
        given = {name: value for name, value in _dict(obj, key).items() if value is not None}
        obj[key] = rules | given


def _network_policy_spec(obj: Object) -> None:
    if not obj.get("policyTypes"):
        obj["policyTypes"] = ["Ingress", "Egress"] if obj.get("egress") else ["Ingress"]


def _role_binding(obj: Object) -> None:
    reference = _dict(obj, "roleRef")
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC_GROUP


def _subject(obj: Object) -> None:
    if not obj.get("apiGroup") and obj.get("kind") in ("User", "Group"):
        obj["apiGroup"] = _RBAC_GROUP


def _custom_resource_definition(obj: Object) -> None:
    spec, status = _dict(obj, "spec"), _dict(obj, "status")
    names = _dict(spec, "names")
    kind = names.get("kind")
    if kind and isinstance(kind, str):
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
    if not status.get("storedVersions"):
        stored = [
            version["name"] for version in _dicts(spec, "versions") if version.get("storage") and version.get("name")
        ]
        status["storedVersions"] = stored[:1] or None


def _device_request(obj: Object) -> None:
    if obj.get("allocationMode") == "ExactCount" and not obj.get("count"):
        obj["count"] = 1


_CORE = "io.k8s.api.core.v1."
_APPS = "io.k8s.api.apps.v1."

RULES: dict[str, Callable[[Object], None]] = {
    _CORE + "Container": _container,
    _CORE + "EphemeralContainer": _container,
    _CORE + "ImageVolumeSource": _image_volume,
    _CORE + "LimitRangeItem": _limit_range_item,
    _CORE + "Namespace": _namespace,
    _CORE + "NodeStatus": _node_status,
    _CORE + "PersistentVolume": _persistent_volume,
    _CORE + "Pod": _pod,
    _CORE + "ReplicationController": _replication_controller,
    _CORE + "Service": _service,
    _CORE + "Volume": _volume,
    _APPS + "DaemonSetUpdateStrategy": _rolling_update(1, 0),
    _APPS + "DeploymentStrategy": _rolling_update("25%", "25%"),
    _APPS + "StatefulSet": _stateful_set,
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior": _autoscaler_behavior,
    "io.k8s.api.batch.v1.Job": _job,
    "io.k8s.api.networking.v1.NetworkPolicySpec": _network_policy_spec,
    "io.k8s.api.rbac.v1.ClusterRoleBinding": _role_binding,
    "io.k8s.api.rbac.v1.RoleBinding": _role_binding,
    "io.k8s.api.rbac.v1.Subject": _subject,
    "io.k8s.api.resource.v1.DeviceSubRequest": _device_request,
    "io.k8s.api.resource.v1.ExactDeviceRequest": _device_request,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition": _custom_resource_definition,
}
