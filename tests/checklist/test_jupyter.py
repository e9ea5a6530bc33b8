"""Checklist J, items 193 to 196: kernels as resources, on a real kube-apiserver and on ours, and their templates."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml
from tests.operators.jupyter.worlds import IMAGE, World, spec
from tests.waiting import until

from bedplate.core import errors
from bedplate.operators.jupyter import accounts
from bedplate.operators.jupyter.kernel import KERNELS, KernelSpec
from bedplate.operators.jupyter.kernelspecs import render, template


async def test_item_193_a_resource_becomes_service_configmap_secret_and_pod_with_sidecar(world: World) -> None:
    async with world.operator():
        await world.create("john-kernel", username="john", image_os_flavor="rhel8", homedir="/home/john")
        made = await world.made("john-kernel")
        pod = made["Pod"]
        assert [one["name"] for one in pod["spec"]["containers"]] == ["kernel", "cmjksidecar"]
        assert pod["spec"]["containers"][1]["image"] == IMAGE
        assert "john:x:1000:1000::/home/john:/bin/bash" in made["ConfigMap"]["data"]["passwd"].splitlines()
        assert [port["port"] for port in made["Service"]["spec"]["ports"]] == list(range(5001, 5007))
        await world.condition("john-kernel", "False")
        await world.runs(pod)
        await world.condition("john-kernel", "True")
        status = (await world.kernel("john-kernel"))["status"]
        assert (status["phase"], status["address"]) == ("Running", "10.1.2.3")
        assert {status[f"{kind}Name"] for kind in ("pod", "service", "configMap", "secret")} == {
            pod["metadata"]["name"]
        }


@pytest.mark.parametrize("flavor", sorted(accounts.FLAVORS))
def test_item_193_every_flavor_has_its_accounts(flavor: str) -> None:
    chosen = KernelSpec(username="john", uid=1042, gid=1100, image_os_flavor=flavor)
    assert accounts.passwd(chosen).splitlines()[-1] == "john:x:1042:1100::/home/john:/bin/bash"
    assert accounts.group(chosen).splitlines()[-1] == "john:x:1100:"
    assert len(accounts.passwd(chosen).splitlines()) > 3


async def test_item_193_the_connection_file_is_made_when_asked_for(world: World) -> None:
    async with world.operator():
        await world.create("plain")
        await world.create("asked", create_connection_file=True)
        plain, asked = await world.made("plain"), await world.made("asked")
    content = json.loads(base64.b64decode(asked["Secret"]["data"]["connection-file"]))
    assert content["key"] and content["transport"] == "tcp"

    def places(made: dict[str, Any]) -> list[set[str]]:
        return [{mount["mountPath"] for mount in one["volumeMounts"]} for one in made["Pod"]["spec"]["containers"]]

    assert all("/var/tmp/kernel-parm.json" in one for one in places(asked))
    assert not any("/var/tmp/kernel-parm.json" in one for one in places(plain))


async def test_item_194_a_stopped_sidecar_removes_the_resource_and_all_that_it_made(world: World) -> None:
    async with world.operator():
        await world.create("left-alone")
        made = await world.made("left-alone")
        await world.runs(made["Pod"])
        await world.condition("left-alone", "True")
        await world.stops(made["Pod"], "cmjksidecar")
        await until(lambda: world.is_gone("left-alone"), "the resource is removed")
        await until(world.is_empty, "its objects are removed")
        assert "Stopped" in await until(lambda: world.events("left-alone"))


@pytest.mark.parametrize("field", ["uid", "gid", "kernel_id", "pod"])
async def test_item_195_a_spec_without_a_required_field_is_rejected(world: World, field: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await world.create("short", **{field: None})
    assert f"spec.{field}" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("uid", 0),
        ("gid", 0),
        ("uid", "john"),
        ("kernel_id", ""),
        ("username", "john:x:0:0"),
        ("homedir", "/home/john\nroot2:x:0:0::/:/bin/sh"),
        ("usershell", "bash"),
        ("image_os_flavor", "windows11"),
        ("create_connection_file", "yes"),
        ("sidecar_args", "--timeout"),
        ("pod", {"containers": []}),
        ("pod", {"containers": [{"image": "nameless"}]}),
    ],
)
async def test_item_195_a_value_that_cannot_be_is_rejected(world: World, field: str, value: object) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await world.create("wrong", **{field: value})
    assert f"spec.{field}" in str(caught.value)


async def test_item_195_defaults_are_set_by_the_server(world: World) -> None:
    made = await world.client.create(KERNELS.raw(), {"metadata": {"name": "k"}, "spec": spec()}, world.namespace)
    assert made["spec"]["kernel_connection_file_path"] == "/var/tmp/kernel-parm.json"
    assert made["spec"]["create_connection_file"] is False
    assert (made["spec"]["sidecar_command"], made["spec"]["sidecar_args"]) == ([], [])


async def test_item_195_a_privileged_pod_is_not_made_and_an_ordinary_one_runs_as_the_user(world: World) -> None:
    privileged = {"containers": [{"name": "kernel", "image": "x", "securityContext": {"privileged": True}}]}
    async with world.operator():
        await world.create("privileged", pod=privileged)
        await world.create("plain", uid=1234, gid=2345)
        refused = await world.condition("privileged", "False")
        assert refused["reason"] == "Refused"
        assert "spec.pod.containers[0].securityContext.privileged: must not be true" in refused["message"]
        made = await world.made("plain")
        assert len((await world.objects())["Pod"]) == 1
        assert "Refused" in await until(lambda: world.events("privileged"))
    context = made["Pod"]["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (1234, 2345, True)
    for container in made["Pod"]["spec"]["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


PY, SPARK, R = (f"jupyter-eg-kernel-k8s-cmjkop-{name}" for name in ("py", "py-spark", "r"))


def rendered(name: str, **given: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """`kernel.json` and the resource of a template."""
    chosen = template.built_in(name)
    values = template.values(chosen, {"namespace": "john-restricted", **given})
    runtime = render.Runtime("k-1", "john", 1042, 1100, "/home/john", "/bin/zsh", "10.0.0.1:8877", "a-key")
    return render.kernel_json(chosen, values), render.resource(chosen, values, runtime)


@pytest.mark.parametrize("name", template.BUILT_IN)
def test_item_196_every_template_gives_a_kernelspec_and_a_resource(name: str) -> None:
    spec_json, resource = rendered(name)
    proxy = spec_json["metadata"]["process_proxy"]
    assert proxy["class_name"] == (
        "cm_jupyter_kernel_creator.eg_processproxies.k8scmjkop.KubernetesCMJupyterKernelOperator"
    )
    assert proxy["config"]["parameters"]["namespace"] == resource["metadata"]["namespace"] == "john-restricted"
    chosen = resource["spec"]
    assert (chosen["kernel_id"], chosen["username"], chosen["uid"], chosen["gid"]) == ("k-1", "john", 1042, 1100)
    assert (chosen["homedir"], chosen["usershell"]) == ("/home/john", "/bin/zsh")
    assert chosen["sidecar_args"] == ["--timeout=60", "--response-address=10.0.0.1:8877", "--public-key=a-key"]
    (container,) = chosen["pod"]["containers"]
    assert container["command"] == spec_json["argv"]
    assert "imagePullSecrets" not in chosen["pod"] and "resources" not in container
    assert [volume["name"] for volume in chosen["pod"]["volumes"]] == ["home"]


def test_item_196_the_kernel_of_r_gets_its_connection_file() -> None:
    spec_json, resource = rendered(R)
    assert spec_json["argv"] == ["R", "--slave", "-e", "IRkernel::main()", "--args", "/var/tmp/kernel-parm.json"]
    assert resource["spec"]["create_connection_file"] is True
    assert resource["spec"]["pod"]["containers"][0]["image"] == "jupyter/r-notebook"
    assert "create_connection_file" not in rendered(PY)[1]["spec"]


def test_item_196_the_kernel_of_spark_gets_the_template_of_its_executors() -> None:
    spec_json, resource = rendered(SPARK, image_pull_secret_name="mine", executors="3")
    place = resource["spec"]["spark_pod_template_path"]
    assert f"podTemplateFile={place}" in spec_json["argv"][-1] and "spark-submit" in spec_json["argv"][-1]
    executor = yaml.safe_load(resource["spec"]["spark_pod_template"])
    assert executor["spec"]["securityContext"]["runAsUser"] == 1042
    assert executor["spec"]["imagePullSecrets"] == [{"name": "mine"}]
    (container,) = resource["spec"]["pod"]["containers"]
    assert {"name": "CMJK_EXECUTORS", "value": "3"} in container["env"]


@pytest.mark.parametrize("name", template.BUILT_IN)
def test_item_196_pull_secret_claim_gpus_and_modules(name: str) -> None:
    _, resource = rendered(name, image_pull_secret_name="mine", pvc_name="work", gpus="2", modules="cuda/12, gcc")
    pod = resource["spec"]["pod"]
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert {"name": "claim", "persistentVolumeClaim": {"claimName": "work"}} in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "claim", "mountPath": "/data"} in container["volumeMounts"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert {"name": "CMJK_MODULES", "value": "cuda/12 gcc"} in container["env"]
    moved = rendered(name, pvc_name="work", pvc_mountpoint="/scratch")[1]["spec"]["pod"]["containers"][0]
    assert {"name": "claim", "mountPath": "/scratch"} in moved["volumeMounts"]


@pytest.mark.parametrize("name", template.BUILT_IN)
async def test_item_196_the_resource_of_a_template_is_accepted_and_becomes_a_pod(world: World, name: str) -> None:
    _, resource = rendered(name, image_pull_secret_name="mine", pvc_name="work", gpus="1")
    body = {"metadata": {"name": resource["metadata"]["name"]}, "spec": resource["spec"]}
    async with world.operator():
        await world.client.create(KERNELS.raw(), body, world.namespace, field_validation="Strict")
        made = await world.made("cmjk-k-1")
        assert made["Pod"]["spec"]["imagePullSecrets"] == [{"name": "mine"}]


HOSTILE = 'x" , "privileged": true, "y": "\n  hostNetwork: true\n{{ 7 * 7 }} \\ \' é <b>'


def test_item_196_values_stay_values_whatever_they_contain() -> None:
    text = HOSTILE.replace("\n", " ")
    spec_json, resource = rendered(PY, image=text, display_name=text[:90])
    assert spec_json["display_name"] == text[:90]
    (container,) = resource["spec"]["pod"]["containers"]
    assert container["image"] == text
    assert "hostNetwork" not in resource["spec"]["pod"]
    with pytest.raises(errors.Invalid, match="printable"):
        rendered(PY, image=HOSTILE)
