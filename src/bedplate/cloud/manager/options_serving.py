"""Flags of the HTTPS port: where it listens, its certificates, who may read what; and what those of TLS mean.

In: the secure serving flags, with the names that Go has for versions, cipher suites and curves. Out: problems, and the
choices made on an `ssl.SSLContext`, in the words of OpenSSL. Reads no certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.core.flags import Duration, Repeated, flag

__all__ = [
    "CIPHERS",
    "Authentication",
    "Authorization",
    "SecureServing",
    "Sni",
    "Webhook",
    "WebhookServing",
    "apply_tls",
    "parse_sni",
    "tls_problems",
]

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009


_NO_WEBHOOK = "Accepted without effect: no webhook exists."
_HTTP1 = "Accepted without effect: HTTP/1.1 is served."


@dataclass(frozen=True, slots=True)
class SecureServing:
    """The port of health, metrics and debugging."""

    bind_address: str = flag("0.0.0.0", "Address to listen on; 0.0.0.0 and :: mean all.")
    cert_dir: str = flag(
        "", "Folder for a self-signed pair, cloud-controller-manager.crt and .key; empty: it is kept in memory."
    )
    disable_http2_serving: bool = flag(False, _HTTP1)
    http2_max_streams_per_connection: int = flag(0, _HTTP1)
    permit_address_sharing: bool = flag(
        False, "Accepted without effect: SO_REUSEADDR is always set, so that a restart need not wait."
    )
    permit_port_sharing: bool = flag(False, "Set SO_REUSEPORT: several processes may listen on the port.")
    secure_port: int = flag(10258, "HTTPS port; 0: do not serve.")
    tls_cert_file: str = flag("", "Certificate and chain, read again when changed. Needs --tls-private-key-file.")
    tls_cipher_suites: tuple[str, ...] = flag(
        (), "Cipher suites of TLS 1.2 by their IANA names; empty: secure defaults."
    )
    tls_curve_preferences: tuple[str, ...] = flag(
        (),
        "Key exchange: CurveP256, CurveP384, CurveP521 or X25519. A single NIST curve is enforced; of a list, "
        "the choice is left to OpenSSL.",
    )
    tls_min_version: str = flag("", "VersionTLS10, VersionTLS11, VersionTLS12 (default) or VersionTLS13.")
    tls_private_key_file: str = flag("", "Key of --tls-cert-file.")
    tls_sni_cert_key: Repeated = flag(
        (), "CERT,KEY or CERT,KEY:NAME,*.NAME: a certificate for these names (default: its own). Repeatable."
    )
    address: str = flag("", "The old name of --bind-address.", deprecated="use --bind-address")
    port: int = flag(
        0, "Accepted without effect: nothing is served without TLS.", deprecated="use --secure-port, which serves TLS"
    )


@dataclass(frozen=True, slots=True)
class Authentication:
    """Who asks."""

    authentication_kubeconfig: str = flag(
        "", "Cluster that reviews tokens; empty: the cluster of --kubeconfig, or the one this runs in."
    )
    authentication_skip_lookup: bool = flag(
        False, "Do not read the authorities of client certificates from kube-system/extension-apiserver-authentication."
    )
    authentication_token_webhook_cache_ttl: Duration = flag(10.0, "How long the review of a token is cached.")
    authentication_tolerate_lookup_failure: bool = flag(
        False, "Continue with tokens only if that ConfigMap cannot be read. Without this flag it is an error."
    )
    client_ca_file: str = flag("", "Authorities of client certificates; default: those in that ConfigMap.")
    requestheader_allowed_names: tuple[str, ...] = flag(
        (),
        "Common names of proxies that may set user headers; empty: any with a "
        "certificate of --requestheader-client-ca-file.",
    )
    requestheader_client_ca_file: str = flag("", "Authorities of such proxies; default: those in that ConfigMap.")
    requestheader_extra_headers_prefix: tuple[str, ...] = flag(
        ("x-remote-extra-",), "Prefix of headers with extra information about the user."
    )
    requestheader_group_headers: tuple[str, ...] = flag(("x-remote-group",), "Headers with the user's groups.")
    requestheader_uid_headers: tuple[str, ...] = flag((), "Headers with the user's UID.")
    requestheader_username_headers: tuple[str, ...] = flag(("x-remote-user",), "Headers with the user's name.")


@dataclass(frozen=True, slots=True)
class Authorization:
    """What they may ask."""

    authorization_always_allow_paths: tuple[str, ...] = flag(
        ("/healthz", "/readyz", "/livez"), "Paths that need no authorization; a trailing * matches a prefix."
    )
    authorization_kubeconfig: str = flag(
        "", "Cluster that reviews access; empty: the cluster of --kubeconfig, or the one this runs in."
    )
    authorization_webhook_cache_authorized_ttl: Duration = flag(10.0, "How long an 'allowed' review is cached.")
    authorization_webhook_cache_unauthorized_ttl: Duration = flag(10.0, "How long a 'denied' review is cached.")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Webhooks of the manager."""

    webhooks: tuple[str, ...] = flag((), "Webhooks to serve; there are none, so any name is an error.")


@dataclass(frozen=True, slots=True)
class WebhookServing:
    """Their port. Checked, and without effect while there is no webhook."""

    webhook_bind_address: str = flag("0.0.0.0", _NO_WEBHOOK)
    webhook_cert_dir: str = flag("", _NO_WEBHOOK)
    webhook_disable_http2_serving: bool = flag(False, _NO_WEBHOOK)
    webhook_secure_port: int = flag(10260, _NO_WEBHOOK + " 0: off; must differ from --secure-port.")
    webhook_tls_cert_file: str = flag("", _NO_WEBHOOK)
    webhook_tls_cipher_suites: tuple[str, ...] = flag((), _NO_WEBHOOK)
    webhook_tls_curve_preferences: tuple[str, ...] = flag((), _NO_WEBHOOK)
    webhook_tls_min_version: str = flag("", _NO_WEBHOOK)
    webhook_tls_private_key_file: str = flag("", _NO_WEBHOOK)
    webhook_tls_sni_cert_key: Repeated = flag((), _NO_WEBHOOK)


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


def tls_problems(serving: SecureServing) -> Iterator[str]:
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


def apply_tls(serving: SecureServing, context: ssl.SSLContext) -> None:
    """Make the choices on a context."""
    context.minimum_version = VERSIONS[serving.tls_min_version or "VersionTLS12"]
    chosen = [
        CIPHERS[name] for name in (ALIASES.get(name_, name_) for name_ in serving.tls_cipher_suites) if name in CIPHERS
    ]
    context.set_ciphers(":".join(chosen) or _DEFAULT_CIPHERS)
    curves = [CURVES[CURVE_NUMBERS.get(name, name)] for name in serving.tls_curve_preferences]
    if len(curves) == 1 and curves[0]:
        context.set_ecdh_curve(curves[0])
