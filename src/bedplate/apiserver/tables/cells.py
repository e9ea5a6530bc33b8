"""The cells of built-in kinds in `Table` answers, as `kubectl get` has always shown them.

In: a decoded object and the time. Out: one value per column of the kind. The columns are facts; here stands, by kind
and column, where a cell's value is: a path (`status.phase`, with what to show instead of nothing behind `?`) or a
function. `Name` and `Age` need no entry.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bedplate.apiserver import kinds
from bedplate.apiserver.tables import cell_values as values
from bedplate.apiserver.tables.cell_values import Cell, Object

__all__ = ["cells"]


def cells(resource: kinds.Resource, obj: Object, now: datetime) -> list[Any]:
    """One cell for each column of the resource, or name and time of creation where it has no columns."""
    columns = _CELLS.get((resource.group, resource.resource), {})
    names = [column.name for column in resource.columns] or ["Name", "Created At"]
    return [_cell(columns.get(name), name, obj, now) for name in names]


def _cell(source: Cell | None, name: str, obj: Object, now: datetime) -> Any:
    if callable(source):
        return source(obj, now)
    if source is not None:
        path, _, instead = source.partition("?")
        return values.value_at(obj, path, instead)
    if name == "Name":
        return obj["metadata"]["name"]
    if name == "Created At":
        return obj["metadata"].get("creationTimestamp")
    return values.object_age(obj, now) if name == "Age" else values.NONE


_WORKLOAD: dict[str, Cell] = {**values.containers("spec.template.spec"), "Selector": values.selector("spec.selector")}
_REPLICAS: dict[str, Cell] = {
    "Desired": values.number("spec.replicas"),
    "Current": values.number("status.replicas"),
    "Ready": values.number("status.readyReplicas"),
    **_WORKLOAD,
}
_BINDING: dict[str, Cell] = {
    "Role": values.reference("roleRef"),
    "Users": values.subjects("User"),
    "Groups": values.subjects("Group"),
    "ServiceAccounts": values.subjects("ServiceAccount"),
}
_ADMISSION, _NETWORK = "admissionregistration.k8s.io", "networking.k8s.io"
_RBAC, _STORAGE = "rbac.authorization.k8s.io", "storage.k8s.io"

_CELLS: dict[tuple[str, str], dict[str, Cell]] = {
    ("", "configmaps"): {"Data": values.count("data", "binaryData")},
    ("", "endpoints"): {"Endpoints": values.endpoint_addresses},
    ("", "events"): {
        "Last Seen": values.last_seen,
        "Type": "type?",
        "Reason": "reason?",
        "Object": values.event_object,
        "Subobject": "involvedObject.fieldPath?",
        "Source": values.event_source,
        "Message": lambda obj, _now: str(obj.get("message", "")).strip(),
        "First Seen": lambda obj, now: values.age(values.first_seen(obj), now),
        "Count": lambda obj, _now: values.value_at(obj, "series.count") or obj.get("count") or 1,
    },
    ("", "namespaces"): {"Status": "status.phase?"},
    ("", "nodes"): {
        "Status": values.node_status,
        "Roles": values.node_roles,
        "Version": "status.nodeInfo.kubeletVersion?",
        "Internal-IP": values.node_address("InternalIP"),
        "External-IP": values.node_address("ExternalIP"),
        "OS-Image": f"status.nodeInfo.osImage?{values.UNKNOWN}",
        "Kernel-Version": f"status.nodeInfo.kernelVersion?{values.UNKNOWN}",
        "Container-Runtime": f"status.nodeInfo.containerRuntimeVersion?{values.UNKNOWN}",
    },
    ("", "persistentvolumeclaims"): {
        "Status": values.phase,
        "Volume": "spec.volumeName?",
        "Capacity": "status.capacity.storage?",
        "Access Modes": values.modes("status.accessModes"),
        "StorageClass": "spec.storageClassName?",
        "VolumeAttributesClass": f"status.currentVolumeAttributesClassName?{values.UNSET}",
        "VolumeMode": f"spec.volumeMode?{values.UNSET}",
    },
    ("", "persistentvolumes"): {
        "Capacity": "spec.capacity.storage?",
        "Access Modes": values.modes("spec.accessModes"),
        "Reclaim Policy": "spec.persistentVolumeReclaimPolicy?",
        "Status": values.phase,
        "Claim": values.volume_claim,
        "StorageClass": "spec.storageClassName?",
        "VolumeAttributesClass": f"spec.volumeAttributesClassName?{values.UNSET}",
        "Reason": "status.reason?",
        "VolumeMode": f"spec.volumeMode?{values.UNSET}",
    },
    ("", "pods"): {
        "Ready": values.pod_ready,
        "Status": values.pod_status,
        "Restarts": values.pod_restarts,
        "IP": values.pod_ip,
        "Node": f"spec.nodeName?{values.NONE}",
        "Nominated Node": f"status.nominatedNodeName?{values.NONE}",
        "Readiness Gates": values.pod_gates,
    },
    ("", "podtemplates"): {
        **values.containers("template.spec"),
        "Pod Labels": values.selector("template.metadata.labels"),
    },
    ("", "replicationcontrollers"): _REPLICAS,
    ("", "resourcequotas"): {"Request": values.quota(limits=False), "Limit": values.quota(limits=True)},
    ("", "secrets"): {"Type": "type?", "Data": values.count("data")},
    ("", "services"): {
        "Type": "spec.type?ClusterIP",
        "Cluster-IP": f"spec.clusterIP?{values.NONE}",
        "External-IP": values.service_address,
        "Port(s)": values.service_ports,
        "Selector": values.selector("spec.selector"),
    },
    ("apiregistration.k8s.io", "apiservices"): {"Service": values.api_service_target, "Available": values.available},
    ("apps", "controllerrevisions"): {"Controller": values.controller, "Revision": values.number("revision")},
    ("apps", "daemonsets"): {
        "Desired": values.number("status.desiredNumberScheduled"),
        "Current": values.number("status.currentNumberScheduled"),
        "Ready": values.number("status.numberReady"),
        "Up-to-date": values.number("status.updatedNumberScheduled"),
        "Available": values.number("status.numberAvailable"),
        "Node Selector": values.selector("spec.template.spec.nodeSelector"),
        **_WORKLOAD,
    },
    ("apps", "deployments"): {
        "Ready": values.out_of("status.readyReplicas", "spec.replicas"),
        "Up-to-date": values.number("status.updatedReplicas"),
        "Available": values.number("status.availableReplicas"),
        **_WORKLOAD,
    },
    ("apps", "replicasets"): _REPLICAS,
    ("apps", "statefulsets"): {"Ready": values.out_of("status.readyReplicas", "spec.replicas"), **_WORKLOAD},
    ("autoscaling", "horizontalpodautoscalers"): {
        "Reference": values.reference("spec.scaleTargetRef"),
        "Targets": values.targets,
        "MinPods": f"spec.minReplicas?{values.UNSET}",
        "MaxPods": values.number("spec.maxReplicas"),
        "Replicas": values.number("status.currentReplicas"),
    },
    ("batch", "cronjobs"): {
        "Schedule": "spec.schedule?",
        "Timezone": f"spec.timeZone?{values.NONE}",
        "Suspend": lambda obj, _now: str(bool(values.value_at(obj, "spec.suspend"))),
        "Active": values.count("status.active"),
        "Last Schedule": values.last_schedule,
        **values.containers("spec.jobTemplate.spec.template.spec"),
        "Selector": values.selector("spec.jobTemplate.spec.selector"),
    },
    ("batch", "jobs"): {
        "Status": values.job_status,
        "Completions": values.job_completions,
        "Duration": values.job_duration,
        **_WORKLOAD,
    },
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "SignerName": "spec.signerName?",
        "Requestor": "spec.username?",
        "RequestedDuration": values.request_duration,
        "Condition": values.request_condition,
    },
    ("coordination.k8s.io", "leases"): {"Holder": "spec.holderIdentity?"},
    ("discovery.k8s.io", "endpointslices"): {
        "AddressType": "addressType?",
        "Ports": values.slice_ports,
        "Endpoints": values.slice_endpoints,
    },
    ("node.k8s.io", "runtimeclasses"): {"Handler": "handler?"},
    ("policy", "poddisruptionbudgets"): {
        "Min Available": lambda obj, _now: str(values.value_at(obj, "spec.minAvailable", "N/A")),
        "Max Unavailable": lambda obj, _now: str(values.value_at(obj, "spec.maxUnavailable", "N/A")),
        "Allowed Disruptions": values.number("status.disruptionsAllowed"),
    },
    ("scheduling.k8s.io", "priorityclasses"): {
        "Value": values.number("value"),
        "Global-Default": values.flag("globalDefault"),
        "PreemptionPolicy": "preemptionPolicy?PreemptLowerPriority",
    },
    (_ADMISSION, "mutatingwebhookconfigurations"): {"Webhooks": values.count("webhooks")},
    (_ADMISSION, "validatingwebhookconfigurations"): {"Webhooks": values.count("webhooks")},
    (_ADMISSION, "validatingadmissionpolicies"): {
        "Validations": values.count("spec.validations"),
        "ParamKind": values.param_kind,
    },
    (_ADMISSION, "validatingadmissionpolicybindings"): {
        "PolicyName": "spec.policyName?",
        "ParamRef": f"spec.paramRef.name?{values.UNSET}",
    },
    (_NETWORK, "ingresses"): {
        "Class": f"spec.ingressClassName?{values.NONE}",
        "Hosts": values.hosts,
        "Address": lambda obj, _now: ",".join(values.ingress_addresses(obj)),
        "Ports": lambda obj, _now: "80, 443" if values.value_at(obj, "spec.tls") else "80",
    },
    (_NETWORK, "ingressclasses"): {"Controller": "spec.controller?", "Parameters": values.class_parameters},
    (_NETWORK, "networkpolicies"): {"Pod-Selector": values.selector("spec.podSelector")},
    (_RBAC, "clusterrolebindings"): _BINDING,
    (_RBAC, "rolebindings"): _BINDING,
    (_STORAGE, "csinodes"): {"Drivers": values.count("spec.drivers")},
    (_STORAGE, "storageclasses"): {
        "Name": values.storage_class_name,
        "Provisioner": "provisioner?",
        "ReclaimPolicy": "reclaimPolicy?Delete",
        "VolumeBindingMode": "volumeBindingMode?Immediate",
        "AllowVolumeExpansion": values.flag("allowVolumeExpansion"),
    },
    (_STORAGE, "volumeattachments"): {
        "Attacher": "spec.attacher?",
        "PV": "spec.source.persistentVolumeName?",
        "Node": "spec.nodeName?",
        "Attached": values.flag("status.attached"),
    },
}
