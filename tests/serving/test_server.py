"""The HTTPS server beside every program: TLS, access, reload of certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from bedplate.core import errors
from bedplate.core.clock import SystemClock
from bedplate.serving.certificates import Reloader, self_signed
from bedplate.serving.health import Checks
from bedplate.serving.server import Access, HealthServer


class TokenGate:
    async def admit(self, method: str, path: str, token: str, certificate: dict[str, object] | None) -> Access:
        if token == "good":
            return Access(200)
        return Access(403, f"forbidden: cannot {method} {path}") if token else Access(401, "Unauthorized")


@asynccontextmanager
async def serving(server: HealthServer) -> AsyncIterator[HealthServer]:
    task = asyncio.create_task(server.run())
    async with asyncio.timeout(30):
        await server.started.wait()
    try:
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


async def test_metrics_are_behind_the_gate_and_health_is_not(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    cert, key = self_signed(tmp_path, "serving", ["localhost", "127.0.0.1"], SystemClock())
    server = HealthServer(registry, tls=Reloader(cert, key), gate=TokenGate())
    async with serving(server), aiohttp.ClientSession(f"https://127.0.0.1:{server.port}") as session:
        ask = {"ssl": trusting(cert)}
        for path in ("/healthz", "/livez", "/readyz"):
            async with session.get(path, **ask) as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
        for token, status in (("", 401), ("bad", 403), ("good", 200)):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.get("/metrics", headers=headers, **ask) as answer:
                assert answer.status == status
                assert ("things_total 1.0" in await answer.text()) == (status == 200)
        async with session.get("/readyz/ping", headers={"Authorization": "Bearer good"}, **ask) as answer:
            assert answer.status == 200


async def test_a_verbose_answer_names_the_path_that_was_asked() -> None:
    async with (
        serving(HealthServer(CollectorRegistry())) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        for name in ("healthz", "livez", "readyz"):
            async with session.get(f"/{name}?verbose") as answer:
                assert await answer.text() == f"[+]ping ok\n{name} check passed\n"


@pytest.mark.parametrize(
    ("header", "status"), [("bearer good", 200), ("BEARER  good", 200), ("Basic good", 401), ("good", 401)]
)
async def test_only_bearer_tokens_are_tokens(header: str, status: int) -> None:
    async with (
        serving(HealthServer(CollectorRegistry(), gate=TokenGate())) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
        session.get("/metrics", headers={"Authorization": header}) as answer,
    ):
        assert answer.status == status


async def test_readiness_and_liveness_are_separate() -> None:
    def not_yet() -> None:
        raise RuntimeError("caches are not synced")

    server = HealthServer(CollectorRegistry(), ready=Checks("readyz", {"caches": not_yet}))
    async with serving(server), aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        async with session.get("/livez") as answer:
            assert answer.status == 200
        async with session.get("/readyz") as answer:
            assert answer.status == 500


async def test_a_port_in_use_is_a_clear_error() -> None:
    async with serving(HealthServer(CollectorRegistry())) as first:
        with pytest.raises(errors.Invalid, match=f"cannot listen on 127.0.0.1:{first.port}"):
            await HealthServer(CollectorRegistry(), port=first.port).run()


def test_renewed_files_are_taken_up_and_a_broken_pair_is_not(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path, "serving", ["localhost"], SystemClock())
    reloader = Reloader(cert, key)
    assert not reloader.check()
    other_cert, other_key = self_signed(tmp_path / "other", "serving", ["localhost"], SystemClock())
    cert.write_bytes(other_cert.read_bytes())
    assert not reloader.check(), "the certificate does not fit the key"
    key.write_bytes(other_key.read_bytes())
    assert reloader.check()
    assert not reloader.check()


def test_a_self_signed_pair_is_kept_private_and_reused(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path, "serving", ["localhost", "::1"], SystemClock())
    assert key.stat().st_mode & 0o077 == 0
    before = cert.read_bytes()
    self_signed(tmp_path, "serving", ["localhost"], SystemClock())
    assert cert.read_bytes() == before


@pytest.mark.parametrize("harm", ["half a certificate", "another key", "another host"])
def test_a_self_signed_pair_that_cannot_serve_is_made_anew(tmp_path: Path, harm: str) -> None:
    cert, key = self_signed(tmp_path, "serving", ["localhost"], SystemClock())
    hosts = ["localhost"]
    if harm == "half a certificate":
        cert.write_bytes(cert.read_bytes()[:200])
    elif harm == "another key":
        key.write_bytes(self_signed(tmp_path / "other", "serving", hosts, SystemClock())[1].read_bytes())
    else:
        hosts.append("10.0.0.7")
    before = cert.read_bytes()
    self_signed(tmp_path, "serving", hosts, SystemClock())
    assert cert.read_bytes() != before
    Reloader(cert, key)


def test_unreadable_files_are_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="cannot serve TLS"):
        Reloader(tmp_path / "no.crt", tmp_path / "no.key")
