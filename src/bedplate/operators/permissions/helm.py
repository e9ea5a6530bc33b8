"""A custom resource as a Helm release, so that `helm get manifest` and `helm list` answer.

In: a custom resource and its objects. Out: the Secret in Helm's own storage format: JSON, compressed, twice in base64.
Pure, and the same bytes for the same input: times are those of the custom resource. Helm itself is not needed.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import yaml

from bedplate.api import permissions
from bedplate.api.permissions import Permission
from bedplate.api.resources import RawObject

__all__ = ["manifest", "release", "secret_name"]

CHARTS = {
    permissions.USERS.kind: "cm-kubernetes-permission-user",
    permissions.JUPYTER_KERNELS.kind: "cm-kubernetes-operator-permissions-jupyter-kernel",
    permissions.POSTGRESQLS.kind: "cm-kubernetes-operator-permissions-postgresql",
    permissions.SPARKS.kind: "cm-kubernetes-operator-permissions-spark",
}
CHART_VERSION = "0.0.1"
SECRET_TYPE = "helm.sh/release.v1"
_REVISION = 1


def secret_name(release_name: str) -> str:
    """The name of the Secret of a release."""
    return f"sh.helm.release.v1.{release_name}.v{_REVISION}"


def manifest(objects: Sequence[RawObject], chart: str) -> str:
    """The objects as Helm shows them."""
    parts = []
    for each in objects:
        text = yaml.dump(each, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=False)
        parts.append(f"---\n# Source: {chart}/templates/{each['kind'].lower()}.yaml\n{text}")
    return "".join(parts)


def release(resource: Permission, objects: Sequence[RawObject], name: str = "") -> RawObject:
    """The Secret of a custom resource; `resource` has its kind. `name`: of the release, if it is another one."""
    name = name or resource.name
    chart = CHARTS[resource.kind]
    time = _time(resource.metadata.creation_timestamp)
    values = msgspec.to_builtins(resource.spec)
    record = {
        "name": name,
        "info": {
            "first_deployed": time,
            "last_deployed": time,
            "deleted": "",
            "description": "Install complete",
            "status": "deployed",
        },
        "chart": {
            "metadata": {"name": chart, "version": CHART_VERSION, "appVersion": CHART_VERSION, "apiVersion": "v2"},
            "lock": None,
            "templates": [],
            "values": {},
            "schema": None,
            "files": None,
        },
        "config": values,
        "manifest": manifest(objects, chart),
        "version": _REVISION,
        "namespace": permissions.NAMESPACE,
    }
    packed = base64.b64encode(gzip.compress(msgspec.json.encode(record), mtime=0))
    return _secret(resource, name, base64.b64encode(packed).decode())


def _secret(resource: Permission, name: str, data: str) -> RawObject:
    labels: dict[str, Any] = {
        "app.kubernetes.io/managed-by": permissions.FIELD_MANAGER,
        permissions.LABEL_RELEASE: resource.name,
        "name": name,
        "owner": "helm",
        "status": "deployed",
        "version": str(_REVISION),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(name), "namespace": permissions.NAMESPACE, "labels": labels},
        "type": SECRET_TYPE,
        "data": {"release": data},
    }


def _time(moment: datetime | None) -> str:
    return moment.isoformat() if moment is not None else "1970-01-01T00:00:00+00:00"
