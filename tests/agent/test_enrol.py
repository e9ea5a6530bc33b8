"""How a machine gets its certificate: the authority is pinned, requests may be repeated, files change at once."""

from __future__ import annotations

import asyncio
import datetime
import errno
import os
import random
import re
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.agent.machines import Commands

from bedplate.agent import enrol
from bedplate.agent.commands import Ended
from bedplate.api.headapi import Facts
from bedplate.core import errors
from bedplate.core.clock import ManualClock


def certificate(begins: datetime.datetime, ends: datetime.datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node001")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(2**150)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("year", [2026, 2060])
def test_the_life_of_a_certificate_is_read_without_a_library(tmp_path: Path, year: int) -> None:
    begins = datetime.datetime(year - 1, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    ends = datetime.datetime(year, 12, 30, tzinfo=datetime.UTC)
    place = tmp_path / "agent.pem"
    place.write_bytes(certificate(begins, ends) + b"-----BEGIN PRIVATE KEY-----\n")
    life = enrol.life(str(place))
    assert life == (begins.timestamp(), ends.timestamp())
    assert life.renews_s == pytest.approx(begins.timestamp() + 0.8 * (ends - begins).total_seconds())


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_not_a_certificate_has_no_life(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "agent.pem"
    place.write_bytes(content)
    assert enrol.life(str(place)) is None
    assert enrol.life(str(tmp_path / "none")) is None


async def test_the_next_certificate_is_asked_for_when_most_of_the_life_is_over(tmp_path: Path) -> None:
    clock, commands = ManualClock(), Commands()
    now = clock.now()
    place = tmp_path / "agent.pem"
    place.write_bytes(certificate(now.replace(microsecond=0), now.replace(microsecond=0) + datetime.timedelta(days=10)))
    commands.answers["renew"] = Ended(1, "", "the head is away")
    task = asyncio.create_task(
        enrol.keep_renewed(str(place), ["renew"], clock=clock, rng=random.Random(1), run=commands)
    )
    try:
        await clock.advance(7.9 * 86400)
        assert commands.ran == []
        await clock.advance(0.5 * 86400)
        assert len(commands.ran) > 10
    finally:
        task.cancel()


async def test_a_token_without_an_authority_is_refused(tmp_path: Path) -> None:
    for token in ("bph_abc", "bph_abc.12", ""):
        with pytest.raises(errors.Invalid, match="not a token for an enrolment"):
            await enrol.enrol(["https://127.0.0.1:1"], token, str(tmp_path))
    assert os.listdir(tmp_path) == []


async def test_nothing_is_sent_to_a_head_with_another_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    other = certificate(now, now + datetime.timedelta(days=1))
    for answer in (other, b"<html>"):
        monkeypatch.setattr(enrol, "_fetched", lambda url, answer=answer: answer)
        with pytest.raises(errors.Denied, match="another authority than the token names"):
            await enrol.enrol(["https://head"], f"bph_abc.{'0' * 64}", str(tmp_path))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("order", [1, -1])
def test_the_authority_that_the_token_names_is_trusted_alone(monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    now = datetime.datetime.now(datetime.UTC)
    own, added = (certificate(now, now + datetime.timedelta(days=1)) for _ in range(2))
    monkeypatch.setattr(enrol, "_fetched", lambda url: b"".join((own, added)[::order]))
    assert enrol._pinned(["https://head"], enrol._fingerprint(own)).strip() == own.strip()


def test_an_interrupted_request_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    first = enrol._key(str(tmp_path))
    assert enrol._key(str(tmp_path)) == first
    assert (tmp_path / "agent.key.new").stat().st_mode & 0o777 == 0o600
    request = x509.load_pem_x509_csr(enrol._request(first).encode())
    assert request.is_signature_valid
    enrol._settle(str(tmp_path), first, "CERTIFICATE\n", "AUTHORITY\n")
    assert sorted(os.listdir(tmp_path)) == ["agent.pem", "ca.crt"]
    assert (tmp_path / "agent.pem").read_bytes() == b"CERTIFICATE\n" + first
    assert (tmp_path / "agent.pem").stat().st_mode & 0o777 == 0o600
    assert enrol._key(str(tmp_path)) != first


def test_a_key_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    for content in (b"", b"\x8f\xff", b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"):
        (tmp_path / "agent.key.new").write_bytes(content)
        assert enrol._request(enrol._key(str(tmp_path)))


async def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    own = certificate(now, now + datetime.timedelta(days=1))
    monkeypatch.setattr(enrol, "_fetched", lambda url: own)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.Terminal, match=r"ca\.crt cannot be written: no space left on device") as told:
        await enrol.enrol(["https://head"], f"token.{enrol._fingerprint(own)}", str(tmp_path))
    assert "repeat it" in told.value.hint
    (tmp_path / "file").touch()
    with pytest.raises(errors.Terminal, match="/file/x cannot be written: not a directory"):
        await enrol.enrol(["https://head"], f"token.{enrol._fingerprint(own)}", str(tmp_path / "file/x"))


def test_a_machine_says_what_it_is(tmp_path: Path) -> None:
    for name, address, is_real in (("eth0", "02:00:0A:00:00:01", True), ("lo", "00:00:00:00:00:00", False)):
        place = tmp_path / "class/net" / name
        place.mkdir(parents=True)
        (place / "address").write_text(address + "\n")
        if is_real:
            (place / "device").mkdir()
    (tmp_path / "class/dmi/id").mkdir(parents=True)
    (tmp_path / "class/dmi/id/product_serial").write_text("ABC\x1b 1\n")
    said = enrol.facts(str(tmp_path))
    assert (said.macs, said.serial) == (["02:00:0a:00:00:01"], "ABC 1")
    assert re.fullmatch(r"[!-~]*", said.hostname)
    assert isinstance(said, Facts)
