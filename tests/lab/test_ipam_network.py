"""`bridge` with `nv-ipam` as the cluster's network, on three real nodes: the seed's pool and its CNI configuration.

The lab makes no network of its own here. The controller and a daemon on each node are processes; each node's bridge is
joined with the others by the lab's second network, so that pods of all nodes are neighbours in one subnet.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.lab.ipam_lab import CONFIGURATION, POOL, ROOT, Cluster, address_of, node_of

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

SUBNET = f"10.84.{os.getpid() % 250}"
NODES = ("node-1", "node-2", "node-3")
COUNT = 60
BRIDGE = "mytestbr"
DAEMON = (
    "--kubeconfig=/run/bedplate/admin.kubeconfig",
    "--cri-socket=unix:///run/containerd/containerd.sock",
    "--v=1",
)
# For a daemon that is to find the dead soon; otherwise everything is as it comes, and what is freed is freed by DEL.
IN_HASTE = ("--cleaner-interval=5s", "--cleaner-grace=60s")
POOL1 = {
    "apiVersion": POOL,
    "kind": "IPPool",
    "metadata": {"name": "pool1", "namespace": "kube-system"},
    "spec": {
        "subnet": "192.168.0.0/16",
        "perNodeBlockSize": 24,
        "gateway": "192.168.0.1",
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/role", "operator": "In", "values": ["worker"]}]}
            ]
        },
    },
}
MYNET = {
    "cniVersion": "0.4.0",
    "name": "mynet",
    "type": "bridge",
    "bridge": BRIDGE,
    "isGateway": True,
    "ipMasq": True,
    "ipam": {"type": "nv-ipam", "poolName": "pool1"},
}


class Network(Cluster):
    """The cluster whose network is ours."""

    def connect(self, node: str, *more: str) -> None:
        """What an administrator does once on a machine, and what is done again after it was off."""
        # The first pod's plugin may have made the bridge already.
        self.on(node, "sh", "-c", f"ip link add {BRIDGE} type bridge || true; ip link set {BRIDGE} up")
        self.on(node, "ip", "link", "set", "fabric0", "master", BRIDGE, "up")
        self.on(node, "mkdir", "-p", CONFIGURATION, "/var/lib/cni/nv-ipam")
        self.start(node, "ipam-node", f"--node-name={node}", *DAEMON, *more)

    def admit(self, *nodes: str) -> None:
        # A kubelet that was off for long may still be about to register.
        label = ("label", "--overwrite", "node", *nodes, "kubernetes.io/role=worker")
        self.until("the nodes have their label", lambda: self.attempt(*label).returncode == 0)

    def is_ready(self, node: str) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self.attempt("get", "node", node, "-o", path).stdout == "True"

    def deploy(self, name: str, replicas: int, node: str = "") -> list[Any]:
        """Pods that answer HTTP, spread over all nodes or on one."""
        labels = {"app": name}
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
        place = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {"topologySpreadConstraints": [spread]}
        spec = {"containers": [{"name": "web", "image": "bedplate/tool"}], "enableServiceLinks": False, **place}
        template = {"metadata": {"labels": labels}, "spec": {**spec, "automountServiceAccountToken": False}}
        self.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
            }
        )
        return self.until(f"{replicas} pods of {name} run", lambda: self.all_of(name, replicas))

    def all_of(self, name: str, count: int) -> list[Any]:
        found = self.running("-l", f"app={name}")
        return found if len(found) == count else []

    def ask(self, pod: Any, address: str) -> str:
        """Which pod answers another one at an address."""
        name = pod["metadata"]["name"]
        answer = self.kubectl("exec", name, "--", "/tool", "get", f"http://{address}:8080/")
        return str(json.loads(answer)["hostname"])

    def held(self) -> Counter[str]:
        """How many addresses each node holds."""
        return Counter({node: len(self.reservations(node)) for node in self.nodes})


@pytest.fixture(scope="module")
def ground(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[tuple[Network, Any]]:
    lab = new_lab("in")
    before = look(lab.name, lab.state)
    words = ("--nodes", "3", "--network", "none", "--link", "fabric0", "--subnet", f"{SUBNET}.0/24")
    lab.ok("up", *words)
    made = Network(lab, NODES)
    try:
        # Cluster DNS would have no way to the API server: the pool has no default route, as in the document.
        made.kubectl("scale", "-n", "kube-system", "deployment/coredns", "--replicas=0")
        made.kubectl("apply", "-k", ROOT / "deploy" / "crds")
        made.kubectl("wait", "--for=condition=Established", "crd/ippools.nv-ipam.nvidia.com", "--timeout=120s")
        made.start("node-1", "ipam-controller", "--kubeconfig=/run/bedplate/admin.kubeconfig",
                   "--metrics-bind-address=0", "--health-probe-bind-address=0")  # fmt: skip
        for node in NODES:
            made.connect(node)
            made.write(node, "/etc/cni/net.d/10-mynet.conf", json.dumps(MYNET))
        made.admit(*NODES)
        made.apply(POOL1)
        made.until("every node has a block", lambda: set(made.blocks("pool1")) == set(NODES))
        made.until("every node is Ready", lambda: all(map(made.is_ready, NODES)))
        yield made, before
    finally:
        lab.run("down")
        made.end_programs()


@pytest.fixture(scope="module")
def network(ground: tuple[Network, Any]) -> Network:
    return ground[0]


@pytest.fixture(scope="module")
def sixty(network: Network) -> list[Any]:
    return network.deploy("many", COUNT)


def test_sixty_pods_on_three_nodes_have_sixty_addresses_each_of_its_nodes_block(
    network: Network, sixty: list[Any]
) -> None:
    blocks = network.blocks("pool1")
    assert Counter(map(node_of, sixty)) == dict.fromkeys(NODES, COUNT // 3)
    assert len(set(map(address_of, sixty))) == COUNT
    assert [pod["metadata"]["name"] for pod in sixty if address_of(pod) not in blocks[node_of(pod)]] == []
    assert "192.168.0.1" not in set(map(address_of, sixty)), "the gateway is not allocated"
    for node in NODES:
        held = {each["metadata"]["pod_uuid"]: each for each in network.reservations(node)}
        ours = {pod["metadata"]["uid"]: address_of(pod) for pod in sixty if node_of(pod) == node}
        assert {uid: each["ip_address"] for uid, each in held.items()} == ours
        assert {each["container_id"] for each in held.values()} <= network.sandboxes(node)


def test_pods_on_different_nodes_reach_each_other(network: Network, sixty: list[Any]) -> None:
    one_each = {node_of(pod): pod for pod in sixty}
    assert set(one_each) == set(NODES)
    for asking in one_each.values():
        for asked in one_each.values():
            assert network.ask(asking, address_of(asked)) == asked["metadata"]["name"]


def test_a_node_that_reboots_leaks_no_address(network: Network, sixty: list[Any]) -> None:
    """Its runtime has forgotten every sandbox, so nobody will ever say DEL for them; the pods' UIDs are the same."""
    node, count = "node-2", COUNT // 3
    uids = {pod["metadata"]["uid"] for pod in sixty if node_of(pod) == node}
    dead = {each["container_id"] for each in network.reservations(node)}
    network.lab.ok("stop-node", node)
    runtime = network.folder / "nodes" / node / "var-lib" / "containerd"
    shutil.rmtree(runtime)
    runtime.mkdir()
    network.lab.ok("start-node", node, "--timeout", "300")
    assert {each["container_id"] for each in network.reservations(node)} == dead, "the disk is as it was"
    network.connect(node, *IN_HASTE)

    def is_clean() -> bool:
        held = network.reservations(node)
        return len(held) == count and not dead & {each["container_id"] for each in held}

    network.until("every address is held by a new sandbox", is_clean)

    def are_told() -> list[Any]:
        """A kubelet may make a sandbox once more, so everything is asked at the same time."""
        held = {each["metadata"]["pod_uuid"]: each for each in network.reservations(node)}
        found = network.all_of("many", COUNT)
        told = {pod["metadata"]["uid"]: address_of(pod) for pod in found if node_of(pod) == node}
        is_so = told == {uid: each["ip_address"] for uid, each in held.items()} and set(held) == uids
        return found if is_so and {each["container_id"] for each in held.values()} <= network.sandboxes(node) else []

    pods = network.until("the API server knows their new addresses", are_told)
    assert len(set(map(address_of, pods))) == COUNT


