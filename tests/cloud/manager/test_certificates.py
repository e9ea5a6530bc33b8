"""The certificates of the port: self-signed or given, by server name, read again, and whom they trust."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.kube.certs import Authority

from bedplate.cloud.manager.certificates import ServingCertificates
from bedplate.cloud.manager.options_serving import SecureServing
from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock


@contextlib.asynccontextmanager
async def listening(certificates: ServingCertificates) -> AsyncIterator[int]:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.write(b"known" if certificate else b"nobody")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=certificates.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, name: str | None = None, identity: Path | None = None) -> tuple[bytes, bytes]:
    """The certificate that is shown, in DER, and the greeting."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if identity is not None:
        context.load_cert_chain(identity)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")
    shown = writer.get_extra_info("ssl_object").getpeercert(True)
    try:
        greeting = await reader.read()
    except (ssl.SSLError, ConnectionError):
        # With TLS 1.3 a client learns only afterwards that its certificate was not taken.
        greeting = b""
    finally:
        writer.close()
    return shown, greeting or b"refused"


def pair(authority: Authority, folder: Path, name: str, hosts: tuple[str, ...] = ()) -> tuple[Path, Path]:
    made = authority.issue(name, hosts)
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(made.cert)
    key.write_bytes(made.key)
    return cert, key


async def test_without_files_a_pair_is_made_that_leaves_no_trace(tmp_path: Path) -> None:
    async with listening(ServingCertificates(SecureServing(), SystemClock())) as port:
        shown, greeting = await ask(port)
    assert b"cloud-controller-manager@" in shown
    assert b"localhost" in shown
    assert greeting == b"nobody"


async def test_a_folder_keeps_the_pair_for_the_next_start(tmp_path: Path) -> None:
    serving = SecureServing(cert_dir=str(tmp_path))
    async with listening(ServingCertificates(serving, SystemClock())) as port:
        first, _ = await ask(port)
    async with listening(ServingCertificates(serving, SystemClock())) as port:
        assert (await ask(port))[0] == first
    assert {file.name for file in tmp_path.iterdir()} == {
        "cloud-controller-manager.crt",
        "cloud-controller-manager.key",
    }
    assert (tmp_path / "cloud-controller-manager.key").stat().st_mode & 0o77 == 0


async def test_changed_files_are_served_and_broken_ones_are_not(tmp_path: Path) -> None:
    authority = Authority()
    cert, key = pair(authority, tmp_path, "tls")
    certificates = ServingCertificates(
        SecureServing(tls_cert_file=str(cert), tls_private_key_file=str(key)), SystemClock()
    )
    assert not certificates.check()
    async with listening(certificates) as port:
        first, _ = await ask(port)
        cert.write_bytes(b"half a certificate")
        assert not certificates.check()
        assert (await ask(port))[0] == first
        pair(authority, tmp_path, "tls")
        assert certificates.check()
        assert (await ask(port))[0] != first


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_self_signed_pair_is_made_anew_in_time(tmp_path: Path, is_kept: bool) -> None:
    time = ManualClock()
    certificates = ServingCertificates(SecureServing(cert_dir=str(tmp_path) if is_kept else ""), time)
    await time.advance(timedelta(days=357).total_seconds())
    assert not certificates.check()
    await time.advance(timedelta(days=2).total_seconds())
    assert certificates.check()
    assert not certificates.check()


async def test_a_name_has_its_own_certificate(tmp_path: Path) -> None:
    authority = Authority()
    named, given = pair(authority, tmp_path, "named", ("a.example.com",)), pair(authority, tmp_path, "given")
    serving = SecureServing(
        tls_sni_cert_key=(f"{named[0]},{named[1]}", f"{given[0]},{given[1]}:*.example.org,b.example.com")
    )
    async with listening(ServingCertificates(serving, SystemClock())) as port:
        for name, part in (
            ("a.example.com", b"named"),
            ("b.example.com", b"given"),
            ("x.example.org", b"given"),
            ("c.example.com", b"cloud-controller-manager@"),
            (None, b"cloud-controller-manager@"),
        ):
            assert part in (await ask(port, name))[0], name


async def test_trust_follows_what_is_told_while_it_runs(tmp_path: Path) -> None:
    first, second = Authority("first"), Authority("second")
    identities = {}
    for name, authority in (("one", first), ("two", second)):
        made = authority.issue(name)
        identities[name] = tmp_path / f"{name}.pem"
        identities[name].write_bytes(made.cert + made.key)
    certificates = ServingCertificates(SecureServing(), SystemClock())
    async with listening(certificates) as port:
        assert (await ask(port, identity=identities["one"]))[1] == b"nobody"
        certificates.trust(first.pem.decode())
        assert (await ask(port, identity=identities["one"]))[1] == b"known"
        assert (await ask(port))[1] == b"nobody"
        assert (await ask(port, identity=identities["two"]))[1] == b"refused"
        certificates.trust(second.pem.decode())
        assert (await ask(port, identity=identities["two"]))[1] == b"known"
        assert (await ask(port, identity=identities["one"]))[1] == b"refused"
        certificates.trust("no certificate")
        assert (await ask(port, identity=identities["two"]))[1] == b"known"


async def test_the_oldest_version_and_the_ciphers_are_those_of_the_flags() -> None:
    serving = SecureServing(tls_min_version="VersionTLS13", tls_curve_preferences=("CurveP384",))
    context = ServingCertificates(serving, SystemClock()).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    context = ServingCertificates(SecureServing(tls_cipher_suites=(name,)), SystemClock()).context
    assert {one["name"] for one in context.get_ciphers() if "TLSv1.2" in one["protocol"]} == {
        "ECDHE-ECDSA-AES256-GCM-SHA384"
    }


def test_files_that_do_not_fit_are_refused_at_the_start(tmp_path: Path) -> None:
    cert, _ = pair(Authority(), tmp_path, "one")
    _, key = pair(Authority(), tmp_path, "two")
    with pytest.raises(errors.Invalid, match="cannot be used"):
        ServingCertificates(SecureServing(tls_cert_file=str(cert), tls_private_key_file=str(key)), SystemClock())
