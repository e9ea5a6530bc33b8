"""What a deployment writes to the head: networks, clusters, overlays."""

from __future__ import annotations

import tomllib

import pytest
from tests.setup.kubernetes import sites

from bedplate.setup.kubernetes import objects


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
    plugin = tomllib.loads(objects.containerd(settings))["plugins"]["io.containerd.grpc.v1.cri"]
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
