"""Certificates that are issued: who may use them for what, until when, and how they are kept."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.core import errors
from bedplate.serving import files, issuing
from bedplate.serving.issuing import Authority, Pair, Use

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture
def authority() -> Authority:
    return Authority.create("site", NOW, 10 * DAY, path_length=0)


def loaded(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def test_an_authority_may_sign_and_nothing_below_it_may(authority: Authority) -> None:
    certificate = loaded(authority.pair)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.value.path_length, constraints.critical) == (True, 0, True)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign and usage.crl_sign
    assert certificate.not_valid_after_utc == NOW + 10 * DAY


def test_a_server_has_its_names_and_a_client_its_groups(authority: Authority) -> None:
    server = loaded(authority.issue("a", NOW, DAY, uses=[Use.SERVER], hosts=["localhost", "127.0.0.1", "::1"]))
    server.verify_directly_issued_by(loaded(authority.pair))
    assert issuing.hosts_of(server) == {"localhost", "127.0.0.1", "::1"}
    client = loaded(authority.issue("alice", NOW, DAY, uses=[Use.CLIENT], groups=["users"]))
    assert issuing.hosts_of(client) == set()
    assert client.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "users"
    uses = [list(one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) for one in (server, client)]
    assert uses == [[ExtendedKeyUsageOID.SERVER_AUTH], [ExtendedKeyUsageOID.CLIENT_AUTH]]
    for certificate in (server, client):
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
        assert certificate.not_valid_after_utc == NOW + DAY


def test_a_certificate_is_valid_for_readers_whose_clock_is_behind(authority: Authority) -> None:
    issued = loaded(authority.issue("a", NOW, DAY, uses=[Use.CLIENT]))
    assert issued.not_valid_before_utc == NOW - datetime.timedelta(hours=1)


def test_an_authority_that_was_kept_signs_as_before(authority: Authority) -> None:
    issued = Authority.load(authority.pair).issue("a", NOW, DAY, uses=[Use.CLIENT])
    loaded(issued).verify_directly_issued_by(loaded(authority.pair))
    key = serialization.load_pem_private_key(issued.key, None)
    assert key.public_key() == loaded(issued).public_key()


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    other = Authority.create("other", NOW, DAY)
    with pytest.raises(ValueError, match="does not belong"):
        Authority.load(Pair(authority.pair.certificate, other.pair.key))


def test_only_the_owner_may_read_a_key(authority: Authority, tmp_path: Path) -> None:
    authority.pair.write(tmp_path, "ca")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="cannot write"):
        files.write_private(tmp_path / "missing" / "file", b"")
