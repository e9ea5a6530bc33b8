"""Secrets are stars in what people pass on; everything else stays readable."""

from __future__ import annotations

import pytest

from bedplate.api.masking import masked


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n", "MHcCAQEE"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEcutoff", "MIIEcutoff"),
        ("    client-key-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg"),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("kubeadm join --token abcdef.0123456789abcdef", "0123456789abcdef"),
        ("token=eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2lnbmF0dXJl", "eyJpc3MiOiJr"),
        ('{"password": "hunter22"}', "hunter22"),
        ("--docker-io-password=hunter22", "hunter22"),
        ("certificate-key: 0011223344", "0011223344"),
        ("https://user:hunter22@registry.example/v2", "hunter22"),
    ],
)
def test_item_221_secrets_are_stars(text: str, secret: str) -> None:
    assert secret not in masked(text) and "*****" in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "node001 UP KubernetesCertificates PASS",
        "certificate /etc/kubernetes/pki/default/sa.crt 2027-01-01T00:00:00Z",
        "the bootstrap token is valid for two hours",
        "--token-file=/etc/kubernetes/token",
        "automountServiceAccountToken: false",
        "https://10.77.0.2:6443/readyz",
        "client-certificate-data: LS0t",
    ],
)
def test_what_is_not_secret_stays(text: str) -> None:
    assert masked(text) == text
