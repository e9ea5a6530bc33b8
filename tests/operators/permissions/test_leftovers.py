"""Which workloads wait for the end of the rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.operators.permissions import podtable

from bedplate.api.resources import RawObject
from bedplate.operators.permissions import leftovers
from bedplate.operators.permissions.rules import NamespaceRules
from bedplate.operators.permissions.volumes import Claim

SINCE = datetime(2026, 5, 1, tzinfo=UTC)
JOHN = podtable.rules("john")
NONE = NamespaceRules()
REFS = {ref.kind: ref for ref in leftovers.WORKLOADS}


def moment(seconds: float) -> str:
    return (SINCE + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def workload(kind: str, pod: RawObject, created_s: float = 1, *changed: RawObject) -> RawObject:
    """With a template of this pod, made so many seconds after the user."""
    template: RawObject = {"spec": pod["spec"]}
    for part in reversed(leftovers.WORKLOADS[REFS[kind]]):
        template = {part: template}
    entries = [{"manager": "kubectl", "time": moment(created_s)}, *changed]
    return {"metadata": {"name": "left", "creationTimestamp": moment(created_s), "managedFields": entries}, **template}


def found(body: RawObject, after: NamespaceRules = NONE, kind: str = "Deployment", **claims: Claim) -> list[str]:
    return list(leftovers.dangers(REFS[kind], [body], JOHN, after, SINCE, lambda pod: claims))


@pytest.mark.parametrize("kind", REFS)
def test_a_workload_of_every_kind_is_looked_into(kind: str) -> None:
    (text,) = found(workload(kind, podtable.mounting("/etc")), kind=kind)
    assert text.startswith(f"{kind} left (spec.volumes[0].hostPath.path: ")
    assert found(workload(kind, podtable.complete()), kind=kind) == []


@pytest.mark.parametrize(
    ("pod", "is_danger"),
    [
        (podtable.open_pod(), False),
        (podtable.open_pod(runAsUser=0), False),
        (podtable.contained(privileged=True, allowPrivilegeEscalation=None), True),
        (podtable.complete(hostPID=True), True),
        (podtable.mounting("/home/john"), False),
        (podtable.mounting("/home/john", podtable.open_pod()), True),
        (podtable.mounting("/home/john", podtable.whole(runAsUser=0)), True),
        (podtable.complete(volumes=[{"name": "r", "gitRepo": {"repository": "u"}}]), True),
    ],
    ids=["open", "root", "privileged", "hostPID", "own", "own and open", "own as root", "git"],
)
def test_what_any_namespace_allows_is_no_danger_and_what_opens_the_node_is(pod: Any, is_danger: bool) -> None:
    assert bool(found(workload("Deployment", pod))) is is_danger


def test_what_was_there_before_counts_once_somebody_changes_it() -> None:
    pod = podtable.mounting("/etc")
    old = workload("Deployment", pod, -1)
    assert found(old) == []
    changed = {"manager": "kube-controller-manager", "time": moment(5)}
    assert found(workload("Deployment", pod, -1, changed))
    assert found(workload("Deployment", pod, -1, {**changed, "subresource": "status"})) == []
    wiped = {**old, "metadata": {**old["metadata"], "managedFields": []}}
    assert found(wiped), "who wiped out the entries may have changed anything"


def test_a_claim_counts_as_what_it_leads_to() -> None:
    pod = podtable.open_pod()
    pod["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    body = workload("StatefulSet", pod)
    assert found(body, kind="StatefulSet") == []
    assert found(body, kind="StatefulSet", data=Claim("", "disk")) == []
    assert found(body, kind="StatefulSet", data=Claim("/home/john/x", "own", may_be_host_path=True))


def test_the_rules_of_those_who_stay_refuse_what_they_refuse() -> None:
    jane = podtable.resource("jane", "dev", uid=1001, gids=(1001,), user_paths=("/home/jane",))
    after = NamespaceRules.of([jane])
    hers = podtable.mounting(
        "/home/jane", podtable.whole(runAsUser=1001, runAsGroup=1001, fsGroup=1001, supplementalGroups=[1001])
    )
    assert found(workload("Deployment", podtable.mounting("/etc")), after) == []
    assert found(workload("Deployment", hers), after)
