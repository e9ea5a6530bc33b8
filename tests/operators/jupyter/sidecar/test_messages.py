"""What the communication port takes, and what it refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import ciphers, padding, serialization
from cryptography.hazmat.primitives.asymmetric import padding as rsa_padding
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers import algorithms, modes

from bedplate.core import errors
from bedplate.operators.jupyter.sidecar import messages
from bedplate.operators.jupyter.sidecar.messages import Ping, Shutdown

KEY = "the kernel's"


def read(message: Any, key: str | None = KEY, last: int = 0, must_sign: bool = False) -> Ping | Shutdown:
    return messages.read(json.dumps(message).encode(), key, last, must_sign)


def test_a_ping_counts_with_and_without_a_signature_until_one_was_signed() -> None:
    assert read({"ping": 1}, None) == Ping(1, False)
    assert read(messages.signed({"ping": 2}, KEY)) == Ping(2, True)
    assert read({"signum": 0}) == Ping(0, False), "how the gateway itself looks whether a kernel is alive"
    with pytest.raises(errors.Denied, match="signed"):
        read({"ping": 1}, must_sign=True)


def test_the_end_must_be_signed() -> None:
    assert read(messages.signed({"shutdown": 1}, KEY)) == Shutdown(1)
    with pytest.raises(errors.Denied, match="signed"):
        read({"shutdown": 1})


@pytest.mark.parametrize(
    ("message", "key", "last"),
    [
        (messages.signed({"ping": 1}, "another"), KEY, 0),
        (messages.signed({"ping": 1}, KEY) | {"ping": 2}, KEY, 0),
        (messages.signed({"ping": 1}, KEY) | {"shutdown": 1}, KEY, 0),
        (messages.signed({"ping": 1}, KEY), None, 0),
        (messages.signed({"ping": 5}, KEY), KEY, 5),
        ({"ping": 1, "signature": 7}, KEY, 0),
        ({"ping": 1, "signature": ""}, KEY, 0),
    ],
)
def test_a_wrong_changed_or_repeated_signature_is_denied(message: Any, key: str | None, last: int) -> None:
    with pytest.raises(errors.Denied):
        read(message, key, last)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"7", b"null", b"{}", b'{"ping": "1"}', b'{"ping": true}', b'{"signum": 2}', b"\xff" * 9]
)
def test_what_is_no_message_is_invalid(line: bytes) -> None:
    with pytest.raises(errors.Invalid):
        messages.read(line, KEY, 0, False)


def test_parameters_are_encrypted_as_the_gateway_decrypts_them() -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    parameters = {"kernel_id": "k", "key": "secret", "shell_port": 5001}
    sent = json.loads(base64.b64decode(messages.encrypted(parameters, base64.b64encode(public).decode())))
    assert sent["version"] == 1
    key = private.decrypt(base64.b64decode(sent["key"]), rsa_padding.PKCS1v15())
    decryptor = ciphers.Cipher(algorithms.AES(key), modes.ECB()).decryptor()
    padded = decryptor.update(base64.b64decode(sent["conn_info"])) + decryptor.finalize()
    unpadder = padding.PKCS7(128).unpadder()
    assert json.loads(unpadder.update(padded) + unpadder.finalize()) == parameters


@pytest.mark.parametrize("key", ["", "x", "YWJj"])
def test_a_key_that_is_none_is_invalid(key: str) -> None:
    with pytest.raises(errors.Invalid, match="--public-key"):
        messages.encrypted({}, key)
