"""What a simulated kubelet says about a pod."""

from typing import Any

import msgspec

from bedplate.api import core
from bedplate.core.clock import ManualClock
from bedplate.sim import podstatus

NOW = ManualClock().now()


def pod(owner: str = "", **spec: Any) -> core.Pod:
    owners = [{"apiVersion": "batch/v1", "kind": owner, "name": "o", "uid": "u"}] if owner else []
    body = {"metadata": {"name": "p", "ownerReferences": owners}, "spec": {"containers": [{"name": "c"}]} | spec}
    return msgspec.convert(body, core.Pod)


def test_a_pod_runs_and_is_ready() -> None:
    status = podstatus.started(pod(), "10.0.0.1", "10.1.0.2", NOW)
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "10.1.0.2", "10.0.0.1")
    assert {one["status"] for one in status["conditions"]} == {"True"}
    assert status["containerStatuses"][0]["ready"] and "running" in status["containerStatuses"][0]["state"]
    assert "initContainerStatuses" not in status


def test_a_pod_of_a_job_has_done_its_work() -> None:
    status = podstatus.started(pod("Job"), "10.0.0.1", "10.1.0.2", NOW)
    assert status["phase"] == "Succeeded"
    assert {one["type"] for one in status["conditions"] if one["status"] == "False"} == {"Ready", "ContainersReady"}
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_init_containers_have_ended_and_sidecars_run() -> None:
    given = pod(initContainers=[{"name": "first"}, {"name": "proxy", "restartPolicy": "Always"}])
    first, proxy = podstatus.started(given, "10.0.0.1", "10.1.0.2", NOW)["initContainerStatuses"]
    assert "terminated" in first["state"] and "running" in proxy["state"]
    assert first["ready"] and proxy["ready"]
