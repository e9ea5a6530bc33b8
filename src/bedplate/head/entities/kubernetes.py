"""Kubernetes and etcd clusters, with app groups, label sets and users."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from bedplate.core import errors
from bedplate.head.entities.base import ExcludeListSnippet, Named
from bedplate.head.entities.people import KubernetesUser, own_namespaces
from bedplate.head.entities.site import Network
from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Entity, Field, Group, Key, Look, Submode
from bedplate.head.schema.kinds import (
    BLANKS,
    Address,
    Blob,
    Bool,
    Choice,
    Duration,
    Integer,
    Path,
    Port,
    SecretText,
    Seed,
    Text,
)
from bedplate.head.schema.ranges import ListOf, NodeList, Reference

__all__ = [
    "AppGroup",
    "Application",
    "ApplicationEnvironment",
    "EtcdCluster",
    "KubeCluster",
    "LabelSet",
]

_LABEL = Text(
    r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?",
    "a label (write name=value or prefix/name=)",
)


class ApplicationEnvironment(Entity):
    """A variable for an application's YAML."""

    noun = "environment entry"
    columns = ("value", "nodes_environment")

    name = Key(kind=Text(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name"))
    value = Field("Value", Text(), doc="what replaces $NAME")
    nodes_environment = Field("Nodes environment", Bool(), False, doc="also export it to the nodes' environment")


class Application(Named):
    """YAML that is kept applied to the API server while it is enabled."""

    noun = "application"
    columns = ("format", "enabled")

    format = Field("Format", Choice(("Yaml",)), "Yaml", doc="format of the manifests")
    enabled = Field("Enabled", Bool(), True, doc="keep it applied; its group must also be enabled")
    config = Field("Config", Blob(), doc="the manifests")
    environment = Submode("Environment", ApplicationEnvironment, doc="variables for the manifests")
    exclude_list_snippets = Submode(
        "Exclude list snippets", ExcludeListSnippet, doc="paths that image updates do not change"
    )

    @classmethod
    def variables(cls, obj: Obj) -> dict[str, str]:
        """The values that replace `$NAME` in the manifests."""
        return {
            name: str(ApplicationEnvironment.value.value(variable) or "")
            for name, variable in obj.below("environment").items()
        }

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        text = str(cls.config.value(obj) or "")
        if not text:
            return []
        from bedplate.head.applications import manifests  # a shell that commits no application does not need YAML

        try:
            manifests.render(text, cls.variables(obj))
        except errors.Invalid as err:
            return [f"config: {problem}" for problem in err.problems or (err.message,)]
        return []


class AppGroup(Named):
    """A name for applications that belong together."""

    noun = "app group"
    columns = ("applications",)

    enabled = Field("Enabled", Bool(), True, doc="enable or disable all applications of the group")
    applications = Submode("applications", Application, doc="the applications")

    @classmethod
    def list_columns(cls) -> list[str]:
        return ["Name (key)", "Applications"]


class LabelSet(Named):
    """Labels for the Kubernetes nodes that are named, or in a named category."""

    noun = "label set"
    columns = ("labels", "nodes", "categories")

    labels = Field("Labels", ListOf(_LABEL), doc="labels as name=value")
    nodes = Field("Nodes", NodeList(), doc="nodes that get them")
    categories = Field("Categories", ListOf(Reference("category")), doc="categories whose nodes get them")


class KubeCluster(Named):
    """One Kubernetes cluster, or a template for clusters made through the Cluster API."""

    noun = "Kubernetes cluster"
    judged_with_targets = True
    groups = (
        Group("Identity", ("name", "version", "notes")),
        Group(
            "Network",
            (
                "pod_network",
                "pod_network_node_mask",
                "service_network",
                "internal_network",
                "kubedns_ip",
                "trusted_domains",
            ),
        ),
        Group("Control plane", ("etcd_cluster", "kubernetes_api_server", "kubernetes_api_server_proxy_port")),
        Group("Kubernetes", ("app_groups", "label_sets", "kubernetes_users")),
        Group("Certificates", ("kubeadm_cert_key", "kube_ca_cert", "kube_ca_key"), is_rare=True),
        Group("Templates", ("kubeadm_init_file", "module_file_template"), is_rare=True),
        Group("External cluster", ("external", "external_kubernetes_ingress_server", "external_port"), is_rare=True),
        Group("Cluster API", ("capi_template", "capi_namespace", "kubernetes_management_cluster"), is_rare=True),
    )

    etcd_cluster = Field("Etcd Cluster", Reference("etcd"), doc="the etcd cluster it stores in")
    pod_network = Field("Pod Network", Reference("network"), doc="network of pod addresses")
    pod_network_node_mask = Field(
        "Pod Network Node Mask", Integer(1, 128), doc="prefix length of each node's pod network"
    )
    internal_network = Field("Internal Network", Reference("network"), doc="the network between the nodes")
    kubedns_ip = Field("KubeDNS IP", Address(), "0.0.0.0", doc="service address of CoreDNS")
    kubernetes_api_server = Field(
        "Kubernetes API server",
        Text(
            rf"https://[^{BLANKS}/:]+(:[0-9]{{1,5}})?/?|https://\[[0-9a-fA-F:]+\](:[0-9]{{1,5}})?/?",
            "https://HOST:PORT",
        ),
        doc="address of the API server as https://HOST:PORT",
    )
    kubernetes_api_server_proxy_port = Field(
        "Kubernetes API server proxy port", Port(), 10443, doc="port of the local load balancer"
    )
    app_groups = Submode("App Groups", AppGroup, doc="groups of applications")
    label_sets = Submode("Label Sets", LabelSet, doc="labels for nodes")
    notes = Field("Notes", Text(), doc="free text")
    version = Field("Version", Text(), doc="package version, as the package manager writes it")
    trusted_domains = Field(
        "Trusted domains",
        ListOf(Text()),
        doc="names in the certificates of the API servers; the first is the external one",
    )
    module_file_template = Field("Module file template", Blob(), doc="template of the environment module")
    kubeadm_init_file = Field("Kubeadm init file", Blob(), doc="configuration for kubeadm init and join")
    service_network = Field("Service Network", Reference("network"), doc="network of Service addresses")
    kubeadm_cert_key = Field("Kubeadm CERT Key", SecretText(), doc="encrypts the control plane's certificates")
    kube_ca_cert = Field("Kube CA Cert", SecretText(), doc="certificate of the cluster's authority, PEM")
    kube_ca_key = Field("Kube CA Key", SecretText(), doc="key of the cluster's authority, PEM")
    kubernetes_users = Submode("Kubernetes users", KubernetesUser, doc="users, with their rights and kubeconfigs")
    external = Field("External", Bool(), False, doc="represents a cluster that is managed elsewhere")
    external_kubernetes_ingress_server = Field(
        "External Kubernetes Ingress server", Text(), doc="ingress endpoint of such a cluster"
    )
    external_port = Field("External port", Port(0), 0, doc="additional port of such a cluster")
    capi_template = Field("Capi template", Bool(), False, doc="a template for the Cluster API")
    capi_namespace = Field("Capi namespace", Text(), "default", doc="namespace of the Cluster API")
    kubernetes_management_cluster = Field(
        "Kubernetes management cluster", Reference("kubernetes"), doc="the cluster that manages this one"
    )

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        pods, services = (
            _range(look("network", str(field.value(obj)))) for field in (cls.pod_network, cls.service_network)
        )
        problems = own_namespaces(obj.below("kubernetes_users"))
        if pods is None or services is None or pods.version != services.version or not pods.overlaps(services):
            return problems
        return [*problems, f"servicenetwork: {services} overlaps the pod network {pods}"]


def _range(network: Obj | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    return Network.range(network) if network is not None else None


class EtcdCluster(Named):
    """What the members of an etcd cluster have in common."""

    noun = "etcd cluster"
    groups = (
        Group("Timing", ("name", "election_timeout", "heart_beat_interval")),
        Group("Members", ("authority", "ca", "ca_key", "member_certificate", "member_certificate_key")),
        Group("Snapshots", ("snapshot_interval", "snapshots_kept")),
        Group("Clients", ("client_ca", "client_certificate", "client_certificate_key"), is_rare=True),
    )

    election_timeout = Field("Election Timeout", Integer(1), 1000, doc="--election-timeout, in milliseconds")
    heart_beat_interval = Field("Heart Beat Interval", Integer(1), 100, doc="--heartbeat-interval, in milliseconds")
    ca = Field("CA", Path(), doc="--peer-trusted-ca-file: the authority, also used to make certificates")
    ca_key = Field("CA Key", Path(), doc="key of the authority, used only for signing")
    member_certificate = Field("Member Certificate", Path(), doc="--peer-cert-file, unless set in the role")
    member_certificate_key = Field("Member Certificate Key", Path(), doc="--peer-key-file, unless set in the role")
    client_ca = Field(
        "Client CA", Path(), doc="--trusted-ca-file; when set, client certificate and key are issued elsewhere"
    )
    client_certificate = Field("Client Certificate", Path(), doc="--cert-file")
    client_certificate_key = Field("Client Certificate Key", Path(), doc="--key-file")
    authority = Field(
        "Authority",
        Seed(),
        doc="generate: an authority of the cluster's own; members get its certificate and their own, unless CA is set",
    )
    snapshot_interval = Field(
        "Snapshot Interval", Duration(), 86400.0, doc="time between two snapshots on the head; 0: none is taken"
    )
    snapshots_kept = Field("Snapshots Kept", Integer(1), 7, doc="how many snapshots the head keeps")
