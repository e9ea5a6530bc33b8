"""The connection file of a kernel: where its channels are, and the key that signs their messages.

In: the path of the file. Out: `Connection`, read again whenever the file changed, because a kernel that is started
again may choose other ports. A file that is half written is not there yet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from bedplate.operators.jupyter.names import CHANNELS

__all__ = ["Connection", "ConnectionFile", "parse"]


class Connection(msgspec.Struct, frozen=True):
    """What a kernel wrote."""

    raw: dict[str, Any]

    @property
    def key(self) -> str:
        """The key of its messages' signatures."""
        return str(self.raw.get("key", ""))

    @property
    def is_local(self) -> bool:
        """Whether its channels are UNIX sockets."""
        return bool(self.raw.get("transport") == "ipc")

    def port(self, channel: str) -> int:
        """The number of a channel."""
        return int(self.raw[f"{channel}_port"])

    def address(self, channel: str) -> tuple[str, int] | str:
        """Where a channel is: host and port, or the path of a UNIX socket."""
        host = str(self.raw.get("ip") or "127.0.0.1")
        if self.is_local:
            return f"{host}-{self.port(channel)}"
        # A kernel that listens everywhere is reached on the pod's own loopback.
        return ("127.0.0.1" if host in ("0.0.0.0", "*") else host), self.port(channel)


def parse(text: bytes) -> Connection | None:
    """The connection in a file; None while it is not complete."""
    try:
        raw = msgspec.json.decode(text, type=dict[str, Any])
        ports = [int(raw[f"{channel}_port"]) for channel in CHANNELS]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, UnicodeDecodeError):
        return None
    return Connection(raw) if all(ports) else None


class ConnectionFile:
    """One file, and what it says now."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._connection: Connection | None = None

    def read(self) -> Connection | None:
        """What the file says; None while there is none. A file that vanished leaves what it said last."""
        try:
            state = os.stat(self.path)
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self._seen:
                content = parse(self.path.read_bytes())
                if content is not None:
                    self._connection, self._seen = content, seen
        except OSError:
            pass
        return self._connection
