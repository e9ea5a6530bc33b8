"""Swapping the image is all: our managers work with the roles that the originals' users have applied, unchanged.

The rules are those of the originals' manifests, reduced to what an access decision needs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import servers
from tests.apps import managers
from tests.apps.managers import initialised, joined, program, running
from tests.waiting import until

from bedplate.api import resources
from bedplate.kube import Client
from bedplate.kube.subresources import request_token
from bedplate.sim.clouds import BmmCloud, OxideCloud

ROLES = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
BINDINGS = resources.custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
OXIDE = {
    ("coordination.k8s.io", "leases"): "get watch list create update delete",
    ("", "events"): "create patch update",
    ("", "nodes"): "*",
    ("", "nodes/status"): "patch",
    ("", "services"): "list patch update watch",
    ("", "services/status"): "list patch update watch",
    ("", "serviceaccounts"): "create",
    ("", "persistentvolumes"): "get list update watch",
    ("", "endpoints"): "create get list watch update",
    ("", "configmaps"): "get list watch",
}
BMM = {
    ("coordination.k8s.io", "leases"): "get list watch create update patch delete",
    ("", "events"): "create patch update",
    ("", "nodes"): "get list watch update patch delete",
    ("", "nodes/status"): "get update patch",
    ("", "services"): "list watch patch",
    ("", "services/status"): "patch update",
    ("", "serviceaccounts"): "create get list watch",
    ("", "serviceaccounts/token"): "create",
    ("", "configmaps"): "get list watch create update patch delete",
    ("discovery.k8s.io", "endpointslices"): "get list watch",
}


@asynccontextmanager
async def account(
    server: servers.Server, client: Client, rules: dict[tuple[str, str], str], folder: Path
) -> AsyncIterator[Path]:
    """A service account that may do just this; its kubeconfig."""
    name = f"original-{uuid.uuid4().hex[:8]}"
    written = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}
        for (group, resource), verbs in rules.items()
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await client.create(resources.SERVICE_ACCOUNTS.raw(), {"metadata": {"name": name}}, "kube-system")
    await client.create(ROLES, {"metadata": {"name": name}, "rules": written})
    await client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    token = (await request_token(client, name, "kube-system")).token
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server.url, "certificate-authority": str(server.ca_file)}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    kubeconfig = folder / f"{name}.kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    try:
        yield kubeconfig
    finally:
        await client.delete(BINDINGS, name)
        await client.delete(ROLES, name)
        await client.delete(resources.SERVICE_ACCOUNTS, name, "kube-system")


async def test_oxide_serves_nodes_and_load_balancers_with_the_originals_role(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    async with OxideCloud() as cloud, account(own_server, own_client, OXIDE, tmp_path) as kubeconfig:
        cloud.add("worker-1")
        words = managers.arguments(own_server, cloud_provider="oxide", kubeconfig=str(kubeconfig))
        async with running(
            program("oxide-cloud-controller-manager"),
            *words,
            folder=tmp_path,
            env=managers.oxide_environment(cloud),
        ) as manager:
            async with joined(own_client, "worker-1"):
                await initialised(own_client, "worker-1", manager)
                await _serve(own_client, manager, cloud)
                await _refuse_local(own_client, manager)

            async def is_ready() -> bool:
                return (await manager.get("/readyz"))[0] == 200

            await until(is_ready, "the manager is ready", describe=manager.log)
            # Longer than the lease lasts without being renewed.
            await until(lambda: _renewed(own_client, words), "the lease was renewed", describe=manager.log)
            assert await manager.stop() == 0


async def _serve(client: Client, manager: managers.Running, cloud: OxideCloud) -> None:
    port = {"port": 80, "protocol": "TCP"}
    body = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [port]}}
    await client.create(resources.SERVICES.raw(), body, "default")
    found: dict[str, Any] = {}

    async def is_served() -> bool:
        found.update(await client.get(resources.SERVICES.raw(), "web", "default"))
        return bool(found["status"].get("loadBalancer", {}).get("ingress"))

    await until(is_served, "the Service has an address", describe=manager.log)
    assert cloud.floating_ip("kubernetes-default-web")["ip"] == found["status"]["loadBalancer"]["ingress"][0]["ip"]
    await client.delete(resources.SERVICES, "web", "default")

    async def is_gone() -> bool:
        names = [one.metadata.name for one in (await client.list(resources.SERVICES, "default")).items]
        return "web" not in names

    await until(is_gone, "the Service is gone, and its address with it", describe=manager.log)


async def _refuse_local(client: Client, manager: managers.Running) -> None:
    """What needs more rights than the original's role has is told on the object, and holds up nothing else."""
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 81}]}
    await client.create(resources.SERVICES.raw(), {"metadata": {"name": "local"}, "spec": spec}, "default")

    async def is_told() -> bool:
        events = (await client.list(resources.EVENTS, "default")).items
        return any(one.involved_object.name == "local" and "endpointslices" in one.message for one in events)

    await until(is_told, "an event names the missing right", describe=manager.log)
    await client.delete(resources.SERVICES, "local", "default")


async def _renewed(client: Client, words: list[str]) -> bool:
    lease = next(word.partition("=")[2] for word in words if word.startswith("--leader-elect-resource-name="))
    spec = (await client.get(resources.LEASES, lease, "kube-system")).spec
    if spec.renew_time is None or spec.acquire_time is None:
        return False
    return (spec.renew_time - spec.acquire_time).total_seconds() > 5.5


async def test_nvidia_bmm_initialises_nodes_with_the_originals_role(
    own_server: servers.Server, own_client: Client, tmp_path: Path
) -> None:
    async with BmmCloud() as cloud, account(own_server, own_client, BMM, tmp_path) as kubeconfig:
        cloud.add("worker-2")
        file = managers.bmm_config(cloud, tmp_path)
        words = managers.arguments(
            own_server, cloud_provider="nvidia-bmm", cloud_config=str(file), kubeconfig=str(kubeconfig)
        )
        async with (
            running(program("nvidia-bmm-cloud-controller-manager"), *words, folder=tmp_path) as manager,
            joined(own_client, "worker-2"),
        ):
            await initialised(own_client, "worker-2", manager)
            assert await manager.stop() == 0
