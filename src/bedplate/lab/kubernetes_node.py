"""The programs that make a node a Kubernetes node: containerd, the pod network, kubelet, kube-proxy.

In: a `Node` with its cables, the plan. Out: their configuration (pure texts) and the running programs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from bedplate.core import errors
from bedplate.lab import catalog
from bedplate.lab.nodes import INSIDE, Daemon, Node
from bedplate.lab.plan import NodePlan, Plan

__all__ = [
    "REGISTRY_PORT",
    "containerd_config",
    "kubelet_args",
    "kubelet_config",
    "network_config",
    "prepare",
    "proxy_config",
    "registry_hosts",
    "start_containerd",
    "start_kubelet",
    "start_proxy",
]

REGISTRY_PORT = 5000
_CAP_SYS_RESOURCE = 24
_PLUGIN_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_ENDPOINT = "unix:///run/containerd/containerd.sock"


def containerd_config(*, can_raise_limits: bool) -> str:
    """containerd's configuration. Without CAP_SYS_RESOURCE nobody may lower an OOM score, and runc must not try."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{catalog.PAUSE_IMAGE}"
  restrict_oom_score_adj = {"false" if can_raise_limits else "true"}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
"""


def network_config(pod_cidr: str) -> str:
    """The pod network of one node: a bridge with addresses from the node's range, and host ports."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pod_cidr}]]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge, ports]}, indent=2)


def kubelet_config(plan: Plan, cgroup_root: str) -> dict[str, Any]:
    """What every kubelet of a lab has set, with either control plane."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": "/etc/resolv.conf",
        "containerRuntimeEndpoint": _ENDPOINT,
        "clusterDNS": [plan.dns],
        "clusterDomain": "cluster.local",
        "staticPodPath": "/etc/kubernetes/manifests",
        # The disk and memory are the machine's, shared with everything else on it: no pod shall be evicted for that.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
        "shutdownGracePeriod": "0s",
    }


def proxy_config(plan: Plan) -> dict[str, Any]:
    """kube-proxy in nftables mode; it must leave the machine's connection table alone."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": plan.pod_cidr,
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def prepare(node: Node, plan: Plan) -> None:
    """Every file a node needs before its programs start, except the pod network's: that needs the node's range."""
    node.write("/etc/containerd/config.toml", containerd_config(can_raise_limits=_can_raise_limits()))
    node.write("/etc/containerd/certs.d/_default/hosts.toml", registry_hosts(plan))
    node.write("/etc/resolv.conf", f"nameserver {plan.registry}\n")
    names = "".join(f"{each.address} {each.name}\n" for each in plan.nodes)
    node.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")
    plugins = next((Path(folder) for folder in _PLUGIN_FOLDERS if Path(folder, "bridge").exists()), None)
    if plugins is None:
        raise errors.NotFound("the CNI plugins are not installed", hint="apt-get install containernetworking-plugins")
    target = node.folder / "opt" / "cni" / "bin"
    target.mkdir(parents=True, exist_ok=True)
    for plugin in plugins.iterdir():
        shutil.copy2(plugin, target / plugin.name)


def registry_hosts(plan: Plan) -> str:
    """What makes containerd pull every image from the lab's registry."""
    mirror = f"http://{plan.registry}:{REGISTRY_PORT}"
    return f'server = "{mirror}"\n[host."{mirror}"]\n  capabilities = ["pull", "resolve"]\n'


def start_containerd(node: Node) -> Daemon:
    return node.start("containerd", ["containerd", "--config", "/etc/containerd/config.toml"])


def start_kubelet(node: Node, plan: Plan, this: NodePlan, cgroup_root: str) -> Daemon:
    """A kubelet with certificates of the lab's own authority (kubeadm starts its kubelets itself)."""
    pki = INSIDE / "pki"
    config = kubelet_config(plan, cgroup_root) | {
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(pki / "ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"kubelet-{this.name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"kubelet-{this.name}.key"),
    }
    node.write("/var/lib/kubelet/config.yaml", yaml.safe_dump(config))
    return node.start(
        "kubelet", ["kubelet", *kubelet_args(plan, this), f"--kubeconfig={INSIDE}/{this.name}.kubeconfig"]
    )


def kubelet_args(plan: Plan, this: NodePlan) -> list[str]:
    """Flags every kubelet gets; those of the user come last and win."""
    provider = [f"--cloud-provider={plan.cloud_provider}"] if plan.cloud_provider else []
    fixed = ["--config=/var/lib/kubelet/config.yaml", f"--node-ip={this.address}", f"--hostname-override={this.name}"]
    return [*fixed, *provider, *plan.kubelet_args_of(this.name)]


def start_proxy(node: Node, plan: Plan, this: NodePlan) -> Daemon:
    """kube-proxy as a process (in a kubeadm lab it is a DaemonSet)."""
    config = proxy_config(plan) | {"clientConnection": {"kubeconfig": str(INSIDE / "kube-proxy.kubeconfig")}}
    node.write("/var/lib/kube-proxy/config.yaml", yaml.safe_dump(config))
    args = ["--config=/var/lib/kube-proxy/config.yaml", f"--hostname-override={this.name}"]
    return node.start("kube-proxy", ["kube-proxy", *args])


def _can_raise_limits() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False
