"""Names that the kernel operator, its sidecar and the gateway agree on: the kind, labels, ports, variables, paths."""

from __future__ import annotations

import re

__all__ = [
    "CHANNELS",
    "COMM_PORT",
    "CONNECTION_FILE",
    "KERNEL_PORTS",
    "LABEL_KERNEL",
    "NAMESPACE",
    "SIDECAR",
    "object_name",
]

GROUP, VERSION, PLURAL, KIND = "apps.brightcomputing.com", "v1", "cmjupyterkernels", "CMJupyterKernel"
CRD = f"{PLURAL}.{GROUP}"
NAMESPACE = "cm-jupyter-kernel-operator-system"
OPERATOR = "jupyter-kernel-operator"

LABEL_KERNEL = f"{GROUP}/kernel"
"""On every object of a kernel: the name of these objects."""
LABEL_KERNEL_ID = f"{GROUP}/kernel-id"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
ANNOTATION_SPEC = f"{GROUP}/spec"
"""On the pod: a checksum of the spec that it was made from."""

SIDECAR = "cmjksidecar"
"""The name of the sidecar's program and of its container."""
CONNECTION_FILE = "/var/tmp/kernel-parm.json"
CHANNELS = {"shell": 5001, "iopub": 5002, "stdin": 5003, "control": 5004, "hb": 5005}
"""The channels of a kernel, with the ports at which the sidecar serves them."""
COMM_PORT = 5006
KERNEL_PORTS = {name: port + 10_000 for name, port in CHANNELS.items()}
"""The ports of the kernel itself in a connection file that the operator made: sidecar and kernel share an address."""
VOLUME_CONNECTION, VOLUME_FILES, VOLUME_SECRET = "cmjk-connection", "cmjk-files", "cmjk-secret"
KEY_PASSWD, KEY_GROUP, KEY_SPARK, KEY_CONNECTION = "passwd", "group", "spark-pod-template", "connection-file"

_PREFIX, _LONGEST, _SUFFIX = "cmjk-", 63, 8


def object_name(kernel: str, uid: str) -> str:
    """The name of a kernel's pod, Service, ConfigMap and Secret: a DNS label, whatever the resource is called.

    The end is of the resource's UID: a kernel that is started again under its old name meets nothing of the old one.
    """
    suffix = uid.replace("-", "")[:_SUFFIX]
    room = _LONGEST - len(_PREFIX) - len(suffix) - 1
    text = re.sub(r"[^a-z0-9-]", "-", kernel)[:room].rstrip("-")
    return f"{_PREFIX}{text}-{suffix}"
