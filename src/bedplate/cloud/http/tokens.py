"""Where the bearer token comes from: a value, a file, or a key of a YAML file that another program rotates.

In: a text or a file. Out: the token to use now. A file is read again when it has changed (checked before every call:
one stat), and once after a 401. When it cannot be read the last token stays in use; the cloud will say when it is no
longer good. A placeholder of a sample is refused by its name, and never sent. `oidc` has the source that fetches tokens
itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import yaml

from bedplate.cloud.http.secrets import PLACEHOLDER, Secret
from bedplate.core import yamls
from bedplate.core.logging import get_logger

__all__ = [
    "FixedToken",
    "Reloads",
    "TokenFile",
    "TokenSource",
    "TokenUnavailable",
    "file_problem",
    "whole_text",
    "yaml_key",
]

log = get_logger("cloud.http")

Reloads = Callable[[str], None]
"""Hears of every attempt to renew: `changed`, `unchanged` or `error`."""


class TokenUnavailable(Exception):
    """No token is available. The message does not contain one."""


class TokenSource(Protocol):
    """What the client asks for a token."""

    async def current(self) -> Secret:
        """The token to use now. Raises `TokenUnavailable`."""
        ...

    async def renew(self, refused: Secret) -> bool:
        """The cloud refused that one. True when `current` now gives another."""
        ...

    async def close(self) -> None:
        """Give up what it holds."""
        ...


class FixedToken:
    """A token that never changes."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    async def current(self) -> Secret:
        if reason := _placeholder(self._token):
            raise TokenUnavailable(f"the token {reason}")
        return self._token

    async def renew(self, refused: Secret) -> bool:
        return refused != self._token

    async def close(self) -> None:
        return None


def whole_text(text: str) -> str:
    """The token is all that stands in the file."""
    return text.strip()


def yaml_key(key: str) -> Callable[[str], str]:
    """The token stands under a key of a YAML file."""

    def read(text: str) -> str:
        try:
            content = yamls.load(text)
        except yaml.YAMLError:
            # Its message quotes the text, which holds the token.
            content = None
        value = content.get(key) if isinstance(content, dict) else None
        return str(value).strip() if value is not None else ""

    return read


def file_problem(key: str, path: Path) -> str:
    """Why a program should not start with this file for a token or secret, with key and path; empty when it can."""
    try:
        with path.open("rb"):
            return ""
    except OSError as err:
        return f"{key}: {path} cannot be read: {err.strerror}"


class TokenFile:
    """A token in a file; `extract` finds it in the text."""

    def __init__(self, path: Path, extract: Callable[[str], str] = whole_text, reloads: Reloads | None = None) -> None:
        self._path = path
        self._extract = extract
        self._reloads = reloads if reloads is not None else lambda result: None
        self._token = Secret("")
        self._stamp: object = None
        self._reason = ""

    async def current(self) -> Secret:
        stamp = _stamp(self._path)
        if not self._token or (stamp is not None and stamp != self._stamp):
            await self._read(stamp)
        if not self._token:
            raise TokenUnavailable(f"no token found in {self._path}{self._reason}")
        return self._token

    async def renew(self, refused: Secret) -> bool:
        # Another call may have renewed it in the meantime.
        if self._token == refused:
            await self._read(_stamp(self._path))
        return bool(self._token) and self._token != refused

    async def close(self) -> None:
        return None

    async def _read(self, stamp: object) -> None:
        try:
            secret = Secret(self._extract(await asyncio.to_thread(self._path.read_text, encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as err:
            self._failed(err.strerror or "unreadable" if isinstance(err, OSError) else "not text")
            return
        if not secret:
            self._failed("no token in it")
            return
        if reason := _placeholder(secret):
            self._reason = f": what is there {reason}"
            self._failed(reason)
            return
        # The first read does not count as a reload.
        if self._token:
            result = "changed" if secret != self._token else "unchanged"
            self._reloads(result)
            log.v(2).info("cloud.token.read_again", file=str(self._path), result=result)
        # The stamp was taken before reading: a file replaced in between is read once more, never missed.
        self._token, self._stamp = secret, stamp

    def _failed(self, reason: str) -> None:
        self._reloads("error")
        log.warning("cloud.token.unreadable", file=str(self._path), reason=reason, keeps_last=bool(self._token))


def _placeholder(token: Secret) -> str:
    """Why a token cannot be one: it is what samples have in its place."""
    sample = token.reveal()
    is_sample = PLACEHOLDER.fullmatch(sample) is not None
    return f"is the placeholder {sample!r}; replace it with a token of the API" if is_sample else ""


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)
