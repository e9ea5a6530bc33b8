"""The real kube-scheduler and kube-controller-manager on an embedded server: they start and do their work."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from tests import servers
from tests.endurance import running
from tests.peers import conftest, programs

pytestmark = pytest.mark.external

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "ready"},
    "status": {
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}],
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "wanted"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}


@pytest.fixture
def kubectl(server: running.Embedded, tmp_path: pathlib.Path) -> programs.Kubectl:
    return programs.Kubectl(server.kubeconfig, tmp_path)


@pytest.fixture
def scheduler(server: running.Embedded, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    program = conftest.program("kubernetes", servers.KUBERNETES, "kube-scheduler")
    log = tmp_path / "scheduler.log"
    where = [f"--kubeconfig={server.kubeconfig}", f"--authentication-kubeconfig={server.kubeconfig}"]
    where += [f"--authorization-kubeconfig={server.kubeconfig}", f"--secure-port={servers.free_port()}"]
    with programs.background(log, str(program), *where, "--bind-address=127.0.0.1", f"--cert-dir={tmp_path / 'certs'}"):
        yield log


def test_the_real_scheduler_takes_its_lease_and_schedules(scheduler: pathlib.Path, kubectl: programs.Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(NODE))
    programs.until(lambda: kubectl.run("get", "sa", "default").returncode == 0, "a default account")
    kubectl("apply", "-f", "-", stdin=json.dumps(POD))

    def node_of(name: str) -> str:
        return str(kubectl.json("get", "pod", name)["spec"].get("nodeName", ""))

    programs.until(lambda: node_of("wanted") == "ready", "a scheduled pod", scheduler)
    lease = kubectl.json("get", "lease", "kube-scheduler", "-n", "kube-system")
    assert lease["spec"]["holderIdentity"]
    too_much = json.loads(json.dumps(POD))
    too_much["metadata"]["name"] = "too-much"
    too_much["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100"
    kubectl("apply", "-f", "-", stdin=json.dumps(too_much))

    def reason() -> str:
        conditions = kubectl.json("get", "pod", "too-much")["status"].get("conditions", [])
        return str(next((one.get("reason") for one in conditions if one["type"] == "PodScheduled"), ""))

    programs.until(lambda: reason() == "Unschedulable", "an unschedulable pod", scheduler)
    programs.until(
        lambda: "FailedScheduling" in kubectl("events", "--for", "pod/too-much"), "an event of the scheduler", scheduler
    )


def test_the_real_controller_manager_runs_jobs_and_stateful_sets(
    server: running.Embedded, scheduler: pathlib.Path, kubectl: programs.Kubectl, tmp_path: pathlib.Path
) -> None:
    """Those of its controllers that the embedded server leaves out make a whole of it."""
    program = conftest.program("kubernetes", servers.KUBERNETES, "kube-controller-manager")
    log = tmp_path / "manager.log"
    where = [f"--kubeconfig={server.kubeconfig}", f"--authentication-kubeconfig={server.kubeconfig}"]
    where += [f"--authorization-kubeconfig={server.kubeconfig}", f"--secure-port={servers.free_port()}"]
    where += ["--bind-address=127.0.0.1", f"--cert-dir={tmp_path / 'certs'}", "--use-service-account-credentials=false"]
    where += ["--controllers=job-controller,statefulset-controller,daemonset-controller,cronjob-controller"]
    kubectl("apply", "-f", "-", stdin=json.dumps(NODE))
    with programs.background(log, str(program), *where):
        kubectl("create", "job", "once", "--image=i")
        stateful = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db"},
            "spec": {
                "serviceName": "db",
                "replicas": 2,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "db"}},
                "template": {
                    "metadata": {"labels": {"app": "db"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
        daemon = json.loads(json.dumps(stateful))
        daemon["kind"], daemon["metadata"]["name"] = "DaemonSet", "agent"
        for field in ("serviceName", "replicas", "podManagementPolicy"):
            del daemon["spec"][field]
        daemon["spec"]["selector"]["matchLabels"] = daemon["spec"]["template"]["metadata"]["labels"] = {"app": "agent"}
        kubectl("apply", "-f", "-", stdin=json.dumps(stateful) + "\n---\n" + json.dumps(daemon))

        def names() -> set[str]:
            return {pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"]}

        programs.until(lambda: {"db-0", "db-1"} <= names(), "pods of the stateful set", log)
        programs.until(lambda: any(name.startswith("once-") for name in names()), "the pod of the job", log)
        programs.until(lambda: any(name.startswith("agent-") for name in names()), "the pod of the daemon set", log)
    assert server.faults == []
