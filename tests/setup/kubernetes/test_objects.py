"""What a deployment writes to the head: networks, clusters, overlays."""

from __future__ import annotations

import base64
import tomllib
from typing import Any

import pytest
from tests.setup.kubernetes import sites

from bedplate.head import Tree
from bedplate.head.desired import desired
from bedplate.head.entities import SCHEMA
from bedplate.head.schema import codec
from bedplate.setup.kubernetes import dropins, objects


def test_item_86_overlays_have_their_priorities_roles_and_nodes() -> None:
    overlays = objects.overlays(sites.settings())
    assert {name: overlay["values"]["priority"] for name, overlay in overlays.items()} == {
        "kube-default-etcd": 500,
        "kube-default-master": 510,
        "kube-default-worker": 500,
    }
    assert [overlay["values"]["nodes"] for overlay in overlays.values()] == [
        ["node001"],
        ["node001"],
        ["node002", "node003"],
    ]
    assert [sorted(overlay["children"]["roles"]) for overlay in overlays.values()] == [
        ["Etcd::Host"],
        ["Kubernetes::ApiServerProxy", "generic::containerd", "kubelet"],
        ["Kubernetes::ApiServerProxy", "generic::containerd", "kubelet"],
    ]


def test_item_97_control_plane_nodes_that_are_workers_too_say_both() -> None:
    both = {"nodes": ["node001"], "categories": [], "head_nodes": []}
    for workers, is_worker in ((both, True), ({**both, "nodes": ["node002"]}, False)):
        overlays = objects.overlays(sites.settings(nodes__workers=workers))
        kubelet = overlays["kube-default-master"]["children"]["roles"]["kubelet"]["values"]
        assert (kubelet["control_plane"], kubelet["worker"]) == (True, is_worker)


def test_a_category_stays_one_so_that_nodes_that_come_later_are_members() -> None:
    workers = {"nodes": [], "categories": ["default"], "head_nodes": []}
    overlay = objects.overlays(sites.settings(nodes__workers=workers))["kube-default-worker"]
    assert overlay["values"]["nodes"] == []
    assert overlay["values"]["categories"] == ["default"]


