"""The shipped overlays with the shipped image on a cluster that has another network: pods get further interfaces.

One lab for all tests. `no-webhook` is applied as the document says it; pods get a second interface through `macvlan`
and `nv-ipam`, by NetworkAttachmentDefinitions, and a third from a CIDRPool; then the document's debugging commands;
then `certmanager` and `self-signed` over it, and the API server refuses a pool that is wrong.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.conftest import IMAGE
from tests.lab.ipam_lab import CONFIGURATION, DEADLINE_S, POOL, ROOT, Cluster, Visitors, definition, node_of

from bedplate.lab import credentials

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

SUBNET = f"10.85.{os.getpid() % 250}"
NODES = ("node-1", "node-2")
CONTROLLERS = 2
PODS = "pod-security.kubernetes.io"
OVERLAYS = ROOT / "deploy" / "overlays"
ATTACH = Path(__file__).with_name("ipam_attach.py")
LOG = "/var/log/nv-ipam-cni.log"
STATUS = "k8s.v1.cni.cncf.io/network-status"
# The document's own words.
SHOW_BLOCKS = (
    "get", "ippools.nv-ipam.nvidia.com", "-A", "-o",
    r'jsonpath={range .items[*]}{.metadata.name}{"\n"} {range .status.allocations[*]}{"\t"}{.nodeName} => '
    r'Start IP: {.startIP} End IP: {.endIP}{"\n"}{end}{"\n"}{end}',
)  # fmt: skip
SHOW_NETWORKS = (
    "get", "pods",
    r"-o=custom-columns=NAME:metadata.name,NODE:spec.nodeName,"
    r"NETWORK-STATUS:metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status",
)  # fmt: skip
IPPOOL = {
    "apiVersion": POOL,
    "kind": "IPPool",
    "metadata": {"name": "my-pool", "namespace": "kube-system"},
    "spec": {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100, "gateway": "192.168.0.1"},
}
CIDRPOOL = {
    "apiVersion": POOL,
    "kind": "CIDRPool",
    "metadata": {"name": "racks", "namespace": "kube-system"},
    "spec": {
        "cidr": "172.31.0.0/16",
        "perNodeNetworkPrefix": 24,
        "gatewayIndex": 1,
        "routes": [{"dst": "172.31.0.0/16"}],
    },
}


def attachment(name: str, ipam: dict[str, Any]) -> dict[str, Any]:
    config = {"type": "macvlan", "cniVersion": "0.3.1", "master": "fabric0", "mode": "bridge", "ipam": ipam}
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name},
        "spec": {"config": json.dumps(config)},
    }


class Overlaid(Cluster):
    """The cluster with our workloads in it."""

    warnings = ""
    """What the API server said of them against the Pod Security standard `restricted`."""

    def attach(self, name: str, networks: str, node: str) -> Any:
        """A pod with further interfaces, once it runs."""
        spec = {"containers": [{"name": "web", "image": "bedplate/tool"}], "nodeName": node}
        notes = {"k8s.v1.cni.cncf.io/networks": networks}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec})
        return self.until(f"pod {name} runs", lambda: [pod for pod in self.running() if named(pod) == name])[0]

    def links(self, name: str) -> list[dict[str, Any]]:
        """What the plugins gave a pod beside its first interface."""
        pod = self.get("pod", name)
        found: list[dict[str, Any]] = json.loads(pod["metadata"].get("annotations", {}).get(STATUS, "[]"))
        return found

    def held(self, name: str) -> dict[str, str]:
        """The addresses held for a pod, by interface."""
        return {
            each["interface_name"]: each["ip_address"]
            for node in NODES
            for each in self.reservations(node)
            if each["metadata"]["pod_name"] == name
        }

    def roll_out(self) -> None:
        for workload in ("deployment/nv-ipam-controller", "daemonset/nv-ipam-node-ds"):
            done = self.attempt("rollout", "status", "-n", "kube-system", workload, f"--timeout={DEADLINE_S:.0f}s")
            assert done.returncode == 0, done.stdout + done.stderr + self.logs() + self.situation()

    def logs(self) -> str:
        chosen = ("logs", "-n", "kube-system", "-l", "app=nvidia-k8s-ipam", "--tail=40", "--prefix")
        return self.attempt(*chosen).stdout

    def processes(self, node: str, program: str) -> list[str]:
        """The processes of one of our programs on a node, by the numbers that this machine has for them."""
        groups = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_of(path, node, program)]
        return [path.name for path in groups]

    def _is_of(self, path: Path, node: str, program: str) -> bool:
        try:
            words = path.read_bytes().split(b"\0")
            group = (path.parent / "cgroup").read_text()
        except OSError:
            return False
        return any(Path(word.decode(errors="replace")).name == program for word in words[:3]) and (
            f"/bedplate-{self.lab.name}/" in group and f"/{node}/" in group
        )

    def our_pods(self, name: str) -> list[str]:
        return [named(pod) for pod in self.running("-n", "kube-system", "-l", f"app=nvidia-k8s-ipam,name={name}")]


def named(pod: Any) -> str:
    return str(pod["metadata"]["name"])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our image under the name that the overlays know."""
    target = tmp_path_factory.mktemp("image") / "ipam.tar"
    command = [sys.executable, str(ROOT / "tools" / "image.py"), "archive", "--image", IMAGE, "--output", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def cluster(new_lab: Callable[..., Any], request: pytest.FixtureRequest) -> Iterator[Overlaid]:
    lab = new_lab("ov")
    starting = lab.start("--nodes", "2", "--link", "fabric0", "--subnet", f"{SUBNET}.0/24")
    try:
        image = request.getfixturevalue("archive")
        _, told = starting.communicate(timeout=600)
        assert starting.returncode == 0, told
        lab.ok("load-image", str(image))
        made = Overlaid(lab, NODES)
        for node in NODES:
            _install_attach(made, node)
        made.apply(definition("NetworkAttachmentDefinition", "network-attachment-definitions", "k8s.cni.cncf.io"))
        warned = f"namespace/kube-system {PODS}/warn=restricted {PODS}/enforce=privileged"
        made.kubectl("label", *warned.split())
        made.warnings = made.attempt("apply", "-k", OVERLAYS / "containerd").stderr
        made.kubectl(
            *("wait", "--for=condition=Established", "--timeout=120s", "crd/ippools.nv-ipam.nvidia.com"),
            *("crd/cidrpools.nv-ipam.nvidia.com", "crd/network-attachment-definitions.k8s.cni.cncf.io"),
        )
        made.apply(
            IPPOOL,
            CIDRPOOL,
            attachment("flat", {"type": "nv-ipam", "poolName": "my-pool"}),
            attachment("routed", {"type": "nv-ipam", "poolName": "racks", "poolType": "cidrpool"}),
        )
        made.roll_out()
        yield made
    finally:
        if starting.poll() is None:
            starting.terminate()
            starting.wait(120)
        lab.run("down")


def _install_attach(cluster: Overlaid, node: str) -> None:
    """Our stand-in for Multus, at the end of the cluster network's list."""
    script = re.sub(r"^", "#!/usr/bin/env -S python3 -I -S\n", ATTACH.read_text(), count=1)
    cluster.write(node, "/opt/cni/bin/attach", script)
    cluster.on(node, "chmod", "755", "/opt/cni/bin/attach")
    path = "/etc/cni/net.d/10-lab.conflist"
    network = json.loads(cluster.read(node, path))
    network["plugins"].append({"type": "attach"})
    cluster.write(node, path, json.dumps(network))


@pytest.fixture(scope="module")
def attached(cluster: Overlaid) -> dict[str, Any]:
    """A pod on each node, with an interface of each network."""
    cluster.until("every node has a block", lambda: set(cluster.blocks("my-pool")) == set(NODES))
    cluster.until("every node has a prefix", lambda: set(_prefixes(cluster)) == set(NODES))
    return {node: cluster.attach(f"on-{node}", "flat, routed", node) for node in NODES}


def _prefixes(cluster: Overlaid) -> dict[str, Any]:
    status = cluster.get("cidrpool", "racks", "-n", "kube-system").get("status") or {"allocations": []}
    return {each["nodeName"]: ipaddress.IPv4Network(each["prefix"]) for each in status["allocations"]}


def test_the_overlay_brings_a_controller_and_a_daemon_on_every_node(cluster: Overlaid) -> None:
    pods = cluster.pods("-n", "kube-system", "-l", "app=nvidia-k8s-ipam")
    daemons = [pod for pod in pods if pod["metadata"]["labels"]["name"] == "nv-ipam-node"]
    assert sorted(map(node_of, daemons)) == list(NODES) and len(pods) == len(NODES) + CONTROLLERS
    assert {each["restartCount"] for pod in pods for each in pod["status"]["containerStatuses"]} == {0}
    for node in NODES:
        conf = json.loads(cluster.read(node, f"{CONFIGURATION}/nv-ipam.conf"))
        assert conf["daemonSocket"] == "unix:///var/lib/cni/nv-ipam/daemon.sock"
        cluster.on(node, "test", "-x", "/opt/cni/bin/nv-ipam")
    titles, row = (line.split() for line in cluster.kubectl("get", "ippool", "-n", "kube-system").splitlines())
    assert titles == ["NAME", "SUBNET", "GATEWAY", "BLOCK", "SIZE"] and row == [
        "my-pool",
        "192.168.0.0/16",
        "192.168.0.1",
        "100",
    ]


def test_no_program_has_a_right_on_the_node_that_it_does_not_need(cluster: Overlaid) -> None:
    """The kernel's word: user, capabilities (DAC_OVERRIDE is bit 1), no new privileges, a filter of system calls."""
    rights = {"ipam-controller": ("65532", 0), "ipam-node": ("0", 1 << 1)}
    seen: set[str] = set()
    running = [(program, pid) for node in NODES for program in rights for pid in cluster.processes(node, program)]
    for program, pid in running:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        about = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        user, capabilities = rights[program]
        assert set(about["Uid"].split()) == {user}, program
        assert {int(about[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Bnd")} == {capabilities}, program
        assert (about["NoNewPrivs"], about["Seccomp"]) == ("1", "2"), program
        seen.add(program)
    assert seen == set(rights)
    # The daemon writes folders of the node, which no stricter standard allows; the controller passes the strictest.
    (warning,) = [line for line in cluster.warnings.splitlines() if "would violate PodSecurity" in line]
    assert 'containers "node"' in warning or 'container "node"' in warning
    assert "privileged" not in warning.split("violate", 1)[1].replace("allowPrivilegeEscalation", "")


def test_pods_get_further_interfaces_from_their_nodes_blocks(cluster: Overlaid, attached: dict[str, Any]) -> None:
    blocks, prefixes = cluster.blocks("my-pool"), _prefixes(cluster)
    for node, pod in attached.items():
        flat, routed = cluster.links(named(pod))
        assert (flat["interface"], routed["interface"]) == ("net1", "net2")
        assert flat["ips"][0] in blocks[node]
        assert ipaddress.IPv4Address(routed["ips"][0]) in prefixes[node]
        assert cluster.held(named(pod)) == {"net1": flat["ips"][0], "net2": routed["ips"][0]}
        assert pod["status"]["podIP"].startswith("10."), "the cluster's own network is as it was"


def test_pods_of_two_nodes_talk_over_their_second_interface(cluster: Overlaid, attached: dict[str, Any]) -> None:
    one, other = (named(attached[node]) for node in NODES)
    address = cluster.links(other)[0]["ips"][0]
    answer = cluster.kubectl("exec", one, "--", "/tool", "get", f"http://{address}:8080/")
    told = json.loads(answer)
    assert told["hostname"] == other
    assert told["client"].startswith(cluster.links(one)[0]["ips"][0] + ":")


def test_the_documents_commands_show_blocks_networks_and_logs(cluster: Overlaid, attached: dict[str, Any]) -> None:
    blocks = cluster.blocks("my-pool")
    rows = [f"\t{node} => Start IP: {blocks[node].first} End IP: {blocks[node].last}\n" for node in NODES]
    assert cluster.kubectl(*SHOW_BLOCKS) == "my-pool\n " + "".join(rows) + "\n"
    table = cluster.kubectl(*SHOW_NETWORKS)
    for node, pod in attached.items():
        assert re.search(rf"^{named(pod)} +{node} +\[.*{cluster.held(named(pod))['net1']}", table, re.MULTILINE), table
    for name in (*cluster.our_pods("controller"), *cluster.our_pods("nv-ipam-node")):
        assert cluster.kubectl("-n", "kube-system", "logs", name), f"{name} says nothing"
    for node in NODES:
        lines = cluster.on(node, "cat", LOG).splitlines()
        assert lines and all("[debug]" not in line for line in lines)


def test_a_raised_log_level_shows_in_the_next_call(cluster: Overlaid, attached: dict[str, Any]) -> None:
    node, path = NODES[0], f"{CONFIGURATION}/nv-ipam.conf"
    conf = json.loads(cluster.read(node, path))
    cluster.write(node, path, json.dumps(conf | {"logLevel": "debug"}))
    try:
        cluster.attach("loud", "flat", node)
    finally:
        cluster.write(node, path, json.dumps(conf))
    assert "[debug]" in cluster.on(node, "cat", LOG)
    cluster.kubectl("delete", "pod", "loud", "--wait=false")
    cluster.until("its address is free", lambda: not cluster.held("loud"))


def test_addresses_outlive_the_daemon_and_are_freed_with_their_pods(
    cluster: Overlaid, attached: dict[str, Any]
) -> None:
    before = {named(pod): cluster.held(named(pod)) for pod in attached.values()}
    with Visitors(cluster, NODES) as visitors:
        cluster.until("visitors come and go", lambda: min(visitors.counts.values()) >= 1)
        cluster.kubectl("rollout", "restart", "-n", "kube-system", "daemonset/nv-ipam-node-ds")
        cluster.roll_out()
        seen = dict(visitors.counts)
        cluster.until("visitors come and go", lambda: all(visitors.counts[node] > seen[node] + 1 for node in NODES))
    assert (visitors.failures, visitors.refusals()) == ([], []), "no ADD and no DEL fails meanwhile"
    assert {name: cluster.held(name) for name in before} == before
    late = cluster.attach("late", "flat", NODES[0])
    assert cluster.held("late")["net1"] not in {each["net1"] for each in before.values()}
    names = [named(late), *before]
    cluster.kubectl("delete", "pods", names[0], names[1], "--wait=false")
    cluster.kubectl("delete", "pods", names[2], "--force", "--grace-period=0", "--wait=false")
    cluster.until("no address is held", lambda: not any(map(cluster.held, names)))


def test_a_daemon_that_cannot_start_leaves_the_one_that_it_should_replace(cluster: Overlaid) -> None:
    daemons = ("-n", "kube-system", "-l", "name=nv-ipam-node")
    old = set(cluster.our_pods("nv-ipam-node"))
    path = "/spec/template/spec/containers/0"
    changes = [
        {"op": "replace", "path": f"{path}/{key}", "value": value}
        for key, value in {"image": "registry.example/none:1", "imagePullPolicy": "Never"}.items()
    ]
    words = ("nv-ipam-node-ds", "-n", "kube-system", "--type=json", f"--patch={json.dumps(changes)}")
    cluster.kubectl("patch", "daemonset", *words)

    def without_image() -> list[Any]:
        parts = [(pod, each) for pod in cluster.pods(*daemons) for each in pod["status"].get("containerStatuses", ())]
        return [pod for pod, each in parts if "Image" in each["state"].get("waiting", {}).get("reason", "")]

    (stuck,) = cluster.until("a new daemon cannot start", without_image)
    cluster.attach("served", "flat", node_of(stuck))
    assert set(cluster.our_pods("nv-ipam-node")) == old and len(old) == len(NODES)
    cluster.kubectl("rollout", "undo", "-n", "kube-system", "daemonset/nv-ipam-node-ds")
    cluster.roll_out()
    cluster.until("the new one is gone", lambda: {named(pod) for pod in cluster.pods(*daemons)} == old)
    cluster.kubectl("delete", "pod", "served", "--wait=false")


def _refusal(cluster: Overlaid, pool: dict[str, Any], spec: dict[str, Any]) -> str:
    """What the webhook says against a pool; nothing when it is not the webhook that speaks."""
    named_wrong = pool | {"metadata": {"name": "wrong", "namespace": "kube-system"}, "spec": spec}
    told = cluster.attempt("create", "--dry-run=server", "-f", "-", stdin=json.dumps(named_wrong)).stderr
    is_ours = f"validate-{pool['kind'].lower()}.nv-ipam.nvidia.com" in told and "denied the request" in told
    return told if is_ours else ""


WRONG = {"subnet": "192.168.0.0/30", "perNodeBlockSize": 100, "gateway": "10.0.0.1"}
RIGHT = {"subnet": "192.168.7.0/24", "perNodeBlockSize": 10}


def _check_the_webhook(cluster: Overlaid) -> None:
    # The Service may lead to the replica before this one, with its old certificate, a while after that has gone.
    told = cluster.until("the API server refuses it by our word", lambda: _refusal(cluster, IPPOOL, WRONG))
    assert "spec.perNodeBlockSize" in told and "spec.gateway" in told
    wrong = {"cidr": "172.31.0.1/16", "perNodeNetworkPrefix": 24}
    assert "spec.cidr" in cluster.until("the other kind, too", lambda: _refusal(cluster, CIDRPOOL, wrong))
    right = json.dumps(IPPOOL | {"metadata": {"name": "right", "namespace": "kube-system"}, "spec": RIGHT})
    create = ("create", "--dry-run=server", "-f", "-")
    cluster.until("a right one is taken", lambda: cluster.attempt(*create, stdin=right).returncode == 0)


def test_the_webhook_works_with_the_certificate_that_cert_manager_would_make(cluster: Overlaid, tmp_path: Path) -> None:
    cluster.apply(
        *(definition(*each, "cert-manager.io") for each in (("Certificate", "certificates"), ("Issuer", "issuers")))
    )
    kinds = ("crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=120s", *kinds)
    cluster.kubectl("apply", "-k", OVERLAYS / "certmanager")
    _be_cert_manager(cluster, tmp_path)
    cluster.roll_out()
    _check_the_webhook(cluster)


def _be_cert_manager(cluster: Overlaid, folder: Path) -> None:
    """Do what the Certificate and the annotation ask for."""
    wanted = cluster.get("certificates.cert-manager.io", "nv-ipam-serving-cert", "-n", "kube-system")["spec"]
    authority = credentials.Authority.open(folder)
    pair = authority.issue("serving", "webhook", hosts=wanted["dnsNames"])
    files = (f"--cert={pair.certificate}", f"--key={pair.key}")
    cluster.kubectl("create", "secret", "tls", wanted["secretName"], "-n", "kube-system", *files)
    name = "nv-ipam-validating-webhook-configuration"
    hooks = cluster.get("validatingwebhookconfiguration", name)
    assert hooks["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == "kube-system/nv-ipam-serving-cert"
    _publish(cluster, base64.b64encode(authority.certificate_path.read_bytes()).decode())


def _publish(cluster: Overlaid, bundle: str) -> None:
    """Let the API server trust an authority."""
    name = "nv-ipam-validating-webhook-configuration"
    hooks = cluster.get("validatingwebhookconfiguration", name)
    changes = [
        {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
        for number, _ in enumerate(hooks["webhooks"])
    ]
    cluster.kubectl("patch", "validatingwebhookconfiguration", name, "--type=json", f"--patch={json.dumps(changes)}")


def test_the_self_signed_webhook_refuses_a_wrong_pool_through_its_service(cluster: Overlaid) -> None:
    """Also where the Secret holds a foreign certificate."""
    cluster.kubectl("apply", "-k", OVERLAYS / "self-signed")
    cluster.roll_out()

    def authority() -> str:
        secret = cluster.get("secret", "nv-ipam-webhook-server-cert", "-n", "kube-system")
        return str((secret.get("data") or {}).get("ca.crt", ""))

    # The controller's account may not do this: an administrator does, as the guide says.
    _publish(cluster, cluster.until("the certificate is in the Secret", authority))
    _check_the_webhook(cluster)
