"""What the webhook knows of claims: of pods, and of claims that took another's name."""

from __future__ import annotations

from typing import Any

from bedplate.api import meta, permissions
from bedplate.api.permissions import PersistentVolume, PersistentVolumeClaim, StorageClass
from bedplate.core.clock import ManualClock
from bedplate.operators.permissions.knowledge import Cluster
from bedplate.operators.permissions.volumes import UNKNOWN, Claim
from bedplate.runtime.cache import Cache

DYNAMIC = permissions.PersistentVolumeClaimSpec(storage_class_name="disk")
OWN = permissions.PersistentVolumeClaimSpec(volume_name="own", storage_class_name="")


def claim(uid: str, spec: permissions.PersistentVolumeClaimSpec, name: str = "data") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(metadata=meta.ObjectMeta(name=name, namespace="dev", uid=uid), spec=spec)


def cluster(*claims: PersistentVolumeClaim) -> Cluster:
    """A cluster with a class that has a provisioner, and a volume on a path of a node."""
    classes, persistent = Cache[StorageClass](), Cache[PersistentVolume]()
    classes.replace([StorageClass(metadata=meta.ObjectMeta(name="disk"), provisioner="example.com/disk")], "1")
    source = permissions.PersistentVolumeSpec(host_path={"path": "/home/john/data"})
    persistent.replace([PersistentVolume(metadata=meta.ObjectMeta(name="own"), spec=source)], "1")
    known = Cluster(Cache(), Cache(), persistent, classes, time=ManualClock())
    known.claims.replace(claims, "1")
    return known


def pod(*volumes: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    return {"metadata": {"name": "pod"}, "spec": {"volumes": named}}


def ephemeral(**spec: Any) -> dict[str, Any]:
    return {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def test_the_claims_of_a_pod_are_known_by_their_names() -> None:
    known = cluster(claim("1", OWN), claim("2", DYNAMIC, "pod-v2"))
    found = known.claims_of(
        "dev",
        pod(
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"persistentVolumeClaim": {"claimName": "absent"}},
            ephemeral(volumeName="own"),
            ephemeral(storageClassName="disk"),
            ephemeral(storageClassName="other"),
            ephemeral(storageClassName=3),
            {"emptyDir": {}},
        ),
    )
    path = Claim("/home/john/data", "own", may_be_host_path=True)
    # A claim that is there counts, and not the template that would have made it.
    assert found == {"data": path, "pod-v2": Claim(), "pod-v3": Claim(), "pod-v4": UNKNOWN, "pod-v5": UNKNOWN}


async def test_a_claim_that_took_the_name_of_a_free_one_is_told_until_no_pod_can_be_on_its_way() -> None:
    known = cluster(claim("1", DYNAMIC))
    assert known.was_other("dev", claim("2", OWN)), "the cache still shows the first one"
    known.claims.replace([], "2")
    assert known.was_other("dev", claim("2", OWN))
    assert not known.was_other("dev", claim("3", OWN, "another"))
    assert isinstance(known.time, ManualClock)
    await known.time.advance(71)
    assert not known.was_other("dev", claim("2", OWN))


def test_a_claim_that_changes_itself_or_was_on_a_path_before_is_no_other() -> None:
    known = cluster(claim("1", DYNAMIC))
    assert not known.was_other("dev", claim("1", OWN))
    known = cluster(claim("1", OWN))
    assert not known.was_other("dev", claim("2", OWN))
    known.claims.replace([claim("2", OWN)], "2")
    assert not known.was_other("dev", claim("2", OWN))
    known = cluster(claim("1", permissions.PersistentVolumeClaimSpec(storage_class_name="")))
    assert not known.was_other("dev", claim("2", OWN)), "pods were judged as on a path"
    gone = permissions.PersistentVolumeClaimSpec(volume_name="gone", storage_class_name="disk")
    assert cluster(claim("1", gone)).was_other("dev", claim("2", OWN)), "its volume may have been any"


def test_a_claim_that_went_and_came_in_one_step_is_another() -> None:
    known = cluster(claim("1", OWN))
    known.claims.replace([claim("3", DYNAMIC)], "3")
    known.claims.replace([claim("4", OWN)], "4")
    assert known.was_other("dev", claim("4", OWN))
