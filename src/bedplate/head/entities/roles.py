"""The roles besides Docker's: etcd, the API server proxy, kubelet, firewall, CAPI, and generic ones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bedplate.head.entities.base import FILE_MODE, OWNER, SERVICE_ACTION, ExcludeListSnippet, Role
from bedplate.head.entities.docker import DockerHostRole
from bedplate.head.objects import Obj, Value
from bedplate.head.schema.entity import Entity, Field, Group, Internal, Key, Look, Submode, TypeName
from bedplate.head.schema.kinds import Blob, Bool, Choice, Cidr, Integer, Kind, Path, SecretText, Text, Unfit
from bedplate.head.schema.ranges import ListOf, Reference

__all__ = [
    "CONTAINERD_DROPINS",
    "MANIFESTS",
    "NVIDIA_CRI",
    "ROLES",
    "CapiRole",
    "EtcdHostRole",
    "FirewallRole",
    "GenericRole",
    "GenericRoleConfiguration",
    "GenericRoleEnvironment",
    "KubeletOption",
    "KubeletRole",
    "KubernetesApiServerProxyRole",
    "OpenPort",
]

MANIFESTS = ("etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml")


class EtcdHostRole(Role):
    """Runs a member of an etcd cluster; written to cm-etcd.conf."""

    names = ("Etcd::Host",)
    service_names = ("etcd",)
    groups = (
        Group("Identity", ("name", "type", "etcd_cluster", "member_name", "add_services")),
        Group("Storage", ("spool", "snapshot_count")),
        Group("Network", ("advertise_client_urls", "advertise_peers_urls", "listen_client_urls", "listen_peer_urls")),
        Group("Certificates", ("member_certificate", "member_certificate_key"), is_rare=True),
        Group("Further options", ("debug", "options"), is_rare=True),
    )

    etcd_cluster = Field("Etcd Cluster", Reference("etcd"), doc="the cluster whose member this is")
    member_name = Field("Member Name", Text(), "$hostname", doc="--name; $hostname is replaced by the node's name")
    spool = Field("Spool", Path(), "/var/lib/etcd", doc="--data-dir: where the data is kept")
    advertise_client_urls = Field(
        "Advertise Client URLs", ListOf(Text()), ("http://$hostname:5001",), doc="--advertise-client-urls"
    )
    advertise_peers_urls = Field(
        "Advertise Peers URLs", ListOf(Text()), ("http://$hostname:5002",), doc="--initial-advertise-peer-urls"
    )
    listen_client_urls = Field(
        "Listen Client URLs",
        ListOf(Text()),
        ("http://$hostname:5001", "http://127.0.0.1:2379"),
        doc="--listen-client-urls",
    )
    listen_peer_urls = Field("Listen Peer URLs", ListOf(Text()), ("http://$hostname:5002",), doc="--listen-peer-urls")
    snapshot_count = Field("Snapshot Count", Integer(1), 5000, doc="--snapshot-count: transactions between snapshots")
    debug = Field("Debug", Bool(), False, doc="--debug")
    member_certificate = Field("Member Certificate", Path(), doc="--peer-cert-file; overrides the etcd cluster's")
    member_certificate_key = Field(
        "Member Certificate Key", Path(), doc="--peer-key-file; overrides the etcd cluster's"
    )
    options = Field("Options", ListOf(Text()), doc="additional parameters of etcd")


class KubernetesApiServerProxyRole(Role):
    """Balances a local port over the API servers of all control plane nodes."""

    names = ("Kubernetes::ApiServerProxy",)
    service_names = ("nginx",)

    kubernetes_cluster = Field("Kubernetes Cluster", Reference("kubernetes"), doc="the cluster whose API is balanced")


@dataclass(frozen=True)
class _Manifest(Choice):
    """The base name of a static pod's manifest; a full path is understood."""

    def parse(self, text: str) -> Value:
        return super().parse(posixpath.basename(text.strip()))


class KubeletOption(Entity):
    """A flag added to a container of a static pod."""

    noun = "option"
    columns = ("filename", "container", "key", "value")
    positional = ("filename", "container", "key", "value")

    filename = Field("Filename", _Manifest(MANIFESTS), "kube-apiserver.yaml", doc="the manifest")
    container = Field("Container", Text(), doc="the container in it; empty: the one named like the manifest")
    key = Field("Key", Text(r"[A-Za-z0-9][A-Za-z0-9-]*", "a flag without leading dashes"), doc="the flag")
    value = Field("Value", Text(), doc="its value; empty: a flag without a value")


