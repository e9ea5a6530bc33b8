"""What a new cluster has of applications and label sets, and what an update makes of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.head import sites

from bedplate.api.resources import NAMESPACES, ResourceRef
from bedplate.core import errors
from bedplate.core.clock import SystemClock
from bedplate.head.applications import defaults, planning
from bedplate.head.applications.applying import Applier
from bedplate.head.applications.defaults import (
    MARK,
    Ingress,
    app_groups,
    calico_environment,
    label_sets,
    manifest,
    shipped,
    typha_replicas,
    updated,
)
from bedplate.head.applications.kinds import Kinds
from bedplate.head.applications.manifests import Manifest, render, substitute
from bedplate.head.applications.planning import Key
from bedplate.head.objects import Obj
from bedplate.head.resolve import resolve
from bedplate.head.schema import codec
from bedplate.head.tree import Tree
from bedplate.kube import Client

FQDN = "cluster.example.com"
DASHBOARD = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kubernetes-dashboard}\n"
LANDING_PAGE = Path(__file__).resolve().parents[3] / "deploy/head/landingpage.yaml"


def cluster(groups: dict[str, Any], sets: dict[str, Any] | None = None) -> Obj:
    """A cluster with these app groups, as the head reads it off the wire."""
    schema = sites.manual().schema
    data = {"type": "KubeCluster", "children": {"app_groups": groups, "label_sets": sets or {}}}
    return codec.decode(schema, schema.mode("kubernetes"), "default", data, lambda value: value)


def test_item_156_the_ingress_of_the_dashboard_has_the_external_name() -> None:
    wanted = planning.wanted(cluster(app_groups(Ingress(FQDN), {"dashboard": DASHBOARD})))
    (ingress,) = wanted[Key("system", "dashboard_ingress")].objects
    assert wanted[Key("system", "dashboard_ingress")].unknown == ()
    assert (ingress.namespace, ingress.name) == ("kubernetes-dashboard", "kubernetes-dashboard")
    (rule,) = ingress.body["spec"]["rules"]
    assert rule["host"] == f"dashboard.{FQDN}"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "kubernetes-dashboard", "port": {"number": 443}}
    notes = ingress.body["metadata"]["annotations"]
    assert notes["kubernetes.io/ingress.class"] == "nginx"
    assert notes["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    assert {"ssl-passthrough", "secure-backends"} <= {name.rpartition("/")[2] for name in notes}


def test_without_a_dashboard_there_is_no_ingress_for_it() -> None:
    assert planning.wanted(cluster(app_groups(Ingress(FQDN)))) == {}


def test_the_ingress_controller_has_its_environment_and_nodes_get_what_is_for_them() -> None:
    groups = app_groups(Ingress(FQDN, 31080, 31443, 2), {"ingress_controller": DASHBOARD})
    tree = sites.manual()
    site = Tree(tree.schema, [(mode, obj) for mode, obj in tree.objects() if mode != "kubernetes"])
    whole = site.with_objects([("kubernetes", "default", cluster(groups))])
    exported = {name: given.value for name, given in resolve(whole, "node004").environment.items()}
    del exported["sandbox"]
    assert exported == {
        "CM_KUBE_EXTERNAL_FQDN": FQDN,
        "CM_KUBE_INGRESS_HTTPS_PORT": "31443",
        "CM_KUBE_INGRESS_HTTP_PORT": "31080",
    }
    variables = groups["system"]["children"]["applications"]["ingress_controller"]["children"]["environment"]
    assert variables["ingress_controller_label"]["values"] == {"value": "brightcomputing.com/ingress-controller"}
    assert variables["replicas"]["values"] == {"value": "2"}


def test_item_130_the_landing_page_is_that_of_the_deployment_folder() -> None:
    variables = {"head_node_internal_ip": "10.141.255.254", "image": "docker.io/library/nginx:stable"}
    objects, unknown = render(manifest("landing_page"), variables)
    assert unknown == ()
    # The cluster need not resolve the name of the head node where the head itself applies the page.
    aliases = objects[1].body["spec"]["template"]["spec"].pop("hostAliases")
    assert aliases == [{"ip": "10.141.255.254", "hostnames": ["master"]}]
    assert [f"{one.kind} {one.name}" for one in objects] == [
        "ConfigMap nginx-proxy-config",
        "Deployment nginx-proxy",
        "Service nginx-proxy-service",
        "Ingress default-ingress",
    ]
    plain = substitute(manifest("landing_page"), {}).text
    assert [one.body for one in render(LANDING_PAGE.read_text().replace("$", "$$"), {}).objects] == [
        one.body for one in objects
    ]
    assert "$http_host" in plain and "$$" not in plain


def test_there_are_three_label_sets_and_one_is_nvidia() -> None:
    made = cluster({}, label_sets(["node001"], ["gpu-nodes"]))
    assert sorted(made.below("label_sets")) == ["ingress-controller", "monitoring", "nvidia"]
    assert made.below("label_sets")["nvidia"].values["categories"] == ("gpu-nodes",)


def test_item_104_an_update_brings_new_manifests_and_keeps_what_the_site_has_set() -> None:
    shipped = app_groups(Ingress(FQDN))
    same = updated(shipped, shipped)
    assert cluster(same.app_groups) == cluster(shipped) and same.changes == ()
    old = app_groups(Ingress("other.example.com"))
    applications = old["system"]["children"]["applications"]
    applications["dashboard_ingress"]["values"] = {"config": "old", "enabled": True}
    applications["own"] = {"type": "Application", "values": {"config": "mine"}}
    applications["calico"]["values"] = {"config": "the site's"}
    del applications["landing_page"]
    del applications["ingress_controller"]["children"]["environment"]["replicas"]
    groups, changes = updated({**old, "mine": {"type": "AppGroup"}}, shipped)
    assert changes == (
        "system/dashboard_ingress: manifests replaced",
        "system/ingress_controller: variable replicas added",
        "system/landing_page: added",
    )
    now = groups["system"]["children"]["applications"]
    assert now["dashboard_ingress"]["values"] == {"config": manifest("dashboard_ingress"), "enabled": True}
    assert now["own"]["values"]["config"] == "mine" and now["calico"]["values"]["config"] == "the site's"
    kept = now["ingress_controller"]["children"]["environment"]["CM_KUBE_EXTERNAL_FQDN"]
    assert kept["values"]["value"] == "other.example.com"
    assert applications["dashboard_ingress"]["values"]["config"] == "old", "what was given is not changed"
    assert updated({}, shipped).changes == ("system: added with 8 applications",)


@pytest.mark.parametrize(
    ("nodes", "replicas"), [(1, 0), (50, 0), (51, 3), (450, 3), (451, 4), (3000, 20), (3001, 20), (100_000, 20)]
)
def test_item_106_typha_is_on_above_fifty_nodes_with_a_replica_for_each_150(nodes: int, replicas: int) -> None:
    assert typha_replicas(nodes) == replicas
    variables = calico_environment(nodes, "172.29.0.0/16", "10.141.255.254")
    assert variables == {
        "calico_typha_replicas": str(replicas),
        "calico_typha_service": "calico-typha" if replicas else "none",
        "cidr": "172.29.0.0/16",
        "head_node_internal_ip": "10.141.255.254",
    }


def test_item_106_growth_after_the_deployment_leaves_typha_off() -> None:
    few = app_groups(Ingress(FQDN), environments={"calico": calico_environment(50, "172.29.0.0/16", "")})
    assert updated(few, shipped(few, FQDN)).changes == ()


def test_item_104_texts_of_an_earlier_release_are_replaced_and_those_of_the_site_stay() -> None:
    present = app_groups(Ingress(FQDN), {"metrics_server": MARK + "old: 1\n", "ingress_controller": "mine: 1\n"})
    applications = present["system"]["children"]["applications"]
    applications["landing_page"]["values"]["config"] = "mine: 2\n"
    groups, changes = updated(present, shipped(present, FQDN))
    assert changes == ("system/metrics_server: manifests replaced",)
    now = groups["system"]["children"]["applications"]
    assert now["metrics_server"]["values"]["config"] == manifest("metrics_server")
    assert now["ingress_controller"]["values"]["config"] == "mine: 1\n"
    assert now["landing_page"]["values"]["config"] == "mine: 2\n"


VARIABLES = {
    "CM_KUBE_EXTERNAL_FQDN": FQDN,
    "CM_KUBE_INGRESS_HTTPS_PORT": "30443",
    "CM_KUBE_INGRESS_HTTP_PORT": "30080",
    "cluster": "default",
    "fsid": "b9127830-b0cc-4e34-aa47-9d1a2e9949a8",
    "head_node_internal_ip": "10.141.255.254",
    "helper_image": "busybox",
    "image": "registry.example/image:1",
    "ingress_controller_label": "brightcomputing.com/ingress-controller",
    "kubelet_tls": "--kubelet-insecure-tls",
    "monitors": '["10.0.0.1:6789"]',
    "path": "/shared",
    "pool": "kube",
    "replicas": "2",
}
NAMES = sorted(file.stem for file in Path(defaults.__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
async def test_api_servers_take_the_manifests(client: Client, name: str) -> None:
    """As a trial: nothing is made."""
    own = ("cm-jupyter-kernel-operator-system", "cm-permissions", "cmkpm-system")
    for namespace in ("kubernetes-dashboard", "ingress-controller", "cm", "cloudlycke-lb", "ceph-csi-rbd", *own):
        with contextlib.suppress(errors.AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    applier = Applier(client, Kinds(client), Key("system", name), lambda: None, SystemClock())
    objects, unknown = render(manifest(name), VARIABLES)
    assert unknown == ()
    for one in objects:
        if one.kind == "Namespace":
            continue
        served = await applier.served(one)
        before = await _version(client, served.ref, one)
        made = await applier.apply(one, served, dry_run=True)
        assert made.metadata.name == one.name
        assert await _version(client, served.ref, one) == before


async def _version(client: Client, ref: ResourceRef[Any], one: Manifest) -> str | None:
    """Which version of an object is there, maybe from another test; None: it is not there."""
    try:
        return (await client.get(ref.raw(), one.name, one.namespace))["metadata"]["resourceVersion"]
    except errors.NotFound:
        return None
