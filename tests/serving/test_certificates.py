"""Certificates of serving programs: renewed files, self-signed pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.core.clock import SystemClock
from bedplate.serving.certificates import Reloader, self_signed


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
