"""`bedplate doctor` as a program, against real and embedded API servers and simulated clouds."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import forkserver, servers

from bedplate.api.resources import NODES, SERVICE_ACCOUNTS
from bedplate.kube import Client
from bedplate.kube.subresources import request_token
from bedplate.sim.clouds import BmmCloud, OxideCloud

PROGRAM = Path(sys.executable).with_name("bedplate")


async def examine(server: servers.Server, environ: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    command = [str(PROGRAM), "doctor", "--kubeconfig", str(server.kubeconfig), *arguments]
    done = await asyncio.to_thread(
        forkserver.run, command, env={**os.environ, **environ}, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


async def findings(server: servers.Server, environ: dict[str, str], *arguments: str) -> list[dict[str, Any]]:
    code, output, complaints = await examine(server, environ, *arguments, "-o", "json")
    assert complaints == ""
    answer = json.loads(output)
    assert answer["exitCode"] == code
    found: list[dict[str, Any]] = answer["findings"]
    return found


def bmm(cloud: BmmCloud, **changes: str) -> dict[str, str]:
    return {
        "NVIDIA_BMM_ENDPOINT": cloud.url,
        "NVIDIA_BMM_ORG_NAME": cloud.org,
        "NVIDIA_BMM_TOKEN": cloud.token,
        "NVIDIA_BMM_SITE_ID": cloud.site_id,
        "NVIDIA_BMM_TENANT_ID": cloud.tenant_id,
    } | changes


@asynccontextmanager
async def node(client: Client, provider_id: str) -> AsyncIterator[str]:
    name = f"doctor-{uuid.uuid4().hex[:8]}"
    await client.create(NODES.raw(), {"metadata": {"name": name}, "spec": {"providerID": provider_id}})
    try:
        yield name
    finally:
        await client.delete(NODES, name)


def of(found: list[dict[str, Any]], check: str, about: str) -> list[dict[str, Any]]:
    return [one for one in found if one["check"] == check and one["about"] == about]


async def test_a_reachable_cloud_with_good_credentials_and_missing_rbac_is_told_apart(server: servers.Server) -> None:
    async with BmmCloud(machines=1) as cloud:
        role = f"doctor-{uuid.uuid4().hex[:8]}"
        found = await findings(server, bmm(cloud), "--cloud-provider", "nvidia-bmm", "--cluster-role", role)
    assert of(found, "cloud-api", "nvidia-bmm")[0]["level"] == "ok"
    assert of(found, "kubernetes-api", "API server")[0]["level"] == "ok"
    (missing,) = of(found, "rbac", f"ClusterRole {role}")
    assert missing["level"] == "problem" and "kubectl" in missing["fix"]
    (rights,) = [one for one in found if one["check"] == "rbac" and one["message"].startswith("may not")]
    told = {line.strip() for line in rights["message"].splitlines()}
    assert {"get, list, watch, patch, delete nodes", "patch nodes/status"} <= told


async def test_the_managers_own_account_asks_about_its_rights_without_impersonating(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    account = f"doctor-{uuid.uuid4().hex[:8]}"
    await client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": account}}, "kube-system")
    token = (await request_token(client, account, "kube-system")).token
    cluster = {"server": server.url, "certificate-authority": str(server.ca_file)}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "c", "user": {"token": token}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            }
        )
    )
    own = dataclasses.replace(server, kubeconfig=kubeconfig)
    found = await findings(own, {}, "--cloud-provider", "cloudlycke", "--service-account", f"kube-system/{account}")
    await client.delete(SERVICE_ACCOUNTS, account, "kube-system")
    rights = of(found, "rbac", f"system:serviceaccount:kube-system:{account}")
    assert "may not patch nodes/status" in [one["message"] for one in rights]
    assert all(one["level"] == "problem" for one in rights)


async def test_nodes_whose_instance_is_gone_stopped_or_of_another_organisation_are_named(
    server: servers.Server, client: Client
) -> None:
    async with BmmCloud(machines=0) as cloud:
        ill, gone = cloud.add("doctor-ill"), cloud.add("doctor-gone")
        cloud.set_status("doctor-ill", "Error")
        lost = gone.provider_id
        cloud.remove("doctor-gone")
        stranger = ill.provider_id.replace(cloud.org, "other-org")
        async with node(client, ill.provider_id) as one, node(client, lost) as two, node(client, stranger) as three:
            found = await findings(server, bmm(cloud), "--cloud-provider", "nvidia-bmm")
    assert "switched off or in error" in of(found, "instance", f"Node {one}")[0]["message"]
    assert "no such machine" in of(found, "instance", f"Node {two}")[0]["message"]
    assert "--provider-id" in of(found, "instance", f"Node {two}")[0]["fix"]
    assert "other-org" in of(found, "provider-id", f"Node {three}")[0]["message"]


async def test_wrong_token_wrong_endpoint_and_missing_keys_have_findings_of_their_own(server: servers.Server) -> None:
    async with BmmCloud(machines=1) as cloud:
        bad = await findings(server, bmm(cloud, NVIDIA_BMM_TOKEN="planted-token"), "--cloud-provider", "nvidia-bmm")
        lost = await findings(
            server, bmm(cloud, NVIDIA_BMM_ENDPOINT="http://127.0.0.1:1"), "--cloud-provider", "nvidia-bmm"
        )
        short = await findings(server, bmm(cloud, NVIDIA_BMM_SITE_ID=""), "--cloud-provider", "nvidia-bmm")
    (refusal,) = [one for one in bad if one["check"] == "credentials" and one["level"] == "problem"]
    assert "does not accept the token" in refusal["message"]
    assert "planted-token" not in json.dumps(bad)
    assert of(lost, "cloud-api", "nvidia-bmm")[0]["level"] == "problem"
    assert "siteId" in of(short, "configuration", "nvidia-bmm")[0]["message"]


async def test_oxide_project_that_is_not_there_is_named(server: servers.Server) -> None:
    async with OxideCloud(instances=1) as cloud:
        environ = {"OXIDE_HOST": cloud.url, "OXIDE_TOKEN": cloud.token, "OXIDE_PROJECT": "elsewhere"}
        found = await findings(server, environ, "--cloud-provider", "oxide")
    (finding,) = of(found, "configuration", "oxide")
    assert "elsewhere" in finding["message"] and "OXIDE_PROJECT" in finding["fix"]


async def test_an_api_server_that_cannot_be_reached_is_unknown_and_not_a_clean_bill(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: c, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n"
    )
    command = [str(PROGRAM), "doctor", "--kubeconfig", str(kubeconfig), "--cloud-provider", "cloudlycke"]
    done = await asyncio.to_thread(forkserver.run, command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "could not be checked" in done.stdout


async def test_a_provider_that_does_not_exist_is_a_finding_that_names_those_that_do(server: servers.Server) -> None:
    found = await findings(server, {}, "--cloud-provider", "nowhere")
    (finding,) = of(found, "configuration", "nowhere")
    assert "nvidia-bmm, oxide" in finding["fix"]


async def test_nodes_are_not_called_foreign_while_the_configuration_is_broken(
    server: servers.Server, client: Client
) -> None:
    async with node(client, "oxide://6e4a1c1e-4d0e-4b5e-8f9b-0f3b6f6f0c11") as name:
        found = await findings(
            server, {"OXIDE_HOST": "", "OXIDE_TOKEN": "", "OXIDE_PROJECT": ""}, "--cloud-provider", "oxide"
        )
    assert of(found, "configuration", "oxide")[0]["level"] == "problem"
    assert not [one for one in found if name in one["about"]]
    (whose,) = of(found, "kubelet", "nodes")
    assert whose["level"] == "unknown" and "configuration" in whose["message"]
