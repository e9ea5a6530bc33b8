"""The control plane as kubeadm's static pods on the first node, the others joined with `kubeadm join`.

In: a `ground.Ground`. Out: a cluster made by kubeadm as on real machines: stacked etcd, kube-proxy and CoreDNS in pods.

kubeadm expects systemd. In its place every node gets a small `systemctl` in front of its PATH that knows one
unit, the kubelet, and calls every other one inactive (kubeadm would otherwise trust files of units that are not there).
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bedplate.core import errors
from bedplate.core.tasks import TaskGroup
from bedplate.lab import kubernetes_node, versions
from bedplate.lab.ground import PRELOADED, Ground
from bedplate.lab.nodes import INSIDE, Node
from bedplate.lab.plan import NodePlan, Plan
from bedplate.lab.processes import tail

__all__ = ["NEEDS", "image_names", "init_config", "join_config", "start", "start_node", "systemctl"]

NEEDS = (
    "etcd",
    "etcdctl",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubeadm",
    "kubectl",
    "coredns",
)
_FLAGS = "/etc/default/kubelet"
# True on these nodes and of no consequence: the kernel's own settings file, and the machine's cgroup layout and swap.
_ACCEPTED = "SystemVerification,Swap,NumCPU,Mem"
# Cluster DNS shall answer before a cloud controller manager has initialised the nodes: one may be in the making.
_TOLERATE = (
    '[{"op": "add", "path": "/spec/template/spec/tolerations/-",'
    ' "value": {"key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists"}}]'
)


def image_names(programs: Mapping[str, Path], version: str) -> list[str]:
    """The images this kubeadm asks for."""
    command = [
        str(programs["kubeadm"]),
        "config",
        "images",
        "list",
        f"--kubernetes-version={versions.resolve(version)}",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode:
        raise errors.Terminal(f"kubeadm does not list its images: {answer.stderr.strip()[-300:]}")
    return answer.stdout.split()


def systemctl(log: str) -> str:
    """The stand-in for systemd: start, stop and query the kubelet with the files kubeadm writes."""
    return f"""#!/bin/sh
# The lab's service manager: it knows one unit, kubelet.
pid_file=/run/kubelet.pid
running() {{ [ -s $pid_file ] && kill -0 "$(cat $pid_file)" 2>/dev/null; }}
stop() {{
    running || return 0
    kill "$(cat $pid_file)"
    for _ in $(seq 100); do running || return 0; sleep 0.1; done
    kill -9 "$(cat $pid_file)"
}}
start() {{
    running && return 0
    [ -f /var/lib/kubelet/config.yaml ] || return 0
    KUBELET_KUBEADM_ARGS= KUBELET_EXTRA_ARGS=
    [ -f /var/lib/kubelet/kubeadm-flags.env ] && . /var/lib/kubelet/kubeadm-flags.env
    [ -f {_FLAGS} ] && . {_FLAGS}
    setsid {INSIDE}/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
        --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \\
        $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS >>{log} 2>&1 </dev/null &
    echo $! > $pid_file
}}
verb= unit=
for word in "$@"; do
    case $word in -*) ;; *) if [ -z "$verb" ]; then verb=$word; else unit=${{word%.service}}; fi ;; esac
done
case "$verb $unit" in
    "start kubelet"|"enable kubelet") [ "$verb" = enable ] || start ;;
    "restart kubelet") stop; start ;;
    "stop kubelet") stop ;;
    "is-active kubelet"|"status kubelet") if running; then echo active; else echo inactive; exit 3; fi ;;
    "is-enabled kubelet") echo enabled ;;
    "cat kubelet") echo "[Service]" ;;
    "daemon-reload ") ;;
    *) echo inactive; exit 3 ;;
