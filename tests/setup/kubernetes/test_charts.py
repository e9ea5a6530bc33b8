"""Charts of a site as applications: which there are, where their objects go, and what is wrong with files."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs
from tests.checklist import test_kyverno
from tests.setup import places
from tests.setup.kubernetes import sites

from bedplate.core import errors
from bedplate.core.clock import SystemClock
from bedplate.head.applications.applying import Applier
from bedplate.head.applications.kinds import Kinds
from bedplate.head.applications.manifests import read, render
from bedplate.head.applications.planning import Key
from bedplate.kube import Client, config
from bedplate.lab import versions
from bedplate.operators.permissions import kyverno
from bedplate.setup import helm
from bedplate.setup.answers import fitting
from bedplate.setup.engine import order
from bedplate.setup.kubernetes import addons, charts, cluster, deploy

DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: []
"""
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-settings
data:
  color: {{ .Values.color | quote }}
  deep: {{ .Values.deep.value | quote }}
  price: "$$5 $HOME ${x}"
  version: {{ .Capabilities.KubeVersion.Version }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: []
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: first}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations: {"helm.sh/hook": "pre-install"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}
"""


def chart(folder: Path, name: str = "metallb", version: str = "0.14.8", **files: str) -> str:
    """The folder of a chart."""
    place = folder / name
    (place / "templates").mkdir(parents=True)
    (place / "crds").mkdir()
    (place / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": name, "version": version}))
    (place / "values.yaml").write_text("color: red\ndeep: {value: 1}\n")
    (place / "crds" / "widgets.yaml").write_text(DEFINITION)
    (place / "templates" / "all.yaml").write_text(files.get("template", TEMPLATE))
    return str(place)


def operators(**chosen: dict[str, Any]) -> dict[str, Any]:
    """Answers with operators, as a file has them after it was read."""
    empty = {"chart": "", "values_file": "", "options": {}}
    return {name.replace("_", "-"): {"version": "0.14.8", **empty, **below} for name, below in chosen.items()}


def chosen(**changes: Any) -> addons.Addons:
    return addons.of_answers(places.answers(**changes), sites.settings(**changes), "10.141.255.254")


# Which releases there are


def test_operators_have_their_releases_and_namespaces() -> None:
    names = {"postgresql_operator": "1.13.0", "runai": "2.18.45", "metallb": "0.14.8"}
    answers = operators(**{name: {"version": text, "chart": f"/{name}.tgz"} for name, text in names.items()})
    made = charts.of_answers(places.answers(operators=answers))
    assert {(each.application, each.chart.release, each.chart.namespace) for each in made} == {
        ("metallb", "metallb", "metallb-system"),
        ("postgresql_operator", "postgres-operator", "postgres-operator"),
        ("runai", "cluster-installer", "runai"),
    }


def test_kyverno_has_three_replicas_for_availability_and_policies_that_fit_the_features() -> None:
    answers = places.answers(
        kyverno={"install": True, "ha": True, "policies": True, "chart": "/k.tgz", "policies_chart": "/p.tgz"},
        operators=operators(prometheus_operator={"chart": "/x.tgz"}, gpu_operator={"chart": "/y.tgz"}),
        local_path__path="/shared",
    )
    engine, policies, *_ = charts.of_answers(answers)
    assert (engine.chart.release, engine.chart.namespace, engine.chart.values["replicaCount"]) == (
        "kyverno",
        "kyverno",
        3,
    )
    assert (policies.application, policies.chart.release) == ("kyverno_policies", "kyverno-policies")
    values = kyverno.policy_values(frozenset({"gpu-operator", "local-path", "prometheus"}))
    excluded = values["policyExclude"]["disallow-host-path"]["any"][0]["resources"]["namespaces"]
    (own,) = {each.namespace for each in read(addons.defaults.manifest("local_path")) if each.kind == "Deployment"}
    excluded.append(own)
    assert policies.chart.values == values
    plain = places.answers(kyverno={**answers["kubernetes"]["kyverno"], "ha": False, "policies": False})
    (alone,) = charts.of_answers(plain)
    assert alone.chart.values == {}


def test_the_own_operator_needs_no_chart_and_takes_one() -> None:
    own = {"version": "0.2.1", "chart": "", "values_file": "", "options": {}}
    without = chosen(operators={"cm-jupyter-kernel-operator": own})
    assert without.own == ("cm_jupyter_kernel_operator",) and without.charts == ()
    text = addons.texts(without)["cm_jupyter_kernel_operator"]
    image = without.environments["cm_jupyter_kernel_operator"]["image"]
    assert f"--sidecar-image={image}" in str(render(text, {"image": image}).objects[-1].body)
    with_chart = chosen(operators={"cm-jupyter-kernel-operator": {**own, "chart": "/x.tgz"}})
    assert with_chart.own == () and with_chart.charts[0].chart.namespace == "cm"


# Where objects go


def test_objects_go_to_the_namespace_of_the_release_unless_they_have_none() -> None:
    objects = read(DEFINITION + "---\n" + _plain(TEMPLATE))
    bodies = charts.placed(objects, "metallb-system", {("example.com", "Widget"): True})
    places = {(each["kind"], each["metadata"]["name"]): each["metadata"].get("namespace") for each in bodies}
    assert places == {
        ("Namespace", "metallb-system"): None,
        ("ConfigMap", "a"): "metallb-system",
        ("ClusterRole", "reader"): None,
        ("Widget", "first"): "metallb-system",
    }
    unknown = charts.placed(objects, "metallb-system", {})
    assert next(each for each in unknown if each["kind"] == "Widget")["metadata"] == {"name": "first"}


def _plain(template: str) -> str:
    """The objects of the chart's template, without what helm fills in."""
    lines = [line for line in template.splitlines() if "{{" not in line or "name:" in line]
    return "\n".join(lines).replace("{{ .Release.Name }}-settings", "a")


