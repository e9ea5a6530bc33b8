"""`bedplate ccm explain` and `bedplate doctor` without flags: they take those of the manager that runs."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import forkserver, servers
from tests.apps import managers
from tests.apps.managers import joined, program

from bedplate.api import resources
from bedplate.api.resources import DEPLOYMENTS, NODES, SECRETS, SERVICE_ACCOUNTS
from bedplate.cloud.manager import deployed
from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.sim.clouds import BmmCloud, OxideCloud

ROOT = Path(__file__).parents[2]
RBAC = "rbac.authorization.k8s.io"
KINDS = {
    "ServiceAccount": SERVICE_ACCOUNTS.raw(),
    "ClusterRole": resources.custom(RBAC, "v1", "clusterroles", "ClusterRole", False),
    "ClusterRoleBinding": resources.custom(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    "Role": resources.custom(RBAC, "v1", "roles", "Role", True),
    "RoleBinding": resources.custom(RBAC, "v1", "rolebindings", "RoleBinding", True),
    "ConfigMap": resources.CONFIG_MAPS.raw(),
    "DaemonSet": deployed.DAEMON_SETS,
    "Deployment": DEPLOYMENTS,
    "Lease": resources.LEASES.raw(),
}


@pytest.fixture
async def own_client(own_server: servers.Server) -> Any:
    async with Client(config.load(own_server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        yield client


async def bedplate(server: servers.Server, folder: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": str(server.kubeconfig), **environ}
    ended = await asyncio.to_thread(
        forkserver.run, [program("bedplate"), *words], capture_output=True, text=True, check=False, env=environment
    )
    return ended.returncode, ended.stdout, ended.stderr


async def doctor(server: servers.Server, folder: Path, *words: str, **environ: str) -> list[dict[str, Any]]:
    _, out, complaints = await bedplate(server, folder, "doctor", *words, "-o", "json", **environ)
    assert complaints == ""
    findings: list[dict[str, Any]] = json.loads(out)["findings"]
    return findings


async def apply(client: Client, *documents: dict[str, Any]) -> None:
    for document in documents:
        kind = KINDS.get(document["kind"])
        if kind is not None:
            await client.create(kind, document, document["metadata"].get("namespace"))


async def remove(client: Client, *documents: dict[str, Any]) -> None:
    for document in documents:
        kind = KINDS.get(document["kind"])
        if kind is not None:
            await client.delete(kind, document["metadata"]["name"], document["metadata"].get("namespace"))


def manager(name: str, container: dict[str, Any], *volumes: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"serviceAccountName": name, "containers": [{"name": "m", "image": "x", **container}], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


async def test_explain_reads_the_deployments_flags_secret_and_token_file(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    async with BmmCloud() as cloud, joined(own_client, "found-1"):
        machine = cloud.add("found-1")
        content = yaml.safe_load(Path(managers.bmm_config(cloud, tmp_path)).read_text())
        token = content.pop("token")
        content["tokenFile"] = "/etc/bmm/token"
        data = {"config": yaml.safe_dump(content), "token": token}
        secret = {"metadata": {"name": "bmm", "namespace": "kube-system"}, "stringData": data}
        await own_client.create(SECRETS.raw(), secret, "kube-system")
        container = {
            "command": ["/nvidia-bmm-cloud-controller-manager", "--cloud-config=/etc/bmm/config"],
            "volumeMounts": [{"name": "v", "mountPath": "/etc/bmm"}],
        }
        deployment = manager("bmm-manager", container, {"name": "v", "secret": {"secretName": "bmm"}})
        code, _, log = await bedplate(own_server, tmp_path, "ccm", "explain", "node", "found-1")
        assert (code, "--cloud-provider is required" in log) == (2, True)
        await apply(own_client, deployment)
        try:
            code, out, log = await bedplate(own_server, tmp_path, "ccm", "explain", "node", "found-1")
        finally:
            await remove(own_client, deployment)
    assert code == 1, log
    assert machine.provider_id in "".join(out.split())


async def test_explain_reads_the_deployments_environment(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    async with OxideCloud() as cloud, joined(own_client, "found-2"):
        data = {"host": cloud.url, "token": cloud.token}
        secret = {"metadata": {"name": "oxide", "namespace": "kube-system"}, "stringData": data}
        await own_client.create(SECRETS.raw(), secret, "kube-system")
        env = [
            {"name": "OXIDE_HOST", "valueFrom": {"secretKeyRef": {"name": "oxide", "key": "host"}}},
            {"name": "OXIDE_TOKEN", "valueFrom": {"secretKeyRef": {"name": "oxide", "key": "token"}}},
            {"name": "OXIDE_PROJECT", "value": cloud.project},
        ]
        deployment = manager("oxide-manager", {"command": ["/oxide-cloud-controller-manager"], "env": env})
        await apply(own_client, deployment)
        try:
            code, out, log = await bedplate(own_server, tmp_path, "ccm", "explain", "node", "found-2")
        finally:
            await remove(own_client, deployment)
    assert code == 1, log
    assert "oxide" in out and cloud.journal.entries


async def test_cloudlyckes_own_manifest_is_in_order_for_the_doctor(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    documents = [one for one in yaml.safe_load_all((ROOT / "manifests/cloudlycke-ccm.yaml").read_text()) if one]
    documents = [one for one in documents if one["metadata"].get("namespace", "kube-system") == "kube-system"]
    await apply(own_client, *documents)
    try:
        named = await doctor(own_server, tmp_path, "--cloud-provider", "cloudlycke")
        unnamed = await doctor(own_server, tmp_path)
    finally:
        await remove(own_client, *documents)
    for findings in (named, unnamed):
        rbac = [finding for finding in findings if finding["check"] == "rbac"]
        assert {finding["level"] for finding in rbac} == {"ok"}, rbac
        assert {finding["about"] for finding in rbac} >= {
            "ClusterRole system:cloudlycke-cloud-controller-manager",
            "ClusterRoleBinding system:cloudlycke-cloud-controller-manager",
        }
        assert not [finding for finding in findings if finding["check"] == "configuration"], findings


async def test_a_leader_under_another_name_is_told(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    now = "2126-11-16T10:00:00.000000Z"
    spec = {"holderIdentity": "host_1", "leaseDurationSeconds": 15, "renewTime": now, "acquireTime": now}
    name = "my-cloud-controller-manager"
    lease = {"kind": "Lease", "metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}
    await apply(own_client, lease)
    try:
        findings = await doctor(own_server, tmp_path, "--cloud-provider", "cloudlycke")
        (leader,) = [finding for finding in findings if finding["check"] == "leader"]
        assert (leader["level"], f"host_1 leads with Lease {name}" in leader["message"]) == ("note", True)
        findings = await doctor(own_server, tmp_path, "--cloud-provider", "cloudlycke", f"--lease-name={name}")
        (leader,) = [finding for finding in findings if finding["check"] == "leader"]
        assert leader["level"] == "ok"
        # Without a provider it cannot be looked at, as its flags are not in the cluster, but it is seen.
        findings = await doctor(own_server, tmp_path)
        (manager,) = [finding for finding in findings if finding["check"] == "manager"]
        assert (manager["level"], f"but host_1 leads with Lease {name}" in manager["message"]) == ("unknown", True)
        code, _, log = await bedplate(own_server, tmp_path, "ccm", "explain", "node", "one")
        assert (code, f"but host_1 leads with Lease {name}" in log) == (2, True), log
    finally:
        await remove(own_client, lease)


async def test_the_command_that_the_doctor_prints_can_be_pasted(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    async with BmmCloud() as cloud:
        machine = cloud.add("gone")
        file = managers.bmm_config(cloud, tmp_path)
        cloud.remove("gone")
        node = {"metadata": {"name": "gone"}, "spec": {"providerID": machine.provider_id}}
        await own_client.create(NODES.raw(), node)
        try:
            findings = await doctor(own_server, tmp_path, "--cloud-provider=nvidia-bmm", f"--cloud-config={file}")
            commands = {
                finding["fix"][finding["fix"].index("bedplate ccm") :]
                for finding in findings
                if "bedplate ccm" in finding["fix"]
            }
            assert commands
            for command in commands:
                code, out, log = await bedplate(own_server, tmp_path, *shlex.split(command)[1:])
                assert code in (0, 1) and out.startswith("Node gone"), (command, log)
        finally:
            await own_client.delete(NODES, "gone")


async def test_a_doctor_that_finds_nothing_says_so_and_is_not_content(
    own_server: servers.Server, tmp_path: Path
) -> None:
    code, out, _ = await bedplate(own_server, tmp_path, "doctor")
    assert (code, "runs a cloud controller manager" in out) == (2, True), out


async def test_commands_find_the_kubeconfig_of_up_in_this_folder(own_server: servers.Server, tmp_path: Path) -> None:
    (tmp_path / ".bedplate").mkdir()
    (tmp_path / ".bedplate" / "kubeconfig").write_bytes(own_server.kubeconfig.read_bytes())
    cloud_config = tmp_path / "cloudlycke.yaml"
    cloud_config.write_text("instances: []\n")
    flags = ["--cloud-provider=cloudlycke", f"--cloud-config={cloud_config}", "--leader-elect=false", "--secure-port=0"]
    deployed.write_flags(tmp_path / ".bedplate", flags)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    async def run(*words: str) -> tuple[int, str]:
        command = [program("bedplate"), *words]
        ended = await asyncio.to_thread(
            forkserver.run, command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
        )
        return ended.returncode, ended.stdout + ended.stderr

    code, out = await run("doctor")
    assert (code, f"bedplate up in {tmp_path / '.bedplate'}: works for cloudlycke" in out) == (0, True), out
    assert "without metrics" in out and "--metrics-url" not in out
    code, out = await run("ccm", "explain", "node", "nobody")
    assert (code, "nobody" in out) == (errors.NotFound.exit_code, True), out
    code, out = await run("ipam", "pools")
    assert "no Kubernetes configuration" not in out
