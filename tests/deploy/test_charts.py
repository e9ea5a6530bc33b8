"""The charts: rendered with the values people set, named as the originals' users know them, taken by API servers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import servers
from tests.deploy.conftest import CHARTS, IMAGE, ROOT, Program, chart_folder, documents, of_kind, run_tool

# Sets of values that between them touch every branch of the templates.
VALUES: dict[str, dict[str, Any]] = {
    "default": {},
    "two replicas": {"deployment": {"replicas": 2}},
    "everything": {
        "deployment": {
            "replicas": 3,
            "image": {"name": "registry.example/manager", "tag": "v1"},
            "imagePullPolicy": "Always",
            "imagePullSecrets": [{"name": "pull"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "own", "operator": "Exists"}],
            "podAnnotations": {"one": "two"},
            "podLabels": {"three": "four"},
            "hostNetwork": False,
            "dnsPolicy": "ClusterFirst",
            "extraArgs": ["--cloud-api-qps=5", "--node-selector=a in (b,c)"],
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
            "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
        },
        "leaderElection": {"enabled": True, "resourceName": "my-lease"},
        "useServiceAccountCredentials": True,
        "securePort": 10300,
        "verbosity": 4,
        "serviceAccount": {"name": "own-account", "annotations": {"five": "six"}},
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    },
    "least": {
        "serviceAccount": {"create": False, "name": "theirs"},
        "rbac": {"create": False},
        "leaderElection": {"enabled": False},
        "verbosity": 0,
        "useServiceAccountCredentials": False,
    },
}
SPECIAL: dict[str, dict[str, dict[str, Any]]] = {
    "oxide": {
        "configured": {"cloudConfig": {"zone": "rack-1", "loadBalancer": {"deleteOrphans": True}}},
        "environment": {"credentials": {"hotReload": False, "secretName": "mine"}},
    },
    "nvidia-bmm": {"configured": {"cloudConfig": {"content": {"endpoint": "https://bmm.example", "token": "x"}}}},
    "cloudlycke": {"configured": {"cloudConfig": {"instances": [{"id": "n-1", "name": "node-1"}]}}},
}
CASES = [(chart, name, values) for chart in CHARTS for name, values in (VALUES | SPECIAL[chart]).items()]


def render(helm: Program, chart: str, values: dict[str, Any], release: str = "site") -> list[dict[str, Any]]:
    text = helm("template", release, chart_folder(chart), "-n", "kube-system", "-f", "-", stdin=yaml.safe_dump(values))
    return documents(text)


def pod_spec(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def flags(objects: list[dict[str, Any]]) -> list[str]:
    container = pod_spec(objects)["containers"][0]
    return [*container["command"], *container.get("args", [])]


@pytest.mark.external  # helm
def test_what_is_made_from_charts_is_up_to_date() -> None:
    done = run_tool("manifest.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.external  # helm
def test_the_check_notices_a_manifest_that_was_edited(tmp_path: Path) -> None:
    for part in ("charts", "deploy", "manifests", "tools"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "IMAGE", tmp_path)
    edited = tmp_path / "manifests" / "oxide-cloud-controller-manager.yaml"
    edited.write_text(edited.read_text().replace("replicas: 1", "replicas: 7"))
    (tmp_path / "VERSION").write_text("v9.9.9")
    command = [sys.executable, str(tmp_path / "tools" / "manifest.py")]
    done = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "manifests/oxide-cloud-controller-manager.yaml is not up to date" in done.stdout
    assert "charts/oxide-cloud-controller-manager/Chart.yaml is not up to date" in done.stdout
    subprocess.run(command, capture_output=True, timeout=300, check=True)
    assert "registry.example/bedplate:9.9.9" in edited.read_text()


@pytest.mark.parametrize("chart", CHARTS)
def test_helm_finds_nothing_to_complain_about(helm: Program, chart: str) -> None:
    helm("lint", "--strict", chart_folder(chart))


@pytest.mark.parametrize("chart", CHARTS)
def test_a_misspelt_value_is_refused(helm: Program, chart: str) -> None:
    done = helm.attempt("template", "x", chart_folder(chart), "--set", "deployment.replica=2")
    assert done.returncode != 0 and "'replica' not allowed" in done.stderr


@pytest.mark.parametrize("chart", CHARTS)
def test_values_of_an_older_chart_are_refused_with_the_flag_that_helps(helm: Program, chart: str) -> None:
    done = helm.attempt("template", "x", chart_folder(chart), "--set", "serviceAccount=null")
    assert done.returncode != 0 and "--reset-then-reuse-values" in done.stderr


def test_templates_that_charts_share_are_the_same() -> None:
    own = {"_provider.tpl", "configmap.yaml"}
    folder = chart_folder("oxide") / "templates"
    shared = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name not in own}
    for chart in CHARTS:
        for name in shared:
            one, other = ((chart_folder(each) / "templates" / name).read_text() for each in ("oxide", chart))
            assert one == other, f"{name} of {chart} differs from that of oxide"


@pytest.mark.parametrize(("chart", "name", "values"), CASES, ids=[f"{chart}-{name}" for chart, name, _ in CASES])
def test_api_servers_take_what_is_rendered(
    kubectl: Program, helm: Program, chart: str, name: str, values: dict[str, Any]
) -> None:
    objects = [each for each in render(helm, chart, values) if each["kind"] != "ServiceMonitor"]
    kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))


@pytest.mark.parametrize(
    "command",
    [
        ("-f", ROOT / "deploy" / "rbac", "-f", ROOT / "deploy" / "manifests"),
        ("-f", ROOT / "manifests" / "oxide-cloud-controller-manager.yaml"),
        ("-k", ROOT / "deploy" / "overlays" / "high-availability"),
        ("-k", ROOT / "deploy" / "overlays" / "mixed"),
    ],
    ids=["deploy", "oxide manifest", "high-availability", "mixed"],
)
def test_api_servers_take_the_committed_manifests(kubectl: Program, command: tuple[str | Path, ...]) -> None:
    said = kubectl("apply", "--dry-run=server", "--validate=strict", *command)
    assert "deployment.apps/" in said


# Names


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("site", {}, "site-oxide-cloud-controller-manager"),
        ("oxide-cloud-controller-manager", {}, "oxide-cloud-controller-manager"),
        ("my-oxide-cloud-controller-manager-1", {}, "my-oxide-cloud-controller-manager-1"),
        ("site", {"name": "ccm"}, "site-ccm"),
        ("a" * 40, {}, ("a" * 40 + "-oxide-cloud-controller-manager")[:63].rstrip("-")),
    ],
)
def test_oxide_objects_are_named_after_the_release(
    helm: Program, release: str, values: dict[str, Any], name: str
) -> None:
    objects = render(helm, "oxide", values, release)
    assert of_kind(objects, "Deployment")["metadata"]["name"] == name
    assert of_kind(objects, "ServiceAccount")["metadata"]["name"] == name
    assert of_kind(objects, "ClusterRole")["metadata"]["name"] == f"system:{name}"
    assert pod_spec(objects)["serviceAccountName"] == name
    env = {each["name"]: each for each in pod_spec(objects)["containers"][0]["env"]}
    assert env["OXIDE_HOST"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "oxide-host"}
    assert env["OXIDE_PROJECT"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "oxide-project"}
    assert pod_spec(objects)["volumes"][0]["secret"]["secretName"] == name


def test_the_oxide_manifest_keeps_the_originals_names_labels_and_arguments() -> None:
    objects = documents((ROOT / "manifests" / "oxide-cloud-controller-manager.yaml").read_text())
    deployment = of_kind(objects, "Deployment")
    labels = deployment["metadata"]["labels"]
    version = (ROOT / "VERSION").read_text().strip().removeprefix("v")
    assert labels == {
        "helm.sh/chart": f"oxide-cloud-controller-manager-{version}",
        "app.kubernetes.io/name": "oxide-cloud-controller-manager",
        "app.kubernetes.io/instance": "oxide-cloud-controller-manager",
        "app.kubernetes.io/version": version,
        "app.kubernetes.io/managed-by": "Helm",
    }
    spec = pod_spec(objects)
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "Default")
    assert spec["priorityClassName"] == "system-cluster-critical"
    (container,) = spec["containers"]
    assert container["command"] == ["/usr/bin/oxide-cloud-controller-manager", "--cloud-provider=oxide"]
    assert container["image"] == IMAGE
    names = {each["metadata"]["name"] for each in objects if each["kind"] in ("ServiceAccount", "Deployment")}
    assert names == {"oxide-cloud-controller-manager"}


def test_the_bmm_manifests_keep_the_originals_names_and_arguments() -> None:
    deployment = documents((ROOT / "deploy/manifests/deployment.yaml").read_text())
    name = "nvidia-bmm-cloud-controller-manager"
    metadata = of_kind(deployment, "Deployment")["metadata"]
    assert metadata == {"name": name, "namespace": "kube-system", "labels": {"app": name}}
    assert of_kind(deployment, "Deployment")["spec"]["replicas"] == 1
    assert flags(deployment) == [
        "/nvidia-bmm-cloud-controller-manager",
        "--cloud-provider=nvidia-bmm",
        "--cloud-config=/etc/nvidia-bmm/cloud-config",
        "--use-service-account-credentials=true",
        "--leader-elect=true",
        "--leader-elect-resource-name=nvidia-bmm-cloud-controller-manager",
        "--v=2",
    ]
    spec = pod_spec(deployment)
    (container,) = spec["containers"]
    assert spec["nodeSelector"] == {"node-role.kubernetes.io/control-plane": ""}
    assert spec["serviceAccountName"] == "cloud-controller-manager"
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "500m", "memory": "512Mi"},
    }
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/healthz", "port": 10258, "scheme": "HTTPS"},
        "initialDelaySeconds": 20,
        "periodSeconds": 30,
        "timeoutSeconds": 5,
    }
    (mount,) = container["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/nvidia-bmm", True)
    assert spec["volumes"][0]["secret"]["secretName"] == "nvidia-bmm-cloud-config"
    secret = of_kind(documents((ROOT / "deploy/manifests/cloud-config-secret.yaml").read_text()), "Secret")
    assert secret["metadata"] == {"name": "nvidia-bmm-cloud-config", "namespace": "kube-system"}
    keys = {"endpoint", "orgName", "token", "siteId", "tenantId"}
    assert set(yaml.safe_load(secret["stringData"]["cloud-config"])) == keys
    assert set(yaml.safe_load((ROOT / "config/cloud-config.yaml").read_text())) == keys
    rbac = [each for path in sorted((ROOT / "deploy/rbac").glob("*.yaml")) for each in documents(path.read_text())]
    named = {(each["kind"], each["metadata"]["name"]) for each in rbac}
    assert named >= {
        ("ServiceAccount", "cloud-controller-manager"),
        ("ClusterRole", "system:cloud-controller-manager"),
        ("ClusterRoleBinding", "system:cloud-controller-manager"),
    }


# Hardening


@pytest.mark.parametrize(("chart", "name", "values"), CASES, ids=[f"{chart}-{name}" for chart, name, _ in CASES])
def test_no_manager_runs_with_more_rights_than_it_needs(
    helm: Program, chart: str, name: str, values: dict[str, Any]
) -> None:
    objects = render(helm, chart, values)
    spec = pod_spec(objects)
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"path": "/readyz", "port": values.get("securePort", 10258), "scheme": "HTTPS"} == container[
        "readinessProbe"
    ]["httpGet"]
    for role in (each for each in objects if each["kind"] in ("ClusterRole", "Role")):
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule.get("resources", []), *rule.get("apiGroups", [])]
            assert not {"secrets", "pods", "configmaps"} & set(rule.get("resources", []))


@pytest.mark.parametrize("chart", CHARTS)
def test_a_manager_may_run_wherever_a_cluster_comes_up(helm: Program, chart: str) -> None:
    tolerated = {(each["key"], each.get("effect")) for each in pod_spec(render(helm, chart, {}))["tolerations"]}
    assert tolerated >= {
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("node-role.kubernetes.io/control-plane", "NoSchedule"),
        ("node-role.kubernetes.io/master", "NoSchedule"),
        ("node-role.kubernetes.io/etcd", "NoSchedule"),
        ("node-role.kubernetes.io/etcd", "NoExecute"),
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/network-unavailable", "NoSchedule"),
        ("CriticalAddonsOnly", None),
    }


@pytest.mark.parametrize("chart", CHARTS)
def test_replicas_are_spread_and_disrupted_one_at_a_time(helm: Program, chart: str) -> None:
    objects = render(helm, chart, {"deployment": {"replicas": 2}})
    (rule,) = pod_spec(objects)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    selector = of_kind(objects, "Deployment")["spec"]["selector"]
    assert (rule["labelSelector"], rule["topologyKey"]) == (selector, "kubernetes.io/hostname")
    budget = of_kind(objects, "PodDisruptionBudget")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": selector}
    assert "PodDisruptionBudget" not in {each["kind"] for each in render(helm, chart, {})}


# Credentials of Oxide


def test_a_mounted_token_causes_no_restart_and_one_in_the_environment_does(
    kubectl: Program, server: servers.Server, namespace: str, tmp_path: Path, helm: Program
) -> None:
    secret = ("create", "secret", "generic", "-n", namespace, "--dry-run=client", "-o", "yaml", "mine")
    environ = {"credentials": {"hotReload": False, "secretName": "mine"}, "deployment": {"replicas": 0}}
    with_server = Program(Path(helm._path), tmp_path, server)

    def checksum(token: str) -> str:
        literals = ("--from-literal=oxide-host=h", f"--from-literal=oxide-token={token}")
        kubectl("apply", "-f", "-", stdin=kubectl(*secret, *literals))
        arguments = ("template", "site", chart_folder("oxide"), "-n", namespace, "--dry-run=server", "-f", "-")
        objects = documents(with_server(*arguments, stdin=yaml.safe_dump(environ)))
        annotations = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["checksum/credentials"])

    first = checksum("one")
    assert first == checksum("one") and first != checksum("two")
    mounted = of_kind(render(helm, "oxide", {}), "Deployment")["spec"]["template"]
    assert "annotations" not in mounted["metadata"]
    (container,) = mounted["spec"]["containers"]
    token = {each["name"]: each for each in container["env"]}["OXIDE_TOKEN_FILE"]["value"]
    assert token.startswith(container["volumeMounts"][0]["mountPath"] + "/")
    assert "subPath" not in container["volumeMounts"][0], "a file mounted by subPath never changes"


def test_every_shipped_pod_is_probed_and_those_on_every_node_are_limited() -> None:
    files = [*(ROOT / "manifests").glob("*.yaml"), *(ROOT / "deploy" / "manifests").rglob("*.yaml")]
    kinds = ("Deployment", "DaemonSet")
    shipped = [
        each
        for path in files
        for each in documents(path.read_text())
        if each.get("kind") in kinds and "template" in each.get("spec", {})
    ]
    assert {each["metadata"]["name"] for each in shipped} >= {"cloudlycke-lb-agent", "controller", "node-ds"}
    for workload in shipped:
        spec = workload["spec"]["template"]["spec"]
        for container in spec["containers"]:
            about = f"{workload['metadata']['name']}: {container['name']}"
            assert {"livenessProbe", "readinessProbe"} <= set(container), about
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), about
            # Where it runs beside everybody's pods; those of the control plane are selected or preferred there.
            if workload["kind"] == "DaemonSet" and "nodeSelector" not in spec:
                assert {"cpu", "memory"} <= set(container["resources"]["limits"]), about
                assert spec["priorityClassName"] == "system-node-critical", about
