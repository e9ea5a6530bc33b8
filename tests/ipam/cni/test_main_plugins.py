"""nv-ipam below the real main plugins, in network namespaces of the test's own: `bridge`, `macvlan`, `host-device`.

The main plugins are Debian's. A namespace stands for the host, others for pods: nothing of this machine's network is
touched. Networks of pods are also given in the form of NetworkAttachmentDefinitions, and put together the way Multus
does it: several interfaces of one container, each with a configuration of its own.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import programs, servers
from tests.ipam.cni import calls
from tests.ipam.cni.calls import Answer
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.node.daemons import NodeDaemon, daemon

pytestmark = [pytest.mark.root, pytest.mark.external]
MAIN_PLUGINS = Path("/usr/lib/cni")
# All that Debian's main plugins know.
VERSIONS = ["0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"]
SOME_VERSIONS = ["0.3.1", "1.0.0"]
POOLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "four": (
        "IPPool",
        {"subnet": "10.77.0.0/24", "perNodeBlockSize": 50, "gateway": "10.77.0.1", "defaultGateway": True},
        {"startIP": "10.77.0.51", "endIP": "10.77.0.100"},
    ),
    "six": (
        "IPPool",
        {"subnet": "fd77::/64", "perNodeBlockSize": 50, "gateway": "fd77::1", "routes": [{"dst": "fd99::/48"}]},
        {"startIP": "fd77::33", "endIP": "fd77::64"},
    ),
    "rail": (
        "CIDRPool",
        {"cidr": "172.22.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 1, "routes": [{"dst": "172.22.0.0/16"}]},
        {"prefix": "172.22.9.0/24", "gateway": "172.22.9.1"},
    ),
}


def ip(*words: str, netns: str = "") -> str:
    inside = ["-n", netns] if netns else []
    return subprocess.run(["ip", *inside, *words], check=True, capture_output=True, text=True, timeout=60).stdout


@contextlib.contextmanager
def namespaces(*names: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], capture_output=True, check=False)
            ip("link", "set", "lo", "up", netns=name)
        yield


@dataclass
class Node:
    """A host with main plugins and a daemon, and pods on it."""

    daemon: NodeDaemon
    host: str
    pods: dict[str, str]
    results: dict[tuple[str, str], Any] = field(default_factory=dict)

    def cni(self, command: str, pod: str, ifname: str, config: Mapping[str, Any], args: str = "") -> Answer:
        """A runtime's call of a main plugin."""
        env = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"container-{pod}",
            "CNI_NETNS": f"/var/run/netns/{self.pods[pod]}",
            "CNI_IFNAME": ifname,
            "CNI_PATH": f"{MAIN_PLUGINS}:{calls.OURS.parent}",
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAME={pod};K8S_POD_NAMESPACE=default;K8S_POD_UID=uid-{pod}{args}",
        }
        given = dict(config)
        if command != "ADD" and (pod, ifname) in self.results:
            given["prevResult"] = self.results[pod, ifname]
        ran = subprocess.run(
            ["ip", "netns", "exec", self.host, str(MAIN_PLUGINS / config["type"])],
            input=json.dumps(given).encode(),
            env={"PATH": os.environ["PATH"], **env},
            capture_output=True,
            timeout=120,
            check=False,
        )
        answer = Answer(ran.returncode, ran.stdout, ran.stderr.decode(errors="replace"))
        if command == "ADD" and answer.exit == 0:
            self.results[pod, ifname] = answer.document
        return answer

    def fine(self, command: str, pod: str, ifname: str, config: Mapping[str, Any], args: str = "") -> Any:
        answer = self.cni(command, pod, ifname, config, args)
        assert answer.exit == 0, answer
        return answer.document if command == "ADD" else None

    def addresses(self, pod: str, ifname: str) -> set[str]:
        """What an interface really has, link-local addresses aside."""
        (found,) = json.loads(ip("-j", "addr", "show", "dev", ifname, netns=self.pods[pod]))
        every = [f"{one['local']}/{one['prefixlen']}" for one in found["addr_info"]]
        return {each for each in every if not ipaddress.ip_interface(each).is_link_local}

    def routes(self, pod: str, ifname: str) -> set[tuple[str, str]]:
        """Destinations with a gateway."""
        lists = [json.loads(ip(f, "-j", "route", "show", "dev", ifname, netns=self.pods[pod])) for f in ("-4", "-6")]
        return {(one["dst"], one["gateway"]) for each in lists for one in each if "gateway" in one}

    def held(self) -> set[tuple[str, str, str]]:
        """Pool, container and interface of every reservation on the disk."""
        document = json.loads(self.daemon.store.read_text() or '{"pools": {}}')
        return {
            (key, one["container_id"], one["interface_name"])
            for key, pool in document["pools"].items()
            for one in pool["entries"].values()
        }

    def ipam(self, pools: str, kind: str = "ippool", **more: Any) -> dict[str, Any]:
        found = {"type": "nv-ipam", "confDir": str(self.daemon.conf_dir), "poolName": pools, "poolType": kind}
        return found | more


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(servers.shared.get("embedded")) as made:
        yield made


