"""Rules of `metadata` that hold for every kind: names, generated names, what the server owns, generation, finalizers.

In: decoded objects, the time, a source of randomness. Out: objects changed in place, or problems in Kubernetes' words.
Pure: nothing is read or written elsewhere.
"""

from __future__ import annotations

import random
from typing import Any

from bedplate.apiserver import kinds, status
from bedplate.apiserver.schema import formats
from bedplate.apiserver.state import bodies

__all__ = [
    "check_object",
    "fill_new",
    "generated_name",
    "keep_server_owned",
    "problems",
    "set_generation",
]

Object = bodies.Object
FieldProblem = status.FieldProblem

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_GENERATED_BASE = 63 - _SUFFIX_LENGTH
_MAX_ANNOTATIONS_BYTES = 256 * 1024

_NAMES = {("", "namespaces"): formats.dns1123_label, ("", "services"): formats.dns1035_label}
"""Kinds whose names are not DNS subdomains."""

# Kinds whose objects count generations; custom kinds always do.
_COUNTS_GENERATIONS = frozenset(
    {
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("discovery.k8s.io", "endpointslices"),
        ("networking.k8s.io", "ingressclasses"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("resource.k8s.io", "resourceslices"),
        ("resource.k8s.io", "deviceclasses"),
        *(
            ("admissionregistration.k8s.io", name)
            for name in (
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
            )
        ),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    }
)


def check_object(resource: kinds.Resource, obj: Any) -> Object:
    """Whether a body is an object of the resource; fills in apiVersion and kind where they are left out."""
    if not isinstance(obj, dict):
        raise status.bad_request("couldn't get version/kind; json parse error: the body must be an object")
    api_version, kind = obj.get("apiVersion") or resource.api_version, obj.get("kind") or resource.kind
    if not isinstance(api_version, str) or not isinstance(kind, str) or obj.get("kind") in ([], {}):
        raise status.bad_request("couldn't get version/kind; json parse error: apiVersion and kind must be text")
    version = str(api_version).rpartition("/")[2]
    if kind != resource.kind and resource.is_custom:
        problem = FieldProblem.invalid("kind", kind, f"must be {resource.kind}")
        raise status.invalid_kind(
            resource.group, str(kind), str((obj.get("metadata") or {}).get("name", "")), [problem]
        )
    if kind != resource.kind or api_version != resource.api_version:
        what = f'{kind} in version "{version}" cannot be handled as a {resource.kind}'
        why = f"no kind {resource.kind} is registered for {api_version}, expected {resource.api_version}"
        raise status.bad_request(f"{what}: {why}")
    obj["apiVersion"], obj["kind"] = api_version, kind
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = {}
    elif not isinstance(metadata, dict):
        text = f"json: cannot unmarshal into Go struct field {resource.kind}.metadata of type v1.ObjectMeta"
        raise status.bad_request(text)
    return obj


def generated_name(base: str, rng: random.Random) -> str:
    suffix = "".join(rng.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return base[:_MAX_GENERATED_BASE] + suffix


def new_uid(rng: random.Random) -> str:
    """A random UUID (version 4). Uniqueness matters here, not secrecy, so no system call is made for it."""
    text = f"{rng.getrandbits(128):032x}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def fill_new(resource: kinds.Resource, obj: Object, namespace: str, now: str, rng: random.Random) -> None:
    """Set what the server owns of a new object's metadata, and remove what a client may not bring along."""
    metadata = obj["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        metadata.pop(name, None)
    if resource.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = now
    if counts_generations(resource):
        metadata["generation"] = 1


def counts_generations(resource: kinds.Resource) -> bool:
    return resource.is_custom or (resource.group, resource.resource) in _COUNTS_GENERATIONS


def set_generation(resource: kinds.Resource, old: Object, new: Object) -> None:
    """The generation after an update: one more when what users wish for has changed."""
    before = old["metadata"].get("generation")
    if before is None:
        new["metadata"].pop("generation", None)
        return
    ignored = {"metadata", "apiVersion", "kind"}
    if "status" in resource.subresources or not resource.is_custom:
        ignored.add("status")
    wishes = [{key: value for key, value in obj.items() if key not in ignored} for obj in (old, new)]
    is_marked = "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]
    changed = counts_generations(resource) and (is_marked or wishes[0] != wishes[1])
    new["metadata"]["generation"] = before + 1 if changed else before


def keep_server_owned(old: Object, new: Object) -> None:
    """Carry over from the live object what an update cannot change."""
    before, metadata = old["metadata"], new["metadata"]
    for name in (
        "uid",
        "creationTimestamp",
        "namespace",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generateName",
    ):
        if name in before:
            metadata[name] = before[name]
        elif name != "generateName":
            metadata.pop(name, None)
    metadata["name"] = before["name"]
    metadata.pop("selfLink", None)


def problems(resource: kinds.Resource, obj: Object, old: Object | None) -> list[FieldProblem]:
    """Faults of the metadata."""
    metadata = obj["metadata"]
    faults: list[FieldProblem] = []
    if old is None:
        faults += _name_problems(resource, metadata)
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    before = old["metadata"] if old is not None else {}
    if labels and labels != before.get("labels"):
        faults += _label_problems(labels)
    if annotations and annotations != before.get("annotations"):
        faults += _annotation_problems(annotations)
    if metadata.get("finalizers") and metadata["finalizers"] != before.get("finalizers"):
        faults += _finalizer_problems(metadata["finalizers"])
    if metadata.get("ownerReferences") and metadata["ownerReferences"] != before.get("ownerReferences"):
        faults += _owner_problems(metadata["ownerReferences"])
    if before.get("deletionTimestamp"):
        added = [name for name in metadata.get("finalizers") or () if name not in (before.get("finalizers") or ())]
        if added:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {added!r}"
            faults.append(FieldProblem.forbidden("metadata.finalizers", detail.replace("'", '"').replace(', "', ' "')))
    return faults


def _name_problems(resource: kinds.Resource, metadata: Object) -> list[FieldProblem]:
    name = metadata.get("name") or ""
    if not name:
        return [FieldProblem.required("metadata.name", "name or generateName is required")]
    faults = [FieldProblem.invalid("metadata.name", name, text) for text in name_faults(resource, name)]
    if base := metadata.get("generateName"):
        # What is generated ends well, so a base may end with a dash or a dot.
        shown = base[:-1] + "a" if base[-1] in "-." else base
        faults[:0] = [
            FieldProblem.invalid("metadata.generateName", base, text) for text in name_faults(resource, shown)
        ]
    return faults


def name_faults(resource: kinds.Resource, name: str) -> list[str]:
    """What is wrong with a name of this kind."""
    if resource.group == "rbac.authorization.k8s.io":
        # These names only have to stand in a path.
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{letter}'" for letter in "/%" if letter in name]
    return _NAMES.get((resource.group, resource.resource), formats.dns1123_subdomain)(name)


def _label_problems(labels: Object) -> list[FieldProblem]:
    faults = []
    for key, value in labels.items():
        faults += [FieldProblem.invalid("metadata.labels", key, text) for text in formats.qualified_name(key)]
        faults += [FieldProblem.invalid("metadata.labels", value, text) for text in formats.label_value(value)]
    return faults


def _annotation_problems(annotations: Object) -> list[FieldProblem]:
    faults = []
    for key in annotations:
        faults += [
            FieldProblem.invalid("metadata.annotations", key, text) for text in formats.qualified_name(key.lower())
        ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MAX_ANNOTATIONS_BYTES:
        faults.append(FieldProblem.too_long("metadata.annotations", _MAX_ANNOTATIONS_BYTES))
    return faults


def _finalizer_problems(finalizers: list[str]) -> list[FieldProblem]:
    faults = []
    for name in finalizers:
        faults += [FieldProblem.invalid("metadata.finalizers", name, text) for text in formats.qualified_name(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        shown = " ".join(finalizers)
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        faults.append(FieldProblem.invalid("metadata.finalizers", f"[{shown}]", detail))
    return faults


def _owner_problems(owners: list[Object]) -> list[FieldProblem]:
    faults = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]" if len(owners) > 1 else "metadata.ownerReferences"
        for name, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not owner.get(name):
                faults.append(FieldProblem.invalid(f"{path}.{name}", owner.get(name, ""), text))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        detail = (
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {controllers[0].get("kind")}/{controllers[0].get("name")} and '
            f"{controllers[1].get('kind')}/{controllers[1].get('name')}"
        )
        faults.append(FieldProblem.invalid("metadata.ownerReferences", owners, detail))
    return faults
