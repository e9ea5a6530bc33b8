"""Which stages there are, and what the pure parts around a cluster say."""

from __future__ import annotations

from pathlib import Path

from tests.setup import places
from tests.setup.kubernetes import sites

from bedplate.setup.answers import fitting
from bedplate.setup.engine import order
from bedplate.setup.kubernetes import coredns, deploy, firewall, modules, remove
from bedplate.setup.kubernetes.settings import of_answers

REMOVAL = [
    "Get Kube Cluster",
    "Check Kube Cluster Exists",
    "Find Installed Components",
    "Find Files On Headnodes",
    "Firewall Zone Close",
    "Firewall Interface Close",
    "Firewall Policy Close",
    "Nginx Reverse Proxy Close",
    "IP Ports Close",
    "Remove Health Checks",
    "Unassign Roles",
    "Remove Config Overlays",
    "Remove Installed Components",
    "Remove Files On Headnodes",
    "Remove Etcd Spool",
    "Remove Networks",
    "Set Reboot Required",
    "Collection Update Provisioners",
    "Remove Kube Cluster",
    "Print Summary",
]


def test_item_113_removal_has_its_twenty_stages_in_order() -> None:
    assert [stage.name for stage in remove.stages("default")] == REMOVAL


def test_every_stage_of_a_deployment_that_changes_something_can_be_undone() -> None:
    stages = deploy.stages(places.answers(), places.site())
    order.check(stages)
    assert [stage.name for stage in stages if stage.effects and stage.undo is None] == []


def test_nodes_join_at_the_same_time_once_the_first_one_is_there() -> None:
    stages = {stage.name: stage for stage in deploy.stages(places.answers(), places.site())}
    for name in ("Join Control Plane Nodes", "Join Worker Nodes", "Install Cluster DNS"):
        assert stages[name].needs == ("Initialize Control Plane",)


def test_item_100_the_summary_has_the_address_with_name_and_port() -> None:
    lines = deploy.summary(sites.settings(fqdn="k8s.example.com"), Path("/data/kubernetes/default.kubeconfig"))
    assert "- Kubernetes API server: https://k8s.example.com:10443" in lines


def test_rows_of_the_firewall_come_at_the_end_and_go_alone() -> None:
    own = {"type": "OpenPort", "values": {"port": "22", "description": "ssh"}}
    children = {"roles": {"firewall": {"type": "FirewallRole", "children": {"open_ports": [own]}}}}
    settings = sites.settings()
    opened = firewall.with_rows(children, settings)
    rows = opened["roles"]["firewall"]["children"]["open_ports"]
    assert [row["values"]["port"] for row in rows] == ["22", "10443"]
    assert firewall.with_rows(opened, settings) == opened
    assert firewall.without_rows(opened, "default") == children
    assert firewall.without_rows(opened, "other") == opened
    assert firewall.rows(sites.settings(proxy__expose=False)) == []
    assert firewall.with_rows({}, settings) == {}


def test_item_95_the_module_file_sets_the_kubeconfig_and_goes_with_its_folders(tmp_path: Path) -> None:
    file = modules.place(tmp_path, "default", "1.35.4")
    assert file.relative_to(tmp_path) == Path("modulefiles/kubernetes/default/1.35.4")
    text = modules.text(modules.TEMPLATE, "default", "1.35.4", Path("/data/kubernetes/default.kubeconfig"))
    assert text.startswith("#%Module1.0\n")
    assert 'setenv KUBECONFIG "/data/kubernetes/default.kubeconfig"' in text
    assert not modules.remove(tmp_path, "default")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert modules.remove(tmp_path, "default")
    assert list(tmp_path.iterdir()) == []


def test_cluster_dns_has_the_address_and_the_image_of_its_release() -> None:
    manifests = {each["kind"]: each for each in coredns.manifests(sites.settings(version="1.34.4"))}
    assert manifests["Service"]["spec"]["clusterIP"] == sites.settings().dns
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.k8s.io/coredns/coredns:v1.12.1"
    assert (
        coredns.image(sites.settings(images__repository="mine:5000/k8s", version="1.35.4"))
        == "mine:5000/k8s/coredns:v1.13.1"
    )


def test_what_is_left_of_a_cluster_is_found_by_its_names() -> None:
    empty = remove.remains(sites.tree(), "default")
    assert empty.is_empty
    assert (empty.nodes, empty.others) == ((), ())


def test_a_run_that_an_older_version_began_can_be_undone() -> None:
    answers = fitting.complete(places.answers(), places.site())
    del answers["docker"]
    answers["kubernetes"]["skip"] = {"dns_check": True, "package_manager_check": True}
    assert deploy.stages(answers, places.site())
    assert of_answers(answers, sites.tree(), "basecm10").has_packages