@pytest.fixture
async def node(world: World, tmp_path: Path) -> AsyncIterator[Node]:
    programs.nv_ipam()
    if os.geteuid() != 0:
        pytest.skip("needs root (network namespaces)")
    if not (MAIN_PLUGINS / "bridge").exists():
        pytest.skip("the main CNI plugins are not installed (Debian: containernetworking-plugins)")
    for name, (kind, spec, entry) in POOLS.items():
        await world.pool(kind, name, spec)
        await world.damage(kind, name, [{"nodeName": "n1", **entry}])
    mark = uuid.uuid4().hex[:8]
    host, pods = f"bp-{mark}-host", {pod: f"bp-{mark}-{pod}" for pod in ("pod1", "pod2")}
    with (
        namespaces(host, *pods.values()),
        daemon(tmp_path, world.server.kubeconfig, world.node("n1"), world.namespace, "--cleaner=off") as running,
    ):
        running.ready()
        # Pairs whose other ends stand for cables: what has none has no carrier.
        for device in ("rail0", "vf1", "vf2"):
            ip("link", "add", device, "type", "veth", "peer", "name", f"{device}-peer", netns=host)
            ip("link", "set", device, "up", netns=host)
            ip("link", "set", f"{device}-peer", "up", netns=host)
        yield Node(running, host, pods)


def configuration(node: Node, main: str, version: str, ipam: dict[str, Any], number: int = 1) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "bridge": {"bridge": "br-test", "isGateway": True, "ipMasq": False, "hairpinMode": True},
        "macvlan": {"master": "rail0", "mode": "bridge"},
        "host-device": {"device": f"vf{number}"},
    }
    return {"cniVersion": version, "name": "testnet", "type": main, "ipam": ipam, **own[main]}


@pytest.mark.parametrize(
    ("main", "version"),
    [
        *(("bridge", one) for one in VERSIONS),
        *((one, two) for one in ("macvlan", "host-device") for two in SOME_VERSIONS),
    ],
)
async def test_a_pod_gets_its_address_and_gives_it_back(node: Node, main: str, version: str) -> None:
    seen = []
    for number, pod in enumerate(("pod1", "pod2"), 1):
        config = configuration(node, main, version, node.ipam("four"), number)
        result = node.fine("ADD", pod, "eth0", config)
        address = result["ip4"]["ip"] if version == "0.2.0" else result["ips"][0]["address"]
        assert node.addresses(pod, "eth0") == {address}
        assert node.routes(pod, "eth0") == {("default", "10.77.0.1")}
        seen.append(address)
        if version in ("0.4.0", "1.0.0"):
            node.fine("CHECK", pod, "eth0", config)
    assert seen == ["10.77.0.51/24", "10.77.0.52/24"]
    assert node.held() == {("four", f"container-{pod}", "eth0") for pod in ("pod1", "pod2")}
    for number, pod in enumerate(("pod1", "pod2"), 1):
        config = configuration(node, main, version, node.ipam("four"), number)
        node.fine("DEL", pod, "eth0", config)
        if version == "1.0.0":
            # Nothing is held any more, and the interface is gone: CHECK says so, another DEL does not mind.
            assert node.cni("CHECK", pod, "eth0", config).exit == 1
        if main != "host-device":
            node.fine("DEL", pod, "eth0", config)
    assert node.held() == set()


@pytest.mark.parametrize("main", ["bridge", "macvlan", "host-device"])
async def test_two_pools_give_two_families(node: Node, main: str) -> None:
    config = configuration(node, main, "1.0.0", node.ipam("four,six"))
    result = node.fine("ADD", "pod1", "eth0", config)
    assert [each["address"] for each in result["ips"]] == ["10.77.0.51/24", "fd77::33/64"]
    assert node.addresses("pod1", "eth0") == {"10.77.0.51/24", "fd77::33/64"}
    assert node.routes("pod1", "eth0") == {("default", "10.77.0.1"), ("fd99::/48", "fd77::1")}
    node.fine("CHECK", "pod1", "eth0", config)
    node.fine("DEL", "pod1", "eth0", config)
    assert node.held() == set()


@pytest.mark.parametrize("main", ["bridge", "macvlan", "host-device"])
async def test_a_failed_attachment_leaves_nothing(node: Node, main: str) -> None:
    config = configuration(node, main, "1.0.0", node.ipam("four,nosuch"))
    answer = node.cni("ADD", "pod1", "eth0", config)
    assert answer.error["msg"]
    assert node.held() == set()
    # What a runtime does next.
    node.fine("DEL", "pod1", "eth0", config)
    with pytest.raises(subprocess.CalledProcessError):
        ip("link", "show", "dev", "eth0", netns=node.pods["pod1"])


