"""cm-kubernetes-setup on a managed lab: one command makes a real cluster of bare nodes, and one removes it.

The tests follow one another. Clusters are made by kubeadm, which the agents of the nodes run; what proves them are
pods that talk to each other and nodes that are byte for byte what they were, once their cluster is gone.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.lab.test_lab_managed import Site
from tests.waiting import wait_until

from bedplate.lab import binaries, managed, packages

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

NODES = ("node001", "node002", "node003")
_HANGS_S = 1800
"""A tool that has not ended by then will not: how long it takes depends on the machine."""
STATELESS = frozenset(
    ("--kubeconfig-of", "--certificates", "--renew-certificates", "--etcd-snapshot", "--etcd-snapshots")
)
"""Actions without stages."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "three-nodes.yaml"
# What a cluster leaves in the kernel of a node, or does not.
_KERNEL = """
ip -o link | sed 's/@[^:]*//; s/^[0-9]*: //' | cut -d: -f1 | sort
ip route | sort
nft list tables
cat /proc/mounts | cut -d' ' -f2 | sort
ps ax -o args= | grep -e '[c]ontainerd' -e '[k]ube' -e '[e]tcd' -e '[n]ginx' -e '/[p]ause' -e '/[c]oredns'
true
"""


class Lab(NamedTuple):
    """The lab, with its nodes and its head's tree before any cluster, and this machine before the lab."""

    site: Site
    trees: dict[str, Any]
    kernels: dict[str, str]
    objects: str
    machine: Any

    def setup(self, *words: str, code: int | None = 0) -> str:
        """What the tool printed; it must end with that code."""
        result = subprocess.run(
            self._command(*words),
            env=self.site.lab.environ,
            capture_output=True,
            text=True,
            timeout=_HANGS_S,
            check=False,
            cwd="/",
        )
        text = result.stdout + result.stderr
        assert code is None or result.returncode == code, text
        return text

    def _command(self, *words: str) -> list[str]:
        command = [sys.executable, "-u", "-m", "bedplate.apps.kubernetessetup", "--data", str(self.site.data)]
        state = ["--state", str(self.site.folder / "setup"), "--log-file", str(self.site.folder / "setup.log")]
        return [*command, *([] if STATELESS & set(words) else state), *words]

    def kill_at(self, stage: str, *words: str) -> bool:
        """Run the tool, and kill it as soon as it says that a stage begins; False for one that was quicker."""
        pipe, line = subprocess.PIPE, self._command(*words, "--on-error-action", "abort")
        with subprocess.Popen(line, env=self.site.lab.environ, stdout=pipe, text=True, cwd="/") as tool:
            assert tool.stdout is not None
            said = []
            for text in tool.stdout:
                said.append(text)
                if text.strip() == f"#### stage: kubernetes: {stage}":
                    tool.kill()
                    return tool.wait() != 0
        raise AssertionError(f"the run ended before {stage}: {''.join(said[-40:])}")

    def kubectl(self, *words: str, node: str = "node001", stdin: str = "") -> str:
        """kubectl on a node, through that node's own proxy."""
        line = self.site.lab.command("exec", "--name", self.site.lab.name, node, "--", "kubectl")
        config = self.site.data / "kubernetes" / "default.kubeconfig"
        local = self.site.folder / "nodes" / node / "root" / "tmp" / "kubeconfig"
        local.write_text(re.sub(r"server: https://[0-9.]+:", "server: https://127.0.0.1:", config.read_text()))
        result = subprocess.run(
            [*line, "--kubeconfig=/tmp/kubeconfig", "--cache-dir=/tmp/kube", "--request-timeout=20s", *words],
            env=self.site.lab.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def get(self, *words: str, node: str = "node001") -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json", node=node))

    def kernel(self, node: str) -> str:
        return self.site.on(node, "sh", "-c", _KERNEL)

    def tree_of_head(self) -> str:
        """Everything that the head knows, but for revisions and times."""
        return self.site.cmsh("export")

    def has_node(self, name: str) -> bool:
        return name in self.kubectl("get", "nodes", "-o", "name", node="node002")

    def kubelet(self, node: str) -> str:
        """The process of a node's kubelet."""
        return self.site.on(node, "pgrep", "-x", "kubelet").strip()

    def until_applied(self, node: str) -> None:
        """Until a node is what it should be."""
        wait_until(lambda: not self.site.status(node)["Pending"], f"{node} has nothing left to do", step_s=0.5)

    def assert_clean(self, node: str) -> None:
        """Nothing is left of a cluster on a node."""
        left = self.site.changes(node, self.trees)
        for name in ("usr", "opt"):
            # Folders of this machine that were written to stay in the layer above it.
            new = set(left.pop(f"/{name}", ())) - set(self.trees[node][f"/{name}"])
            assert [path for path in new if not Path("/", name, path).is_dir()] == [], node
        assert left == {}, node
        assert self.kernel(node) == self.kernels[node], node

    def assert_as_before(self) -> None:
        """Nothing is left of a cluster, on no node and not on the head."""
        for node in self.trees:
            self.assert_clean(node)
        assert self.tree_of_head() == self.objects
        assert not (self.site.data / "kubernetes").exists()
        assert not (self.site.data / "modulefiles").exists()


def bare(made: Any, nodes: Sequence[str], machine: Any = None) -> Lab:
    """Start a lab with nodes and no cluster, and see what it is like."""
    binaries.ensure((*packages.TAKEN, *managed.IMAGED), progress=print)
    site = Site(made, made.ok("up", "--managed", "--nodes", str(len(nodes))).strip())
    # The four health checks and the networks of a new site are those of a cluster, and go with it.
    site.cmsh(
        "network", "remove kube-default-pod", "remove kube-default-service", "healthcheck",
        "remove KubernetesChildNode", "remove KubernetesComponentsStatus", "remove KubernetesNodesStatus",
        "remove KubernetesPodsStatus", "/", "commit --wait",
    )  # fmt: skip
    lab = Lab(site, {node: site.tree(node) for node in nodes}, {}, "", machine)
    return lab._replace(kernels={node: lab.kernel(node) for node in nodes}, objects=lab.tree_of_head())


@pytest.fixture(scope="module")
def lab(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[Lab]:
    made = new_lab("s")
    yield bare(made, NODES, look(made.name, made.state))
    made.run("down")


def _pod(name: str, node: str, *command: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": list(command)}
    spec = {"nodeName": node, "containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def _is_running(lab: Lab, pod: str) -> bool:
    status = lab.get("pod", pod)["status"]
    return status["phase"] == "Running" and bool(status.get("podIP"))


def test_items_93_96_one_command_makes_a_cluster_of_one_control_plane_node_and_two_workers(lab: Lab) -> None:
    said = lab.setup("-c", str(EXAMPLE), "--on-error-action", "abort")
    assert "status: completed" in said
    assert "Installation completed. Pods might still be initializing." in said
    nodes = {item["metadata"]["name"]: item for item in lab.get("nodes")["items"]}
    assert set(nodes) == set(NODES)
    for item in nodes.values():
        ready = [each["status"] for each in item["status"]["conditions"] if each["type"] == "Ready"]
        assert ready == ["True"]
    shown = [line.split()[:3] for line in lab.kubectl("get", "nodes").splitlines()[1:]]
    assert [words[2] for words in shown] == ["control-plane,master", "worker", "worker"]
    taints = {name: [each["key"] for each in item["spec"].get("taints", [])] for name, item in nodes.items()}
    assert taints["node001"] == ["node-role.kubernetes.io/control-plane"]
    assert taints["node002"] == taints["node003"] == []
    ranges = [item["spec"]["podCIDR"] for item in nodes.values()]
    assert len(set(ranges)) == 3 and all(each.endswith("/24") for each in ranges)


def test_item_92_kubectl_answers_through_the_proxy_of_every_node(lab: Lab) -> None:
    for node in NODES:
        assert lab.kubectl("get", "--raw=/readyz", node=node) == "ok"


def test_pods_on_different_nodes_talk_and_cluster_dns_answers_at_the_address_of_item_107(lab: Lab) -> None:
    server = _pod(
        "web", "node002", "sh", "-c", "mkdir -p /tmp/w; echo hello > /tmp/w/index.html; httpd -f -p 8080 -h /tmp/w"
    )
    client = _pod("client", "node003", "sleep", "3600")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    items = {"apiVersion": "v1", "kind": "List", "items": [server, client, service]}
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(items))
    wait_until(lambda: _is_running(lab, "web") and _is_running(lab, "client"), "both pods run", step_s=0.5)
    address = lab.get("pod", "web")["status"]["podIP"]
    script = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {address} 8080 || true"
    wait_until(lambda: "hello" in lab.kubectl("exec", "client", "--", "sh", "-c", script), "an answer", step_s=0.5)
    dns = lab.get("service", "kube-dns", "-n", "kube-system")["spec"]["clusterIP"]
    assert dns == "10.150.255.254"
    assert f"nameserver {dns}" in lab.kubectl("exec", "client", "--", "cat", "/etc/resolv.conf")
    name = "web.default.svc.cluster.local"

    def resolved() -> bool:
        told = lab.kubectl("exec", "client", "--", "sh", "-c", f"nslookup {name} || true")
        return lab.get("service", "web")["spec"]["clusterIP"] in told

    wait_until(resolved, "cluster DNS answers", step_s=0.5)
    script = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {lab.get('service', 'web')['spec']['clusterIP']} 80 || true"
    wait_until(lambda: "hello" in lab.kubectl("exec", "client", "--", "sh", "-c", script), "the Service", step_s=0.5)


def test_items_86_87_91_95_the_head_and_the_nodes_have_what_the_cluster_needs(lab: Lab) -> None:
    overlays = lab.site.cmsh("configurationoverlay list -d '|'")
    for name, priority in (("etcd", 500), ("master", 510), ("worker", 500)):
        assert re.search(rf"kube-default-{name}\|{priority}\|", overlays), overlays
    assert "kube-default" in lab.site.cmsh("etcd list")
    found = lab.site.on("node001", "ls", "/etc/kubernetes/pki/default").split()
    assert {"ca.crt", "apiserver.crt", "apiserver-etcd-client.crt", "sa.key"} <= set(found)
    text = lab.site.on(
        "node001", "openssl", "x509", "-in", "/etc/kubernetes/pki/default/apiserver.crt", "-noout", "-text"
    )
    assert "DNS:basecm10.eth.cluster" in text and "IP Address:127.0.0.1" in text
    config = lab.setup("--kubeconfig-of", "default").strip()
    assert yaml.safe_load(Path(config).read_text())["current-context"] == "kubernetes-admin@default"
    module = lab.site.data / "modulefiles" / "kubernetes" / "default"
    (file,) = module.iterdir()
    assert f'setenv KUBECONFIG "{config}"' in file.read_text()
    checks = lab.site.cmsh("healthcheck list")
    assert all(name in checks for name in ("KubernetesChildNode", "KubernetesNodesStatus"))


def test_item_110_a_node_out_of_its_overlay_is_drained_and_reset_and_then_what_it_was(lab: Lab) -> None:
    lab.site.cmsh("configurationoverlay", "use kube-default-worker", "removefrom nodes node003", "commit")
    stopped = "default/client has no controller and would be lost: delete it"
    wait_until(lambda: stopped in lab.site.cmsh("events"), "the pod that stops the drain is named", step_s=0.5)
    shown = lab.get("node", "node003")
    assert shown["spec"]["unschedulable"] is True
    assert lab.site.status("node003")["Pending"] == "held"
    refused = lab.site.cmsh("device", "remove node003", "commit", code=1)
    assert "device[node003] is part of the Kubernetes cluster default: it is draining" in refused
    lab.kubectl("delete", "pod", "client", "--wait=false")
    wait_until(lambda: not lab.has_node("node003"), "node003 has left", step_s=0.5)
    lab.until_applied("node003")
    lab.assert_clean("node003")
    wait_until(lambda: "172.29.2.0/24" not in lab.site.on("node002", "ip", "route"), "no route leads to it", step_s=0.5)


def test_a_commit_that_would_destroy_the_cluster_is_refused(lab: Lab) -> None:
    for role, text in (("master", "the last control plane node"), ("etcd", "every member of the etcd cluster")):
        place = ("configurationoverlay", f"use kube-default-{role}")
        said = lab.site.cmsh(*place, "set nodes node002", "commit", code=1)
        assert text in said and "nothing was written" in said
    assert lab.kubectl("get", "--raw=/readyz") == "ok"


def test_items_97_109_a_node_of_a_category_joins_on_commit_and_the_control_plane_node_in_it_stays_one(lab: Lab) -> None:
    before = {node: lab.kubelet(node) for node in ("node001", "node002")}
    lab.site.cmsh("configurationoverlay", "use kube-default-worker", "append categories default", "commit")
    lab.kubectl("wait", "--for=create", "node/node003", "--timeout=100s")
    lab.kubectl("wait", "--for=condition=Ready", "node/node003", "--timeout=100s")
    assert {node: lab.kubelet(node) for node in before} == before
    taints = lab.get("node", "node001")["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["node-role.kubernetes.io/control-plane"]
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(_pod("client", "node003", "sleep", "3600")))
    wait_until(lambda: _is_running(lab, "client"), "a pod runs on the new node", step_s=0.5)
    address = lab.get("pod", "web")["status"]["podIP"]
    script = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {address} 8080 || true"
    wait_until(lambda: "hello" in lab.kubectl("exec", "client", "--", "sh", "-c", script), "an answer", step_s=0.5)


def test_item_111_removal_needs_a_confirmation_and_changes_nothing_without_it(lab: Lab) -> None:
    said = lab.setup("--remove", code=None)
    assert "--yes-i-really-mean-it" in said
    assert lab.kubectl("get", "--raw=/readyz") == "ok"


def test_items_113_114_115_removal_has_twenty_stages_and_leaves_nothing(lab: Lab) -> None:
    said = lab.setup("--remove", "--cluster", "default", "--yes-i-really-mean-it", "--on-error-action", "abort")
    assert "Executing 20 stages" in said
    assert "You need to reboot 3 nodes to cleanup the network configuration" in said
    lab.assert_as_before()


def answers_file(folder: Path, **changes: Any) -> Path:
    """A file with the answers of the example, changed."""
    answers = yaml.safe_load(EXAMPLE.read_text())
    answers["kubernetes"].update(changes)
    file = folder / "answers.yaml"
    file.write_text(yaml.safe_dump(answers))
    return file


def test_a_deployment_that_is_killed_is_undone_to_where_it_began(lab: Lab) -> None:
    lab.kill_at("Initialize Control Plane", "-c", str(EXAMPLE))
    assert "status: undone" in lab.setup("--undo", code=1)
    lab.assert_as_before()


def test_a_deployment_of_three_control_plane_nodes_that_is_killed_is_resumed(lab: Lab, tmp_path: Path) -> None:
    every = {"nodes": list(NODES)}
    lab.kill_at(
        "Join Control Plane Nodes", "-c", str(answers_file(tmp_path, nodes={"masters": every, "workers": every}))
    )
    assert "status: completed" in lab.setup("--resume", "--on-error-action", "abort")


def test_item_93_three_control_plane_nodes_answer_while_one_is_switched_off(lab: Lab) -> None:
    shown = [line.split()[:3] for line in lab.kubectl("get", "nodes").splitlines()[1:]]
    assert [words[1:] for words in shown] == [["Ready", "control-plane,master,worker"]] * 3
    assert lab.site.is_healthy("node001", 3)
    lab.site.lab.ok("stop-node", "node001")
    for node in ("node002", "node003"):
        for _ in range(3):
            assert lab.kubectl("get", "--raw=/readyz", node=node) == "ok"
    lab.kubectl("create", "configmap", "written", "--from-literal=a=b", node="node003")
    lab.site.lab.ok("start-node", "node001")
    wait_until(
        lambda: lab.site.tries("node001", "pgrep", "-x", "kube-apiserver") == 0, "node001 serves again", step_s=1
    )

    def knows_it() -> bool:
        # An API server that starts answers, with Forbidden, before it has read who may do what.
        with contextlib.suppress(AssertionError):
            return bool(lab.get("configmap", "written", node="node001")["data"] == {"a": "b"})
        return False

    wait_until(knows_it, "node001 knows what was written while it was off", step_s=1)


def test_item_110_a_control_plane_node_leaves_etcd_and_the_cluster_goes_on(lab: Lab) -> None:
    # Heads let no member go while another one counts as down, as a silent one does on a busy machine.
    wait_until(lambda: all(lab.site.status(node)["Status"] == "UP" for node in NODES), "all nodes are up", step_s=1)
    lab.setup("--remove-nodes", "node001", "--on-error-action", "abort")
    lab.assert_clean("node001")
    assert lab.site.members("node002") == {"node002", "node003"}
    assert lab.kubectl("get", "--raw=/readyz", node="node002") == "ok"
    assert not lab.has_node("node001")
    # The administrator's kubeconfig named the node that is gone.
    config = yaml.safe_load(Path(lab.setup("--kubeconfig-of", "default").strip()).read_text())
    shown = {item["metadata"]["name"]: item for item in lab.get("nodes", node="node002")["items"]}
    addresses = [each["address"] for each in shown["node002"]["status"]["addresses"]]
    assert config["clusters"][0]["cluster"]["server"].split("//")[1].split(":")[0] in addresses


def test_a_removal_that_is_killed_is_resumed_and_a_node_that_was_off_cleans_itself(lab: Lab) -> None:
    lab.site.lab.ok("stop-node", "node003")
    wait_until(lambda: lab.site.status("node003")["Status"] == "DOWN", "the head knows that node003 is off", step_s=1)
    lab.kill_at("Unassign Roles", "--remove", "--yes-i-really-mean-it")
    said = lab.setup("--resume", "--on-error-action", "abort")
    assert "status: completed" in said
    assert "node003 was down: its kubelet, containers, etcd data and files of the cluster are still on it" in said
    assert lab.site.status("node003")["Pending"] == "held"
    lab.site.lab.ok("start-node", "node003")
    wait_until(lambda: lab.site.status("node003")["Pending"] == "", "node003 has been reset", step_s=1)
    lab.assert_as_before()


def test_nothing_is_left_of_the_lab(lab: Lab, look: Callable[..., Any]) -> None:
    lab.site.lab.ok("down")
    assert look(lab.site.lab.name, lab.site.lab.state).more_than(lab.machine) == {}
