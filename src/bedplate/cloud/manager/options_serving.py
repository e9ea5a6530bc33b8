"""Flags of the HTTPS port: where it listens, its certificates, who may read what. Declarations only."""

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass

from bedplate.core.flags import Duration, Repeated, flag

__all__ = ["Authentication", "Authorization", "SecureServing", "Webhook", "WebhookServing"]

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
    secure_port: int = flag(10258, "Port of HTTPS; 0: no serving.")
    tls_cert_file: str = flag("", "Certificate and chain, read again when changed. Needs --tls-private-key-file.")
    tls_cipher_suites: tuple[str, ...] = flag((), "Cipher suites of TLS 1.2 by their IANA names; empty: good ones.")
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
    authentication_token_webhook_cache_ttl: Duration = flag(10.0, "How long the review of a token is used again.")
    authentication_tolerate_lookup_failure: bool = flag(
        False, "Go on, with tokens alone, when that config map may not be read. Without this it is an error."
    )
    client_ca_file: str = flag("", "Authorities of client certificates; else those of that config map.")
    requestheader_allowed_names: tuple[str, ...] = flag(
        (), "Common names of proxies that may say who asks; empty: any that --requestheader-client-ca-file vouches for."
    )
    requestheader_client_ca_file: str = flag("", "Authorities of such proxies; else those of that config map.")
    requestheader_extra_headers_prefix: tuple[str, ...] = flag(
        ("x-remote-extra-",), "Prefix of headers with more about the user."
    )
    requestheader_group_headers: tuple[str, ...] = flag(("x-remote-group",), "Headers with the user's groups.")
    requestheader_uid_headers: tuple[str, ...] = flag((), "Headers with the user's UID.")
    requestheader_username_headers: tuple[str, ...] = flag(("x-remote-user",), "Headers with the user's name.")


@dataclass(frozen=True, slots=True)
class Authorization:
    """What they may ask."""

    authorization_always_allow_paths: tuple[str, ...] = flag(
        ("/healthz", "/readyz", "/livez"), "Paths for everybody; one that ends in * is a prefix."
    )
    authorization_kubeconfig: str = flag(
        "", "Cluster that reviews access; empty: the cluster of --kubeconfig, or the one this runs in."
    )
    authorization_webhook_cache_authorized_ttl: Duration = flag(10.0, "How long a yes is used again.")
    authorization_webhook_cache_unauthorized_ttl: Duration = flag(10.0, "How long a no is used again.")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Webhooks of the manager."""

    webhooks: tuple[str, ...] = flag((), "Webhooks to serve; none exists, so any name is an error.")


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
