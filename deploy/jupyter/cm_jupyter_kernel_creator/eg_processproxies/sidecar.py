"""The gateway's side of the conversation with a kernel's sidecar: signed pings, one a second, and the end.

In: the sidecar's address, the kernel's key once it is known. Out: JSON lines on a TCP connection, as
docs/designs/0019-jupyter-sidecar.md describes them. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

TIMEOUT_S = 5.0
EVERY_S = 1.0


def signed(message: dict[str, Any], key: str) -> dict[str, Any]:
    """A message with its signature; none while the kernel's key is not known."""
    if not key:
        return message
    text = json.dumps(message, sort_keys=True, separators=(",", ":"))
    return {**message, "signature": hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()}


def say(address: tuple[str, int], message: dict[str, Any]) -> dict[str, Any]:
    """Send one message; the answer. Raises OSError or ValueError."""
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        connection.sendall(json.dumps(message).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline() or b"{}")
        return answer if isinstance(answer, dict) else {}


class Pinger:
    """Pings a sidecar from a thread, from `start` to `stop`; `find` gives address and key, as far as they are known."""

    def __init__(self, find: Callable[[], tuple[tuple[str, int], str] | None], every_s: float = EVERY_S) -> None:
        self._find = find
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cmjk-pings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                found = self._find()
                if found is not None:
                    # The number grows over restarts of the gateway: a sidecar hears none twice.
                    say(found[0], signed({"ping": time.time_ns()}, found[1]))
            except Exception:
                # Whatever went wrong may be over at the next ping; a sidecar that hears none ends by itself.
                continue
