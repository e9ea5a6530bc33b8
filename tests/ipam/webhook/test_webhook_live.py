"""The webhook end to end: an API server asks the running program, and what it refuses arrives at the user."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import servers
from tests.ipam.controller.worlds import KINDS, World
from tests.ipam.webhook.rules import CIDRPOOL, IPPOOL, RULES
from tests.waiting import until

from bedplate.api.resources import SECRETS
from bedplate.ipam.controller.assembly import Assembly
from bedplate.ipam.webhook import review
from bedplate.kube import errors as kube_errors
from bedplate.program import webhookpki as pki
from bedplate.program.webhookcertificates import CONFIGURATIONS

NAMES = ("localhost", "127.0.0.1")


def certificate(folder: Path, before: pki.Pair | None = None) -> pki.Pair:
    """What cert-manager would put into the folder."""
    made = pki.renewed(before or pki.Pair(), NAMES, datetime.now(UTC))
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(made.certificate)
    (folder / "tls.key").write_bytes(made.key)
    return made


def configuration(world: World, port: int, authority: bytes, policy: str = "Fail") -> dict[str, Any]:
    """The original's configuration, for the pools of this world, by URL."""

    def webhook(kind: str, path: str) -> dict[str, Any]:
        return {
            "name": f"validate-{kind}.nv-ipam.nvidia.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "url": f"https://127.0.0.1:{port}{path}",
                **({"caBundle": base64.b64encode(authority).decode()} if authority else {}),
            },
            "failurePolicy": policy,
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "rules": [
                {
                    "apiGroups": ["nv-ipam.nvidia.com"],
                    "apiVersions": ["v1alpha1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [f"{kind}s"],
                }
            ],
        }

    webhooks = [webhook("ippool", review.IPPOOL.path), webhook("cidrpool", review.CIDRPOOL.path)]
    return {"metadata": {"name": f"nv-ipam-{world.id}"}, "webhooks": webhooks}


@contextlib.asynccontextmanager
async def configured(world: World, port: int, authority: bytes) -> AsyncIterator[str]:
    """The API server asks the webhook, for this world alone; returns once it does."""
    made = await world.client.create(CONFIGURATIONS, configuration(world, port, authority))
    name = made["metadata"]["name"]
    try:
        yield name
    finally:
        await world.client.delete(CONFIGURATIONS, name)


async def asked(world: World) -> None:
    """Wait until the API server knows the configuration: it refuses what it let pass before."""

    async def is_refused() -> bool:
        try:
            await world.client.create(KINDS["IPPool"], body(world, "probe", {**IPPOOL, "perNodeBlockSize": 255}), **DRY)
        except kube_errors.Forbidden:
            return True
        except kube_errors.InternalError:
            # It knows the webhook and not yet, or no longer, its certificate.
            return False
        return False

    await until(is_refused, "the webhook is asked")


DRY: dict[str, Any] = {"dry_run": True}


