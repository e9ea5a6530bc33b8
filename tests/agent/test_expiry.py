"""When certificates of a node end: what is read of files, and what the check says."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bedplate.agent import expiry
from bedplate.agent.files import Root
from bedplate.serving import issuing

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(days: int) -> bytes:
    return issuing.self_signed("x", ["x"], NOW, timedelta(days=days)).certificate


def node(folder: Path, days: int) -> Root:
    pki = folder / "etc/kubernetes/pki/default"
    pki.mkdir(parents=True)
    (pki / "ca.crt").write_bytes(certificate(3650))
    (pki / "front-proxy-client.crt").write_bytes(certificate(days))
    inner = base64.b64encode(certificate(400)).decode()
    text = f"users:\n- name: x\n  user:\n    client-certificate-data: {inner}\n"
    (folder / "etc/kubernetes/scheduler.conf").write_text(text)
    return Root(str(folder), is_privileged=False)


@pytest.mark.parametrize("days", [1, 365, 3650, 12000])
def test_the_end_is_that_of_the_certificate_before_and_after_2050(days: int) -> None:
    assert expiry.ends(certificate(days)) == NOW + timedelta(days=days)


def test_a_file_without_a_certificate_has_no_end_and_a_damaged_one_is_told() -> None:
    assert expiry.ends(b"nothing") is None
    whole = certificate(1)
    # The first letter is that of the outermost tag.
    for bad in (whole[: len(whole) // 2], whole.replace(b"\nM", b"\nA", 1)):
        with pytest.raises(ValueError):
            expiry.ends(bad)


def test_item_180_certificates_are_found_in_files_and_in_kubeconfigs_soonest_first(tmp_path: Path) -> None:
    found = expiry.certificates(node(tmp_path, 100))
    assert [each.path for each in found] == [
        "/etc/kubernetes/pki/default/front-proxy-client.crt",
        "/etc/kubernetes/scheduler.conf",
        "/etc/kubernetes/pki/default/ca.crt",
    ]
    result = expiry.judge(found, NOW)
    assert result is not None and (result.status, result.value) == ("PASS", 100.0)


def test_item_180_the_check_fails_a_month_before_and_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    root = node(tmp_path, 29)
    (tmp_path / "etc/kubernetes/pki/default/apiserver.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    result = expiry.judge(expiry.certificates(root), NOW)
    assert result is not None and result.status == "FAIL"
    assert "front-proxy-client.crt ends on 2026-01-30" in result.info and "apiserver.crt: it is cut off" in result.info
    assert "--renew-certificates" in result.remedy
    assert expiry.judge([], NOW) is None, "a node without Kubernetes is not judged"
