"""Pushing an image: to whom passwords and tokens are sent, and over what."""

from __future__ import annotations

import base64
import contextlib
import http.server
import importlib.util
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bedplate.core import errors
from bedplate.serving import issuing

ROOT = Path(__file__).parents[2]
PASSWORD = "Basic " + base64.b64encode(b"me:secret").decode()
BLOB = ("sha256:1", lambda: b"content")


@pytest.fixture(scope="module")
def registrypush() -> ModuleType:
    spec = importlib.util.spec_from_file_location("registrypush", ROOT / "tools" / "registrypush.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Place:
    """A server that answers as its table says, and remembers what it was told."""

    host: str = ""
    scheme: str = "https"
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    seen: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def secrets(self) -> list[str]:
        return [authorization for _, _, authorization in self.seen if authorization]


@contextlib.contextmanager
def serving(pair: Path | None) -> Iterator[Place]:
    place = Place(scheme="https" if pair else "http")

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            authorization = self.headers.get("Authorization", "")
            place.seen.append((self.command, path, authorization))
            usual = {"HEAD": (404, {}, b""), "POST": (202, {"Location": "/upload"}, b"")}
            status, headers, body = place.answers.get(f"{self.command} {path}") or usual.get(
                self.command, (201, {}, b"")
            )
            if "WWW-Authenticate" in headers and authorization.startswith("Bearer "):
                status, headers, body = usual.get(self.command, (201, {}, b""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        if pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair / "s.crt", pair / "s.key")
            listening.socket = context.wrap_socket(listening.socket, server_side=True)
        place.host = f"127.0.0.1:{listening.server_port}"
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield place
        finally:
            listening.shutdown()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Place, Place, Place]]:
    """A registry, somebody else, and somebody else without TLS; the user has logged in to all three."""
    issuing.self_signed("s", ["127.0.0.1"], datetime.now(UTC), timedelta(hours=1)).write(tmp_path, "s")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "s.crt"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with serving(tmp_path) as registry, serving(tmp_path) as other, serving(None) as plain:
        login = {"auth": PASSWORD.removeprefix("Basic ")}
        auths = {place.host: login for place in (registry, other, plain)}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        yield registry, other, plain


def push(tool: ModuleType, place: Place, **more: Any) -> None:
    is_plain = place.scheme == "http"
    tool.push(f"{place.host}/managers:1", b"{}", "application/json", [BLOB], is_plain=is_plain, **more)


def wants_token(place: Place, realm: str) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="{realm}",service="here"'}
    place.answers["HEAD /v2/managers/blobs/sha256:1"] = (401, challenge, b"")


def test_the_password_goes_to_the_registry_over_https(registrypush: ModuleType, places: tuple[Place, ...]) -> None:
    registry, _, _ = places
    push(registrypush, registry)
    assert [(method, path) for method, path, _ in registry.seen] == [
        ("HEAD", "/v2/managers/blobs/sha256:1"),
        ("POST", "/v2/managers/blobs/uploads/"),
        ("PUT", "/upload"),
        ("PUT", "/v2/managers/manifests/1"),
    ]
    assert registry.secrets() == [PASSWORD] * 4


def test_without_tls_no_password_is_sent(registrypush: ModuleType, places: tuple[Place, ...]) -> None:
    _, _, plain = places
    push(registrypush, plain)
    assert (len(plain.seen), plain.secrets()) == (4, [])


def test_without_tls_no_token_is_fetched(registrypush: ModuleType, places: tuple[Place, ...]) -> None:
    registry, _, plain = places
    for place in (registry, plain):
        wants_token(place, f"{plain.url}/token")
        with pytest.raises(errors.Invalid, match="only over https"):
            push(registrypush, place)
    assert plain.secrets() == []
    assert "/token" not in [path for _, path, _ in plain.seen]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_host_of_tokens_gets_the_password_only_when_it_was_named(
    registrypush: ModuleType, places: tuple[Place, ...], is_named: bool
) -> None:
    registry, other, _ = places
    wants_token(registry, f"{other.url}/token")
    other.answers["GET /token"] = (200, {}, b'{"token": "good"}')
    if is_named:
        push(registrypush, registry, token_host=other.host)
        assert other.secrets() == [PASSWORD]
        assert registry.secrets()[-1] == "Bearer good"
    else:
        with pytest.raises(errors.Invalid, match=f"--token-host {other.host}"):
            push(registrypush, registry)
        assert other.seen == []


def test_the_registrys_own_tokens_need_no_name(registrypush: ModuleType, places: tuple[Place, ...]) -> None:
    registry, _, _ = places
    wants_token(registry, f"{registry.url}/token")
    registry.answers["GET /token"] = (200, {}, b'{"access_token": "good"}')
    push(registrypush, registry)
    assert registry.secrets()[-1] == "Bearer good"


def test_an_upload_elsewhere_is_made_without_the_password(registrypush: ModuleType, places: tuple[Place, ...]) -> None:
    registry, other, plain = places
    registry.answers["POST /v2/managers/blobs/uploads/"] = (202, {"Location": f"{other.url}/upload?signed=1"}, b"")
    push(registrypush, registry)
    assert [(method, path) for method, path, _ in other.seen] == [("PUT", "/upload")]
    assert other.secrets() == []
    registry.answers["POST /v2/managers/blobs/uploads/"] = (202, {"Location": f"{plain.url}/upload"}, b"")
    with pytest.raises(errors.Invalid, match="not https"):
        push(registrypush, registry)
    assert plain.seen == []


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_redirect_elsewhere_is_followed_without_the_password(
    registrypush: ModuleType, places: tuple[Place, ...], is_plain: bool
) -> None:
    registry, other, plain = places
    target = plain if is_plain else other
    registry.answers["HEAD /v2/managers/blobs/sha256:1"] = (307, {"Location": f"{target.url}/elsewhere"}, b"")
    push(registrypush, registry)
    assert target.secrets() == []


def test_a_redirect_of_the_token_does_not_take_the_password_along(
    registrypush: ModuleType, places: tuple[Place, ...]
) -> None:
    registry, other, _ = places
    wants_token(registry, f"{registry.url}/token")
    registry.answers["GET /token"] = (302, {"Location": f"{other.url}/token"}, b"")
    other.answers["GET /token"] = (200, {}, b'{"token": "good"}')
    push(registrypush, registry)
    assert other.secrets() == []
