"""The role `Kubernetes::ApiServerProxy`: nginx balances a local port over all API servers, and 443 over the ingress.

In: a tree, a resolved node and the role. Out: `nginx.conf`, tested before nginx loads it; in a test nginx does not mind
that another program has one of its ports, so the agent is told them. A server that failed three times is left out for
ten seconds. The ingress is balanced when the cluster's extras say so; its port on the nodes is that of the application
`ingress_controller`, or the extra when it does not say. A head node with the role for several clusters has a listener
for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from bedplate.api.desired import File
from bedplate.head.entities.kubernetes import ApplicationEnvironment, KubeCluster
from bedplate.head.entities.roles import KubernetesApiServerProxyRole
from bedplate.head.objects import Obj
from bedplate.head.render.clusters import address, control_plane
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.tree import Tree

__all__ = ["CONF", "Listener", "listeners", "nginx_conf", "render"]

CONF = "/etc/nginx/nginx.conf"
API_SERVER_PORT = 6443
INGRESS_PORT = 30443
INGRESS_LISTEN_PORT = 443
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_ENDPOINT = re.compile(r"https://(?P<host>\[[^\]]*\]|[^:/]*)(?::(?P<port>\d+))?/?")
_ON = {"yes", "y", "true", "on", "1"}

_HEAD = """\
# Balances the API servers and the ingress of Kubernetes clusters.
include {prefix}/etc/nginx/modules-enabled/*.conf;
include {prefix}/usr/share/nginx/modules/*.conf;
worker_processes auto;
worker_rlimit_nofile 65536;
pid {prefix}/run/nginx.pid;
error_log {prefix}/var/log/nginx/error.log warn;

events {{
    worker_connections 8192;
}}

stream {{
    # A server that failed three times is left out for ten seconds; watches may be silent for long.
    proxy_connect_timeout 2s;
    proxy_timeout 24h;
    proxy_socket_keepalive on;
"""
_LISTENER = """
    upstream {name} {{
        zone {name} 64k;
        least_conn;
{servers}    }}

    server {{
{listens}        proxy_pass {name};
    }}
"""
_SERVER = "        server {target} max_fails=3 fail_timeout=10s;\n"


class Listener(NamedTuple):
    """A port of the node and the servers it is spread over."""

    name: str
    port: int
    targets: tuple[str, ...]


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node: the same for all that have it for the same clusters."""
    names = tuple(_clusters(tree, resolved, given))
    place = ("proxy", names)
    if place not in tree.derived:
        tree.derived[place] = _part(tree, names)
    part: Part = tree.derived[place]
    return part


def _part(tree: Tree, names: Iterable[str]) -> Part:
    entries: list[Listener] = []
    warnings: list[str] = []
    for name in names:
        for listener in listeners(tree, name, warnings):
            taken = next((other for other in entries if other.port == listener.port), None)
            if taken is None:
                entries.append(listener)
            else:
                warnings.append(
                    f"{listener.name}: port {listener.port} is already used by {taken.name}, so it is ignored"
                )
    file = File(
        path=CONF,
        content=nginx_conf(entries),
        services=("nginx",),
        action="RELOAD",
        test=("nginx", "-t", "-c", "{}"),
        ports=tuple(listener.port for listener in entries),
    )
    return Part(files=[file], packages=["nginx"], warnings=warnings)


def nginx_conf(entries: Iterable[Listener], prefix: str = "") -> str:
    """The file; `prefix` stands before every path in it, so that it can be tried elsewhere."""
    parts = [_HEAD.format(prefix=prefix)]
    for name, port, targets in entries:
        servers = "".join(_SERVER.format(target=target) for target in targets)
        # A node whose kernel has no IPv6 could not even open such a listener.
        addresses = ["", "[::]:"] if any(target.startswith("[") for target in targets) else [""]
        listens = "".join(f"        listen {host}{port};\n" for host in addresses)
        parts.append(_LISTENER.format(name=name, listens=listens, servers=servers))
    return "".join([*parts, "}\n"])


def listeners(tree: Tree, name: str, warnings: list[str]) -> list[Listener]:
    """The listeners of one cluster; what cannot be done is said in `warnings`."""
    cluster = tree.get(("kubernetes", name))
    candidates = [_api(tree, cluster, warnings), _ingress(tree, cluster, warnings)]
    return [listener for listener in candidates if listener is not None]


def _clusters(tree: Tree, resolved: Resolved, given: RoleGiven) -> list[str]:
    """The cluster of the role that holds; a head node serves those of the roles that lost, too."""
    roles = [given.role]
    if resolved.node.type == "HeadNode":
        offered = ((tree.find(source.mode, source.key), source.part) for source in given.beaten)
        roles += [giver.below("roles")[part] for giver, part in offered if giver is not None]
    names = [str(KubernetesApiServerProxyRole.kubernetes_cluster.value(role)) for role in roles]
    return list(dict.fromkeys(name for name in names if tree.find("kubernetes", name) is not None))


def _api(tree: Tree, cluster: Obj, warnings: list[str]) -> Listener | None:
    port = KubeCluster.kubernetes_api_server_proxy_port.value(cluster)
    assert isinstance(port, int)
    endpoint = _ENDPOINT.fullmatch(str(KubeCluster.kubernetes_api_server.value(cluster)))
    server_port = int(endpoint["port"] or 443) if endpoint else API_SERVER_PORT
    if KubeCluster.external.value(cluster) and endpoint:
        hosts = [endpoint["host"]]
    else:
        hosts = [address(member.node) for member in control_plane(tree, cluster.key)]
    return _listener(f"kube-{cluster.key}-api", port, hosts, server_port, warnings)


def _ingress(tree: Tree, cluster: Obj, warnings: list[str]) -> Listener | None:
    if cluster.extras.get("ingress_proxy_enable", "").strip().lower() not in _ON:
        return None
    listen = _port(cluster, "ingress_proxy_listen_port", INGRESS_LISTEN_PORT, warnings)
    backend = _node_port(cluster) or _port(cluster, "ingress_proxy_backend_port", INGRESS_PORT, warnings)
    if listen is None or backend is None:
        return None
    hosts = [address(member.node) for member in control_plane(tree, cluster.key)]
    return _listener(f"kube-{cluster.key}-ingress", listen, hosts, backend, warnings)


def _listener(name: str, port: int, hosts: Iterable[str], target: int, warnings: list[str]) -> Listener | None:
    """A listener without servers is none: nginx would refuse the whole file."""
    targets = []
    for host in hosts:
        written = f"[{host}]" if ":" in host and not host.startswith("[") else host
        if _HOST.fullmatch(written):
            targets.append(f"{written}:{target}")
        else:
            warnings.append(f"{name}: {host!r} is not a host that nginx accepts")
    if not targets:
        warnings.append(f"{name}: no control plane node is known, so nothing listens on {port}")
        return None
    return Listener(re.sub(r"[^A-Za-z0-9_.-]", "_", name), port, tuple(targets))


def _node_port(cluster: Obj) -> int | None:
    """The port of the ingress on every node, as the application that runs it says."""
    for group in cluster.below("app_groups").values():
        application = group.below("applications").get("ingress_controller")
        entry = application.below("environment").get("CM_KUBE_INGRESS_HTTPS_PORT") if application else None
        text = str(ApplicationEnvironment.value.value(entry)) if entry is not None else ""
        if text.isdecimal() and 1 <= int(text) <= 65535:
            return int(text)
    return None


def _port(cluster: Obj, extra: str, default: int, warnings: list[str]) -> int | None:
    text = cluster.extras.get(extra, "").strip() or str(default)
    if text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    warnings.append(f"kubernetes {cluster.key}: {extra} {text!r} is not a port, so the ingress is not balanced")
    return None
