"""Service account tokens: signed on request, checked on every use.

In: a key pair (made once per data directory), a service account, audiences, a lifetime. Out: a compact JWT (ES256), or,
for a token, who it stands for and until when. That the account (and the object the token is bound to) still exists is
asked of the caller, since only the registry knows.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bedplate.core import errors
from bedplate.core.clock import Clock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["DEFAULT_AUDIENCE", "ISSUER", "Claims", "Signer"]

ISSUER = "https://kubernetes.default.svc.cluster.local"
DEFAULT_AUDIENCE = ISSUER
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says, after its signature and times were found good."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    expires: int
    token_id: str
    bound: tuple[str, str, str] | None = None
    """(kind, name, uid) of the Pod, Secret or Node the token lives and dies with."""


class Signer:
    """Signs and checks tokens with one key; checked tokens are remembered until they expire."""

    def __init__(self, key: EllipticCurvePrivateKey, clock: Clock) -> None:
        from cryptography.hazmat.primitives import serialization

        self._key = key
        self._clock = clock
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_id = _encode(hashlib.sha256(public).digest())
        self._header = _encode(msgspec.json.encode({"alg": "ES256", "kid": self.key_id, "typ": "JWT"}))
        self._checked: dict[str, Claims] = {}

    @classmethod
    def open(cls, path: Path, clock: Clock) -> Signer:
        """Read the key, or make and keep one on first use."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        if path.exists():
            try:
                key = serialization.load_pem_private_key(path.read_bytes(), None)
            except ValueError as err:
                raise errors.Invalid(
                    f"{path} is not a private key: {err}", hint="restore it, or remove it to void all tokens"
                ) from err
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise errors.Invalid(f"{path} is not an elliptic-curve key", hint="remove it to have one made")
            return cls(key, clock)
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.touch(mode=0o600)
        path.write_bytes(pem)
        return cls(key, clock)

    def sign(self, claims: Claims) -> str:
        """The token for these claims, valid from now."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        now = int(self._clock.now().timestamp())
        private: dict[str, Any] = {
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.name, "uid": claims.uid},
        }
        if claims.bound is not None:
            kind, name, uid = claims.bound
            private[kind.lower()] = {"name": name, "uid": uid}
        body = {
            "aud": list(claims.audiences),
            "exp": claims.expires,
            "iat": now,
            "iss": ISSUER,
            "jti": claims.token_id,
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"system:serviceaccount:{claims.namespace}:{claims.name}",
        }
        signed = f"{self._header}.{_encode(msgspec.json.encode(body))}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def check(self, token: str) -> Claims:
        """The claims of a good token; raises `Denied` with the reason otherwise."""
        claims = self._checked.get(token)
        if claims is None:
            claims = self._verify(token)
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked[token] = claims
        if claims.expires <= self._clock.now().timestamp():
            self._checked.pop(token, None)
            raise errors.Denied("service account token has expired")
        return claims

    def _verify(self, token: str) -> Claims:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        try:
            head, body, signature = token.split(".")
            raw = _decode(signature)
            header = msgspec.json.decode(_decode(head))
            if header.get("alg") != "ES256" or header.get("kid") != self.key_id or len(raw) != 64:
                raise errors.Denied("the token was not signed by this server")
            der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            self._key.public_key().verify(der, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
            return _claims(msgspec.json.decode(_decode(body)))
        except (ValueError, KeyError, TypeError, AttributeError, InvalidSignature) as err:
            raise errors.Denied("the token is malformed or its signature is wrong") from err


def _claims(body: dict[str, Any]) -> Claims:
    private = body["kubernetes.io"]
    account = private["serviceaccount"]
    bound = None
    for kind in ("Pod", "Secret", "Node"):
        if kind.lower() in private:
            reference = private[kind.lower()]
            bound = (kind, str(reference["name"]), str(reference.get("uid", "")))
            break
    return Claims(
        str(private["namespace"]),
        str(account["name"]),
        str(account["uid"]),
        tuple(map(str, body["aud"])),
        int(body["exp"]),
        str(body["jti"]),
        bound,
    )


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