def test_deleted_and_force_deleted_pods_return_every_address(network: Network, sixty: list[Any]) -> None:
    network.kubectl("delete", "deployment", "many", "--cascade=orphan")
    network.kubectl("delete", "replicaset", "-l", "app=many", "--cascade=orphan")
    names = [pod["metadata"]["name"] for pod in sixty]
    network.kubectl("delete", "pods", *names[: COUNT // 2], "--force", "--grace-period=0", "--wait=false")
    network.kubectl("delete", "pods", *names[COUNT // 2 :], "--wait=false")
    network.until("no address is held", lambda: sum(network.held().values()) == 0)
    assert set(network.blocks("pool1")) == set(NODES)


def test_a_node_that_is_removed_and_added_again_serves_pods_from_a_block_of_its_own(network: Network) -> None:
    node = "node-3"
    network.lab.ok("stop-node", node)
    network.kubectl("delete", "node", node)
    network.until("its block is given up", lambda: node not in network.blocks("pool1"))
    network.lab.ok("start-node", node, "--timeout", "300")
    network.connect(node)
    network.admit(node)
    blocks = network.until("it has a block", lambda: node in (found := network.blocks("pool1")) and found)
    assert len({block.first for block in blocks.values()}) == len(NODES)
    (pod,) = network.deploy("again", 1, node)
    assert address_of(pod) in blocks[node]
    network.kubectl("delete", "deployment", "again")
    network.until("no address is held", lambda: sum(network.held().values()) == 0)


def test_nothing_of_it_is_left_on_the_machine(ground: tuple[Network, Any], look: Callable[..., Any]) -> None:
    network, before = ground
    lab = network.lab
    assert "processes" in look(lab.name, lab.state).more_than(before), "the comparison sees nothing"
    lab.ok("down")
    network.end_programs()
    assert look(lab.name, lab.state).more_than(before) == {}
