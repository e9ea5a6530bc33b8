"""The role `Etcd::Host`: etcd's settings as environment variables, which it reads like its options.

In: a tree, a resolved node and the role. Out: `cm-etcd.conf`, the list of members beside it, and the unit's drop-in
that makes the service read both. URLs that were left at their default become https once the cluster has an authority;
where that is one of its own (`Authority`), the certificates of the node are rendered, too. The list of members is read
by etcd when it starts for the first time only, so a change of it restarts no member: a reload of etcd is the agent's
word for bringing the cluster's members in line with it (`agent/services/etcd.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from bedplate.api.desired import File
from bedplate.head.entities.kubernetes import EtcdCluster
from bedplate.head.entities.roles import EtcdHostRole
from bedplate.head.objects import Obj, Secret
from bedplate.head.render.clusters import address, etcd_members
from bedplate.head.render.text import environment_word, filled
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.schema.entity import Field
from bedplate.head.tree import Tree

__all__ = ["CONF", "MEMBERS", "UNIT", "certified", "client_urls", "render", "variables"]

CONF = "/cm/local/apps/etcd/current/etc/cm-etcd.conf"
MEMBERS = "/cm/local/apps/etcd/current/etc/cm-etcd-members.conf"
UNIT = "/etc/systemd/system/etcd.service.d/20-bedplate.conf"
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")
_CERTIFICATES = "/cm/local/apps/etcd/current/etc/certs"

_LIFE = timedelta(days=3650)
_UNIT_TEXT = f"[Service]\nEnvironmentFile={CONF}\nEnvironmentFile={MEMBERS}\n"


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node."""
    role, name = given.role, str(EtcdHostRole.etcd_cluster.value(given.role))
    cluster = tree.find("etcd", name) or Obj("EtcdCluster", name)
    warnings = []
    if not name:
        warnings.append(f"Etcd::Host on {resolved.node.key}: no etcd cluster is set, so the member runs on its own")
    if not resolved.node.values.get("ip"):
        warnings.append(f"Etcd::Host on {resolved.node.key}: etcd listens on addresses only, and the node has no IP")
    if EtcdCluster.ca.value(cluster) and EtcdCluster.authority.value(cluster):
        warnings.append(f"etcd cluster {name}: CA names an authority, so the cluster's own one is not used")
    warnings += [f"Etcd::Host: {option!r} is not an option of etcd and is ignored" for option in _further(role)[1]]
    return Part(
        files=[
            _file(CONF, variables(resolved.node, role, cluster)),
            File(
                path=MEMBERS,
                content=_members(tree, resolved.node, role, cluster),
                services=("etcd",),
                action="RELOAD",
            ),
            File(path=UNIT, content=_UNIT_TEXT, services=("etcd",), action="RESTART"),
            *_issued(resolved.node, role, cluster),
        ],
        packages=["cm-etcd"],
        warnings=warnings,
        data_node=True,
        kept=[str(EtcdHostRole.spool.value(role))],
        serial={"etcd": f"etcd:{name}"},
    )


def _file(path: str, options: Iterable[tuple[str, str]]) -> File:
    lines = [f"ETCD_{option.upper().replace('-', '_')}={environment_word(value)}\n" for option, value in options]
    return File(path=path, content="".join(lines), services=("etcd",), action="RESTART")


def variables(node: Obj, role: Obj, cluster: Obj) -> list[tuple[str, str]]:
    """etcd's options by name, without those that are left to etcd."""
    secure = bool(_ca(cluster))
    options = [
        ("name", _name(node, role)),
        ("data-dir", str(EtcdHostRole.spool.value(role))),
        ("advertise-client-urls", _urls(node, role, EtcdHostRole.advertise_client_urls, secure)),
        ("initial-advertise-peer-urls", _urls(node, role, EtcdHostRole.advertise_peers_urls, secure)),
        ("listen-client-urls", _urls(node, role, EtcdHostRole.listen_client_urls, secure, address(node))),
        ("listen-peer-urls", _urls(node, role, EtcdHostRole.listen_peer_urls, secure, address(node))),
        ("snapshot-count", str(EtcdHostRole.snapshot_count.value(role))),
        ("initial-cluster-token", cluster.key),
        ("initial-cluster-state", "new"),
        ("election-timeout", str(EtcdCluster.election_timeout.value(cluster))),
        ("heartbeat-interval", str(EtcdCluster.heart_beat_interval.value(cluster))),
        *_certificates(role, cluster),
    ]
    if EtcdHostRole.debug.value(role):
        # Releases before 3.5 know the first alone, later ones the second alone; either passes over the other.
        options += [("debug", "true"), ("log-level", "debug")]
    options += _further(role)[0]
    return [(option, value) for option, value in options if value]


def _urls(node: Obj, role: Obj, field: Field, secure: bool, host: str = "") -> str:
    urls = field.value(role)
    assert isinstance(urls, tuple)
    if secure and field.attribute not in role.values:
        urls = tuple(url.replace("http://", "https://", 1) for url in urls)
    name = f"[{host}]" if ":" in host else host
    return ",".join(filled(url, {"hostname": name or node.key}) for url in urls)