esac
"""


def init_config(plan: Plan, this: NodePlan, token: str) -> str:
    """What `kubeadm init` reads: the cluster, the kubelets and kube-proxy of all nodes."""
    cluster: dict[str, Any] = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": plan.name,
        "kubernetesVersion": plan.kubernetes,
        "controlPlaneEndpoint": f"{this.address}:6443",
        "networking": {"podSubnet": plan.pod_cidr, "serviceSubnet": plan.service_cidr},
    }
    if plan.cloud_provider:
        args = [{"name": "cloud-provider", "value": plan.cloud_provider}]
        cluster["controllerManager"] = {"extraArgs": args}
    init = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": token, "ttl": "24h0m0s"}],
        "localAPIEndpoint": {"advertiseAddress": this.address, "bindPort": 6443},
        "nodeRegistration": _registration(this),
    }
    # The cgroup root is each node's own and given as a flag, since kubeadm shares this document between nodes.
    kubelet = {key: value for key, value in kubernetes_node.kubelet_config(plan, "").items() if key != "cgroupRoot"}
    return yaml.safe_dump_all([init, cluster, kubelet, kubernetes_node.proxy_config(plan)])


def join_config(plan: Plan, this: NodePlan, token: str) -> str:
    """What `kubeadm join` reads. The authority is read from the cluster: the lab's own wire is trusted."""
    discovery = {
        "token": token,
        "apiServerEndpoint": f"{plan.nodes[0].address}:6443",
        "unsafeSkipCAVerification": True,
    }
    join = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": discovery},
        "nodeRegistration": _registration(this),
    }
    return yaml.safe_dump(join)


def _registration(this: NodePlan) -> dict[str, Any]:
    return {"name": this.name, "criSocket": "unix:///run/containerd/containerd.sock", "imagePullPolicy": "IfNotPresent"}


async def start(ground: Ground) -> None:
    """`kubeadm init`, then every `kubeadm join` at once, then the pod network."""
    plan = ground.plan
    token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
    for this in plan.nodes:
        _prepare(ground, ground.nodes[this.name], this)
    await ground.start_containerd(PRELOADED)
    ground.report("kubeadm init")
    first = plan.nodes[0]
    ground.first.write("/etc/kubernetes/init.yaml", init_config(plan, first, token))
    await _kubeadm(ground, ground.first, "init", "--config=/etc/kubernetes/init.yaml")
    shutil.copy2(f"/proc/{ground.first.pid}/root/etc/kubernetes/admin.conf", ground.kubeconfig)
    if plan.cloud_provider:
        await ground.kubectl("patch", "deployment", "coredns", "-n=kube-system", "--type=json", f"--patch={_TOLERATE}")
    if len(plan.nodes) == 1:
        await ground.kubectl("taint", "nodes", first.name, "node-role.kubernetes.io/control-plane-")
    else:
        ground.report(f"kubeadm join on {len(plan.nodes) - 1} nodes")
    async with TaskGroup() as group:
        for this in plan.nodes[1:]:
            node = ground.nodes[this.name]
            node.write("/etc/kubernetes/join.yaml", join_config(plan, this, token))
            group.create_task(_kubeadm(ground, node, "join", "--config=/etc/kubernetes/join.yaml"))
    await ground.connect_pods()


def _prepare(ground: Ground, node: Node, this: NodePlan) -> None:
    script = ground.folder / "nodes" / this.name / "bin" / "systemctl"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(systemctl(f"{INSIDE}/logs/{this.name}/kubelet.log"))
    script.chmod(0o755)
    flags = [f"--cgroup-root={ground.tree.root_of(this.name)}", *kubernetes_node.kubelet_args(ground.plan, this)]
    node.write(_FLAGS, f'KUBELET_EXTRA_ARGS="{" ".join(flags)}"\n')


async def start_node(ground: Ground, this: NodePlan) -> None:
    """A node's kubelet after the node was switched off; the rest of its programs are pods."""
    node = ground.nodes[this.name]
    path = f"{INSIDE}/nodes/{this.name}/bin:{node.environ()['PATH']}"
    await node.run(["systemctl", "start", "kubelet"], f"start the kubelet of {this.name}", environ={"PATH": path})


async def _kubeadm(ground: Ground, node: Node, *args: str) -> None:
    command = ["kubeadm", *args, f"--ignore-preflight-errors={_ACCEPTED}"]
    path = f"{INSIDE}/nodes/{node.name}/bin:{node.environ()['PATH']}"
    try:
        await node.run(
            command, f"run kubeadm {args[0]} on {node.name}", timeout_s=ground.waiter.rest_s, environ={"PATH": path}
        )
    except errors.BedplateError as err:
        log = node.logs / "kubelet.log"
        raise errors.Terminal(f"{err}\nlast lines of {log}:\n{tail(log)}") from None
