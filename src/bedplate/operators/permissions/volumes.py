"""Which claims lead to a path of a node.

In: claims, volumes and storage classes as they are known. Out: for each claim what the decision about a pod needs, and
whether a claim may have the volume that it names. Pure.

A volume of type hostPath or local that no provisioner made counts as a host path. A claim that is not bound yet counts
as one too, unless its class has a provisioner: such a claim may in turn only be bound to what a provisioner made.

A pod names claims, and a claim can be deleted and created again under its name while a pod that names it waits for a
node. What the pod was admitted with says nothing about the new one: `judge_name` judges the claim by such pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from bedplate.api import permissions
from bedplate.api.permissions import PersistentVolume, PersistentVolumeClaim, StorageClass
from bedplate.api.resources import RawObject
from bedplate.operators.permissions import pods, refusals
from bedplate.operators.permissions.refusals import Refusal
from bedplate.operators.permissions.rules import NamespaceRules

__all__ = ["CREATING", "UNKNOWN", "Claim", "claim_of", "claims_of", "judge_claim", "judge_name", "name_of"]

NO_PROVISIONER = "kubernetes.io/no-provisioner"
CREATING = ("DirectoryOrCreate", "FileOrCreate")
"""Types of host paths that the kubelet makes, as root, where there are none."""
ENDED = ("Failed", "Succeeded")


class Claim(msgspec.Struct, frozen=True):
    """What a claim leads to. `path` is empty when it is not a path of a node, or not known yet."""

    path: str = ""
    volume: str = ""
    may_be_host_path: bool = False
    """Bound to a path of a node, or may be later."""


UNKNOWN = Claim(may_be_host_path=True)
"""A claim that nobody has seen: it may become anything."""


def path_of(volume: PersistentVolume) -> str:
    """The node's path of a volume; empty when there is none, or when a provisioner made it."""
    if permissions.ANNOTATION_PROVISIONED_BY in volume.metadata.annotations:
        return ""
    for source in (volume.spec.host_path, volume.spec.local):
        if source is not None:
            return str(source.get("path") or "/")
    return ""


def claim_of(volume_name: str, class_: StorageClass | None, volume: PersistentVolume | None) -> Claim:
    """What a claim leads to that names this volume (empty: none yet) and has this class (None: none, or not known)."""
    if volume_name and volume is not None:
        path = path_of(volume)
        return Claim(path, volume_name, bool(path))
    return Claim("", volume_name, may_be_host_path=not _is_dynamic(class_) or bool(volume_name))


def name_of(pod: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    """The name of the claim of a volume, which an ephemeral volume has too; empty for other kinds of volumes."""
    if volume.get("ephemeral") is not None:
        return f"{pods.mapped(pod.get('metadata')).get('name', '')}-{volume.get('name', '')}"
    return str(pods.mapped(volume.get("persistentVolumeClaim")).get("claimName", ""))


def claims_of(
    pod: Mapping[str, Any],
    find: Callable[[str], PersistentVolumeClaim | None],
    lead: Callable[[PersistentVolumeClaim], Claim],
) -> dict[str, Claim]:
    """What the claims of a pod lead to, by name; those that are not known are left out. `find` gives the claim of a
    name, `lead` what one leads to. No two volumes have one claim: an API server refuses such a pod."""
    known: dict[str, Claim] = {}
    for _, volume in pods.volumes(pod):
        name = name_of(pod, volume)
        claim = find(name) if name else None
        if claim is not None:
            known[name] = lead(claim)
        elif volume.get("ephemeral") is not None:
            known[name] = _of_template(volume, lead)
    return known


def _of_template(volume: Mapping[str, Any], lead: Callable[[PersistentVolumeClaim], Claim]) -> Claim:
    template = pods.mapped(pods.mapped(volume["ephemeral"]).get("volumeClaimTemplate"))
    try:
        return lead(msgspec.convert({"spec": pods.mapped(template.get("spec"))}, PersistentVolumeClaim))
    except msgspec.ValidationError:
        return UNKNOWN


def judge_name(
    name: str, path: str, present: Iterable[RawObject], judge: Callable[[RawObject], Iterable[Refusal]]
) -> tuple[Refusal, ...]:
    """Why a claim on a path of a node may not have this name: pods that are `present` name it, and were admitted when
    it was another claim. `judge` gives what the path makes wrong with a pod."""
    for pod in present:
        phase = pods.mapped(pod.get("status")).get("phase")
        if phase in ENDED or name not in {name_of(pod, volume) for _, volume in pods.volumes(pod)}:
            continue
        for reason in judge(pod):
            about = f"the pod {pods.mapped(pod.get('metadata')).get('name', '')!r}"
            message = f"{about} would use the path {path!r} of a node: {reason.field}: {reason.message}"
            return (Refusal(reason.rule, "metadata.name", message, "delete the pod, or choose another name"),)
    return ()


def judge_claim(rules: NamespaceRules, claim: Claim, class_: StorageClass | None) -> tuple[Refusal, ...]:
    """Why the claim may not have its volume. One that does not exist could become anything."""
    if not rules.sets:
        message = "the namespace has lost its rules"
        return (Refusal("pod-rules", "metadata.namespace", message, "wait for the permission manager to restore them"),)
    if not claim.path and claim.may_be_host_path:
        rule, message = rules.sets[0].rule(refusals.HOST_PATHS), f"the volume {claim.volume!r} does not exist"
        return (Refusal(rule, "spec.volumeName", message, "create the volume first"),)
    if not claim.path:
        return ()
    reasons = []
    for each in rules.sets:
        rule, field = each.rule(refusals.HOST_PATHS), "spec.volumeName"
        if not each.has_path(claim.path) or not each.has_identity:
            message = f"the volume {claim.volume!r} is the path {claim.path!r} of a node"
            reasons.append(Refusal(rule, field, message, remedy(each.paths)))
        elif _is_dynamic(class_):
            message = f"the volume {claim.volume!r} is a path of a node that the claim's class did not make"
            reasons.append(Refusal(rule, field, message, "set spec.storageClassName to an empty string"))
    return tuple(reasons)


def remedy(paths: tuple[str, ...]) -> str:
    """What a user may do instead of a path that is not theirs."""
    if not paths:
        return "use another kind of volume"
    shown = ", ".join(path.rstrip("/") or "/" for path in paths)
    return f"use a path below {shown}"


def _is_dynamic(class_: StorageClass | None) -> bool:
    return class_ is not None and class_.provisioner not in ("", NO_PROVISIONER)
