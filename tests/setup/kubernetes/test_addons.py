"""What answers about add-ons mean, and what is wrong with files that a site brings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.setup import places
from tests.setup.kubernetes import sites

from bedplate.core import errors
from bedplate.head.applications import defaults
from bedplate.head.applications.manifests import render
from bedplate.operators.jupyter import manifests as jupyter_manifests
from bedplate.operators.permissions import manifests as permission_manifests
from bedplate.setup.answers import fitting
from bedplate.setup.kubernetes import addons, clouds, firewall
from bedplate.setup.operators import OWN

FSID = "b9127830-b0cc-4e34-aa47-9d1a2e9949a8"
MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {cost: $$5}\n"


def chosen(**changes: Any) -> addons.Addons:
    return addons.of_answers(places.answers(**changes), sites.settings(**changes), "10.141.255.254")


def test_a_deployment_has_the_add_ons_that_were_asked_for_and_no_others() -> None:
    none = chosen()
    assert none.own == () and none.files == {} and not none.has_landing_page
    some = chosen(addons__ingress_controller=True, addons__metrics_server=True)
    assert some.own == ("ingress_controller", "metrics_server")
    assert some.has_landing_page and not some.is_on_443


def test_every_text_of_the_tool_has_all_of_its_variables() -> None:
    everything = chosen(
        addons__ingress_controller=True,
        addons__metrics_server=True,
        local_path__path="/shared",
        addons__ceph__fsid=FSID,
        addons__ceph__monitors=["10.0.0.1:6789"],
        addons__ipam__install=True,
        addons__ccm__provider="oxide",
        addons__ccm__cloud_config="/cloud.yaml",
        permissions_manager=True,
        nvidia_runtime=True,
        operators={OWN: {"version": "0.2.1", "chart": "", "values_file": "", "options": {}}},
    )
    brought = ("ingress_controller", "metrics_server", "local_path", "ceph", "ipam", "ccm_oxide")
    assert everything.own == (*brought, "permissions_manager", "nvidia_runtime", "cm_jupyter_kernel_operator")
    applications = addons.groups(everything, addons.texts(everything))["system"]["children"]["applications"]
    for name, application in applications.items():
        environment = application.get("children", {}).get("environment", {})
        variables = {key: each["values"]["value"] for key, each in environment.items()}
        unknown = render(application["values"].get("config", ""), variables).unknown
        assert unknown == (), name
    assert applications["local_path"]["children"]["environment"]["path"]["values"]["value"] == "/shared"


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("permissions_manager", lambda image: permission_manifests.objects(image=image)),
        ("cm_jupyter_kernel_operator", jupyter_manifests.documents),
    ],
)
def test_the_operators_of_this_project_are_applications_with_the_image_of_the_answers(
    name: str, objects: Callable[[str], list[dict[str, Any]]]
) -> None:
    image = "my-registry:5000/bedplate:1"
    own = {OWN: {"version": "0.2.1", "chart": "", "values_file": "", "options": {}}}
    wanted = chosen(permissions_manager=True, operators=own, images__bedplate=image)
    assert wanted.environments[name] == {"image": image}
    rendered = render(addons.texts(wanted)[name], {"image": image})
    assert [each.body for each in rendered.objects] == json.loads(json.dumps(objects(image)))


def test_the_runtime_of_nvidia_has_a_class() -> None:
    (one,) = render(addons.texts(chosen(nvidia_runtime=True))["nvidia_runtime"], {}).objects
    assert (one.kind, one.name, one.body["handler"]) == ("RuntimeClass", "nvidia", "nvidia")


def test_what_other_applications_have_of_a_namespace_is_the_same() -> None:
    both = chosen(permissions_manager=True, local_path__path="/shared")
    bodies = [
        each.body
        for name, text in addons.texts(both).items()
        for each in render(text, both.environments[name]).objects
        if (each.kind, each.name) == ("Namespace", "cm")
    ]
    assert len(bodies) == 2 and bodies[0] == bodies[1]


def test_item_164_the_class_of_ceph_has_the_cluster_its_monitors_and_the_pool() -> None:
    monitors = ["10.0.0.1:6789", "10.0.0.2:6789"]
    ceph = chosen(addons__ceph__fsid=FSID, addons__ceph__monitors=monitors, addons__ceph__pool="kube")
    objects = {each.kind: each.body for each in render(addons.texts(ceph)["ceph"], ceph.environments["ceph"]).objects}
    assert json.loads(objects["ConfigMap"]["data"]["config.json"]) == [{"clusterID": FSID, "monitors": monitors}]
    class_ = objects["StorageClass"]
    assert (class_["metadata"]["name"], class_["provisioner"]) == ("fast", "rbd.csi.ceph.com")
    assert (class_["parameters"]["clusterID"], class_["parameters"]["pool"]) == (FSID, "kube")
    assert (class_["reclaimPolicy"], class_["volumeBindingMode"]) == ("Delete", "Immediate")


def test_manifests_of_the_site_are_applications_and_keep_their_dollars(tmp_path: Path) -> None:
    file = tmp_path / "My-Thing.yaml"
    file.write_text(MANIFEST)
    own = chosen(
        addons__manifests=[str(file)],
        addons__metrics_server=True,
        addons__metrics_server_manifest=str(file),
        addons__dashboard=str(file),
    )
    assert own.own == ()
    read = addons.texts(own)
    assert {"my_thing", "metrics_server", "dashboard"} <= set(read)
    (one,) = render(read["my_thing"], {}).objects
    assert one.body["data"] == {"cost": "$$5"}
    applications = addons.groups(own, read)["system"]["children"]["applications"]
    assert applications["dashboard_ingress"]["values"].get("enabled", True)


def test_all_files_that_cannot_be_used_are_told_at_once_with_their_line(tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.yaml", tmp_path / "empty.yaml"
    broken.write_text("apiVersion: v1\nkind: [\n")
    empty.write_text("# nothing\n")
    files = [str(broken), str(empty), str(tmp_path / "missing.yaml")]
    with pytest.raises(errors.Invalid) as caught:
        addons.texts(chosen(addons__manifests=files))
    told = "\n".join(caught.value.problems)
    assert "broken.yaml: line 3" in told and "empty.yaml: has no objects" in told
    assert "missing.yaml: cannot be read: No such file or directory" in told


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"ingress__http_port": 30443}, "kubernetes.ingress.https_port"),
        ({"addons__ccm__provider": "oxide"}, "kubernetes.addons.ccm.cloud_config"),
        ({"addons__ceph__fsid": FSID}, "kubernetes.addons.ceph.monitors"),
        ({"addons__ceph__monitors": ["10.0.0.1"]}, "kubernetes.addons.ceph.monitors"),
        ({"local_path__path": "/"}, "kubernetes.local_path.path"),
        ({"addons__manifests": ["/a/x.yaml", "/b/X.yml"]}, "kubernetes.addons.manifests"),
        ({"addons__manifests": ["/a/ipam.yaml"]}, "kubernetes.addons.manifests"),
    ],
)
def test_answers_that_do_not_fit_together_are_refused(changes: dict[str, Any], path: str) -> None:
    answers = fitting.complete(places.answers(**changes), places.site())
    assert path in [where for where, _ in fitting.problems(answers, places.site())]


def test_the_firewall_opens_the_ports_of_the_ingress() -> None:
    rows = firewall.rows(sites.settings(), chosen(addons__ingress_controller=True, ingress__proxy_443=True))
    assert [(row["values"]["port"], row["values"]["description"]) for row in rows] == [
        ("10443", "Kubernetes 'default' API server"),
        ("30080", "Kubernetes 'default' Ingress HTTP"),
        ("30443", "Kubernetes 'default' Ingress HTTPS"),
        ("443", "Kubernetes 'default' Ingress on 443"),
    ]


def test_item_106_the_application_calico_has_the_variables_of_the_new_cluster() -> None:
    variables = chosen().environments["calico"]
    assert variables == defaults.calico_environment(3, str(sites.settings().pods), "10.141.255.254")


def test_settings_of_a_cloud_are_the_object_that_its_manager_reads(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text("oxide-host: https://rack\noxide-token: t\n")
    secret = clouds.config("oxide", str(file))
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "oxide-cloud-controller-manager")
    assert secret["stringData"] == {"oxide-host": "https://rack", "oxide-token": "t"}
    assert clouds.config("cloudlycke", str(file))["data"] == {"cloud-config.yaml": file.read_text()}
    file.write_text("kind: Secret\nmetadata: {name: other}\n")
    with pytest.raises(errors.Invalid, match="Secret other"):
        clouds.config("nvidia-bmm", str(file))
    for text in ("", "- a\n", "a: [\n"):
        file.write_text(text)
        with pytest.raises(errors.Invalid, match=r"cloud\.yaml"):
            clouds.config("oxide", str(file))
