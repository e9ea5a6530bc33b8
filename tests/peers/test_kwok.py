"""kwok, unmodified, plays the kubelets of an embedded server: its nodes get ready and its pods run."""

from __future__ import annotations

import pathlib

import pytest
from tests.endurance import running
from tests.peers import conftest, programs

pytestmark = pytest.mark.external

NODE = """
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{type: kwok}}
  annotations: {{kwok.x-k8s.io/node: fake}}
status:
  allocatable: {{cpu: "8", memory: 32Gi, pods: "110"}}
  capacity: {{cpu: "8", memory: 32Gi, pods: "110"}}
---
"""
STAGES = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      conditions:
      - {type: Ready, status: "True", reason: KubeletReady, message: ready, lastHeartbeatTime: {{ Now | Quote }},
         lastTransitionTime: {{ Now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  next:
    statusTemplate: |
      phase: Running
      podIP: 10.1.2.3
      startTime: {{ Now | Quote }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next: {delete: true}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {node}
  containers: [{{name: c, image: i}}]
---
"""


def test_kwok_makes_nodes_ready_and_runs_pods(server: running.Embedded, tmp_path: pathlib.Path) -> None:
    kwok = conftest.program("kwok", "v0.8.0", "kwok")
    kubectl = programs.Kubectl(server.kubeconfig, tmp_path)
    kubectl("apply", "-f", "-", stdin="".join(NODE.format(name=f"kwok-{number}") for number in range(3)))
    log = tmp_path / "kwok.log"
    arguments = [f"--kubeconfig={server.kubeconfig}", "--manage-all-nodes=true", "--node-lease-duration-seconds=40"]
    (tmp_path / "stages.yaml").write_text(STAGES)
    arguments += [f"--config={tmp_path / 'stages.yaml'}", "--server-address=127.0.0.1:0"]
    with programs.background(log, str(kwok), *arguments):

        def ready() -> int:
            nodes = kubectl.json("get", "nodes", "-l", "type=kwok")["items"]
            conditions = [c for node in nodes for c in node["status"].get("conditions", [])]
            return sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        programs.until(lambda: ready() == 3, "three ready nodes", log)
        pods = "".join(POD.format(name=f"p-{number}", node=f"kwok-{number % 3}") for number in range(6))
        kubectl("apply", "-f", "-", stdin=pods)
        kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
        phases = {pod["status"]["phase"] for pod in kubectl.json("get", "pods")["items"]}
        assert phases == {"Running"}

        def leases() -> set[str]:
            found = kubectl.json("get", "leases", "-n", "kube-node-lease")["items"]
            return {one["metadata"]["name"] for one in found}

        programs.until(lambda: leases() >= {"kwok-0", "kwok-1", "kwok-2"}, "a Lease of each node", log)
        kubectl("delete", "pods", "--all", "--timeout=60s")
        assert kubectl.json("get", "pods")["items"] == []
    assert server.faults == []
