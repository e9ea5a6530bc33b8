"""The port of a running manager: health for everybody, the rest for whom the API server authorises."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests import servers
from tests.apps import managers
from tests.apps.managers import PROGRAMS, program, running
from tests.kube.certs import Authority
from tests.waiting import until

from bedplate.api.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, custom
from bedplate.cloud.manager import serving
from bedplate.core.clock import ManualClock
from bedplate.kube import Client, PatchType, config, subresources
from bedplate.sim.clouds import BmmCloud

CLUSTER_ROLES = custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
PROTECTED = ("/metrics", "/metrics/slis", "/configz", "/debug/flags/v", "/debug/pprof/", "/debug/pprof/goroutine")


@contextlib.asynccontextmanager
async def reader(client: Client, subject: dict[str, Any] | None = None) -> AsyncIterator[str]:
    """A service account that may read every non-resource path; yields its token. Or another subject may."""
    name = f"ccm-reader-{uuid.uuid4().hex[:6]}"
    await client.create(NAMESPACES.raw(), {"metadata": {"name": name}})
    await client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": "reader"}}, name)
    rules = [{"nonResourceURLs": ["*"], "verbs": ["get", "put"]}]
    await client.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [subject or {"kind": "ServiceAccount", "name": "reader", "namespace": name}]
    await client.create(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
    try:
        yield (await subresources.request_token(client, "reader", name)).token
    finally:
        await client.delete(CLUSTER_ROLE_BINDINGS, name)
        await client.delete(CLUSTER_ROLES, name)
        await client.delete(NAMESPACES, name)


def words_for(server: servers.Server, *more: str) -> list[str]:
    return [*managers.arguments(server, label=f"ccm-test=none-{uuid.uuid4().hex[:6]}"), *more]


async def test_health_is_for_everybody_and_the_rest_is_not(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    words = words_for(server, "--authorization-webhook-cache-unauthorized-ttl=0s")
    async with running(program(PROGRAMS["cloudlycke"]), *words, folder=tmp_path) as manager:
        await manager.logged("controller=service-lb-controller")
        for path in ("/healthz", "/livez", "/readyz"):
            assert await manager.get(path) == (200, "ok")
        _, verbose = await manager.get("/healthz?verbose")
        for check in ("ping", "leaderElection", "cloud-node-controller", "cloud-node-lifecycle-controller"):
            assert f"[+]{check} ok" in verbose
        assert "[+]cloud-cloudlycke ok" in (await manager.get("/readyz?verbose"))[1]
        for path in PROTECTED:
            status, text = await manager.get(path)
            assert (status, "forbidden" in text) == (403, True), path
            status, _ = await manager.get(path, token="nonsense")
            assert status == 401, path
        async with reader(client) as token:

            async def is_allowed() -> bool:
                return (await manager.get("/metrics", token))[0] == 200

            await until(is_allowed, "the role counts")
            for path in PROTECTED:
                status, _ = await manager.get(path, token)
                assert status == 200, path
            await check_contents(manager, token)


async def check_contents(manager: managers.Running, token: str) -> None:
    _, metrics = await manager.get("/metrics", token)
    for name in (
        'leader_election_master_status{name="',
        'workqueue_depth{name="Nodes"}',
        'workqueue_depth{name="node"}',
        "rest_client_requests_total{",
        "rest_client_request_duration_seconds_bucket{",
        'running_managed_controllers{manager="cloud-controller-manager",name="cloud-node-controller"} 1.0',
        "kubernetes_build_info{",
        "process_resident_memory_bytes",
        "node_controller_initial_node_sync_delay_seconds_bucket",
        "service_controller_",
        "cloud_provider_webhook_request_total",
        "ccm_node_deletions_total",
    ):
        assert name in metrics, name
    _, slis = await manager.get("/metrics/slis", token)
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0' in slis
    found = json.loads((await manager.get("/configz", token))[1])["cloudcontrollermanager.config.k8s.io"]
    assert found["generic"]["cloudProvider"] == ["cloudlycke"]
    assert found["generic"]["nodeMonitorPeriod"] == "5s"
    _, dump = await manager.get("/debug/pprof/goroutine", token)
    assert "controller Nodes" in dump
    status, profile = await manager.get("/debug/pprof/profile?seconds=0.5", token)
    assert (status, bool(profile.strip())) == (200, True)
    status, text = await manager.get("/debug/flags/v", token, method="PUT", data="7")
    assert (status, "7" in text) == (200, True)
    assert (await manager.get("/debug/flags/v", token))[1] == "7\n"
    await manager.logged("kube.request")
    assert (await manager.get("/debug/flags/v", token, method="PUT", data="x"))[0] == 400


async def test_profiles_can_be_switched_off(server: servers.Server, client: Client, tmp_path: Path) -> None:
    words = words_for(server, "--profiling=false", "--authorization-webhook-cache-unauthorized-ttl=0s")
    async with (
        running(program(PROGRAMS["cloudlycke"]), *words, folder=tmp_path) as manager,
        reader(client) as token,
    ):
        await manager.logged("serving.started")

        async def is_allowed() -> bool:
            return (await manager.get("/metrics", token))[0] == 200

        await until(is_allowed, "the role counts")
        assert (await manager.get("/debug/pprof/goroutine", token))[0] == 404


async def test_readiness_waits_for_the_credentials_and_liveness_does_not(
    server: servers.Server, tmp_path: Path
) -> None:
    time, port = ManualClock(datetime.now(UTC)), servers.free_port()
    async with BmmCloud() as cloud:
        cloud.faults.add("401")
        words = words_for(server, f"--cloud-config={managers.bmm_config(cloud, tmp_path)}", "--leader-elect=false")
        async with managers.in_process([*words, f"--secure-port={port}"], "nvidia-bmm", time=time) as manager:

            async def is_unready() -> bool:
                await time.advance(1.0)
                return (
                    manager.server is not None
                    and "[-]cloud-nvidia-bmm failed" in (await managers.get(port, "/readyz?verbose"))[1]
                )

            await until(is_unready, "the credentials were refused")
            assert (await managers.get(port, "/readyz"))[0] == 500
            assert (await managers.get(port, "/healthz"))[0] == 200
            cloud.faults.clear()

            async def is_ready() -> bool:
                await time.advance(1.0)
                return (await managers.get(port, "/readyz"))[0] == 200

            await until(is_ready, "ready once the credentials are good")


async def test_client_certificates_and_proxies_are_believed_only_from_their_authorities(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    users, proxies, strangers = Authority("users"), Authority("proxies"), Authority("strangers")
    (tmp_path / "users.crt").write_bytes(users.pem)
    (tmp_path / "proxies.crt").write_bytes(proxies.pem)
    person = f"person-{uuid.uuid4().hex[:6]}"
    words = words_for(
        server,
        f"--client-ca-file={tmp_path / 'users.crt'}",
        f"--requestheader-client-ca-file={tmp_path / 'proxies.crt'}",
        "--requestheader-allowed-names=front",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    )
    shown = {
        "user": users.issue(person),
        "other user": users.issue("somebody"),
        "proxy": proxies.issue("front"),
        "other proxy": proxies.issue("back"),
        "proxy as user": proxies.issue(person),
    }
    contexts = {name: presenting(pair.cert + pair.key, tmp_path / f"{name}.pem") for name, pair in shown.items()}
    subject = {"kind": "User", "name": person, "apiGroup": "rbac.authorization.k8s.io"}
    headers = {"X-Remote-User": person}
    async with (
        running(program(PROGRAMS["cloudlycke"]), *words, folder=tmp_path) as manager,
        reader(client, subject),
    ):
        await manager.logged("serving.started")

        async def is_allowed() -> bool:
            return (await manager.get("/metrics", ssl=contexts["user"]))[0] == 200

        await until(is_allowed, "a user's certificate counts", describe=manager.log)
        for name, sent, wanted in (
            ("other user", {}, 403),
            ("other user", headers, 403),
            ("proxy", headers, 200),
            ("proxy", {}, 401),
            ("proxy", {"X-Remote-User": "somebody"}, 403),
            ("other proxy", headers, 401),
            ("proxy as user", {}, 401),
        ):
            status, _ = await manager.get("/metrics", ssl=contexts[name], headers=sent)
            assert status == wanted, (name, sent)
        assert (await manager.get("/metrics", headers=headers))[0] == 403
        stranger = strangers.issue(person)
        with pytest.raises((OSError, aiohttp.ClientError)):
            await manager.get("/metrics", ssl=presenting(stranger.cert + stranger.key, tmp_path / "stranger.pem"))


async def test_the_cluster_says_whose_certificates_count(tmp_path: Path) -> None:
    users, person = Authority("users"), "somebody"
    pair = users.issue(person)
    identity = presenting(pair.cert + pair.key, tmp_path / "somebody.pem")
    body = {"metadata": {"name": "extension-apiserver-authentication"}, "data": {"client-ca-file": users.pem.decode()}}
    with servers.embedded() as server:
        async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
            await client.patch(
                CONFIG_MAPS.raw(),
                "extension-apiserver-authentication",
                body,
                "kube-system",
                type=PatchType.APPLY,
                field_manager="test",
                force=True,
            )
            words = words_for(server, "--authorization-webhook-cache-unauthorized-ttl=0s")
            subject = {"kind": "User", "name": person, "apiGroup": "rbac.authorization.k8s.io"}
            async with (
                running(program(PROGRAMS["cloudlycke"]), *words, folder=tmp_path) as manager,
                reader(client, subject),
            ):
                await manager.logged("serving.started")

                async def is_allowed() -> bool:
                    return (await manager.get("/metrics", ssl=identity))[0] == 200

                await until(is_allowed, "a certificate of the cluster's authority counts", describe=manager.log)


def presenting(pair: bytes, file: Path) -> ssl.SSLContext:
    file.write_bytes(pair)
    context = managers._trusting_all()
    context.load_cert_chain(file)
    return context


async def test_a_served_certificate_is_read_again_when_it_changes(
    server: servers.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_RELOAD_PERIOD_S", 0.02)
    port = servers.free_port()
    authority = Authority()
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write(name: str) -> None:
        pair = authority.issue(name, ("127.0.0.1",))
        cert.write_bytes(pair.cert)
        key.write_bytes(pair.key)

    write("first")
    words = words_for(
        server, f"--tls-cert-file={cert}", f"--tls-private-key-file={key}", "--tls-min-version=VersionTLS13"
    )
    async with managers.in_process([*words, f"--secure-port={port}"], "cloudlycke"):

        async def is_served() -> bool:
            with contextlib.suppress(ConnectionRefusedError):
                return b"first" in await presented(port)
            return False

        await until(is_served, "the certificate is served")
        write("second")

        async def is_new() -> bool:
            return b"second" in await presented(port)

        await until(is_new, "the new certificate is served")


async def presented(port: int) -> bytes:
    """The certificate that a server shows, in DER."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=managers._trusting_all())
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(True)
        assert isinstance(found, bytes)
        return found
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
