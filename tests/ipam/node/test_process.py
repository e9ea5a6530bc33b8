"""How the program starts: quickly, and with nothing that it does not need."""

from __future__ import annotations

import ssl

import pytest

from bedplate.ipam.node import process


def test_contexts_made_without_authorities_trust_nobody() -> None:
    with process.without_authorities():
        context = ssl.create_default_context()
    assert context.cert_store_stats()["x509_ca"] == 0
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def test_later_contexts_have_the_systems_authorities_again_also_after_a_failure() -> None:
    usual = ssl.SSLContext.set_default_verify_paths
    with pytest.raises(ImportError), process.without_authorities():
        raise ImportError
    assert ssl.SSLContext.set_default_verify_paths is usual