class KubeletRole(Role):
    """Makes the node part of a Kubernetes cluster."""

    names = ("kubelet",)
    service_names = ("kubelet",)
    groups = (
        Group("Identity", ("name", "type", "add_services")),
        Group("Kubernetes", ("kubernetes_cluster", "control_plane", "worker", "max_pods", "options")),
    )

    kubernetes_cluster = Field("Kubernetes Cluster", Reference("kubernetes"), doc="the cluster the node belongs to")
    control_plane = Field("Control plane", Bool(), False, doc="run the control plane on the node")
    worker = Field("Worker", Bool(), True, doc="run pods on the node")
    max_pods = Field("Max Pods", Integer(1, 10000), 110, doc="maximum number of pods on the node")
    options = Submode("Options", KubeletOption, doc="flags in static pods' manifests", indexed=True)

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        seen: set[tuple[object, ...]] = set()
        problems = []
        for option in obj.below("options").values():
            key = str(KubeletOption.key.value(option))
            where = (KubeletOption.filename.value(option), KubeletOption.container.value(option), key)
            if not key:
                problems.append("options: a flag needs a key")
            elif where in seen:
                problems.append(f"options: {where[0]} has {key} twice")
            seen.add(where)
        return problems


_PORTS = r"[0-9]{1,5}(?:[:-][0-9]{1,5})?"


@dataclass(frozen=True)
class _Ports(Kind):
    """A port, or a range of them."""

    name: ClassVar[str] = "port or range"

    def check(self, value: Value) -> None:
        super().check(value)
        if not value:
            return
        match = re.fullmatch(_PORTS, str(value))
        ports = [int(part) for part in re.split("[:-]", str(value))] if match else []
        if not ports or not all(1 <= port <= 65535 for port in ports) or ports != sorted(ports):
            wrong = Unfit if match else ValueError
            raise wrong(f"{value!r} must be a port between 1 and 65535, or a range such as 30000-32767")

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{_PORTS})?$"}


class OpenPort(Entity):
    """One rule of the firewall."""

    noun = "open port"
    columns = ("action", "network", "port", "destination", "protocol", "address", "description")
    positional = ("action", "network", "port", "protocol", "destination")
    groups = (
        Group("Rule", ("action", "protocol", "port", "description")),
        Group("From and to", ("network", "destination", "address")),
    )

    action = Field("Action", Choice(("ACCEPT", "DROP", "REJECT", "DNAT")), "ACCEPT", doc="what happens to the packet")
    network = Field("Network", Text(r"[A-Za-z][A-Za-z0-9]*", "a zone"), "net", doc="the zone it comes from")
    port = Field("Port", _Ports(), doc="destination port, or a range")
    destination = Field(
        "Destination",
        Text(r"[A-Za-z0-9][A-Za-z0-9.:_-]*", "a zone"),
        "fw",
        doc="the zone it goes to (DNAT: zone:host:port)",
    )
    protocol = Field("Protocol", Choice(("TCP", "UDP", "SCTP", "ICMP")), "TCP", doc="its protocol")
    address = Field("Address", Cidr(), "0.0.0.0/0", doc="the addresses it may come from")
    description = Field("Description", Text(), doc="what the rule is for")

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        if cls.protocol.value(obj) != "ICMP" and not cls.port.value(obj):
            return ["port: a rule needs one"]
        if cls.action.value(obj) == "DNAT" and ":" not in str(cls.destination.value(obj)):
            return ["destination: DNAT needs zone:host or zone:host:port"]
        return []


class FirewallRole(Role):
    """What the node's firewall allows."""

    names = ("firewall",)

    backend = Field(
        "Backend", Choice(("shorewall", "nftables")), "shorewall", doc="which service enforces the rules on the node"
    )
    open_ports = Submode("Open ports", OpenPort, doc="the rules, in order", indexed=True)

    @classmethod
    def services(cls, obj: Obj) -> Sequence[str]:
        return (str(cls.backend.value(obj)),)


class CapiRole(Role):
    """Runs the host agent that registers the node with a management cluster."""

    names = ("capi",)
    service_names = ("capi-agent",)

    kubernetes_cluster = Field("Kubernetes Cluster", Reference("kubernetes"), doc="the management cluster")


