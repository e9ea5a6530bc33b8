"""The transport under faults: what is sent again, what is not, what is counted, what is never logged."""

from __future__ import annotations

import asyncio
import gzip
import io
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.kube.certs import Authority, common_name
from tests.kube.scripted import Answer, Asked, FastClock, ScriptedServer, node, serving, status

from bedplate.api.resources import NODES, SECRETS
from bedplate.core import clock, logging
from bedplate.core import errors as core
from bedplate.core.metrics import shared
from bedplate.kube import Client, ClientConfig, errors, transport
from bedplate.kube.config import AuthConfig, Impersonation, TLSConfig
from bedplate.kube.metrics import RequestMetrics


@asynccontextmanager
async def client_of(server: ScriptedServer, **settings: object) -> AsyncIterator[tuple[Client, FastClock]]:
    time = FastClock()
    metrics = settings.pop("metrics", None)
    config = ClientConfig(server.url, qps=-1, **settings)  # type: ignore[arg-type]
    async with Client(config, time=time, rng=random.Random(1), metrics=metrics) as client:  # type: ignore[arg-type]
        yield client, time


@pytest.mark.parametrize("code", [429, 503])
async def test_a_write_that_the_server_postponed_is_sent_again_after_what_it_asked(code: int) -> None:
    busy = status(code, "TooManyRequests" if code == 429 else "ServiceUnavailable")
    busy.headers["Retry-After"] = "2"
    async with serving([busy, busy, Answer(201, node("a"))]) as server, client_of(server) as (client, time):
        assert (await client.create(NODES, {"metadata": {"name": "a"}})).name == "a"
        assert time.slept == [2.0, 2.0]
        assert [asked.body for asked in server.asked] == [server.asked[0].body] * 3


async def test_a_server_that_postpones_for_ever_is_given_up() -> None:
    busy = status(429, "TooManyRequests")
    busy.headers["Retry-After"] = "1"
    async with serving([busy]) as server, client_of(server) as (client, time):
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.get(NODES, "a")
        assert caught.value.retry_after_s == 1
        assert len(server.asked) == transport.MAX_RETRIES + 1
        assert len(time.slept) == transport.MAX_RETRIES


async def test_a_very_long_postponement_is_the_callers_to_wait() -> None:
    busy = status(503, "ServiceUnavailable")
    busy.headers["Retry-After"] = "600"
    async with serving([busy]) as server, client_of(server) as (client, _):
        with pytest.raises(errors.ServiceUnavailable) as caught:
            await client.get(NODES, "a")
        assert caught.value.retry_after_s == 600
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer", [status(500, "InternalError"), status(503, "ServiceUnavailable"), Answer(502, b"bad")]
)
async def test_a_write_that_failed_inside_the_server_is_not_repeated(answer: Answer) -> None:
    if answer.code == 500:
        # Even when the server names a time: the write may have happened.
        answer.headers["Retry-After"] = "1"
    async with serving([answer]) as server, client_of(server) as (client, _):
        with pytest.raises(core.Unavailable):
            await client.create(NODES, {"metadata": {"name": "a"}})
        assert len(server.asked) == 1


async def test_a_500_on_a_read_is_for_the_caller_and_its_backoff() -> None:
    async with serving([status(500, "InternalError")]) as server, client_of(server) as (client, _):
        with pytest.raises(errors.InternalError):
            await client.get(NODES, "a")
        assert len(server.asked) == 1


@pytest.mark.parametrize("broken", [Answer(502, b"bad gateway"), Answer(drop=True), status(503, "ServiceUnavailable")])
async def test_a_read_is_repeated_after_a_lost_connection_or_a_gateway_error(broken: Answer) -> None:
    async with serving([broken, broken, Answer(200, node("a"))]) as server, client_of(server) as (client, time):
        assert (await client.get(NODES, "a")).name == "a"
        assert time.slept
        assert all(seconds > 0 for seconds in time.slept)


async def test_a_write_whose_connection_broke_is_not_repeated() -> None:
    async with serving([Answer(drop=True)]) as server, client_of(server) as (client, _):
        body = {"metadata": {"name": "a"}}
        for call in (client.create(NODES, body), client.update(NODES, body), client.delete(NODES, "a")):
            with pytest.raises(errors.ConnectionFailed):
                await call
        assert [asked.method for asked in server.asked] == ["POST", "PUT", "DELETE"]


async def test_a_dead_address_is_a_connection_failure_after_a_few_tries() -> None:
    time = FastClock()
    async with Client(ClientConfig("http://127.0.0.1:1", qps=-1), time=time) as client:
        with pytest.raises(errors.ConnectionFailed, match=r"127\.0\.0\.1:1"):
            await client.get(NODES, "a")
    assert len(time.slept) == transport.MAX_READ_RETRIES


@pytest.mark.parametrize(
    "answer", [Answer(200, node("a"), cut_after=20), Answer(200, chunks=[b'{"kind":'], cut_after=1)]
)
async def test_half_an_answer_is_no_answer(answer: Answer) -> None:
    async with serving([answer]) as server, client_of(server) as (client, _):
        with pytest.raises(errors.Interrupted):
            await client.get(NODES, "a")


