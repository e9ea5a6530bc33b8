"""Each manager, started with the flags of its chart and with no rights but those of its chart's roles."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import servers
from tests.deploy.conftest import Program, chart_folder, documents, of_kind, unique
from tests.waiting import wait_until

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"


def until(what: str, is_so: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> None:
    def holds() -> Any:
        assert process.poll() is None, f"the manager ended:\n{log.read_text()[-3000:]}"
        return is_so()

    wait_until(holds, what, step_s=0.2, describe=lambda: log.read_text()[-3000:])


class Cluster:
    """An account with the rights of a chart, a node of this test's own, and a manager that works with both."""

    def __init__(self, kubectl: Program, helm: Program, server: servers.Server, namespace: str, folder: Path) -> None:
        self.kubectl, self._helm, self._server, self.namespace, self._folder = kubectl, helm, server, namespace, folder
        self.node = unique("running")
        self.port = servers.free_port()
        self._manifest = ""
        self._config = folder / "cloud-config.yaml"

    def install(self, provider: str, *values: str) -> list[str]:
        """The chart's roles, in the cluster; the command that its Deployment would run."""
        release = unique("run")
        own = ["serviceAccount.name=manager", f"leaderElection.resourceName={release}", *values]
        text = self._helm("template", release, chart_folder(provider), "-n", self.namespace, "--set", ",".join(own))
        objects = documents(text)
        (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        rights = [each for each in objects if each["kind"] not in ("Deployment", "ConfigMap", "Secret")]
        self._manifest = yaml.safe_dump_all(rights)
        self.kubectl("apply", "-f", "-", stdin=self._manifest)
        command = [*container["command"], *container.get("args", [])]
        return [word for word in command if not word.startswith("--cloud-config=")]

    def remove(self) -> None:
        self.kubectl("delete", "node", self.node, "--ignore-not-found", "--wait=false")
        self.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=self._manifest)

    def join(self) -> None:
        """The node as a kubelet with --cloud-provider=external registers it."""
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "labels": {"test": self.node}},
            "spec": {"taints": [{"key": TAINT, "value": "true", "effect": "NoSchedule"}]},
        }
        self.kubectl("create", "-f", "-", stdin=json.dumps(node))

    def start(self, command: list[str], cloud_config: dict[str, Any]) -> tuple[subprocess.Popen[bytes], Path]:
        self._config.write_text(yaml.safe_dump(cloud_config))
        program = Path(sys.executable).with_name(Path(command[0]).name)
        log = self._folder / "manager.log"
        own = [
            f"--cloud-config={self._config}",
            f"--kubeconfig={self._kubeconfig()}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--node-selector=test={self.node}",
        ]
        with log.open("wb") as target:
            process = subprocess.Popen(
                [str(program), *command[1:], *own],
                stdout=target,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if not name.startswith("KUBE")},
                preexec_fn=servers._die_with_parent,
            )
        return process, log

    def token(self, account: str) -> str:
        return self.kubectl("create", "token", account, "-n", self.namespace).strip()

    def get_node(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "node", self.node, "-o", "json"))
        return found

    def _kubeconfig(self) -> Path:
        path = self._folder / "kubeconfig"
        shutil.copy(self._server.ca_file, self._folder / "ca.crt")
        cluster = {"server": self._server.url, "certificate-authority": str(self._folder / "ca.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "manager", "user": {"token": self.token("manager")}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "manager"}}],
            "current-context": "it",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def missing_rights(self, provider: str, role: str, lease: str) -> list[str]:
        """What the doctor says the manager's account lacks; other findings are about other tests' nodes."""
        command = [
            *(str(Path(sys.executable).with_name("bedplate")), "doctor", "--cloud-provider", provider),
            *(
                "--cloud-config",
                str(self._config),
                "--kubeconfig",
                str(self._server.kubeconfig),
                "--cluster-role",
                role,
            ),
            *("--service-account", f"{self.namespace}/manager", "--lease-name", lease),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        about_rights = [line for line in done.stdout.splitlines() if re.match(r"\S+ +rbac ", line)]
        assert any("has all" in line for line in about_rights), done.stdout
        return [line for line in about_rights if not line.startswith("ok ")]

    def ask(self, path: str, token: str = "") -> int:
        """The status with which the manager answers."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as err:
            return err.code
        except OSError:
            return 0


@pytest.fixture
def cluster(
    kubectl: Program, helm: Program, server: servers.Server, namespace: str, tmp_path: Path
) -> Iterator[Cluster]:
    made = Cluster(kubectl, helm, server, namespace, tmp_path)
    yield made
    made.remove()


@pytest.mark.parametrize("accounts", ["true", "false"], ids=["accounts of their own", "one account"])
def test_a_node_is_initialised_and_metrics_are_guarded_with_the_charts_rights_alone(
    cluster: Cluster, kubectl: Program, namespace: str, accounts: str
) -> None:
    settings = ("metrics.service=true", f"useServiceAccountCredentials={accounts}", "cloudConfig.interface=v2")
    command = cluster.install("cloudlycke", *settings)
    cluster.join()
    machine = {"id": "m-1", "name": cluster.node, "internalIPs": ["10.11.12.13"], "type": "vbox.vm.1g.2cpu"}
    process, log = cluster.start(command, {"instances": [machine]})
    try:
        until("the taint is gone", lambda: "taints" not in cluster.get_node()["spec"], process, log)
        node = cluster.get_node()
        assert node["spec"]["providerID"] == "cloudlycke://m-1"
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "vbox.vm.1g.2cpu"
        until("addresses", lambda: cluster.get_node()["status"].get("addresses"), process, log)
        until("readiness", lambda: cluster.ask("/readyz") == 200, process, log)
        assert cluster.ask("/healthz") == 200
        assert cluster.ask("/metrics") in (401, 403)
        kubectl("create", "serviceaccount", "prometheus", "-n", namespace)
        token = cluster.token("prometheus")
        assert cluster.ask("/metrics", token) == 403
        role = of_kind(documents(cluster._manifest), "Service")["metadata"]["name"].removesuffix("-metrics")
        who = f"--serviceaccount={namespace}:prometheus"
        kubectl("create", "clusterrolebinding", namespace, f"--clusterrole=system:{role}:metrics-reader", who)
        # Refusals are remembered for a few seconds.
        until("metrics", lambda: cluster.ask("/metrics", token) == 200, process, log)
        assert "forbidden" not in log.read_text().lower()
        lease = next(word for word in command if word.startswith("--leader-elect-resource-name=")).partition("=")[2]
        assert cluster.missing_rights("cloudlycke", f"system:{role}", lease) == []
    finally:
        process.terminate()
        code = process.wait(60)
        kubectl("delete", "clusterrolebinding", namespace, "--ignore-not-found")
    assert code == 0, log.read_text()[-2000:]
