"""A small HTTPS server that plays an admission webhook, with a certificate of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import ipaddress
import json
import pathlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Json = Any
Decide = Callable[[Json], Json]


def _certificate() -> tuple[bytes, bytes]:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook.test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


class Hook:
    """A running webhook: its address, its certificate and the requests it was asked about, in order."""

    def __init__(self, url: str, certificate: bytes) -> None:
        self.url = url
        self.certificate = certificate
        self.requests: list[Json] = []

    @property
    def client_config(self) -> Json:
        return {"url": f"{self.url}/admit", "caBundle": base64.b64encode(self.certificate).decode()}


def allow(**fields: Any) -> Json:
    return {"allowed": True, **fields}


def deny(message: str, code: int = 403, reason: str = "Forbidden") -> Json:
    return {"allowed": False, "status": {"message": message, "code": code, "reason": reason}}


def mutate(*operations: Json) -> Json:
    patch = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@contextlib.asynccontextmanager
async def running(decide: Decide, delay_s: float = 0.0) -> AsyncIterator[Hook]:
    """Serve `decide(request) -> response` (both of an AdmissionReview, without the uid) until the block ends."""
    certificate, key = _certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        bundle = pathlib.Path(folder) / "tls.pem"
        bundle.write_bytes(certificate + key)
        context.load_cert_chain(bundle)
    hook: Hook

    async def admit(request: web.Request) -> web.Response:
        review = await request.json()
        hook.requests.append(review["request"])
        await asyncio.sleep(delay_s)
        response = {"uid": review["request"]["uid"], **decide(review["request"])}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})

    app = web.Application()
    app.router.add_post("/admit", admit)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    hook = Hook(f"https://127.0.0.1:{port}", certificate)
    try:
        yield hook
    finally:
        await runner.cleanup()