def test_a_chart_without_objects_of_its_namespace_has_no_namespace() -> None:
    policy = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n"
    assert [each["kind"] for each in charts.placed(read(policy), "kyverno", {})] == ["ClusterRole"]


# What is wrong


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"operators": operators(metallb={})}, "kubernetes.operators.metallb.chart"),
        (
            {"operators": operators(cm_jupyter_kernel_operator={"options": {"a": 1}})},
            "kubernetes.operators.cm-jupyter-kernel-operator.options",
        ),
        ({"kyverno__install": True}, "kubernetes.kyverno.chart"),
        ({"kyverno__policies": True}, "kubernetes.kyverno.policies"),
        (
            {"kyverno__install": True, "kyverno__chart": "/k", "kyverno__policies": True},
            "kubernetes.kyverno.policies_chart",
        ),
        (
            {"nvidia_runtime": True, "operators": operators(gpu_operator={"chart": "/x"})},
            "kubernetes.nvidia_runtime",
        ),
        ({"registry_mirror__url": "m", "registry_mirror__username": "a"}, "kubernetes.registry_mirror.password"),
        ({"registry_mirror__url": "m", "registry_mirror__password": "a"}, "kubernetes.registry_mirror.username"),
        ({"docker_io__username": "a"}, "kubernetes.docker_io.password"),
        ({"docker_io__password": "a"}, "kubernetes.docker_io.username"),
        (
            {"registry_mirror__username": "a", "registry_mirror__password": "a"},
            "kubernetes.registry_mirror.url",
        ),
        ({"netq__nodes": ["node001"]}, "kubernetes.netq.nodes"),
        (
            {"netq__nodes": ["node006"], "operators": operators(netq={"chart": "/x"})},
            "kubernetes.netq.nodes",
        ),
        ({"addons__manifests": ["/a/gpu-operator.yaml"]}, "kubernetes.addons.manifests"),
        ({"addons__manifests": ["/a/kyverno.yaml"]}, "kubernetes.addons.manifests"),
    ],
)
def test_answers_that_do_not_fit_together_are_refused(changes: dict[str, Any], path: str) -> None:
    answers = fitting.complete(places.answers(**changes), places.site())
    assert [where for where, _ in fitting.problems(answers, places.site())] == [path]


def test_the_runtime_of_nvidia_and_a_gpu_operator_without_its_toolkit_go_together() -> None:
    gpu = operators(gpu_operator={"chart": "/x", "options": {"toolkit.enabled": False}})
    answers = fitting.complete(places.answers(nvidia_runtime=True, operators=gpu), places.site())
    assert fitting.problems(answers, places.site()) == []


