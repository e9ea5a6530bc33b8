"""Checklist J, items 193 to 195: kernels as resources, on a real kube-apiserver and on ours."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.operators.jupyter.worlds import IMAGE, World, spec
from tests.waiting import until

from bedplate.core import errors
from bedplate.operators.jupyter import accounts
from bedplate.operators.jupyter.kernel import KERNELS


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
    from bedplate.operators.jupyter.kernel import KernelSpec

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
