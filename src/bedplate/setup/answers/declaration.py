"""Every question of a Kubernetes setup, declared once: key in the file, kind, help, default and screen.

The order is that of the file. Screens are in the order in which the wizard shows them; a question belongs to one. What
a cluster gets besides its add-ons is declared in `features`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from bedplate.lab import versions
from bedplate.setup.answers import features
from bedplate.setup.answers.fields import Field, Screen, is_at, value_at
from bedplate.setup.answers.kinds import Bool, Choice, Cidr, File, Files, Integer, Names, Secret, Text

__all__ = [
    "BACKENDS",
    "FIELDS",
    "QUESTIONS",
    "SCREENS",
    "SECTIONS",
    "SKIPS",
    "SUMMARY",
    "TAGS",
    "Field",
    "Screen",
    "by_path",
    "minors",
    "value_at",
]

SUMMARY = 20
"""The number of the last page."""
_IMAGES, _CLOUD, _SKIPS = 21, 22, 23
"""Pages that the documentation does not have."""


def minors() -> list[str]:
    """The minor releases of Kubernetes that can be deployed, newest first."""
    return sorted(versions.KNOWN, key=lambda minor: [int(part) for part in minor.split(".")], reverse=True)


SCREENS = (
    Screen(1, "Version", "The Kubernetes release of the new cluster."),
    Screen(3, "Registry mirror", "A mirror of Docker Hub that nodes pull images from, and the login of Docker Hub."),
    Screen(4, "Networking", "The name of the cluster and its addresses."),
    Screen(5, "Expose API", "Who can reach the API server."),
    Screen(6, "Internal network", "The network that the nodes use among themselves."),
    Screen(7, "Control-plane nodes", "Nodes that run the API server, the scheduler and the controller manager."),
    Screen(8, "Worker nodes", "Nodes that run pods."),
    Screen(9, "Etcd nodes", "Nodes that store the cluster's state: 1, 3 or 5."),
    Screen(10, "Ports", "The port of the API server's proxy, one for each cluster."),
    Screen(11, "Network plugin", "What connects pods."),
    Screen(12, "Add-ons", "Applications that the head keeps applied to the new cluster."),
    *features.SCREENS,
    Screen(_IMAGES, "Images", "Where images and packages come from, and whether nodes get Docker."),
    Screen(_CLOUD, "Cloud and addresses", "The cloud controller manager and the address management of this project."),
    Screen(_SKIPS, "Stages to skip", "Checks and other stages of the deployment that are left out."),
    Screen(SUMMARY, "Summary", "Save the answers, show them, or deploy."),
)

_NAME = Text(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", "a name of lower-case letters, digits and dashes", False)
_FQDN = Text(
    r"(?=.{1,253}$)[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*",
    "a domain name such as head.example.com",
)
_VERSION = Text(r"1\.[0-9]{1,3}(\.[0-9]{1,3})?", "a version such as 1.35 or 1.35.4", False)
_HOST = Text(r"(https?://)?[A-Za-z0-9][A-Za-z0-9.:-]*(/[A-Za-z0-9._/-]*)?", "a registry such as https://mirror:5000")
_IMAGE = Text(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", "an image such as my-registry:5000/pause:3.8")
_REPOSITORY = Text(r"[A-Za-z0-9][A-Za-z0-9._:/-]*", "a repository such as my-registry:5000/kubernetes")
_OBJECT = Text(r"[^\s/;|#'\"\\,\[\]*<>]+", "the name of a network")
_CNIS = ("bridge", "calico", "flannel", "cilium")
_CLOUDS = ("none", "nvidia-bmm", "oxide", "cloudlycke")
_NODE_PORT = Integer(30000, 32767)
_FSID = Text(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "the fsid of a Ceph cluster, a UUID")
_URL = Text(r"(https?|file)://[!-~]+", "a URL such as https://mirror.example.com/kubernetes")
_POOL = Text(r"[A-Za-z0-9_.-]+", "the name of a pool", False)

NODE_ROLES = {
    "masters": (7, "control-plane nodes"),
    "workers": (8, "worker nodes"),
    "etcd": (9, "etcd nodes"),
}
_EMPTY_ETCD = "; none at all: the control-plane nodes"


def _has_mirror(answers: Mapping[str, Any]) -> bool:
    return bool(value_at(answers, "kubernetes.registry_mirror.url"))


def _nodes() -> tuple[Field, ...]:
    fields = []
    for role, (screen, about) in NODE_ROLES.items():
        also = _EMPTY_ETCD if role == "etcd" else ""
        for key, kind, title, text in (
            ("nodes", Names("nodes"), "Nodes", f"Names or ranges (node00[1-3]) of {about}{also}."),
            ("categories", Names("categories", False), "Categories", f"Categories whose nodes are all {about}."),
            ("head_nodes", Names("head nodes"), "Head nodes", f"Head nodes that are {about}; `master` is the active."),
        ):
            fields.append(Field(f"kubernetes.nodes.{role}.{key}", kind, title, text, screen, []))
    return tuple(fields)


def _addons() -> tuple[Field, ...]:
    addons, ingress = "kubernetes.addons", "kubernetes.ingress"
    has_ingress = is_at(f"{addons}.ingress_controller", True)
    has_ceph = lambda answers: bool(value_at(answers, f"{addons}.ceph.fsid"))  # noqa: E731
    own = "A file with manifests to use in place of those of the tool."
    return (
        Field(
            f"{addons}.ingress_controller",
            Bool(),
            "Ingress controller",
            "Traefik, for Ingresses of the class nginx, on the control-plane nodes.",
            12,
            False,
        ),
        Field(f"{addons}.ingress_controller_manifest", File(), "Its manifests", own, 12, when=has_ingress),
        Field(
            f"{ingress}.http_port",
            _NODE_PORT,
            "HTTP port",
            "The port for HTTP on every node.",
            12,
            30080,
            when=has_ingress,
        ),
        Field(
            f"{ingress}.https_port",
            _NODE_PORT,
            "HTTPS port",
            "The port for HTTPS on every node.",
            12,
            30443,
            when=has_ingress,
        ),
        Field(
            f"{ingress}.replicas",
            Integer(1, 100),
            "Replicas",
            "How many pods of the ingress controller run.",
            12,
            1,
            when=has_ingress,
        ),
        features.proxy_443(has_ingress),
        Field(
            f"{addons}.landing_page",
            Bool(),
            "Landing page",
            "What matches no rule of the ingress is answered with the landing page of the head node.",
            12,
            True,
            when=has_ingress,
        ),
        Field(
            f"{addons}.metrics_server", Bool(), "Metrics server", "Usage of nodes and pods, for kubectl top.", 12, False
        ),
        Field(
            f"{addons}.metrics_server_manifest",
            File(),
            "Its manifests",
            own,
            12,
            when=is_at(f"{addons}.metrics_server", True),
        ),
        Field(
            f"{addons}.dashboard",
            File(),
            "Dashboard",
            "A file with the dashboard's manifests. Empty: no dashboard.",
            12,
        ),
        Field(
            f"{addons}.kube_state_metrics",
            File(),
            "kube-state-metrics",
            "A file with the manifests of kube-state-metrics. Empty: none.",
            12,
        ),
        Field(
            f"{addons}.manifests",
            Files(),
            "Further manifests",
            "Files with manifests; each becomes an application that is named as its file.",
            12,
            [],
        ),
        Field(
            f"{addons}.ccm.provider",
            Choice(_CLOUDS),
            "Cloud controller manager",
            "The cloud that the nodes are machines of; none: no cloud controller manager.",
            _CLOUD,
            "none",
        ),
        Field(
            f"{addons}.ccm.cloud_config",
            File(),
            "Cloud config",
            "A file with the settings of the cloud, as the cloud controller manager reads them.",
            _CLOUD,
            when=is_at(f"{addons}.ccm.provider", *_CLOUDS[1:]),
        ),
        Field(
            f"{addons}.ipam.install",
            Bool(),
            "Address management",
            "Install the IPAM controller and its node daemon.",
            _CLOUD,
            False,
        ),
        Field(
            f"{addons}.ipam.pools",
            File(),
            "Pools",
            "A file with IPPools and CIDRPools. Empty: none yet.",
            _CLOUD,
            when=is_at(f"{addons}.ipam.install", True),
        ),
        Field(
            "kubernetes.images.bedplate",
            _IMAGE,
            "Image of this project",
            "The image of what comes from this project: cloud controller manager, address management, permission "
            "manager, Jupyter kernel operator. Empty: that of this release.",
            _IMAGES,
        ),
        Field(
            "kubernetes.local_path.path",
            File(),
            "Folder for volumes",
            "A folder on a file system that all nodes share. Empty: no local path storage.",
            18,
        ),
        Field(
            f"{addons}.ceph.fsid",
            _FSID,
            "Ceph cluster",
            "The fsid of a Ceph cluster, for the StorageClass fast. Empty: none.",
            18,
        ),
        Field(
            f"{addons}.ceph.monitors",
            Names("monitors, each with its port", False),
            "Monitors",
            "The addresses of its monitors, such as 10.141.1.1:6789.",
            18,
            [],
            when=has_ceph,
        ),
        Field(f"{addons}.ceph.pool", _POOL, "Pool", "The pool that volumes are in.", 18, "kube", when=has_ceph),
    )


def _repositories() -> tuple[Field, ...]:
    repositories = "kubernetes.repositories"
    return (
        Field(
            f"{repositories}.base",
            _URL,
            "Copy of the Kubernetes repositories",
            "A mirror with a folder for each minor release: <URL>/v1.35/deb/ and <URL>/v1.35/rpm/. Empty: upstream.",
            _IMAGES,
        ),
        Field(
            f"{repositories}.key",
            File(),
            "Key of the packages",
            "A file on this machine with the key of the packages, ASCII-armored. Empty: that of upstream.",
            _IMAGES,
        ),
        Field(
            f"{repositories}.helm",
            _URL,
            "Repository of Helm",
            "A repository with the package helm, signed with the same key. Empty: none is written.",
            _IMAGES,
        ),
    )


def _limits() -> tuple[Field, ...]:
    return (
        Field(
            "kubernetes.reboot_timeout",
            Integer(300, 86400),
            "Time for reboots",
            "How long a node that has to reboot may take, in seconds.",
            _SKIPS,
            300,
        ),
        Field(
            "kubernetes.strict",
            Bool(),
            "Refuse small nodes",
            "Nodes with less than 16 GB of memory or 2 cores are refused; otherwise they are warned about.",
            _SKIPS,
            False,
        ),
    )


def _docker() -> tuple[Field, ...]:
    return (
        Field("docker.install", Bool(), "Docker", "Give the nodes the role Docker::Host as well.", _IMAGES, False),
        Field(
            "docker.storage_backend",
            Choice(BACKENDS),
            "Storage backend of Docker",
            "overlay2; the deprecated devicemapper needs --allow-device-mapper.",
            _IMAGES,
            BACKENDS[0],
            when=is_at("docker.install", True),
        ),
    )


BACKENDS = ("overlay2", "devicemapper")
"""Storage backends of Docker, the default first; others than that are deprecated."""
SKIPS = {
    "dns_check": "check of the DNS configuration",
    "package_manager_check": "check that the package index can be refreshed",
    "distro_checks": "check of the distribution of nodes",
    "install_repos": "package repositories, which must be configured",
    "packages": "installation of packages, which must be there",
    "image_update": "update of software images",
    "docker": "assignment of Docker",
    "reboot": "reboot of nodes",
    "disksetup_changes": "data node setting of etcd nodes",
    "netq_checks": "check of what NetQ needs",
}
TAGS = {
    "dns_check": "dns-check",
    "package_manager_check": "package-manager-check",
    "distro_checks": "distro-check",
    "install_repos": "install-repos",
    "packages": "packages",
    "image_update": "image-update",
    "docker": "docker",
    "reboot": "reboot",
    "disksetup_changes": "disk-setup",
    "netq_checks": "netq-checks",
}
"""The tag of the stages that each key below `kubernetes.skip` leaves out."""

FIELDS: tuple[Field, ...] = (
    Field(
        "kubernetes.name",
        _NAME,
        "Cluster name",
        "Identifies the cluster in the names of overlays, networks, files and modules. It is not a namespace.",
        4,
        "default",
    ),
    Field(
        "kubernetes.version",
        _VERSION,
        "Kubernetes version",
        "A minor release, of which the newest patch release known to the tool is used, or an exact release.",
        1,
        minors()[0],
    ),
    Field(
        "kubernetes.fqdn",
        _FQDN,
        "External FQDN",
        "The name under which people reach the cluster; it is in the certificate of the API server.",
        4,
        is_prefilled=True,
    ),
    Field(
        "kubernetes.networks.service",
        Cidr(24, 12),
        "Service network",
        "Addresses of Services. It must not overlap any network of the site.",
        4,
        is_prefilled=True,
    ),
    Field(
        "kubernetes.networks.pod",
        Cidr(22, 8),
        "Pod network",
        "Addresses of pods. It must not overlap any network of the site.",
        4,
        is_prefilled=True,
    ),
    Field(
        "kubernetes.networks.pod_node_mask",
        Integer(16, 28),
        "Netmask bits for each node",
        "The size of the part of the pod network that each node gets.",
        4,
        24,
    ),
    Field(
        "kubernetes.networks.internal",
        _OBJECT,
        "Internal network",
        "The network of the head that the nodes use among themselves.",
        6,
        is_prefilled=True,
    ),
    *_nodes(),
    Field(
        "kubernetes.proxy.expose",
        Bool(),
        "Expose the API server",
        "Open the port of the API server's proxy to the external network.",
        5,
        True,
    ),
    Field(
        "kubernetes.proxy.port",
        Integer(0, 65535),
        "API server proxy port",
        "The port on every node, and on the head, that leads to the API servers. 0: the first free one from 10443 on.",
        10,
        0,
        is_prefilled=True,
    ),
    Field(
        "kubernetes.etcd.spool",
        File(),
        "Etcd data folder",
        "The folder on etcd nodes that has the data of etcd.",
        9,
        "/var/lib/etcd",
    ),
    Field(
        "kubernetes.cni",
        Choice(_CNIS),
        "Network plugin",
        "bridge comes with the tool: a bridge on each node, with routes between them. The others need their manifest.",
        11,
        "bridge",
    ),
    Field(
        "kubernetes.cni_manifest",
        File(),
        "Manifest of the plugin",
        "A file on this machine with the manifests of the network plugin.",
        11,
        when=is_at("kubernetes.cni", *_CNIS[1:]),
    ),
    *_addons(),
    *features.fields(),
    Field(
        "kubernetes.registry_mirror.url",
        _HOST,
        "Mirror",
        "A registry that mirrors Docker Hub. Empty: no mirror.",
        3,
    ),
    Field(
        "kubernetes.registry_mirror.fallback",
        Bool(),
        "Docker Hub besides",
        "Ask Docker Hub where the mirror has no answer. No: the mirror alone is asked.",
        3,
        True,
        when=_has_mirror,
    ),
    Field(
        "kubernetes.registry_mirror.username",
        Text(r"[^\x00-\x20\x7f:]+", "a name without blanks and colons"),
        "User name",
        "The login of the mirror, where it needs one.",
        3,
        when=_has_mirror,
    ),
    Field(
        "kubernetes.registry_mirror.password",
        Secret(),
        "Password",
        "The password of that user. It is stars in all output, and a file that is saved with it is for its owner.",
        3,
        when=_has_mirror,
    ),
    Field(
        "kubernetes.docker_io.username",
        Text(r"[^\x00-\x20\x7f:]+", "a name without blanks and colons"),
        "User name of Docker Hub",
        "The login that nodes pull from Docker Hub with, which limits pulls without one. Empty: no login.",
        3,
    ),
    Field(
        "kubernetes.docker_io.password",
        Secret(),
        "Password of Docker Hub",
        "The password, or an access token, of that user.",
        3,
        when=lambda answers: bool(value_at(answers, "kubernetes.docker_io.username")),
    ),
    Field(
        "kubernetes.images.repository",
        _REPOSITORY,
        "Repository of Kubernetes images",
        "Where kubeadm takes images from, in place of the upstream repository.",
        _IMAGES,
    ),
    Field(
        "kubernetes.images.sandbox",
        _IMAGE,
        "Sandbox image",
        "The image that containerd uses for the sandbox of pods.",
        _IMAGES,
    ),
    Field(
        "kubernetes.cgroup_driver",
        Choice(("systemd", "cgroupfs")),
        "Control groups",
        "Who makes control groups for pods: systemd, or where the first process of nodes is another one, cgroupfs.",
        _IMAGES,
        "systemd",
    ),
    *_repositories(),
    *(
        Field(f"kubernetes.skip.{key}", Bool(), f"Skip the {about}", f"Leave out the {about}.", _SKIPS, False)
        for key, about in SKIPS.items()
    ),
    *_limits(),
    *_docker(),
)

QUESTIONS: tuple[Field, ...] = (*FIELDS, *features.of_operators())
"""What the wizard asks: the keys of the file, and those below the operators."""

SECTIONS = ("meta", "kubernetes", "docker")


@functools.cache
def by_path() -> Mapping[str, Field]:
    """Every question by its key."""
    return {field.path: field for field in QUESTIONS}
