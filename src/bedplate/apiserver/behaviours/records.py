"""Kinds that only hold data: ConfigMaps and Secrets, Events and Leases.

In: writes of these kinds. Out: problems in Kubernetes' words (size, keys, immutability, namespace, numbers); a Secret's
`stringData` folded into `data`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from bedplate.apiserver import hooks, kinds, status

__all__ = ["ConfigMapBehaviour", "EventBehaviour", "LeaseBehaviour", "SecretBehaviour"]

MOST_BYTES = 1024 * 1024
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}\Z")
_KEY_HELP = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


class ConfigMapBehaviour(hooks.Behaviour):
    """Validates a ConfigMap."""

    def default(self, resource: kinds.Resource, obj: hooks.Object) -> None:
        _check_base64(obj.get("binaryData"), "ConfigMap", resource.api_version, "binaryData")

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        obj = write.object
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        problems = _key_problems(data, "data") + _key_problems(binary, "binaryData")
        problems += [
            status.FieldProblem.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in data
            if key in binary
        ]
        size = sum(len(str(value).encode()) for value in data.values()) + sum(
            _decoded(value) for value in binary.values()
        )
        if size > MOST_BYTES:
            problems.append(
                status.FieldProblem("FieldValueTooLong", "", f"Too long: may not be more than {MOST_BYTES} bytes")
            )
        return problems + _immutable_problems(write, ("data", "binaryData"))


class SecretBehaviour(hooks.Behaviour):
    """Defaults and validates a Secret."""

    def default(self, resource: kinds.Resource, obj: hooks.Object) -> None:
        if not obj.get("type"):
            obj["type"] = "Opaque"
        plain = obj.pop("stringData", None)
        if isinstance(plain, dict):
            encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
            obj["data"] = (obj.get("data") or {}) | encoded
        _check_base64(obj.get("data"), "Secret", resource.api_version, "data")

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        obj = write.object
        data = obj.get("data") or {}
        problems = _key_problems(data, "data")
        if sum(_decoded(value) for value in data.values()) > MOST_BYTES:
            problems.append(status.FieldProblem.too_long("data", MOST_BYTES))
        if obj.get("type") == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
            problems += [status.FieldProblem.required("data[%s]") for _ in ("username", "password")]
        for key in REQUIRED_KEYS.get(obj.get("type", ""), ()):
            if key not in data:
                problems.append(status.FieldProblem.required(f"data[{key}]"))
        if obj.get("type") == "kubernetes.io/service-account-token":
            annotation = "kubernetes.io/service-account.name"
            if not (obj["metadata"].get("annotations") or {}).get(annotation):
                problems.append(status.FieldProblem.required(f"metadata.annotations[{annotation}]"))
        if write.old is not None and write.old.get("type") != obj.get("type"):
            problems.append(status.FieldProblem.invalid("type", obj.get("type"), "field is immutable"))
        return problems + _immutable_problems(write, ("data",))


def _key_problems(data: dict[str, Any], field: str) -> list[status.FieldProblem]:
    return [status.FieldProblem.invalid(f"{field}[{key}]", key, _KEY_HELP) for key in data if not _KEY.match(key)]


def _check_base64(data: Any, kind: str, version: str, field: str) -> None:
    """Bytes travel as base64; Go cannot even read anything else, so this is a bad request, not an invalid object."""
    for key, value in (data or {}).items() if isinstance(data, dict) else ():
        try:
            base64.b64decode(str(value or ""), validate=True)
        except binascii.Error as err:
            what = f"illegal base64 data in {field}[{key}]: {err}"
            text = f'{kind} in version "{version}" cannot be handled as a {kind}: {what}'
            raise status.bad_request(text) from err


def _decoded(value: object) -> int:
    """Size in bytes of base64 text, without decoding it."""
    text = str(value)
    return len(text) * 3 // 4 - text[-2:].count("=")


def _immutable_problems(write: hooks.Write, fields: tuple[str, ...]) -> list[status.FieldProblem]:
    old = write.old
    if old is None or not old.get("immutable"):
        return []
    problems = []
    why = "field is immutable when `immutable` is set"
    if not write.object.get("immutable"):
        problems.append(status.FieldProblem.forbidden("immutable", why))
    changed = [field for field in fields if (old.get(field) or {}) != (write.object.get(field) or {})]
    return problems + [status.FieldProblem.forbidden(field, why) for field in changed]


class EventBehaviour(hooks.Behaviour):
    """An Event lives in the namespace of what it is about; one about a cluster-wide object, in `default`."""

    create_on_update = True

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        name = "involvedObject" if "involvedObject" in write.object else "regarding"
        about = (write.object.get(name) or {}).get("namespace", "")
        if about == write.namespace or (not about and write.namespace in ("default", "kube-system")):
            return []
        detail = "does not match event.namespace"
        return [status.FieldProblem.invalid("involvedObject.namespace", about, detail)]


class LeaseBehaviour(hooks.Behaviour):
    """A Lease lasts some time and counts its holders upwards."""

    create_on_update = True

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec = write.object.get("spec") or {}
        problems = []
        if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
            where = "spec.leaseDurationSeconds"
            problems.append(status.FieldProblem.invalid(where, spec["leaseDurationSeconds"], "must be greater than 0"))
        if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
            detail = "must be greater than or equal to 0"
            problems.append(status.FieldProblem.invalid("spec.leaseTransitions", spec["leaseTransitions"], detail))
        return problems
