"""The custom resource definition of CMJupyterKernel.

Out: one document, made of data. Every field of the table in `docs/guides/jupyter.md` has its type, its limits and its
default here, so that the API server refuses what is wrong. `pod` and `service` are a PodSpec and a ServiceSpec: of
those only the shape is checked, the rest by the API server when the pod and the Service are made of them.
"""

from __future__ import annotations

from typing import Any

from bedplate.operators.jupyter import accounts, names

__all__ = ["definition"]

Schema = dict[str, Any]
# A colon or a line's end would begin another field, or another account, in /etc/passwd.
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?$"
_PLACE = r"^/[^:\n\r]*$"


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _words(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "default": [], "description": description}


def _number(description: str) -> Schema:
    return {"type": "integer", "format": "int64", "minimum": 1, "maximum": 4294967294, "description": description}


def _containers(minimum: int) -> Schema:
    container: Schema = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    return {"type": "array", "minItems": minimum, "items": container}


def _spec() -> Schema:
    pod: Schema = {
        "type": "object",
        "description": "The PodSpec of the kernel; the sidecar, volumes and the security context are added.",
        "required": ["containers"],
        "properties": {"containers": _containers(1), "initContainers": _containers(0)},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    service: Schema = {
        "type": "object",
        "description": "The ServiceSpec; selector and the sidecar's ports are added.",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    flavors = sorted(accounts.FLAVORS)
    properties: Schema = {
        "kernel_id": _text("UUID of the kernel.", minLength=1, maxLength=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
        "username": _text("Name of the account in the pod.", maxLength=256, pattern=_NAME),
        "uid": _number("The user's UID, as which every container runs."),
        "gid": _number("The user's GID."),
        "homedir": _text("Home folder of the account.", pattern=_PLACE),
        "usershell": _text("Shell of the account.", pattern=_PLACE),
        "image_os_flavor": _text("The system whose accounts /etc/passwd and /etc/group have.", enum=flavors),
        "etc_passwd": _text("The whole of /etc/passwd."),
        "etc_group": _text("The whole of /etc/group."),
        "sidecar_command": _words("Replaces the sidecar's command."),
        "sidecar_args": _words("The sidecar's arguments."),
        "kernel_connection_file_path": _text(
            "The kernel's connection file.", default=names.CONNECTION_FILE, pattern=_PLACE
        ),
        "create_connection_file": {
            "type": "boolean",
            "default": False,
            "description": "Write the connection file before the kernel starts.",
        },
        "spark_pod_template_path": _text("Where the template of Spark's executor pods is put.", pattern=_PLACE),
        "spark_pod_template": _text("The template of Spark's executor pods."),
        "pod": pod,
        "service": service,
    }
    return {
        "type": "object",
        "required": ["kernel_id", "uid", "gid", "pod"],
        "properties": properties,
    }


def _status() -> Schema:
    condition: Schema = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    }
    conditions: Schema = {
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    properties: Schema = {
        "phase": _text("Refused, Pending, Running or Stopped."),
        "podName": _text("The kernel's pod."),
        "serviceName": _text("Its Service."),
        "configMapName": _text("The ConfigMap of /etc/passwd and /etc/group."),
        "secretName": _text("The Secret of the connection file."),
        "address": _text("The pod's address, at which the sidecar serves."),
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": conditions,
    }
    return {"type": "object", "properties": properties}


def _column(name: str, path: str, kind: str = "string", priority: int = 0) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})


def definition() -> dict[str, Any]:
    """The whole document."""
    schema: Schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
    }
    columns = [
        _column("Kernel", ".spec.kernel_id"),
        _column("User", ".spec.username"),
        _column("Phase", ".status.phase"),
        _column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Address", ".status.address", priority=1),
        _column("Message", ".status.conditions[?(@.type=='Ready')].message", priority=1),
    ]
    version: dict[str, Any] = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": names.CRD},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": ["cmjk"],
            },
            "versions": [version],
        },
    }