class GenericRoleConfiguration(Entity):
    """A file of the role, written unchanged except for the role's environment variables."""

    noun = "configuration"
    columns = ("filename", "disabled")
    groups = (
        Group("File", ("name", "type", "filename", "disabled", "content")),
        Group("Services", ("service_action_on_write", "service_stop_on_failure")),
        Group(
            "Owner and mode",
            ("filemask", "user_name", "group_name", "create_directory", "filemask_directory"),
            is_rare=True,
        ),
    )

    name = Key()
    type = TypeName("Type", doc="how the content is made")
    create_directory = Field("Create directory", Bool(), True, doc="create the folder if it is missing")
    filename = Field("Filename", Path(), doc="path of the file on the node")
    filemask_directory = Field("Filemask directory", FILE_MODE, "0644", doc="mode of a created folder")
    user_name = Field("User name", OWNER, doc="owner; empty: root")
    group_name = Field("Group name", OWNER, doc="group; empty: root")
    disabled = Field("Disabled", Bool(), False, doc="stop managing the file")
    service_action_on_write = Field(
        "Service action on write", SERVICE_ACTION, "RESTART", doc="what the role's services do when the file changed"
    )
    service_stop_on_failure = Field(
        "Service stop on failure", Bool(), True, doc="stop the role's services when the file cannot be written"
    )
    content = Field("Content", Blob(), doc="the file")
    filemask = Field("Filemask", FILE_MODE, "0644", doc="the file's mode")

    @classmethod
    def type_name(cls) -> str:
        return "static"

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        return [] if cls.filename.value(obj) else ["filename: a configuration needs one"]


class GenericRoleEnvironment(Entity):
    """A variable for the role's files."""

    noun = "environment entry"
    columns = ("value", "node_environment")

    name = Key(kind=Text(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name"))
    value = Field("Value", Text(), doc="what replaces $NAME")
    node_environment = Field("Node Environment", Bool(), False, doc="also export it to the node's environment")
    secret_value = Field(
        "Secret value", SecretText(), doc="a value that must not be seen, in place of Value; files with it are secret"
    )

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        if cls.secret_value.value(obj) and cls.node_environment.value(obj):
            return ["nodeenvironment: a secret value cannot be exported to the node's environment"]
        return []


CONTAINERD = "generic::containerd"
NVIDIA_CRI = "nvidia-cri"
"""The configuration with the runtime of NVIDIA; its nodes get the container toolkit."""
CONTAINERD_DROPINS = "/cm/local/apps/containerd/var/etc/conf.d"
_SERVICES = {CONTAINERD: ("containerd",)}
_CRI = """\
version = 2

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


class GenericRole(Role):
    """Services with their files, without code of their own."""

    names = ("generic::*", "generic::containerd", "generic::docker_registry", "generic::harbor", "generic::netq")
    groups = (
        Group("Identity", ("name", "type", "services_run", "add_services", "data_node")),
        Group("Files", ("configurations", "environments", "exclude_list_snippets", "provisioning_associations")),
    )

    provisioning_associations = Internal("Provisioning associations", doc="used by image provisioning")
    services_run = Field("Services", ListOf(Text()), doc="services of the role")
    configurations = Submode("Configurations", GenericRoleConfiguration, doc="files of the role")
    environments = Submode("Environments", GenericRoleEnvironment, doc="variables for the files")
    exclude_list_snippets = Submode(
        "Exclude list snippets", ExcludeListSnippet, doc="paths that image updates do not change"
    )
    data_node = Field("Data node", Bool(), False, doc="its nodes contain data: wiping one needs a confirmation")

    @classmethod
    def services(cls, obj: Obj) -> Sequence[str]:
        services = cls.services_run.value(obj)
        return services if isinstance(services, tuple) and services else _SERVICES.get(obj.key, ())

    @classmethod
    def made(cls, key: str) -> Obj:
        """The role for containers comes with its service, and with the settings that a kubelet needs."""
        obj = super().made(key)
        if key in _SERVICES:
            obj = obj.with_value("services_run", _SERVICES[key])
        if key == CONTAINERD:
            values: dict[str, Value] = {"filename": f"{CONTAINERD_DROPINS}/cri.toml", "content": _CRI}
            obj = obj.with_child("configurations", "containerd-cri", Obj("static", "containerd-cri", values))
        return obj


ROLES: tuple[type[Role], ...] = (
    DockerHostRole,
    EtcdHostRole,
    KubernetesApiServerProxyRole,
    KubeletRole,
    FirewallRole,
    CapiRole,
    GenericRole,
)
