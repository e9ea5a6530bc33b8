"""What a kernel's objects are made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.operators.jupyter.worlds import spec

from bedplate.api import names as kubernetes
from bedplate.operators.jupyter import names, objects
from bedplate.operators.jupyter.kernel import Kernel

SIDECAR = objects.Sidecar("example/sidecar:1", "Never")
UID = "0a1b2c3d-0000-0000-0000-000000000000"


def kernel(name: str = "k", **changes: Any) -> Kernel:
    body = {"metadata": {"name": name, "namespace": "john", "uid": UID}, "spec": spec(**changes)}
    return msgspec.convert(body, Kernel)


def made(**changes: Any) -> dict[str, dict[str, Any]]:
    return objects.objects(kernel(**changes), SIDECAR, "secret-key")


def test_all_objects_belong_to_the_kernel() -> None:
    for body in made().values():
        metadata = body["metadata"]
        assert metadata["name"] == "cmjk-k-0a1b2c3d" and metadata["namespace"] == "john"
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (names.KIND, "k", UID, True)
        assert metadata["labels"][names.LABEL_KERNEL_ID] == "00000000-0000-0000-0000-000000000007"


def test_the_same_kernel_gives_the_same_objects() -> None:
    assert made() == made()


@pytest.mark.parametrize("name", ["k", "7", "a.b.c", "x" * 253, "a" + "-" * 80 + "b"])
def test_names_of_objects_are_labels_whatever_the_kernel_is_called(name: str) -> None:
    given = objects.name_of(kernel(name))
    assert kubernetes.dns_label_problems(given) == []
    assert given[0].isalpha()


def test_the_sidecar_has_its_ports_and_variables() -> None:
    pod = made(sidecar_args=["--timeout", "30"])["Pod"]["spec"]
    sidecar = pod["containers"][-1]
    assert sidecar["name"] == "cmjksidecar" and sidecar["image"] == "example/sidecar:1"
    assert sidecar["imagePullPolicy"] == "Never"
    assert (sidecar["command"], sidecar["args"]) == (["cmjksidecar"], ["--timeout", "30"])
    assert {one["name"]: one["value"] for one in sidecar["env"]} == {
        "CMJK_CONNECTION_FILE": "/var/tmp/kernel-parm.json",
        "CMJK_KERNEL_ID": "00000000-0000-0000-0000-000000000007",
        "CMJK_SHELL_PORT": "5001",
        "CMJK_IOPUB_PORT": "5002",
        "CMJK_STDIN_PORT": "5003",
        "CMJK_CONTROL_PORT": "5004",
        "CMJK_HB_PORT": "5005",
        "CMJK_COMM_PORT": "5006",
    }
    assert [port["containerPort"] for port in sidecar["ports"]] == list(range(5001, 5007))
    assert pod["restartPolicy"] == "Never"
    assert made(sidecar_command=["/bin/mine"])["Pod"]["spec"]["containers"][-1]["command"] == ["/bin/mine"]


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {one["mountPath"]: one["name"] for one in container["volumeMounts"]}


def test_every_container_shares_the_accounts_and_the_folder_of_the_connection_file() -> None:
    pod = made(
        pod={
            "containers": [{"name": "a", "volumeMounts": [{"name": "own", "mountPath": "/etc/group"}]}],
            "initContainers": [{"name": "b"}],
        }
    )["Pod"]["spec"]
    shared = {"/var/tmp": "cmjk-connection", "/etc/passwd": "cmjk-files", "/etc/group": "cmjk-files"}
    assert mounts(pod["initContainers"][0]) == mounts(pod["containers"][1]) == shared
    assert mounts(pod["containers"][0]) == shared | {"/etc/group": "own"}


def test_a_connection_file_is_made_when_asked_for() -> None:
    asked = made(create_connection_file=True, kernel_connection_file_path="/run/jupyter/k.json")
    content = json.loads(asked["Secret"]["stringData"]["connection-file"])
    assert content["key"] == "secret-key" and content["ip"] == "127.0.0.1"
    ports = {value for name, value in content.items() if name.endswith("_port")}
    assert len(ports) == 5 and ports.isdisjoint(range(5001, 5007)), "kernel and sidecar share an address"
    for container in asked["Pod"]["spec"]["containers"]:
        assert mounts(container)["/run/jupyter/k.json"] == "cmjk-secret"
        assert mounts(container)["/run/jupyter"] == "cmjk-connection"
    plain = made()
    assert "/var/tmp/kernel-parm.json" not in mounts(plain["Pod"]["spec"]["containers"][0])
    assert "secret-key" not in json.dumps({**asked, "Secret": None}), "the key is in the Secret alone"


def test_the_template_of_spark_executors_is_mounted() -> None:
    asked = made(spark_pod_template_path="/opt/spark/executor.yaml", spark_pod_template="kind: Pod")
    assert asked["ConfigMap"]["data"]["spark-pod-template"] == "kind: Pod"
    assert mounts(asked["Pod"]["spec"]["containers"][0])["/opt/spark/executor.yaml"] == "cmjk-files"


def test_the_service_has_our_ports_beside_what_is_given() -> None:
    given = {
        "type": "NodePort",
        "selector": {"app": "other"},
        "ports": [{"name": "shell", "nodePort": 30001, "port": 1}, {"name": "spark-ui", "port": 4040}],
    }
    service = made(service=given)["Service"]["spec"]
    assert service["type"] == "NodePort"
    assert service["selector"] == objects.labels(kernel())
    ports = {port["name"]: port["port"] for port in service["ports"]}
    assert ports == names.CHANNELS | {"comm": 5006, "spark-ui": 4040}
    assert service["ports"][0]["nodePort"] == 30001
    assert made()["Service"]["spec"].keys() == {"selector", "ports"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kernel_connection_file_path": "/x.json"}, "spec.kernel_connection_file_path"),
        ({"kernel_connection_file_path": "/etc/x.json"}, "spec.kernel_connection_file_path"),
        ({"kernel_connection_file_path": "/var/tmp/../../etc/passwd"}, "spec.kernel_connection_file_path"),
        ({"spark_pod_template_path": "/a/b"}, "spec.spark_pod_template"),
        ({"spark_pod_template": "kind: Pod"}, "spec.spark_pod_template_path"),
        ({"pod": {"containers": [{"name": "cmjksidecar"}]}}, "spec.pod.containers[0].name"),
        ({"pod": {"containers": [{"name": "a"}], "volumes": [{"name": "cmjk-files"}]}}, "spec.pod.volumes[0].name"),
        ({"pod": {}}, "spec.pod.containers"),
    ],
)
def test_what_cannot_be_made_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    (problem,) = objects.problems(kernel(**changes))
    assert problem.startswith(f"{field}: ")