def test_without_helm_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "BEDPLATE_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(errors.Unavailable, match="helm") as refused:
        addons.read(chosen(operators=operators(metallb={"chart": "/x.tgz"})))
    assert "bedplate binaries get helm" in refused.value.hint


def test_files_that_cannot_be_read_are_told_with_their_keys_before_helm_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helm, "find", lambda: Path("/no/helm"))
    broken, listed = tmp_path / "broken.yaml", tmp_path / "listed.yaml"
    broken.write_text("a: [\n")
    listed.write_text("- a\n")
    absent = str(tmp_path / "absent.tgz")
    answers = operators(
        metallb={"chart": absent, "values_file": str(broken)},
        gpu_operator={"chart": absent, "values_file": str(listed)},
        runai={"chart": absent, "values_file": absent},
    )
    with pytest.raises(errors.Invalid) as refused:
        addons.read(chosen(operators=answers))
    told = "\n".join(refused.value.problems)
    assert f"kubernetes.operators.metallb.chart: {absent} cannot be read" in told
    assert f"kubernetes.operators.metallb.values_file: {broken} is not valid YAML" in told
    assert f"kubernetes.operators.gpu-operator.values_file: {listed} must be a mapping" in told
    assert f"kubernetes.operators.runai.values_file: {absent} cannot be read" in told


def test_more_than_the_head_can_have_of_one_cluster_is_told_with_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    large = charts.Rendered({"metallb": "a" * (500 << 10)}, [], [])
    monkeypatch.setattr(charts, "render", lambda releases, kubernetes: large)
    with pytest.raises(errors.Invalid, match=r"the head keeps 436 KiB of one cluster") as refused:
        addons.read(chosen(operators=operators(metallb={"chart": "/x.tgz"})))
    assert "the largest are metallb" in refused.value.hint


def test_definitions_of_charts_have_a_stage_where_there_are_charts() -> None:
    def names(**changes: Any) -> list[str]:
        return [stage.name for stage in deploy.stages(places.answers(**changes), places.site())]

    stage = "Install Chart Definitions"
    assert stage not in names()
    assert stage in names(operators=operators(metallb={"chart": "/x.tgz"}))
    order.check(deploy.stages(places.answers(kyverno__install=True, kyverno__chart="/x"), places.site()))


# With helm itself


