"""The documented rows, their order and their defaults; and what is read from a declaration."""

from __future__ import annotations

import json

import pytest

from bedplate.head.entities import SCHEMA
from bedplate.head.entities.docker import DockerHostRole
from bedplate.head.entities.nodes import EDIT_PATHS, EDITS
from bedplate.head.objects import Obj, Secret
from bedplate.head.schema.entity import Entity, Field
from bedplate.head.schema.tables import describe


def shown(type_name: str, key: str = "x") -> list[tuple[str, str]]:
    obj = Obj(type_name, key)
    return [(row.label, row.show(obj)) for row in SCHEMA.types[type_name].rows]


def test_item_056_docker_host_has_its_27_rows_with_defaults() -> None:
    assert shown("DockerHostRole", "Docker::Host") == [
        ("Name", "Docker::Host"),
        ("Revision", ""),
        ("Type", "DockerHostRole"),
        ("Add services", "yes"),
        ("Spool", "/var/lib/docker"),
        ("Tmp dir", "$spool/tmp"),
        ("Enable SELinux", "yes"),
        ("Default Ulimits", ""),
        ("Debug", "no"),
        ("Log Level", "info"),
        ("Bridge IP", ""),
        ("Bridge", ""),
        ("MTU", "0"),
        ("API Sockets", "unix:///var/run/docker.sock"),
        ("Iptables", "yes"),
        ("User Namespace Remap", ""),
        ("Insecure Registries", ""),
        ("Enable TLS", "no"),
        ("Verify TLS", "no"),
        ("TLS CA", ""),
        ("TLS Certificate", ""),
        ("TLS Key", ""),
        ("Certificates Path", "/etc/docker"),
        ("Storage Backends", "<0 in submode>"),
        ("Containerd Socket", ""),
        ("Runtime", "runc"),
        ("Options", ""),
    ]


def test_item_063_devicemapper_has_its_rows_with_defaults() -> None:
    assert shown("devicemapper") == [
        ("Name", "x"),
        ("Revision", ""),
        ("Type", "devicemapper"),
        ("Loop Data Size", ""),
        ("Loop Metadata Size", ""),
        ("Loop Device Size", ""),
        ("Pool Device", ""),
        ("Filesystem", "xfs"),
        ("Block Size", "64K"),
        ("Blk Discard", "yes"),
        ("Mkfs Arguments", ""),
        ("Mount Options", ""),
    ]


def test_item_062_storage_backends_offer_three_types() -> None:
    (backends,) = DockerHostRole.submodes
    assert backends.words() == ["aufs", "devicemapper", "overlay2"]
    assert backends.typed


def test_item_118_etcd_host_has_its_rows_with_defaults() -> None:
    assert shown("EtcdHostRole", "Etcd::Host")[4:] == [
        ("Etcd Cluster", ""),
        ("Member Name", "$hostname"),
        ("Spool", "/var/lib/etcd"),
        ("Advertise Client URLs", "http://$hostname:5001"),
        ("Advertise Peers URLs", "http://$hostname:5002"),
        ("Listen Client URLs", "http://$hostname:5001,http://127.0.0.1:2379"),
        ("Listen Peer URLs", "http://$hostname:5002"),
        ("Snapshot Count", "5000"),
        ("Debug", "no"),
        ("Member Certificate", ""),
        ("Member Certificate Key", ""),
        ("Options", ""),
    ]


def test_item_010_a_kubernetes_cluster_is_shown_in_the_documented_order() -> None:
    rows = shown("KubeCluster", "capi-default-template")
    assert [label for label, _ in rows] == [
        "Name",
        "Revision",
        "Etcd Cluster",
        "Pod Network",
        "Pod Network Node Mask",
        "Internal Network",
        "KubeDNS IP",
        "Kubernetes API server",
        "Kubernetes API server proxy port",
        "App Groups",
        "Label Sets",
        "Notes",
        "Version",
        "Trusted domains",
        "Module file template",
        "Kubeadm init file",
        "Service Network",
        "Kubeadm CERT Key",
        "Kube CA Cert",
        "Kube CA Key",
        "Kubernetes users",
        "External",
        "External Kubernetes Ingress server",
        "External port",
        "Capi template",
        "Capi namespace",
        "Kubernetes management cluster",
    ]
    cells = dict(rows)
    assert cells["KubeDNS IP"] == "0.0.0.0"
    assert cells["Kubernetes API server proxy port"] == "10443"
    assert cells["Kube CA Key"] == "< not set >"
    assert cells["Kubeadm init file"] == "<0B>"
    assert cells["App Groups"] == "<0 in submode>"
    assert cells["Capi namespace"] == "default"
    assert cells["External port"] == "0"


