"""A person's client certificate: through the cluster's CertificateSigningRequests, or by the key of its authority.

In: a client, the user's name, a lifetime, and where there is one the authority's certificate and key. Out: a
certificate with CN = user and its new key, and the day it expires. An authority that was given signs at once; one that
was found on this machine only where the cluster itself does not sign. A request to the cluster is approved here and
deleted again; its private key never leaves this process. Nothing is written to disk here.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from bedplate.api.resources import custom
from bedplate.core import clock, errors
from bedplate.kube import Client
from bedplate.people.kubeconfig import Credentials

__all__ = ["LIFE", "Authority", "expiry_of", "find_authority", "obtain", "user_of", "validity_of"]

LIFE = timedelta(days=365)
REQUESTS = custom("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False)
SIGNER = "kubernetes.io/kube-apiserver-client"
LABEL = "bedplate.people/user-certificate"
# How long a signer may take when there is another way; without one the caller's patience decides.
SIGNER_S = 10.0
STEP_S = 0.1


class Authority(msgspec.Struct, frozen=True):
    """The cluster's authority, as files."""

    certificate: Path
    key: Path
    is_given: bool = True
    """By a flag; False where it was found on this machine."""


def expiry_of(certificate: bytes) -> datetime:
    """When a certificate (PEM) expires. Raises `ValueError` for what is none."""
    return validity_of(certificate)[1]


def validity_of(certificate: bytes) -> tuple[datetime, datetime]:
    """From when until when a certificate (PEM) is valid. Raises `ValueError` for what is none."""
    from cryptography import x509

    parsed = x509.load_pem_x509_certificate(certificate)
    return parsed.not_valid_before_utc, parsed.not_valid_after_utc


def user_of(certificate: bytes) -> str:
    """The common name of a certificate (PEM). Raises `ValueError` for what is none."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    names = x509.load_pem_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def find_authority(given: Authority | None, ca: bytes, cluster: str, folder: Path) -> Authority | None:
    """The authority that was given, else that of this machine where its certificate is the one clients trust.

    `ca`: the certificates that the cluster's kubeconfig trusts. `folder`: where kubeadm keeps its keys.
    """
    if given is not None:
        return given
    for place in (folder / cluster, folder):
        pair = Authority(place / "ca.crt", place / "ca.key", is_given=False)
        with contextlib.suppress(OSError):
            if pair.key.exists() and pair.certificate.read_bytes().strip() in ca:
                return pair
    return None


async def obtain(
    client: Client, user: str, life: timedelta, authority: Authority | None, timeout_s: float, time: clock.Clock
) -> Credentials:
    """A new certificate for the user. Raises an error that names both ways when neither leads to one."""
    key, request = _new_request(user)
    if authority is not None and authority.is_given:
        certificate = _signed_here(authority, user, request, life, time.now())
    else:
        patience_s = min(timeout_s, SIGNER_S) if authority is not None else timeout_s
        try:
            certificate = await _signed_by_cluster(client, user, request, life, patience_s, time)
        except (errors.Denied, errors.NotFound, errors.Invalid, errors.Unavailable):
            if authority is None:
                raise
            certificate = _signed_here(authority, user, request, life, time.now())
    _check(certificate, user)
    return Credentials(certificate, key)


def _new_request(user: str) -> tuple[bytes, bytes]:
    """A private key and a signing request, both PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem, request.public_bytes(serialization.Encoding.PEM)


async def _signed_by_cluster(
    client: Client, user: str, request: bytes, life: timedelta, patience_s: float, time: clock.Clock
) -> bytes:
    name = f"bedplate-user-{secrets.token_hex(8)}"
    body = {
        "metadata": {"name": name, "labels": {LABEL: "true"}},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": SIGNER,
            "expirationSeconds": int(life.total_seconds()),
            "usages": ["digital signature", "client auth"],
        },
    }
    created = await client.create(REQUESTS, body)
    try:
        condition = {
            "type": "Approved",
            "status": "True",
            "reason": "UserManagement",
            "message": f"approved for the user {user} by cm-kubernetes-setup",
        }
        approved = {**created, "status": {**(created.get("status") or {}), "conditions": [condition]}}
        await client.update(REQUESTS, approved, subresource="approval")
        return await _certificate(client, name, user, patience_s, time)
    finally:
        with contextlib.suppress(errors.BedplateError):
            await client.delete(REQUESTS, name)


async def _certificate(client: Client, name: str, user: str, patience_s: float, time: clock.Clock) -> bytes:
    deadline = time.monotonic() + patience_s
    while True:
        status = (await client.get(REQUESTS, name)).get("status") or {}
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        for condition in status.get("conditions") or ():
            if condition.get("type") in ("Denied", "Failed"):
                raise errors.Denied(
                    f"the cluster refused the certificate of {user}: {condition.get('message') or condition['type']}"
                )
        if time.monotonic() >= deadline:
            raise errors.Unavailable(
                f"nobody signed the certificate of {user} within {patience_s:.0f} s",
                hint="run kube-controller-manager with --cluster-signing-cert-file and --cluster-signing-key-file,"
                " or pass the cluster's CA with --ca-cert and --ca-key",
            )
        await time.sleep(STEP_S)


def _signed_here(authority: Authority, user: str, request: bytes, life: timedelta, now: datetime) -> bytes:
    from bedplate.serving import issuing

    try:
        pair = issuing.Pair(authority.certificate.read_bytes(), authority.key.read_bytes())
        signer = issuing.Authority.load(pair)
    except (OSError, ValueError) as err:
        raise errors.Invalid(
            f"the authority {authority.certificate} with {authority.key} cannot be used: {err}",
            hint="give the cluster's own CA with --ca-cert and --ca-key",
        ) from err
    return signer.certify(issuing.requested_key(request), user, now, life, uses=[issuing.Use.CLIENT])


def _check(certificate: bytes, user: str) -> None:
    """A signer may answer with anything; nobody gets a certificate for someone else."""
    try:
        named = user_of(certificate)
    except ValueError as err:
        raise errors.Unavailable(f"the cluster answered with no certificate for {user}: {err}") from err
    if named != user:
        raise errors.Denied(f"the cluster signed a certificate for {named!r}, not for {user!r}: it is not used")
