"""The roles of our manifests are enough for everything the controller does, and hold nothing that it does not use."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.apps.test_ccm_rights import BINDINGS, ROLES
from tests.ipam.controller.test_holding_live import A, B, C, holds, pod, start
from tests.ipam.controller.worlds import World
from tests.waiting import until

from bedplate.api.resources import SECRETS, SERVICE_ACCOUNTS
from bedplate.ipam.webhook.certificates import CONFIGURATIONS
from bedplate.kube.subresources import request_token

MANIFESTS = Path(__file__).parents[3] / "deploy" / "manifests"


def rules(*files: str, **names: str) -> list[dict[str, Any]]:
    """The rules of manifests; `names`: objects that have another name in this test."""
    found: list[dict[str, Any]] = []
    for file in files:
        found += yaml.safe_load((MANIFESTS / file).read_text())["rules"]
    text = json.dumps(found)
    for old, new in names.items():
        assert old in text
        text = text.replace(old, new)
    return list(json.loads(text))


@contextlib.asynccontextmanager
async def account(world: World, folder: Path, given: list[dict[str, Any]]) -> AsyncIterator[Path]:
    """A service account with these rules; its kubeconfig."""
    name = f"ipam-{world.id}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": world.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await world.client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": name}}, world.namespace)
    await world.client.create(ROLES, {"metadata": {"name": name}, "rules": given})
    await world.client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    token = (await request_token(world.client, name, world.namespace)).token
    cluster = {"server": world.server.url, "certificate-authority": str(world.server.ca_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    kubeconfig = folder / "account"
    kubeconfig.write_text(json.dumps(document))
    try:
        yield kubeconfig
    finally:
        await world.client.delete(BINDINGS, name)
        await world.client.delete(ROLES, name)


async def test_our_role_is_enough_for_blocks_quarantine_events_and_election(world: World, tmp_path: Path) -> None:
    async with (
        account(world, tmp_path, rules("controller/clusterrole.yaml")) as kubeconfig,
        world.controller(kubeconfig=str(kubeconfig), leader_elect="true"),
    ):
        await start(world)
        async with pod(world, "a"):
            await world.remove("a")
            await holds(world, {A: "a"})
            await world.add("c")
            await world.settles("IPPool", "p", {"b": B, "c": C})
        await world.pool("CIDRPool", "bad", {"cidr": "x", "perNodeNetworkPrefix": 24})
        await world.told("bad", "InvalidSpec")


async def test_the_role_for_an_own_certificate_is_enough_for_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedplate.ipam.webhook.certificates.LOOK_S", 0.3)
    name = f"nv-ipam-{world.id}"
    files = ("controller/clusterrole.yaml", "webhook-self-signed/clusterrole.yaml", "webhook-self-signed/role.yaml")
    given = rules(*files, **{"nv-ipam-validating-webhook-configuration": name})
    webhook = {
        "name": "validate-ippool.nv-ipam.nvidia.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "namespaceSelector": {"matchLabels": {"no": "namespace"}},
        "rules": [],
    }
    await world.client.create(CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": [webhook]})
    empty = {"metadata": {"name": "nv-ipam-webhook-server-cert", "namespace": world.namespace}}
    await world.client.create(SECRETS.raw(), empty)
    try:
        async with (
            account(world, tmp_path, given) as kubeconfig,
            world.controller(
                kubeconfig=str(kubeconfig),
                webhook="true",
                webhook_port="0",
                webhook_self_signed="true",
                webhook_configuration_name=name,
            ),
        ):

            async def is_filled() -> bool:
                found = await world.client.get(SECRETS.raw(), "nv-ipam-webhook-server-cert", world.namespace)
                return {"ca.crt", "tls.crt", "tls.key"} <= set(found.get("data") or ())

            await until(is_filled, "the certificate is in the Secret")
            found = await world.client.get(CONFIGURATIONS, name)
            assert "caBundle" not in found["webhooks"][0]["clientConfig"]
    finally:
        await world.client.delete(CONFIGURATIONS, name)