@pytest.mark.parametrize(
    ("type_name", "labels"),
    [
        (
            "Service",
            "Revision|Service|Run if|Monitored|Autostart|Timeout|Belongs to role|Sickness check script|"
            "Sickness check script timeout|Sickness check interval",
        ),
        ("ConfigurationOverlay", "Name|Revision|All head nodes|Priority|Nodes|Categories|Roles|Customizations"),
        ("Network", "Name|Revision|Base address|Netmask bits|Domain name|Type"),
        ("Application", "Name|Revision|Format|Enabled|Config|Environment|Exclude list snippets"),
        ("AppGroup", "Name|Revision|Enabled|applications"),
        (
            "GenericRole",
            "Name|Revision|Type|Add services|Provisioning associations|Services|Configurations|Environments|"
            "Exclude list snippets|Data node",
        ),
        (
            "static",
            "Name|Type|Create directory|Filename|Filemask directory|User name|Group name|Disabled|"
            "Service action on write|Service stop on failure|Content|Filemask",
        ),
        ("KubeletRole", "Name|Revision|Type|Add services|Kubernetes Cluster|Control plane|Worker|Max Pods|Options"),
        (
            "EtcdCluster",
            "Name|Revision|Election Timeout|Heart Beat Interval|CA|CA Key|Member Certificate|Member Certificate Key|"
            "Client CA|Client Certificate|Client Certificate Key|Authority|Snapshot Interval|Snapshots Kept",
        ),
    ],
)
def test_item_010_rows_stand_in_the_documented_order(type_name: str, labels: str) -> None:
    assert [label for label, _ in shown(type_name)] == labels.split("|")


@pytest.mark.parametrize(
    ("type_name", "columns"),
    [
        ("KubeCluster", "Name (key)"),
        ("ConfigurationOverlay", "Name (key)|Priority|All head nodes|Nodes|Categories|Roles"),
        ("AppGroup", "Name (key)|Applications"),
        ("Application", "Name (key)|Format|Enabled"),
        ("ApplicationEnvironment", "Name (key)|Value|Nodes environment"),
        ("GenericRoleEnvironment", "Name (key)|Value|Node Environment"),
        ("Service", "Service (key)|Monitored|Autostart"),
        ("OpenPort", "Index|Action|Network|Port|Destination|Protocol|Address|Description"),
        ("KubeletOption", "Index|Filename|Container|Key|Value"),
    ],
)
def test_item_011_lists_have_the_documented_columns(type_name: str, columns: str) -> None:
    assert SCHEMA.types[type_name].list_columns() == columns.split("|")


def test_service_defaults_are_the_documented_ones() -> None:
    cells = dict(shown("Service", "docker"))
    assert (cells["Run if"], cells["Timeout"], cells["Monitored"]) == ("ALWAYS", "-1", "yes")
    assert (cells["Sickness check script timeout"], cells["Sickness check interval"]) == ("10", "60")


def test_item_060_log_levels_are_five_in_order() -> None:
    assert DockerHostRole.log_level.kind.choices() == ("fatal", "error", "warn", "info", "debug")


def test_item_122_an_unknown_manifest_is_refused_and_a_path_is_understood() -> None:
    field = SCHEMA.types["KubeletOption"].row("filename")
    assert field.parse("/etc/kubernetes/manifests/kube-apiserver.yaml") == "kube-apiserver.yaml"  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"filename: 'nonsense.yaml'"):
        field.parse("nonsense.yaml")  # type: ignore[attr-defined]


def test_item_027_a_secret_never_shows() -> None:
    cluster = Obj("KubeCluster", "x", {"kube_ca_key": Secret("hush")})
    assert SCHEMA.types["KubeCluster"].row("kubecakey").show(cluster) == "*****"


def test_an_overlay_shows_the_names_of_its_roles() -> None:
    roles = {name: Obj("GenericRole", name) for name in ["generic::b", "generic::a"]}
    overlay = Obj("ConfigurationOverlay", "x", children={"roles": roles})
    assert SCHEMA.types["ConfigurationOverlay"].row("roles").show(overlay) == "generic::a,generic::b"


@pytest.mark.parametrize("entity", SCHEMA.types.values(), ids=lambda entity: entity.type_name())
def test_every_declaration_is_whole_and_described_as_data(entity: type[Entity]) -> None:
    about = describe(entity)
    json.dumps(about)
    assert about["doc"]
    rows = about["rows"]
    assert isinstance(rows, list)
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    assert all(row["doc"] and row["label"] and row["attribute"] for row in rows)
    for field in entity.fields:
        if field.default not in (None, "", ()):
            field.kind.check(field.default)
            assert field.normal(field.default) is None
    obj = Obj(entity.type_name(), "x")
    assert all(isinstance(row.show(obj), str) for row in entity.rows)


@pytest.mark.parametrize("blank", [" ", "\x1f", "\x85", "\u2028", "\ufeff"])
def test_a_path_that_edits_by_hand_are_told_of_has_no_blank_by_anybodys_rules(blank: str) -> None:
    """What a blank is differs between this language and that of JSON schemas; both must refuse the same."""
    assert EDIT_PATHS.decode([f"/etc/motd={EDITS[0]}"]) == (f"/etc/motd={EDITS[0]}",)
    with pytest.raises(ValueError, match=r"path|control"):
        EDIT_PATHS.decode([f"/etc/a{blank}b={EDITS[0]}"])


@pytest.mark.parametrize("type_name", sorted(SCHEMA.types))
def test_an_empty_text_in_a_list_is_judged_and_never_an_error_of_the_head(type_name: str) -> None:
    """REST takes lists as they are; in the shell such a list cannot be typed."""
    entity = SCHEMA.types[type_name]
    for row in entity.rows:
        if isinstance(row, Field) and row.kind.multiple:
            obj = Obj(type_name, "x", {row.attribute: ("",)})
            assert all(isinstance(problem, str) for problem in entity.problems(obj, lambda mode, key: None))
    if type_name == "KubernetesUser":
        obj = Obj(type_name, "x", {"gids": ("",)})
        assert "gids: must be numbers of groups, not an empty text" in entity.problems(obj, lambda mode, key: None)