async def test_a_server_that_never_answers_meets_the_timeout() -> None:
    async with serving([Answer(hang=True)]) as server, client_of(server, timeout_s=0.2) as (client, _):
        with pytest.raises(core.Unavailable):
            await client.get(NODES, "a")


async def test_redirects_are_not_followed_with_our_credentials() -> None:
    moved = Answer(302, b"", {"Location": "http://127.0.0.1:1/elsewhere"})
    auth = AuthConfig(token="t")
    async with serving([moved]) as server, client_of(server, auth=auth) as (client, _):
        with pytest.raises(errors.UnexpectedAnswer):
            await client.get(NODES, "a")
        assert len(server.asked) == 1


async def test_a_refused_token_is_read_again_from_its_file_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    def answer(asked: Asked) -> Answer:
        if asked.headers["authorization"] == "Bearer new":
            return Answer(200, node("a"))
        file.write_text("new\n")
        return status(401, "Unauthorized")

    auth = AuthConfig(token_file=str(file))
    async with serving(answer) as server, client_of(server, auth=auth) as (client, _):
        assert (await client.get(NODES, "a")).name == "a"
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]


async def test_a_token_that_stays_refused_is_not_sent_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    auth = AuthConfig(token_file=str(file))
    async with serving([status(401, "Unauthorized")]) as server, client_of(server, auth=auth) as (client, _):
        with pytest.raises(errors.Unauthorized):
            await client.get(NODES, "a")
        assert len(server.asked) == 1


async def test_every_request_carries_who_it_is_and_whom_it_plays() -> None:
    settings = {
        "auth": AuthConfig(username="ann", password="pw"),
        "impersonate": Impersonation("bob", "7", ("g1", "g2"), {"example.com/Reason why": ("x", "y")}),
        "user_agent": "prog/1",
    }
    async with serving([Answer(200, node("a"))]) as server, client_of(server, **settings) as (client, _):
        await client.get(NODES, "a")
    (asked,) = server.asked
    sent = [pair for pair in asked.all_headers if pair[0].lower().startswith("impersonate-")]
    assert sent == [
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g1"),
        ("Impersonate-Group", "g2"),
        ("Impersonate-Extra-example.com%2FReason%20why", "x"),
        ("Impersonate-Extra-example.com%2FReason%20why", "y"),
    ]
    assert asked.headers["authorization"] == "Basic YW5uOnB3"
    assert asked.headers["user-agent"] == "prog/1"


async def test_requests_are_counted_under_client_gos_names() -> None:
    registry = CollectorRegistry()
    metrics = shared(registry, RequestMetrics)
    assert shared(registry, RequestMetrics) is metrics
    busy = status(429, "TooManyRequests")
    busy.headers["Retry-After"] = "0"
    async with serving([busy, Answer(200, node("a"))]) as server, client_of(server, metrics=metrics) as (client, _):
        await client.get(NODES, "a")
        host = server.url.removeprefix("http://")

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**labels, "host": host})

    assert sample("rest_client_requests_total", code="429", method="GET") == 1
    assert sample("rest_client_requests_total", code="200", method="GET") == 1
    assert sample("rest_client_request_duration_seconds_count", verb="GET") == 2
    assert sample("rest_client_rate_limiter_duration_seconds_count", verb="GET") == 2
    assert sample("rest_client_request_retries_total", code="429", verb="GET") == 1


async def test_a_lost_connection_is_counted_as_an_error() -> None:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry)
    async with serving([Answer(drop=True)]) as server, client_of(server, metrics=metrics) as (client, _):
        with pytest.raises(errors.ConnectionFailed):
            await client.create(NODES, {"metadata": {"name": "a"}})
        labels = {"code": "<error>", "method": "POST", "host": server.url.removeprefix("http://")}
    assert registry.get_sample_value("rest_client_requests_total", labels) == 1


@pytest.mark.parametrize("compress", [True, False])
async def test_gzip_is_asked_for_only_when_told_and_understood(compress: bool) -> None:
    def answer(asked: Asked) -> Answer:
        body = Answer(200, node("a")).payload()
        if "gzip" in asked.headers.get("accept-encoding", ""):
            return Answer(200, gzip.compress(body), {"Content-Encoding": "gzip"})
        return Answer(200, body)

    async with serving(answer) as server, client_of(server, compress=compress) as (client, _):
        assert (await client.get(NODES, "a")).name == "a"
        assert ("gzip" in server.asked[0].headers["accept-encoding"]) is compress


async def test_connections_are_kept_and_used_again() -> None:
    async with serving([Answer(200, node("a"))]) as server, client_of(server) as (client, _):
        for _ in range(5):
            await client.get(NODES, "a")
        assert server.connections == 1


