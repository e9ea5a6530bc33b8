"""Connections no well-meaning client would open: broken heads, half requests, nonsensical tokens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import pathlib
import socket
import ssl
import time

import pytest
from tests.endurance import running
from tests.endurance.badinput.conftest import CONFIGMAPS, configmap
from tests.waiting import wait_until

from bedplate.serving import http, issuing


def test_length_and_chunks_together_are_refused(server: running.Embedded) -> None:
    """Two lengths for one body is how requests are smuggled past a proxy."""
    body = b"0\r\n\r\nGET /api HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head % len(body) + body)
        answers = running.read_answers(connection, 2)
    assert len(answers) == 1
    assert running.status_of(answers[0]) == 400


SMUGGLES = [
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 0x10\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\n Host: x\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    b"GET /readyz HTTP/9.9\r\nHost: x\r\n\r\n",
    b"NONSENSE\r\n\r\n",
    b"\x00" * 100,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /" + b"a" * (2 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300_000 + b"\r\n",
]


@pytest.mark.parametrize("data", SMUGGLES, ids=range(len(SMUGGLES)))
def test_a_broken_head_is_refused_and_the_connection_closed(server: running.Embedded, data: bytes) -> None:
    with server.connect() as connection:
        try:
            connection.sendall(data + b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            pass
        answers = running.read_answers(connection, 2)
    assert len(answers) <= 1, answers
    assert all(running.status_of(answer) in (400, 413, 431, 505) for answer in answers), answers


def test_pipelined_requests_are_answered_in_order(server: running.Embedded) -> None:
    names = [f"pipelined-{number}" for number in range(40)]
    data = b""
    for name in names:
        body = json.dumps(configmap(name)).encode()
        head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        data += head.encode() + body
    with server.connect() as connection:
        connection.sendall(data)
        answers = running.read_answers(connection, len(names))
    assert [running.status_of(answer) for answer in answers] == [201] * len(names)
    assert [json.loads(answer.partition(b"\r\n\r\n")[2])["metadata"]["name"] for answer in answers] == names


def test_a_peer_that_asks_and_never_reads_does_not_fill_the_servers_memory(server: running.Embedded) -> None:
    for number in range(20):
        server.request("POST", CONFIGMAPS, configmap(f"large-{number}", data={"x": "y" * 900_000}))
    before = server.rss_mb
    request = f"GET {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with server.connect() as connection:
        connection.settimeout(5)
        try:
            for _ in range(200):
                connection.sendall(request)
        except (TimeoutError, OSError):
            pass
        for _ in range(20):
            time.sleep(0.1)
            assert server.request("GET", "/readyz")[0] == 200
        assert server.rss_mb < before + 150


async def test_a_peer_that_begins_and_does_not_go_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """In process and without TLS, so that waiting can be shortened; half a head, half a body, nothing at all."""
    monkeypatch.setattr(http, "REQUEST_WITHIN_S", 0.2)
    monkeypatch.setattr(http, "IDLE_FOR_S", 0.5)
    monkeypatch.setattr(http, "LOOK_EVERY_S", 0.05)
    connections = http.Connections()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(
        lambda: http.Connection(lambda _: http.Response(200, b"{}"), connections), "127.0.0.1", 0
    )
    look = asyncio.create_task(connections.run())
    try:
        for data in (b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc", b"", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
            writer.write(data)
            async with asyncio.timeout(30):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200") == data.endswith(b"1.1\r\n\r\n")
            writer.close()
    finally:
        look.cancel()
        listener.close()


async def test_no_more_than_so_many_connections_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 10)
    connections = http.Connections()
    listener = await asyncio.get_running_loop().create_server(
        lambda: http.Connection(lambda _: http.Response(200, b"{}"), connections), "127.0.0.1", 0
    )
    address = listener.sockets[0].getsockname()
    held = [await asyncio.open_connection(*address) for _ in range(10)]
    for _, writer in held:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert [(await reader.readline())[:12] for reader, _ in held] == [b"HTTP/1.1 200"] * 10
    reader, writer = await asyncio.open_connection(*address)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    held[0][1].close()
    await asyncio.sleep(0.1)
    reader, again = await asyncio.open_connection(*address)
    again.write(b"GET / HTTP/1.1\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    for each in (writer, again, *(one for _, one in held)):
        each.close()
    listener.close()


def test_half_closed_connections_are_closed(server: running.Embedded) -> None:
    before = server.open_files
    for _ in range(50):
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        plain.shutdown(socket.SHUT_WR)
        plain.recv(100)
        plain.close()
    for _ in range(50):
        connection = server.connect()
        connection.sendall(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(10)
        connection.shutdown(socket.SHUT_WR)
        connection.close()
    wait_until(lambda: server.open_files <= before + 5)


def test_nothing_but_tls_on_the_port_harms_nobody(server: running.Embedded) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"SSH-2.0-x\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain:
            plain.sendall(data)
            try:
                while plain.recv(1000):
                    pass
            except ConnectionResetError:
                pass


def test_a_certificate_of_another_authority_is_not_believed(server: running.Embedded, tmp_path: pathlib.Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = issuing.Authority.create("mallory's", now, datetime.timedelta(days=1))
    pair = authority.issue(
        "mallory", now, datetime.timedelta(days=1), uses=[issuing.Use.CLIENT], groups=["system:masters"]
    )
    pair.write(tmp_path, "mallory")
    context = ssl.create_default_context(cafile=str(server.server.ca_file))
    context.load_cert_chain(str(tmp_path / "mallory.crt"), str(tmp_path / "mallory.key"))
    answer = b""
    try:
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            connection.sendall(b"GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = running.read_answer(connection)
    except (ssl.SSLError, OSError):
        pass
    assert running.status_of(answer) in (0, 401, 403)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é", "x" * 100_000, "..", "eyJhbGciOiJub25lIn0.e30."])
def test_a_nonsensical_token_is_unauthorized(server: running.Embedded, token: str) -> None:
    head = b"GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token.encode() + b"\r\n\r\n"
    code = running.status_of(server.say(head, as_admin=False))
    assert code in ((401, 403) if not token else (401,))


def test_a_token_with_a_changed_signature_is_unauthorized(server: running.Embedded) -> None:
    path = "/api/v1/namespaces/kube-system/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    wait_until(lambda: server.request("GET", path.removesuffix("/token"))[0] == 200)
    code, answer = server.request("POST", path, body)
    assert code == 201
    token = json.loads(answer)["status"]["token"]
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    raw = json.dumps(asked).encode()

    def who(given: str) -> int:
        head = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: x\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\nAuthorization: Bearer {given}\r\n\r\n"
        return running.status_of(server.say(head.encode() + raw, as_admin=False))

    assert who(token) == 201
    header, claims, signature = token.split(".")
    swapped = ("A" if signature[10] != "A" else "B").join([signature[:10], signature[11:]])
    assert who(f"{header}.{claims}.{swapped}") == 401
    assert who(f"{header}.{claims}.") == 401
    assert who(f"{header}..{signature}") == 401
