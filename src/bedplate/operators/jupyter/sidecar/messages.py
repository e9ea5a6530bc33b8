"""What gateway and sidecar say to each other: pings, the end, and the connection parameters.

In: lines of JSON, a kernel's key. Out: what they ask for, or why they are refused; the encrypted parameters. Pure but
for the random key of the encryption. The protocol is described in docs/designs/0019-jupyter-sidecar.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.core import errors

__all__ = ["Ping", "Shutdown", "encrypted", "read", "signed"]

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Ping:
    """The gateway is there."""

    number: int
    is_signed: bool


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The gateway ends the kernel."""

    number: int


def signed(message: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A message with its signature."""
    return {**message, "signature": _signature(message, key)}


def _signature(message: Mapping[str, Any], key: str) -> str:
    text = json.dumps({**message}, sort_keys=True, separators=(",", ":"))
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def read(line: bytes, key: str | None, last: int, must_sign: bool) -> Ping | Shutdown:
    """What a line asks for; raises `Invalid` or `Denied`.

    `key`: the kernel's, None while it is not known. `last`: the number of the last signed message: one that was heard
    before cannot be repeated. `must_sign`: whether a ping without a signature counts.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise errors.Invalid("not a JSON object") from err
    if not isinstance(message, dict):
        raise errors.Invalid("not a JSON object")
    signature = message.pop("signature", None)
    is_signed = signature is not None
    number = message.get("ping", message.get("shutdown", message.get("signum")))
    if not isinstance(number, int) or isinstance(number, bool):
        raise errors.Invalid("neither ping nor shutdown with a number")
    if is_signed:
        if key is None:
            raise errors.Denied("the kernel's key is not known yet")
        if not hmac.compare_digest(_signature(message, key), str(signature)):
            raise errors.Denied("the signature is wrong")
        if number <= last:
            raise errors.Denied("a message of this number was received before")
    if "shutdown" in message:
        if not is_signed:
            raise errors.Denied("shutdown must be signed with the kernel's key")
        return Shutdown(number)
    if "ping" not in message and number != 0:
        raise errors.Invalid("signals are not passed on: use the kernelspec's interrupt_mode 'message'")
    if must_sign and not is_signed:
        raise errors.Denied("pings must be signed with the kernel's key from now on")
    return Ping(number, is_signed)


def encrypted(parameters: Mapping[str, Any], public_key: str) -> bytes:
    """Connection parameters as Jupyter Enterprise Gateway reads them at its response address."""
    from cryptography.hazmat.primitives import ciphers, padding, serialization
    from cryptography.hazmat.primitives.asymmetric import padding as rsa_padding
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.ciphers import algorithms, modes

    try:
        gateway = serialization.load_der_public_key(base64.b64decode(public_key, validate=True))
    except ValueError as err:
        raise errors.Invalid("--public-key: must be the base64 text of an RSA key in DER") from err
    if not isinstance(gateway, rsa.RSAPublicKey):
        raise errors.Invalid("--public-key: must be an RSA key")
    key = os.urandom(BLOCK)
    padder = padding.PKCS7(8 * BLOCK).padder()
    text = padder.update(json.dumps(parameters).encode()) + padder.finalize()
    # The gateway reads nothing else. Each payload has a key of its own, so equal blocks are all that could show.
    cipher = ciphers.Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    payload = {
        "version": 1,
        "key": base64.b64encode(gateway.encrypt(key, rsa_padding.PKCS1v15())).decode(),
        "conn_info": base64.b64encode(cipher.update(text) + cipher.finalize()).decode(),
    }
    return base64.b64encode(json.dumps(payload).encode())