def delegates(definition: Mapping[str, Any], selection: Mapping[str, Any], device: str = "") -> list[dict[str, Any]]:
    """What Multus hands to each plugin of a network: the definition's configuration with what the pod asked for.

    A list gives its name and version to its plugins; addresses go to plugins that declare the capability, else into
    CNI_ARGS; `cni-args` become `args.cni`; the device that the kubelet gave becomes `deviceID`.
    """
    config = json.loads(definition["spec"]["config"])
    plugins = config.get("plugins") or [config]
    made = []
    for plugin in plugins:
        one = {**plugin, "cniVersion": config["cniVersion"], "name": config.get("name", definition["metadata"]["name"])}
        if "cni-args" in selection:
            one["args"] = {"cni": selection["cni-args"]}
        if "ips" in selection and plugin.get("capabilities", {}).get("ips"):
            one["runtimeConfig"] = {"ips": selection["ips"]}
        if device:
            one["deviceID"] = device
        made.append(one)
    return made


def definition(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"config": json.dumps(config)},
    }


async def test_a_pod_with_several_networks_as_multus_makes_it(node: Node) -> None:
    cluster = configuration(node, "bridge", "0.4.0", node.ipam("four"))
    rail = configuration(node, "macvlan", "0.3.1", node.ipam("rail", "cidrpool"))
    listed = {
        "cniVersion": "1.0.0",
        "name": "static-net",
        "plugins": [
            configuration(node, "macvlan", "", node.ipam("four,six")) | {"capabilities": {"ips": True}},
        ],
    }
    chosen = configuration(node, "host-device", "0.4.0", node.ipam("nosuch"))
    attachments = [
        ("eth0", definition("cluster", cluster), {}, ""),
        ("net1", definition("rail", rail), {}, "0000:03:00.2"),
        ("net2", definition("rail", rail), {}, ""),
        ("net3", definition("static", listed), {"ips": ["10.77.0.200/24", "fd77::200/64"]}, ""),
        ("net4", definition("chosen", chosen), {"cni-args": {"poolNames": ["rail"], "poolType": "cidrpool"}}, ""),
    ]  # fmt: skip
    calls_made = [
        (ifname, config)
        for ifname, network, selection, device in attachments
        for config in delegates(network, selection, device)
    ]
    for ifname, config in calls_made:
        node.fine("ADD", "pod1", ifname, config)
    wanted = {
        "eth0": {"10.77.0.51/24"},
        "net1": {"172.22.9.2/24"},
        "net2": {"172.22.9.3/24"},
        "net3": {"10.77.0.200/24", "fd77::200/64"},
        "net4": {"172.22.9.4/24"},
    }
    assert {ifname: node.addresses("pod1", ifname) for ifname in wanted} == wanted
    held = {(key, ifname) for key, container, ifname in node.held() if container == "container-pod1"}
    assert held == {
        ("four", "eth0"), ("cidrpool/rail", "net1"), ("cidrpool/rail", "net2"), ("four", "net3"), ("six", "net3"),
        ("cidrpool/rail", "net4"),
    }  # fmt: skip
    for ifname, config in calls_made:
        if config["cniVersion"] != "0.3.1":
            node.fine("CHECK", "pod1", ifname, config)
    for ifname, config in reversed(calls_made):
        node.fine("DEL", "pod1", ifname, config)
    assert node.held() == set()


async def test_an_address_in_the_arguments_is_given(node: Node) -> None:
    """Without the capability a runtime passes a single address in CNI_ARGS."""
    config = configuration(node, "macvlan", "1.0.0", node.ipam("four"))
    assert node.fine("ADD", "pod1", "net1", config, ";IP=10.77.0.222/24")["ips"][0]["address"] == "10.77.0.222/24"
    assert node.addresses("pod1", "net1") == {"10.77.0.222/24"}
    assert node.cni("ADD", "pod2", "net1", config, ";IP=10.77.0.222").exit == 1
    node.fine("DEL", "pod1", "net1", config)
    node.fine("DEL", "pod2", "net1", config)
    assert node.held() == set()


async def test_pods_on_one_bridge_reach_each_other(node: Node) -> None:
    config = configuration(node, "bridge", "1.0.0", node.ipam("four"))
    for pod in ("pod1", "pod2"):
        node.fine("ADD", pod, "eth0", config)
    command = ["ip", "netns", "exec", node.pods["pod1"], "/bin/busybox", "ping", "-c", "1", "-W", "30", "10.77.0.52"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran
    for pod in ("pod1", "pod2"):
        node.fine("DEL", pod, "eth0", config)