def _certificates(role: Obj, cluster: Obj) -> list[tuple[str, str]]:
    """Files of peers and of clients. A member's own certificate beats the cluster's; clients without one of their own
    meet the member's, signed by the cluster's authority."""
    ca, client_ca = _ca(cluster), str(EtcdCluster.client_ca.value(cluster))
    member = str(EtcdHostRole.member_certificate.value(role) or EtcdCluster.member_certificate.value(cluster))
    key = str(EtcdHostRole.member_certificate_key.value(role) or EtcdCluster.member_certificate_key.value(cluster))
    if ca:
        member, key = member or f"{_CERTIFICATES}/member.crt", key or f"{_CERTIFICATES}/member.key"
    client = str(EtcdCluster.client_certificate.value(cluster) or (member if ca else ""))
    client_key = str(EtcdCluster.client_certificate_key.value(cluster) or (key if ca else ""))
    trusted = client_ca or ca
    return [
        ("peer-trusted-ca-file", ca),
        ("peer-cert-file", member),
        ("peer-key-file", key),
        ("peer-client-cert-auth", "true" if ca else ""),
        ("trusted-ca-file", trusted),
        ("cert-file", client),
        ("key-file", client_key),
        ("client-cert-auth", "true" if trusted else ""),
    ]


def _ca(cluster: Obj) -> str:
    """Where the authority of the members is: the one that was named, or the cluster's own."""
    named = str(EtcdCluster.ca.value(cluster))
    return named or (f"{_CERTIFICATES}/ca.crt" if EtcdCluster.authority.value(cluster) else "")


def _issued(node: Obj, role: Obj, cluster: Obj) -> list[File]:
    """The certificates of a member, made by the cluster's own authority: for its server and for itself as a client."""
    seed = EtcdCluster.authority.value(cluster)
    if not isinstance(seed, Secret) or EtcdCluster.ca.value(cluster):
        return []
    fields = (
        EtcdHostRole.advertise_client_urls,
        EtcdHostRole.advertise_peers_urls,
        EtcdHostRole.listen_client_urls,
        EtcdHostRole.listen_peer_urls,
    )
    urls = [url for field in fields for url in _urls(node, role, field, True).split(",")]
    hosts = {node.key, address(node), "localhost", "127.0.0.1", *map(_host, urls)} - {"", "0.0.0.0"}
    authority, certificate, key = _certified(seed.reveal(), cluster.key, node.key, tuple(sorted(hosts)))
    contents = {"ca.crt": authority, "member.crt": certificate, "member.key": key}
    return [
        File(
            path=f"{_CERTIFICATES}/{name}",
            content=content,
            mode="0600" if name.endswith(".key") else "0644",
            secret=name.endswith(".key"),
            services=("etcd",),
            action="RESTART",
        )
        for name, content in contents.items()
    ]


def _host(url: str) -> str:
    """The host of a URL, where a certificate can hold it."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return host if _HOST.fullmatch(host) else ""


def certified(seed: str, cluster: str, name: str) -> tuple[str, str, str]:
    """The authority of a cluster, and the certificate and key of a client of it."""
    return _certified(seed, cluster, name, ("localhost",))


def client_urls(tree: Tree, cluster: Obj) -> list[str]:
    """Where clients reach the members of a cluster."""
    secure = bool(_ca(cluster))
    return [
        _urls(node, role, EtcdHostRole.advertise_client_urls, secure, address(node)).split(",")[0]
        for node, role in etcd_members(tree, cluster.key)
    ]


@functools.lru_cache(maxsize=512)
def _certified(seed: str, cluster: str, node: str, hosts: tuple[str, ...]) -> tuple[str, str, str]:
    """The authority, a member's certificate and its key: the same for the same seed, whichever head renders them."""
    from bedplate.serving import issuing  # only clusters with an authority of their own cost this

    day, _, bits = seed.partition(".")
    begins = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    authority = issuing.Derived(bytes.fromhex(bits), f"etcd {cluster}"[:64], begins, _LIFE)
    pair = authority.issue(node, uses=(issuing.Use.SERVER, issuing.Use.CLIENT), hosts=hosts)
    return authority.certificate.decode(), pair.certificate.decode(), pair.key.decode()


def _further(role: Obj) -> tuple[list[tuple[str, str]], list[str]]:
    """The row `Options`, with or without dashes in front, and what in it is none; without a value it is switched on."""
    given = EtcdHostRole.options.value(role)
    assert isinstance(given, tuple)
    options, bad = [], []
    for option in given:
        name, sign, value = option.strip().lstrip("-").partition("=")
        if _OPTION.fullmatch(name.strip()):
            options.append((name.strip(), value.strip() if sign else "true"))
        else:
            bad.append(option)
    return options, bad


def _members(tree: Tree, node: Obj, role: Obj, cluster: Obj) -> str:
    """The list of members, this node among them."""
    place = ("initial cluster", cluster.key)
    if not cluster.key:
        return _member_list([(node, role)], secure=False)
    if place not in tree.derived:
        tree.derived[place] = _member_list(etcd_members(tree, cluster.key), secure=bool(_ca(cluster)))
    return str(tree.derived[place])


def _member_list(members: Iterable[tuple[Obj, Obj]], *, secure: bool) -> str:
    """What etcd reads when it starts for the first time, and where the agents of members reach the others."""
    pairs = list(members)
    peers = ",".join(_peers(node, role, secure) for node, role in pairs)
    clients = ",".join(
        f"{_name(node, role)}={_urls(node, role, EtcdHostRole.advertise_client_urls, secure).split(',')[0]}"
        for node, role in pairs
    )
    return f"ETCD_INITIAL_CLUSTER={environment_word(peers)}\nCM_ETCD_CLIENTS={environment_word(clients)}\n"


def _name(node: Obj, role: Obj) -> str:
    return filled(str(EtcdHostRole.member_name.value(role)), {"hostname": node.key})


def _peers(node: Obj, role: Obj, secure: bool) -> str:
    name = _name(node, role)
    urls = _urls(node, role, EtcdHostRole.advertise_peers_urls, secure)
    return ",".join(f"{name}={url}" for url in urls.split(","))
