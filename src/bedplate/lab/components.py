"""How each component of a Kubernetes cluster is started: the pure part.

In: a `Site` (where the cluster's files lie, where it listens). Out: argument lists. Used by `controlplane` (plain
processes without root) and by `cluster` (processes in a node's namespaces); neither files nor processes are touched
here.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from bedplate.lab import credentials

__all__ = ["Site", "apiserver", "controller_manager", "etcd", "issue_all", "scheduler"]

# The API server authenticates itself to extension servers with this name.
_FRONT_PROXY = "front-proxy-client"


@dataclass(frozen=True, slots=True)
class Site:
    """Files and addresses of one control plane. `address` is where it listens and what its certificates name."""

    pki: Path
    config: Path
    data: Path
    address: str = "127.0.0.1"
    port: int = 6443
    etcd_address: str = "127.0.0.1"
    etcd_port: int = 2379
    etcd_peer_port: int = 2380
    controller_manager_port: int = 10257
    scheduler_port: int = 10259
    service_cidr: str = "10.96.0.0/16"
    pod_cidr: str = ""
    hosts: tuple[str, ...] = ()
    extra_args: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def etcd_url(self) -> str:
        return f"https://{self.etcd_address}:{self.etcd_port}"

    def more(self, component: str) -> list[str]:
        """Arguments the caller adds; they come last, so that they win."""
        return list(self.extra_args.get(component, ()))


def issue_all(site: Site) -> None:
    """Write every certificate, key and kubeconfig of the control plane."""
    site.config.mkdir(parents=True, exist_ok=True)
    authority = credentials.Authority.open(site.pki, "ca")
    front = credentials.Authority.open(site.pki, "front-proxy-ca")
    front.issue(_FRONT_PROXY, _FRONT_PROXY)
    credentials.write_service_account_keys(site.pki)
    own_service = str(ipaddress.ip_network(site.service_cidr)[1])
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    hosts = dict.fromkeys([*names, "localhost", "127.0.0.1", own_service, site.address, *site.hosts])
    authority.issue("apiserver", "kube-apiserver", hosts=hosts)
    authority.issue("etcd", "etcd", hosts=dict.fromkeys(["localhost", "127.0.0.1", site.etcd_address]))
    authority.issue("etcd-client", "kube-apiserver-etcd-client")
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", groups=["system:masters"])
    users = {
        "admin": ("kubernetes-admin", ["system:masters"]),
        "controller-manager": ("system:kube-controller-manager", []),
        "scheduler": ("system:kube-scheduler", []),
    }
    for file_name, (user, groups) in users.items():
        pair = authority.issue(file_name, user, groups=groups)
        target = site.config / f"{file_name}.kubeconfig"
        credentials.write_kubeconfig(target, site.url, authority.certificate_path, pair, user=user)


def etcd(site: Site, *, is_durable: bool) -> list[str]:
    """One member on TLS, clients identified by certificate."""
    peer = f"http://127.0.0.1:{site.etcd_peer_port}"
    args = [
        "--name=lab",
        f"--data-dir={site.data / 'etcd'}",
        f"--listen-client-urls={site.etcd_url}",
        f"--advertise-client-urls={site.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=lab={peer}",
        f"--cert-file={site.pki / 'etcd.crt'}",
        f"--key-file={site.pki / 'etcd.key'}",
        f"--trusted-ca-file={site.pki / 'ca.crt'}",
        "--client-cert-auth=true",
        "--log-level=warn",
    ]
    if not is_durable:
        args.append("--unsafe-no-fsync")
    return args + site.more("etcd")


def apiserver(site: Site) -> list[str]:
    """RBAC and node authorization, service account tokens, the aggregation layer."""
    pki = site.pki
    return [
        f"--bind-address={site.address}",
        f"--advertise-address={site.address}",
        f"--secure-port={site.port}",
        f"--etcd-servers={site.etcd_url}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={site.service_cidr}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={_FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / (_FRONT_PROXY + '.crt')}",
        f"--proxy-client-key-file={pki / (_FRONT_PROXY + '.key')}",
        "--event-ttl=1h",
        *site.more("kube-apiserver"),
    ]


def controller_manager(site: Site) -> list[str]:
    """Every default controller, each with its own service account; node CIDRs when the site has a pod network."""
    kubeconfig, pki = site.config / "controller-manager.kubeconfig", site.pki
    args = [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={site.address}",
        f"--secure-port={site.controller_manager_port}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--service-cluster-ip-range={site.service_cidr}",
        "--controllers=*,bootstrapsigner,tokencleaner",
    ]
    if site.pod_cidr:
        args += ["--allocate-node-cidrs=true", f"--cluster-cidr={site.pod_cidr}", "--node-cidr-mask-size=24"]
    return args + site.more("kube-controller-manager")


def scheduler(site: Site) -> list[str]:
    """The default scheduler."""
    kubeconfig = site.config / "scheduler.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={site.address}",
        f"--secure-port={site.scheduler_port}",
        *site.more("kube-scheduler"),
    ]
