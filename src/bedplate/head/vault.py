"""Secrets at rest: encrypted with a key of the data folder.

In: secrets. Out: what the store holds instead, which says nothing without the key. Every head node of a site needs the
same key. Who may see a secret in memory is not decided here.
"""

from __future__ import annotations

import base64
import os
import pathlib
from typing import Any

from bedplate.core import errors
from bedplate.head.objects import Secret

__all__ = ["Vault"]

_MARK = "sealed"


class Vault:
    """Seals and unseals with one key (44 letters of URL-safe base64, 32 bytes)."""

    def __init__(self, key: bytes) -> None:
        try:
            usable = len(base64.urlsafe_b64decode(key.strip())) == 32
        except ValueError:
            usable = False
        if not usable:
            raise errors.Invalid("the key of the secrets is damaged", hint="restore the data folder from a backup")
        self._key = key.strip()
        self._cipher: Any = None

    @classmethod
    def open(cls, path: pathlib.Path) -> Vault:
        """The vault of a key file, which is made when it is missing; nobody else may read it."""
        try:
            return cls(path.read_bytes())
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        key = base64.urlsafe_b64encode(os.urandom(32))
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key)
                os.fsync(file.fileno())
            os.link(fresh, path)
        except FileExistsError:
            return cls(path.read_bytes())
        finally:
            fresh.unlink()
        return cls(key)

    def seal(self, secret: Secret) -> dict[str, str]:
        """What the store holds in place of the secret."""
        token: bytes = self._fernet().encrypt(secret.reveal().encode())
        return {_MARK: token.decode()}

    def unseal(self, data: Any) -> Secret:
        """The secret again. Raises ValueError when another key sealed it or it was damaged."""
        from cryptography.fernet import InvalidToken

        try:
            return Secret(self._fernet().decrypt(data[_MARK].encode()).decode())
        except (InvalidToken, TypeError, KeyError):
            raise ValueError("cannot be decrypted with the key of this data folder") from None

    def _fernet(self) -> Any:
        if self._cipher is None:
            from cryptography.fernet import Fernet  # loaded only where there is a secret: it costs every start 30 ms

            self._cipher = Fernet(self._key)
        return self._cipher
