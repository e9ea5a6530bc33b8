"""The role `Etcd::Host`: etcd's settings as environment variables, which it reads like its options.

In: a tree, a resolved node and the role. Out: `cm-etcd.conf`, the list of members beside it, and the unit's drop-in
that makes the service read both. URLs that were left at their default become https once the cluster has an authority.
The list of members is read by etcd when it starts for the first time only, so a change of it restarts nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bedplate.api.desired import File
from bedplate.head.entities.kubernetes import EtcdCluster
from bedplate.head.entities.roles import EtcdHostRole
from bedplate.head.objects import Obj
from bedplate.head.render.clusters import address, etcd_members
from bedplate.head.render.text import environment_word, filled
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.schema.entity import Field
from bedplate.head.tree import Tree

__all__ = ["CONF", "MEMBERS", "UNIT", "render", "variables"]

CONF = "/cm/local/apps/etcd/current/etc/cm-etcd.conf"
MEMBERS = "/cm/local/apps/etcd/current/etc/cm-etcd-members.conf"
UNIT = "/etc/systemd/system/etcd.service.d/20-bedplate.conf"
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_CERTIFICATES = "/cm/local/apps/etcd/current/etc/certs"

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
    warnings += [f"Etcd::Host: {option!r} is not an option of etcd and is ignored" for option in _further(role)[1]]
    return Part(
        files=[
            _file(CONF, variables(resolved.node, role, cluster)),
            _file(MEMBERS, [("initial-cluster", _members(tree, resolved.node, role, cluster))], restart=False),
            File(path=UNIT, content=_UNIT_TEXT, services=("etcd",), action="RESTART"),
        ],
        packages=["cm-etcd"],
        warnings=warnings,
        data_node=True,
        kept=[str(EtcdHostRole.spool.value(role))],
        serial={"etcd": f"etcd:{name}"},
    )


def _file(path: str, options: Iterable[tuple[str, str]], *, restart: bool = True) -> File:
    lines = [f"ETCD_{option.upper().replace('-', '_')}={environment_word(value)}\n" for option, value in options]
    return File(path=path, content="".join(lines), services=("etcd",), action="RESTART" if restart else "NONE")


def variables(node: Obj, role: Obj, cluster: Obj) -> list[tuple[str, str]]:
    """etcd's options by name, without those that are left to etcd."""
    secure = bool(EtcdCluster.ca.value(cluster))
    options = [
        ("name", filled(str(EtcdHostRole.member_name.value(role)), {"hostname": node.key})),
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
    ca, client_ca = str(EtcdCluster.ca.value(cluster)), str(EtcdCluster.client_ca.value(cluster))
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
    """Every member with its peer URLs, this node among them."""
    place = ("initial cluster", cluster.key)
    if place not in tree.derived:
        secure = bool(EtcdCluster.ca.value(cluster))
        tree.derived[place] = ",".join(
            _peers(member.node, member.role, secure) for member in etcd_members(tree, cluster.key)
        )
    return str(tree.derived[place]) if cluster.key else _peers(node, role, False)


def _peers(node: Obj, role: Obj, secure: bool) -> str:
    name = filled(str(EtcdHostRole.member_name.value(role)), {"hostname": node.key})
    urls = _urls(node, role, EtcdHostRole.advertise_peers_urls, secure)
    return ",".join(f"{name}={url}" for url in urls.split(","))
