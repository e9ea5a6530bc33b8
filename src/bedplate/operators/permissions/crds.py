"""The four CustomResourceDefinitions, with structural schemas, defaults and columns.

In: nothing. Out: objects in raw form. The defaults are those of `api.permissions`, and a test compares them.
"""

from __future__ import annotations

from typing import Any

from bedplate.api import permissions
from bedplate.api.resources import RawObject, ResourceRef

__all__ = ["definitions"]

_LARGEST_ID = 2147483647
_READY = '.status.conditions[?(@.type=="Ready")]'


def definitions() -> list[RawObject]:
    """All four, ready to be applied."""
    return [_definition(ref) for ref in permissions.KINDS]


def _definition(ref: ResourceRef[Any]) -> RawObject:
    is_user = ref is permissions.USERS
    spec = _user_spec() if is_user else _operator_spec()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": ref.qualified},
        "spec": {
            "group": ref.group,
            "scope": "Namespaced",
            "names": {
                "kind": ref.kind,
                "listKind": f"{ref.kind}List",
                "plural": ref.plural,
                "singular": ref.kind.lower(),
            },
            "versions": [
                {
                    "name": ref.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(is_user),
                    "schema": {"openAPIV3Schema": _schema(spec, is_user)},
                }
            ],
        },
    }


def _columns(is_user: bool) -> list[dict[str, Any]]:
    rows = [("User", ".spec.username"), ("Namespace", ".spec.namespace")]
    rows += [("Role", ".spec.role")] if is_user else []
    rows += [("Ready", f"{_READY}.status")]
    columns: list[dict[str, Any]] = [{"name": name, "type": "string", "jsonPath": path} for name, path in rows]
    why = {"name": "Message", "type": "string", "priority": 1, "jsonPath": f"{_READY}.message"}
    return [*columns, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}, why]


def _schema(spec: dict[str, Any], is_user: bool) -> dict[str, Any]:
    about = "What a person may do in a namespace." if is_user else "Who may use an operator in which namespace."
    properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {
        "description": about,
        "type": "object",
        "required": ["spec"],
        "properties": {**properties, "spec": spec, "status": _status()},
    }


def _user_spec() -> dict[str, Any]:
    number = {"type": "integer", "format": "int64", "minimum": permissions.UNKNOWN, "maximum": _LARGEST_ID}
    fields: dict[str, dict[str, Any]] = {
        "username": _text("Name of the user, as in the client certificate."),
        "create_service_account": _flag("Create a ServiceAccount of the user's name.", True),
        "role": {**_text("The ClusterRole that is bound.", "edit"), "enum": list(permissions.ROLES)},
        "user_paths": {
            "description": "Paths of the nodes that pods may mount.",
            "type": "array",
            "default": [],
            "maxItems": 64,
            "items": {"type": "string", "maxLength": 1024, "pattern": "^/"},
        },
        "uid": {"description": "UID of pods; -1: not given.", "default": permissions.UNKNOWN, **number},
        "gids": {
            "description": "GIDs of pods, the primary one first; -1: not given.",
            "type": "array",
            "default": [permissions.UNKNOWN],
            "minItems": 1,
            "maxItems": 64,
            "items": number,
        },
        "namespace": _text("The namespace; a cluster-admin needs none."),
        "create_namespace": _flag("Create the namespace.", True),
        "allowPrivilegeEscalation": _flag("Pods may gain privileges.", False),
        "allowPrivileged": _flag("Pods may have privileged containers.", False),
        "allow_all_uids": _flag("Pods without paths of the node may run with any UID, root included.", False),
        "psp_spec_override": {
            "description": "Has no effect: no supported Kubernetes has PodSecurityPolicies.",
            "type": "object",
            "default": {},
            "x-kubernetes-preserve-unknown-fields": True,
        },
    }
    return {"type": "object", "properties": fields}


def _operator_spec() -> dict[str, Any]:
    fields = {
        "namespace": {"description": "The namespace.", "type": "string"},
        "username": {"description": "Name of the user.", "type": "string"},
    }
    return {"type": "object", "required": ["namespace", "username"], "properties": fields}


def _status() -> dict[str, Any]:
    text = {"type": "string"}
    condition = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": text,
            "status": text,
            "reason": text,
            "message": text,
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    }
    return {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "objects": {"type": "array", "items": text},
            "digest": text,
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    }


def _text(about: str, default: str = "") -> dict[str, Any]:
    return {"description": about, "type": "string", "default": default}


def _flag(about: str, default: bool) -> dict[str, Any]:
    return {"description": about, "type": "boolean", "default": default}
