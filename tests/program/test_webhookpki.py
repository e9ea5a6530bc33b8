"""The webhook's own certificates: made once, renewed in time, never a gap in trust."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from bedplate.program import webhookpki as pki
from bedplate.program.webhookcertificates import ServingPair

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NAMES = pki.serving_names("nv-ipam-webhook-service", "kube-system")


def authorities(pair: pki.Pair) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pair.authority)


def serving(pair: pki.Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def test_a_new_pair_is_signed_by_its_authority_and_names_the_service() -> None:
    made = pki.renewed(pki.Pair(), NAMES, NOW)
    serving(made).verify_directly_issued_by(authorities(made)[0])
    covered = serving(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "nv-ipam-webhook-service.kube-system.svc" in covered.get_values_for_type(x509.DNSName)
    assert ServingPair().use(made.certificate, made.key)


def test_a_good_pair_stays_as_it_is() -> None:
    made = pki.renewed(pki.Pair(), NAMES, NOW)
    assert pki.renewed(made, NAMES, NOW + timedelta(days=200)) is made
    assert pki.Pair.of(made.data()) == made


def test_the_serving_certificate_is_renewed_in_time_by_the_same_authority() -> None:
    made = pki.renewed(pki.Pair(), NAMES, NOW)
    later = pki.renewed(made, NAMES, NOW + timedelta(days=310))
    assert later.authority == made.authority and later.certificate != made.certificate
    serving(later).verify_directly_issued_by(authorities(made)[0])


def test_other_names_need_another_certificate() -> None:
    made = pki.renewed(pki.Pair(), NAMES, NOW)
    other = pki.renewed(made, (*NAMES, "more.example"), NOW)
    assert other.certificate != made.certificate and other.authority == made.authority


def test_an_old_authority_is_followed_by_a_new_one_and_both_are_trusted() -> None:
    made = pki.renewed(pki.Pair(), NAMES, NOW)
    late = NOW + timedelta(days=3300)
    later = pki.renewed(made, NAMES, late)
    found = authorities(later)
    assert len(found) == 2 and found[1] == authorities(made)[0]
    serving(later).verify_directly_issued_by(found[0])
    # When the old one has ended, it is no longer published.
    last = pki.renewed(later, NAMES, late + timedelta(days=3400))
    assert authorities(made)[0] not in authorities(last)


@pytest.mark.parametrize("broken", ["authority", "authority_key", "certificate", "key"])
def test_a_broken_part_is_made_anew(broken: str) -> None:
    made = pki.renewed(pki.Pair(), NAMES, NOW)
    data = {"authority": made.authority, "authority_key": made.authority_key}
    data |= {"certificate": made.certificate, "key": made.key, broken: b"nonsense"}
    again = pki.renewed(pki.Pair(**data), NAMES, NOW)
    serving(again).verify_directly_issued_by(authorities(again)[0])
    assert ServingPair().use(again.certificate, again.key)


def test_a_pair_that_does_not_fit_is_refused_and_the_good_one_stays() -> None:
    one, two = pki.renewed(pki.Pair(), NAMES, NOW), pki.renewed(pki.Pair(), NAMES, NOW)
    presented = ServingPair()
    assert presented.use(one.certificate, one.key) and not presented.use(one.certificate, one.key)
    with pytest.raises(ValueError, match="no matching certificate"):
        presented.use(one.certificate, two.key)
    assert presented.is_ready
