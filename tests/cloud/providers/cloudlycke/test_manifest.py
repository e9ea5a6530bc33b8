"""manifests/cloudlycke-ccm.yaml: what users of the original know is there, and no more rights than are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cloud.providers.cloudlycke import config

MANIFEST = Path(__file__).parents[4] / "manifests" / "cloudlycke-ccm.yaml"
NAME = "cloudlycke-cloud-controller-manager"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict[str, Any]]:
    found = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_originals_objects_are_there_under_their_names(objects: dict[tuple[str, str], Any]) -> None:
    account = objects["ServiceAccount", NAME]
    assert account["metadata"]["namespace"] == "kube-system"
    binding = objects["ClusterRoleBinding", f"system:{NAME}"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "kube-system"}]
    manager = objects["DaemonSet", NAME]
    labels = {"k8s-app": NAME}
    assert manager["spec"]["selector"]["matchLabels"] == labels == manager["spec"]["template"]["metadata"]["labels"]
    pod = manager["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == NAME
    (container,) = pod["containers"]
    original = {"--v=5", "--cloud-provider=cloudlycke", "--cluster-name=kubernetes-2", "--address=127.0.0.1"}
    assert original | {"--use-service-account-credentials"} <= set(container["args"])
    tolerated = {(each["key"], each.get("effect")) for each in pod["tolerations"]}
    assert ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule") in tolerated
    assert ("node-role.kubernetes.io/master", "NoSchedule") in tolerated


def test_nobody_is_given_everything(objects: dict[tuple[str, str], Any]) -> None:
    bindings = [each for (kind, _), each in objects.items() if kind.endswith("Binding")]
    assert "cluster-admin" not in {each["roleRef"]["name"] for each in bindings}
    rules = [rule for (kind, _), each in objects.items() if kind in ("Role", "ClusterRole") for rule in each["rules"]]
    for rule in rules:
        assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
        assert "secrets" not in rule["resources"]
    for name in (NAME, "cloudlycke-lb-agent"):
        role = objects["ClusterRole", f"system:{name}"]
        own = [rule for rule in role["rules"] if "resourceNames" not in rule]
        # Controllers write as accounts of their own; the agent writes its Leases.
        assert {verb for rule in own for verb in rule["verbs"]} == {"list", "watch"}
    leases = objects["Role", "system:cloudlycke-lb-agent"]
    assert leases["metadata"]["namespace"] == "cloudlycke-lb"


def test_the_manager_runs_as_nobody_and_the_agent_with_two_capabilities(objects: dict[tuple[str, str], Any]) -> None:
    pod = objects["DaemonSet", NAME]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
    (manager,) = pod["containers"]
    (agent,) = objects["DaemonSet", "cloudlycke-lb-agent"]["spec"]["template"]["spec"]["containers"]
    for container in (manager, agent):
        held = container["securityContext"]
        assert held["readOnlyRootFilesystem"] and not held["allowPrivilegeEscalation"]
        assert held["capabilities"]["drop"] == ["ALL"]
    assert "add" not in manager["securityContext"]["capabilities"]
    assert agent["securityContext"]["capabilities"]["add"] == ["NET_ADMIN", "NET_RAW"]
    # Both listen on the loopback interface, where a probe of the pod's address would not find them.
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert manager[probe]["httpGet"]["host"] == "127.0.0.1"
        assert agent[probe]["httpGet"] == {"host": "127.0.0.1", "path": path, "port": 10261}
    assert set(agent["resources"]["limits"]) == {"cpu", "memory"}


def test_the_inventory_in_the_manifest_is_the_built_in_one(objects: dict[tuple[str, str], Any]) -> None:
    found = config.parse(objects["ConfigMap", "cloudlycke-cloud-config"]["data"]["cloud-config.yaml"])
    assert [(each.id, each.name, each.internal_ips, each.external_ips, each.type) for each in found.instances] == [
        (each.id, each.name, each.internal_ips, each.external_ips, each.type) for each in config.BUILT_IN
    ]
    assert (found.load_balancer, found.interface) == (config.LoadBalancer(), "v2")
    for name in (NAME, "cloudlycke-lb-agent"):
        pod = objects["DaemonSet", name]["spec"]["template"]["spec"]
        assert pod["volumes"] == [{"name": "cloud-config", "configMap": {"name": "cloudlycke-cloud-config"}}]
        assert "--cloud-config=/etc/cloudlycke/cloud-config.yaml" in pod["containers"][0]["args"]