def body(world: World, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": world.namespace}, "spec": spec}


async def opened(controller: Assembly) -> int:
    assert controller.webhook is not None or await _made(controller)
    webhook = controller.webhook
    assert webhook is not None

    async def is_open() -> bool:
        return webhook.is_open

    await until(is_open, "the webhook is open")
    return webhook.port


async def _made(controller: Assembly) -> bool:
    async def is_made() -> bool:
        return controller.webhook is not None

    await until(is_made, "the webhook is made")
    return True


@pytest.fixture
async def webhook(world: World, tmp_path: Path) -> AsyncIterator[World]:
    """A world whose pools a running controller's webhook judges."""
    made = certificate(tmp_path / "certs")
    async with world.controller(webhook="true", webhook_port="0", webhook_cert_dir=str(tmp_path / "certs")) as running:
        port = await opened(running)
        async with configured(world, port, made.authority):
            await asked(world)
            yield world


async def test_every_rule_of_the_specification_is_refused_with_its_field(webhook: World) -> None:
    for number, (kind, spec, path) in enumerate(RULES):
        with pytest.raises(kube_errors.ApiError) as caught:
            await webhook.client.create(KINDS[kind], body(webhook, f"bad-{number}", spec))
        text = str(caught.value)
        if caught.value.code == 422:
            # A rule of the definition, which comes before the webhook and is about the whole field.
            assert path.partition("[")[0].removesuffix("Terms") in text, (spec, path, text)
            continue
        assert caught.value.code == 403 and caught.value.reason == "Forbidden", (spec, text)
        assert f"validate-{kind.lower()}.nv-ipam.nvidia.com" in text and "denied the request" in text, text
        assert f"{path}: " in text, (spec, path, text)


async def test_good_pools_pass_and_may_be_changed_and_deleted(webhook: World) -> None:
    for kind, spec in (("IPPool", IPPOOL), ("CIDRPool", CIDRPOOL)):
        await webhook.client.create(KINDS[kind], body(webhook, "good", spec))
        key = "subnet" if kind == "IPPool" else "cidr"
        with pytest.raises(kube_errors.Forbidden, match=f"spec.{key}"):
            await webhook.client.patch(KINDS[kind], "good", {"spec": {key: "1.2.3/4"}}, webhook.namespace)
        await webhook.client.patch(KINDS[kind], "good", {"metadata": {"labels": {"a": "b"}}}, webhook.namespace)
        await webhook.client.delete(KINDS[kind], "good", webhook.namespace)


async def test_several_faults_arrive_together_in_brackets(webhook: World) -> None:
    spec = {"subnet": "10.20.0.0/24", "perNodeBlockSize": 255, "gateway": "10.9.9.9", "routes": [{"dst": "y"}]}
    with pytest.raises(kube_errors.Forbidden) as caught:
        await webhook.client.create(KINDS["IPPool"], body(webhook, "bad", spec))
    text = str(caught.value)
    assert "denied the request: [" in text
    for path in ("spec.perNodeBlockSize", "spec.gateway", "spec.routes[0].dst"):
        assert path in text, text


def kubectl(world: World, document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(servers.binary("kubectl")), f"--kubeconfig={world.server.kubeconfig}", "apply", "-f", "-"],
        input=yaml.safe_dump(document),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.external
async def test_kubectl_shows_refusals_and_warnings(webhook: World) -> None:
    api = {"apiVersion": "nv-ipam.nvidia.com/v1alpha1"}
    bad = {**api, "kind": "IPPool", **body(webhook, "bad", {**IPPOOL, "gateway": "10.0.0.1"})}
    found = await asyncio.to_thread(kubectl, webhook, bad)
    assert found.returncode == 1 and "spec.gateway: Invalid value" in found.stderr, found.stderr
    await webhook.client.create(KINDS["IPPool"], body(webhook, "first", IPPOOL))

    async def is_warned() -> bool:
        odd = {
            **api,
            "kind": "CIDRPool",
            **body(webhook, "second", {"cidr": "10.20.0.0/16", "perNodeNetworkPrefix": 24}),
        }
        odd["metadata"]["name"] = f"second-{len(names)}"
        names.append("")
        found = await asyncio.to_thread(kubectl, webhook, odd)
        assert found.returncode == 0, found.stderr
        # The other pool reaches the webhook's cache on its own time.
        return "Warning:" in found.stderr and "IPPool first" in found.stderr

    names: list[str] = []
    await until(is_warned, "the overlap is warned of")


async def test_a_dead_webhook_gives_a_clear_error_and_no_pool(world: World, tmp_path: Path) -> None:
    made = certificate(tmp_path / "certs")
    async with configured(world, servers.free_port(), made.authority):

        async def is_refused() -> bool:
            try:
                await world.client.create(KINDS["IPPool"], body(world, "never", IPPOOL), dry_run=True)
            except kube_errors.InternalError as err:
                assert "validate-ippool.nv-ipam.nvidia.com" in str(err) and "connection refused" in str(err)
                return True
            return False

        await until(is_refused, "creations fail")
        with pytest.raises(kube_errors.NotFound):
            await world.client.get(KINDS["IPPool"], "never", world.namespace)


async def presented(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
        return found
    finally:
        writer.close()


async def test_a_renewed_certificate_is_served_without_a_restart(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    first = certificate(folder)
    async with world.controller(webhook="true", webhook_port="0", webhook_cert_dir=str(folder)) as running:
        port = await opened(running)
        before = await presented(port)
        # A broken file first: the good one stays in use.
        (folder / "tls.crt").write_bytes(b"nonsense")
        certificate(folder, pki.Pair(first.authority, first.authority_key))

        async def is_new() -> bool:
            return await presented(port) != before

        await until(is_new, "the new certificate is served")


async def test_a_missing_certificate_is_waited_for(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with world.controller(webhook="true", webhook_port="0", webhook_cert_dir=str(folder)) as running:
        await _made(running)
        assert running.webhook is not None and not running.webhook.is_open
        certificate(folder)
        assert await opened(running)


def self_signed(world: World) -> dict[str, str]:
    return {
        "webhook": "true",
        "webhook_port": "0",
        "webhook_self_signed": "true",
        "webhook_configuration_name": f"nv-ipam-{world.id}",
    }


async def test_a_certificate_of_its_own_is_shared_and_published(world: World) -> None:
    flags = self_signed(world)
    async with world.controller(**flags) as one, world.controller(**flags) as two:
        ports = [await opened(one), await opened(two)]
        assert await presented(ports[0]) == await presented(ports[1])
        async with configured(world, ports[0], b"") as name:
            await asked(world)
            secret = await world.client.get(SECRETS.raw(), "nv-ipam-webhook-server-cert", world.namespace)
            assert secret["type"] == "kubernetes.io/tls"
            assert {"ca.crt", "ca.key", "tls.crt", "tls.key"} <= set(secret["data"])
            # A user applies the manifest again, without a bundle: it is put back.
            wiped = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
            await world.client.patch(CONFIGURATIONS, name, wiped, type=_json())

            async def is_back() -> bool:
                found = await world.client.get(CONFIGURATIONS, name)
                bundles = [one["clientConfig"].get("caBundle") for one in found["webhooks"]]
                return bundles == [secret["data"]["ca.crt"]] * 2

            await until(is_back, "the bundle is back")
            await asked(world)


def _json() -> Any:
    from bedplate.kube.options import PatchType

    return PatchType.JSON


async def test_an_old_certificate_of_its_own_is_renewed_by_the_same_authority(world: World) -> None:
    old = pki.renewed(pki.Pair(), ("other.name",), datetime.now(UTC))
    data = {key: base64.b64encode(value).decode() for key, value in old.data().items()}
    metadata = {"name": "nv-ipam-webhook-server-cert", "namespace": world.namespace}
    await world.client.create(SECRETS.raw(), {"metadata": metadata, "type": "kubernetes.io/tls", "data": data})
    async with world.controller(**self_signed(world)) as running:
        port = await opened(running)
        found = await world.client.get(SECRETS.raw(), "nv-ipam-webhook-server-cert", world.namespace)
        assert found["data"]["ca.crt"] == data["ca.crt"] and found["data"]["tls.crt"] != data["tls.crt"]
        assert ssl.DER_cert_to_PEM_cert(await presented(port)).encode() == base64.b64decode(found["data"]["tls.crt"])


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Certificates are looked at every few seconds; a test need not wait that long."""
    monkeypatch.setattr("bedplate.program.webhookcertificates.LOOK_S", 0.3)
    yield
