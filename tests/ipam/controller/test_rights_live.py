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

from bedplate.api.resources import SECRETS, SERVICE_ACCOUNTS, custom
from bedplate.apiserver.pipeline import routes
from bedplate.kube import transport
from bedplate.kube.subresources import request_token
from bedplate.program.webhookcertificates import CONFIGURATIONS

UNTOLD = {("update", "nv-ipam.nvidia.com/cidrpools/status")}
# An Event is patched when it happens again; a CIDRPool's blocks are held back like an IPPool's.
UNSEEN = {("patch", "/events"), ("patch", "nv-ipam.nvidia.com/cidrpools")}
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


OWN_ROLES = custom("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
OWN_BINDINGS = custom("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
# (verb, group/resource[/subresource], whether in every namespace, names that it is bound to)
Right = tuple[str, str, bool, str]


def rights(given: list[dict[str, Any]], everywhere: bool) -> set[Right]:
    return {
        (verb, f"{group}/{resource}", everywhere, ",".join(rule.get("resourceNames", ())))
        for rule in given
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def record(world: World, monkeypatch: pytest.MonkeyPatch) -> set[Right]:
    """What is asked of the API server from now on by clients other than the test's, as rights."""
    asked: set[Right] = set()

    def note(sender: transport.Transport, request: transport.Request) -> None:
        if sender is world.client._transport:
            return
        query = dict(request.query)
        info = routes.parse(request.target.method, request.target.path, query, bool(query))
        if not info.resource:
            return
        what = f"{info.group}/{info.resource}" + (f"/{info.subresource}" if info.subresource else "")
        named = info.name if (info.resource, info.verb) in NAMED else ""
        asked.add((info.verb, what, info.namespace != world.namespace, named))

    request, stream = transport.Transport.request, transport.Transport.stream

    async def noted_request(self: transport.Transport, asking: transport.Request) -> transport.Response:
        note(self, asking)
        return await request(self, asking)

    def noted_stream(self: transport.Transport, asking: transport.Request) -> Any:
        note(self, asking)
        return stream(self, asking)

    monkeypatch.setattr(transport.Transport, "request", noted_request)
    monkeypatch.setattr(transport.Transport, "stream", noted_stream)
    return asked


# Whose rights are bound to a name; what is created has none yet.
NAMED = {(resource, verb) for resource in ("leases", "secrets") for verb in ("get", "update")} | {
    ("validatingwebhookconfigurations", "get")
}


@contextlib.asynccontextmanager
async def account(
    world: World, folder: Path, given: list[dict[str, Any]], own: list[dict[str, Any]]
) -> AsyncIterator[Path]:
    """A service account with these rules everywhere, and those in the world's namespace; its kubeconfig."""
    name = f"ipam-{world.id}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": world.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    own_role = {**role, "kind": "Role"}
    metadata, own_metadata = {"name": name}, {"name": name, "namespace": world.namespace}
    await world.client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": name}}, world.namespace)
    await world.client.create(ROLES, {"metadata": metadata, "rules": given})
    await world.client.create(BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]})
    await world.client.create(OWN_ROLES, {"metadata": own_metadata, "rules": own})
    await world.client.create(OWN_BINDINGS, {"metadata": own_metadata, "roleRef": own_role, "subjects": [subject]})
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


async def test_our_roles_are_what_blocks_quarantine_events_and_election_ask_for(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways: enough for the controller, and no right that it does not use."""
    asked = record(world, monkeypatch)
    given, own = rules("controller/clusterrole.yaml"), rules("controller/role.yaml")
    async with (
        account(world, tmp_path, given, own) as kubeconfig,
        world.controller(kubeconfig=str(kubeconfig), leader_elect="true"),
    ):
        await start(world)
        async with pod(world, "a"):
            await world.remove("a")
            await holds(world, {A: "a"})
            await world.add("c")
            await world.settles("IPPool", "p", {"b": B, "c": C})
        await world.pool("CIDRPool", "bad", {"cidr": "10.9.0.1/16", "perNodeNetworkPrefix": 24})
        await world.told("bad", "InvalidSpec")
        await world.pool("CIDRPool", "good", {"cidr": "10.0.0.0/16", "perNodeNetworkPrefix": 24})
        await until(lambda: {(verb, what) for verb, what, *_ in asked} >= UNTOLD, "blocks of the other kind")
    shipped = rights(given, True) | rights(own, False)
    assert asked - shipped == set()
    assert {right for right in shipped - asked if right[:2] not in UNSEEN} == set()


async def test_the_role_for_an_own_certificate_is_enough_for_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedplate.program.webhookcertificates.LOOK_S", 0.3)
    name = f"nv-ipam-{world.id}"
    asked = record(world, monkeypatch)
    configuration = {"nv-ipam-validating-webhook-configuration": name}
    given = rules("webhook-self-signed/clusterrole.yaml", **configuration)
    own = rules("webhook-self-signed/role.yaml")
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
            account(
                world,
                tmp_path,
                given + rules("controller/clusterrole.yaml"),
                own + rules("controller/role.yaml"),
            ) as kubeconfig,
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
            shipped = rights(given, True) | rights(own, False)
            assert shipped - asked == set()
    finally:
        await world.client.delete(CONFIGURATIONS, name)