@pytest.fixture
def _helm(monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs.built("helm", programs.HELM)
    monkeypatch.setattr(helm, "find", lambda: program)


@pytest.mark.external
@pytest.mark.usefixtures("_helm")
@pytest.mark.parametrize("is_packed", [False, True])
def test_item_202_an_operator_is_installed_from_a_chart_that_is_a_file(tmp_path: Path, is_packed: bool) -> None:
    path, values = chart(tmp_path), tmp_path / "values.yaml"
    values.write_text("color: green\n")
    if is_packed:
        packed = tmp_path / "metallb-0.14.8.tgz"
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(path, "metallb")
        shutil.rmtree(path)
        path = str(packed)
    options = {"deep.value": "a,b", "deep.list[0]": 3}
    given = operators(metallb={"chart": path, "values_file": str(values), "options": options})
    wanted = chosen(operators=given)
    whole = addons.read(wanted)
    rendered, unknown = render(whole.texts["metallb"], {})
    assert unknown == ()
    objects = {each.kind: each for each in rendered}
    assert sorted(objects) == ["ClusterRole", "ConfigMap", "Namespace", "Widget"]
    assert [each["metadata"]["name"] for each in whole.definitions] == ["widgets.example.com"]
    settings = objects["ConfigMap"]
    assert (settings.namespace, settings.name) == ("metallb-system", "metallb-settings")
    assert settings.body["data"] == {
        "color": "green",
        "deep": "a,b",
        "price": "$$5 $HOME ${x}",
        "version": f"v{wanted.kubernetes}",
    }
    assert objects["Widget"].namespace == "metallb-system" and objects["ClusterRole"].namespace == ""
    assert whole.warnings == ["Warning: metallb: hooks of the chart are left out: Job migrate"]
    application = addons.groups(wanted, whole.texts)["system"]["children"]["applications"]["metallb"]
    assert application["values"].get("enabled", True) and application["values"]["config"] == whole.texts["metallb"]


@pytest.mark.external
@pytest.mark.usefixtures("_helm")
def test_a_chart_that_helm_refuses_or_of_another_version_is_told_with_its_key(tmp_path: Path) -> None:
    bad = chart(tmp_path / "bad", template='{{ fail "no color" }}')
    old = chart(tmp_path / "old", "gpu-operator", "v24.6.1")
    none = tmp_path / "none.tgz"
    none.write_text("not a chart")
    given = operators(
        metallb={"chart": bad},
        gpu_operator={"chart": old, "version": "24.6.2"},
        runai={"chart": str(none), "version": "2.18.45"},
    )
    with pytest.raises(errors.Invalid) as refused:
        addons.read(chosen(operators=given))
    told = "\n".join(refused.value.problems)
    assert "kubernetes.operators.metallb.chart: helm refuses the chart" in told and "no color" in told
    assert "is of version 24.6.1, and kubernetes.operators.gpu-operator.version is 24.6.2" in told
    assert "kubernetes.operators.runai.chart: helm refuses the chart" in told
    good = operators(gpu_operator={"chart": old, "version": "24.6.1"})
    assert "gpu_operator" in addons.read(chosen(operators=good)).texts


@pytest.mark.external
@pytest.mark.usefixtures("_helm")
def test_kyverno_gets_the_values_of_the_answers(tmp_path: Path) -> None:
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {all: {{ .Values | toJson | quote }}}\n"
    path = chart(tmp_path, "kyverno", "3.6.1", template=template)
    answers = {"install": True, "ha": True, "policies": True, "chart": path, "policies_chart": path}
    texts = addons.read(chosen(kyverno=answers, local_path__path="/shared")).texts
    values = {name: str(render(texts[name], {}).objects) for name in ("kyverno", "kyverno_policies")}
    assert '"replicaCount":3' in values["kyverno"]
    assert "local-path-storage" in values["kyverno_policies"] and "prometheus" not in values["kyverno_policies"]


def whole_kyverno(folder: Path) -> charts.Rendered:
    """What becomes of Kyverno's own charts."""
    source = programs.module(test_kyverno.MODULE, versions.KYVERNO)
    engine, policies = (test_kyverno.chart(source, name, folder) for name in ("kyverno", "kyverno-policies"))
    answers = {"install": True, "ha": True, "policies": True, "chart": str(engine), "policies_chart": str(policies)}
    return addons.read(chosen(kyverno=answers))


@pytest.mark.external
@pytest.mark.usefixtures("_helm")
def test_the_charts_of_kyverno_itself_fit_into_the_head(tmp_path: Path) -> None:
    whole = whole_kyverno(tmp_path)
    kinds = {name: {each.kind for each in render(text, {}).objects} for name, text in whole.texts.items()}
    assert kinds["kyverno_policies"] == {"ClusterPolicy"}
    assert {"Namespace", "Deployment", "ServiceAccount"} < kinds["kyverno"]
    assert "clusterpolicies.kyverno.io" in [each["metadata"]["name"] for each in whole.definitions]
    replicas = {
        each.body["spec"]["replicas"]
        for each in render(whole.texts["kyverno"], {}).objects
        if each.kind == "Deployment" and each.namespace == "kyverno"
    }
    assert replicas == {3}


@pytest.mark.external
@pytest.mark.real
@pytest.mark.usefixtures("_helm")
async def test_a_real_api_server_takes_what_the_charts_of_kyverno_give(tmp_path: Path) -> None:
    whole, clock = whole_kyverno(tmp_path), SystemClock()
    with programs.own_server("real") as server:
        async with Client(config.load(server.kubeconfig, environ={})) as client:
            await cluster.apply(client, whole.definitions, clock)
            for name in ("kyverno", "kyverno_policies"):
                applier = Applier(client, Kinds(client), Key("system", name), lambda: None, clock)
                for each in render(whole.texts[name], {}).objects:
                    applied = await applier.apply(each, await applier.served(each))
                    assert applied.metadata.name == each.name
