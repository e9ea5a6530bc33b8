"""The TLS flags: Go's names for versions, cipher suites and curves, in OpenSSL's words.

In: the secure serving flags. Out: problems, and an `ssl.SSLContext` with the choices made. Reads no certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.cloud.manager.options_serving import SecureServing

__all__ = ["CIPHERS", "Sni", "apply", "parse_sni", "problems"]

VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
# The suites of TLS 1.2 that Go offers, under OpenSSL's names; those of TLS 1.3 cannot be chosen, there as here.
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
ALIASES = {
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
}
# By name and by the number that IANA gave; those without an OpenSSL name here cannot be enforced alone.
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": ""}
CURVES |= {"X25519MLKEM768": "", "SecP256r1MLKEM768": "", "SecP384r1MLKEM1024": ""}
CURVE_NUMBERS = {
    "23": "CurveP256",
    "24": "CurveP384",
    "25": "CurveP521",
    "29": "X25519",
    "4588": "X25519MLKEM768",
    "4587": "SecP256r1MLKEM768",
    "4589": "SecP384r1MLKEM1024",
}
_DEFAULT_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True, slots=True)
class Sni:
    """A pair for certain names; without names, for those in the certificate."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()


def parse_sni(text: str) -> Sni:
    """`CERT,KEY` or `CERT,KEY:NAME,NAME`, as Kubernetes writes it; raises ValueError."""
    files, _, hosts = text.partition(":")
    cert, comma, key = (part.strip() for part in files.partition(","))
    if not comma or not cert or not key or "," in key:
        raise ValueError(f"{text!r} is not CERT,KEY or CERT,KEY:NAME")
    return Sni(cert, key, tuple(name.strip().lower() for name in hosts.split(",") if name.strip()))


def problems(serving: SecureServing) -> Iterator[str]:
    """What is wrong with the TLS flags."""
    if bool(serving.tls_cert_file) != bool(serving.tls_private_key_file):
        yield "--tls-cert-file and --tls-private-key-file: give both or neither"
    if serving.tls_min_version and serving.tls_min_version not in VERSIONS:
        yield f"--tls-min-version: {serving.tls_min_version!r} is none of {', '.join(VERSIONS)}"
    for name in serving.tls_cipher_suites:
        if ALIASES.get(name, name) not in CIPHERS and name not in TLS13_CIPHERS:
            yield f"--tls-cipher-suites: {name!r} is not supported (there are: {', '.join(CIPHERS)})"
    for name in serving.tls_curve_preferences:
        if CURVE_NUMBERS.get(name, name) not in CURVES:
            yield f"--tls-curve-preferences: {name!r} is none of {', '.join(CURVES)}"
    for text in serving.tls_sni_cert_key:
        try:
            parse_sni(text)
        except ValueError as err:
            yield f"--tls-sni-cert-key: {err}"


def apply(serving: SecureServing, context: ssl.SSLContext) -> None:
    """Make the choices on a context."""
    context.minimum_version = VERSIONS[serving.tls_min_version or "VersionTLS12"]
    chosen = [
        CIPHERS[name] for name in (ALIASES.get(name_, name_) for name_ in serving.tls_cipher_suites) if name in CIPHERS
    ]
    context.set_ciphers(":".join(chosen) or _DEFAULT_CIPHERS)
    curves = [CURVES[CURVE_NUMBERS.get(name, name)] for name in serving.tls_curve_preferences]
    if len(curves) == 1 and curves[0]:
        context.set_ecdh_curve(curves[0])