@pytest.mark.parametrize(("driver", "is_systemd"), [("systemd", True), ("cgroupfs", False)])
def test_item_102_the_drop_in_of_containerd_has_the_sandbox_image_and_who_makes_groups(
    driver: str, is_systemd: bool
) -> None:
    settings = sites.settings(images__sandbox="my-registry:5000/pause:3.8", cgroup_driver=driver)
    plugin = tomllib.loads(dropins.containerd(settings))["plugins"]["io.containerd.grpc.v1.cri"]
    assert plugin["sandbox_image"] == "my-registry:5000/pause:3.8"
    assert plugin["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is is_systemd


def test_item_107_the_cluster_has_the_last_address_of_its_services_for_dns() -> None:
    settings = sites.settings(networks__service="10.200.0.0/20")
    values = objects.cluster(settings, objects.Secrets("a", "b", "c"), {})["values"]
    assert values["kubedns_ip"] == "10.200.15.254"
    assert values["trusted_domains"][0] == settings.fqdn


def test_networks_are_named_after_the_cluster() -> None:
    made = objects.networks(sites.settings(name="two"))
    assert set(made) == {"kube-two-pod", "kube-two-service"}


def test_a_mirror_is_a_file_of_containerd() -> None:
    overlays = objects.overlays(sites.settings(registry_mirror__url="https://mirror:5000"))
    role = overlays["kube-default-worker"]["children"]["roles"]["generic::containerd"]
    files = {
        each["values"]["filename"]: each["values"]["content"] for each in role["children"]["configurations"].values()
    }
    assert '[host."https://mirror:5000"]' in files["/etc/containerd/certs.d/docker.io/hosts.toml"]


@pytest.mark.parametrize(("fallback", "server"), [(True, "https://registry-1.docker.io"), (False, "https://mirror")])
def test_docker_hub_is_asked_after_a_mirror_or_not_at_all(fallback: bool, server: str) -> None:
    made = role(registry_mirror__url="mirror", registry_mirror__fallback=fallback)
    values = made["children"]["configurations"]["docker-io-mirror"]["values"]
    assert tomllib.loads(values["content"])["server"] == server


def role(**changes: object) -> dict[str, Any]:
    overlays = objects.overlays(sites.settings(**changes))
    found: dict[str, Any] = overlays["kube-default-worker"]["children"]["roles"]["generic::containerd"]
    return found


def test_the_login_of_a_mirror_is_a_secret_of_the_role_and_its_file_is_for_its_owner() -> None:
    mirror = {"registry_mirror__url": "mirror:5000", "registry_mirror__username": "robot"}
    made = role(**mirror, registry_mirror__password="hunter2")
    values = made["children"]["configurations"]["docker-io-mirror"]["values"]
    assert values["filemask"] == "0600" and "hunter2" not in values["content"]
    secret = made["children"]["environments"]["mirror_login"]["values"]["secret_value"]
    assert base64.b64decode(secret) == b"robot:hunter2"
    device = {"type": "PhysicalNode", "children": {"roles": {"generic::containerd": made}}}
    node = codec.decode(SCHEMA, SCHEMA.modes["device"], "node001", device)
    tree = Tree(SCHEMA).with_objects([("device", "node001", node)])
    (file,) = [each for each in desired(tree, "node001").files if each.path == dropins.HOSTS]
    assert (file.mode, file.secret) == ("0600", True)
    header = tomllib.loads(file.content)["host"]["https://mirror:5000"]["header"]
    assert header == {"Authorization": f"Basic {secret}"}


def test_a_mirror_without_a_login_has_no_secret() -> None:
    made = role(registry_mirror__url="mirror:5000")
    assert "environments" not in made["children"]
    assert "filemask" not in made["children"]["configurations"]["docker-io-mirror"]["values"]


def test_the_login_of_docker_hub_is_a_secret_in_every_file_that_containerd_may_take_its_registries_from() -> None:
    made = role(docker_io__username="robot", docker_io__password="hunter2", nvidia_runtime=True)
    device = {"type": "PhysicalNode", "children": {"roles": {"generic::containerd": made}}}
    node = codec.decode(SCHEMA, SCHEMA.modes["device"], "node001", device)
    tree = Tree(SCHEMA).with_objects([("device", "node001", node)])
    files = [file for file in desired(tree, "node001").files if file.path.endswith("cri.toml")]
    assert [(file.mode, file.secret) for file in files] == [("0600", True)] * 2
    for file in files:
        registry = tomllib.loads(file.content)["plugins"]["io.containerd.grpc.v1.cri"]["registry"]
        auth = registry["configs"]["registry-1.docker.io"]["auth"]["auth"]
        assert base64.b64decode(auth) == b"robot:hunter2"
        # containerd refuses mirrors beside it, not logins.
        assert set(registry) == {"config_path", "configs"}


@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_the_runtime_of_nvidia_is_a_file_of_its_own_that_repeats_the_other_one(driver: str) -> None:
    assert "nvidia-cri" not in role()["children"]["configurations"]
    files = role(nvidia_runtime=True, cgroup_driver=driver)["children"]["configurations"]
    values = files["nvidia-cri"]["values"]
    assert values["filename"] == "/cm/local/apps/containerd/var/etc/conf.d/nvidia-cri.toml"
    plugins = [
        tomllib.loads(files[name]["values"]["content"])["plugins"]["io.containerd.grpc.v1.cri"]
        for name in ("containerd-cri", "nvidia-cri")
    ]
    nvidia = plugins[1]["containerd"]["runtimes"].pop("nvidia")
    assert plugins[0] == plugins[1]
    assert nvidia["options"] == {
        "BinaryName": "/usr/bin/nvidia-container-runtime",
        "SystemdCgroup": driver == "systemd",
    }
