"""helm on an embedded server with simulated nodes: hooks, a custom kind, --wait, upgrade, rollback, uninstall."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from tests import servers
from tests.endurance import running
from tests.peers import conftest, programs

pytestmark = pytest.mark.external

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
    "values.yaml": "replicas: 2\nimage: shop:1\n",
    "crds/crd.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.shop.example}
spec:
  group: shop.example
  names: {kind: Cart, plural: carts}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
""",
    "templates/cart.yaml": """
apiVersion: shop.example/v1
kind: Cart
metadata: {name: first}
spec: {size: {{ .Values.replicas }}}
""",
    "templates/hook.yaml": """
{{- range $when := list "pre-install" "post-install" "pre-upgrade" "post-upgrade" "pre-rollback" "pre-delete" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: hook-{{ $when }}
  annotations: {helm.sh/hook: {{ $when }}, helm.sh/hook-weight: "5", helm.sh/hook-delete-policy: before-hook-creation}
data: {revision: "{{ $.Release.Revision }}"}
{{- end }}
""",
    "templates/web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "{{ .Values.image }}"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
""",
}


@pytest.fixture
def nodes(server: running.Embedded, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Simulated nodes, in a process of their own, as a user starts them."""
    log = tmp_path / "nodes.log"
    command = (str(servers.bedplate_program()), "sim", "nodes", "--count", "2")
    with programs.background(log, *command, env={"KUBECONFIG": str(server.kubeconfig)}):
        yield log


def test_a_chart_with_hooks_is_waited_for(
    server: running.Embedded, nodes: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    helm = conftest.program("helm", "v3.22.0", "helm")
    kubectl = programs.Kubectl(server.kubeconfig, tmp_path)
    for name, text in CHART.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(helm), *arguments, "-n", "store"],
            env=kubectl.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, f"helm {arguments}: {done.stdout}\n{done.stderr}\n{nodes.read_text()[-2000:]}"
        return done.stdout

    def hooks() -> dict[str, str]:
        items = kubectl.json("get", "cm", "-n", "store")["items"]
        named = {one["metadata"]["name"]: one.get("data", {}) for one in items}
        return {name: data["revision"] for name, data in named.items() if name.startswith("hook-")}

    def images() -> set[str]:
        pods = kubectl.json("get", "pods", "-n", "store", "-l", "app=web", "--field-selector=status.phase=Running")
        return {pod["spec"]["containers"][0]["image"] for pod in pods["items"]}

    run("install", "shop", str(tmp_path / "shop"), "--create-namespace", "--wait", "--timeout=120s")
    assert kubectl.json("get", "deploy", "web", "-n", "store")["status"]["readyReplicas"] == 2
    assert hooks() == {"hook-pre-install": "1", "hook-post-install": "1"}
    assert kubectl.json("get", "carts", "first", "-n", "store")["spec"] == {"size": 2}
    run("upgrade", "shop", str(tmp_path / "shop"), "--set=image=shop:2,replicas=3", "--wait", "--timeout=120s")
    assert "shop:2" in images()
    assert hooks()["hook-post-upgrade"] == "2"
    run("rollback", "shop", "1", "--wait", "--timeout=120s")
    programs.until(lambda: images() == {"shop:1"}, "the first image again")
    assert hooks()["hook-pre-rollback"] == "1"
    assert [one["status"] for one in json.loads(run("history", "shop", "-o", "json"))][-1] == "deployed"
    run("uninstall", "shop", "--wait", "--timeout=120s")
    assert kubectl.json("get", "deploy,svc,carts", "-n", "store")["items"] == []
    kubectl("delete", "ns", "store", "--timeout=60s")
    assert server.faults == []