async def test_the_request_log_shows_requests_and_bodies_but_no_secret() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(verbosity=8, color=False), out)
    try:
        secret = {"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"k": "aHVudGVyMg=="}}

        def answer(asked: Asked) -> Answer:
            return Answer(200, secret if "secrets" in asked.path else node("a"))

        auth = AuthConfig(token="very-secret-token")
        async with serving(answer) as server, client_of(server, auth=auth) as (client, _):
            await client.get(NODES, "a")
            await client.get(SECRETS, "s", "n")
            await client.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}}, "n")
            await client.request("GET", "/api/v1/namespaces/n/secrets/s")
    finally:
        logging.configure(logging.LogOptions())
    text = out.getvalue()
    assert "/api/v1/nodes/a" in text and "u-a" in text and "/namespaces/n/secrets" in text
    assert "hunter2" not in text and "aHVudGVyMg" not in text and "very-secret-token" not in text


async def test_a_servers_warning_is_shown_once() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(color=False), out)
    try:
        warned = Answer(200, node("a"), {"Warning": '299 - "v1beta1 is going away"'})
        async with serving([warned]) as server, client_of(server) as (client, _):
            await client.get(NODES, "a")
            await client.get(NODES, "a")
    finally:
        logging.configure(logging.LogOptions())
    assert out.getvalue().count("v1beta1 is going away") == 1


async def test_the_server_must_show_a_certificate_of_the_ca_for_its_name(tmp_path: Path) -> None:
    ours, other = Authority(), Authority("other CA")
    ok = [Answer(200, node("a"))]
    async with serving(ok, ours.server_context(tmp_path, "127.0.0.1")) as server:
        async with client_of(server, tls=TLSConfig(ca_data=ours.pem)) as (client, _):
            assert (await client.get(NODES, "a")).name == "a"
        async with client_of(server, tls=TLSConfig(verify=False)) as (client, _):
            assert (await client.get(NODES, "a")).name == "a"
        for wrong in (TLSConfig(ca_data=other.pem), TLSConfig(ca_data=ours.pem, server_name="elsewhere")):
            async with client_of(server, tls=wrong) as (client, _):
                with pytest.raises(errors.ConnectionFailed) as refused:
                    await client.create(NODES, {"metadata": {"name": "a"}})
                # The reason is for people: no addresses of objects in it.
                assert "certificate" in str(refused.value) and "0x" not in str(refused.value)


async def test_a_server_name_of_the_kubeconfig_replaces_the_one_in_the_address(tmp_path: Path) -> None:
    ours = Authority()
    context = ours.server_context(tmp_path, "api.example.com")
    async with serving([Answer(200, node("a"))], context) as server:
        tls = TLSConfig(ca_data=ours.pem, server_name="api.example.com")
        async with client_of(server, tls=tls) as (client, _):
            assert (await client.get(NODES, "a")).name == "a"


async def test_a_client_certificate_that_was_replaced_on_disk_is_used_for_the_next_request(tmp_path: Path) -> None:
    ours = Authority()
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def place(name: str) -> None:
        pair = ours.issue(name)
        cert.write_bytes(pair.cert)
        key.write_bytes(pair.key)

    place("first")
    context = ours.server_context(tmp_path, "127.0.0.1", wants_client=True)
    tls = TLSConfig(ca_data=ours.pem, cert_file=str(cert), key_file=str(key))
    async with serving([Answer(200, node("a"))], context) as server:
        time = clock.ManualClock()
        async with Client(ClientConfig(server.url, tls=tls, qps=-1), time=time) as client:
            await client.get(NODES, "a")
            place("second")
            await time.advance(2)
            await client.get(NODES, "a")
            cert.write_bytes(b"half written")
            await time.advance(2)
            await client.get(NODES, "a")
        assert [common_name(asked.certificate) for asked in server.asked] == ["first", "second", "second"]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_is_asked_to_connect_and_the_tunnel_is_ours(tmp_path: Path, scheme: str) -> None:
    ours = Authority()
    context = ours.server_context(tmp_path, "127.0.0.1")
    seen: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        host, port = head.split(b" ")[1].decode().split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0, ssl=context if scheme == "https" else None)
    address = f"{scheme}://user:pass@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    try:
        async with serving([Answer(200, node("a"))], context) as server:
            tls = TLSConfig(ca_data=ours.pem)
            async with client_of(server, tls=tls, proxy_url=address) as (client, _):
                assert (await client.get(NODES, "a")).name == "a"
    finally:
        proxy.close()
    assert seen[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in seen[0]


async def test_requests_that_wait_for_a_retry_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_CONCURRENT", 2)

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/busy"):
            return Answer(429, status(429, "TooManyRequests").body, {"Retry-After": "5"})
        return Answer(200, node("a"))

    time = clock.ManualClock()
    async with serving(answer) as server, Client(ClientConfig(server.url, qps=-1), time=time) as client:
        waiting = [asyncio.ensure_future(client.get(NODES, "busy")) for _ in range(5)]
        async with asyncio.timeout(60):
            while len(server.asked) < 5:
                await asyncio.sleep(0.01)
            assert (await client.get(NODES, "a")).name == "a"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await client.get(NODES, "a")).name == "a"


async def test_a_client_that_was_not_opened_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client(ClientConfig("http://127.0.0.1:1")).get(NODES, "a")
