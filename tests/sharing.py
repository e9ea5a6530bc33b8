"""Servers that all xdist workers of a run share: the process that controls them starts each when a worker first asks.

In: names of servers, from workers, over a Unix socket. Out: `Server` values as JSON. A real kube-apiserver with its
etcd takes seconds of every core to start, so a run has one of each; workers keep out of each other's way by namespaces
and by names of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import shutil
import socket
import tempfile
import threading
from typing import Any

from tests import servers

ANSWER_LIMIT_S = 2 * servers.START_DEADLINE_S


class Desk:
    """Answers workers in one thread, which lives as long as the servers: they die with the thread that made them."""

    def __init__(self) -> None:
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="bedplate-desk-"))
        self.path = str(self._folder / "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="servers of all workers", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        pool = servers.Pool()
        try:
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return
                # A worker that was killed meanwhile does not hear the answer.
                with connection, contextlib.suppress(OSError):
                    name = connection.makefile().readline().strip()
                    connection.sendall(json.dumps(_answer(pool, name)).encode() + b"\n")
        finally:
            pool.close()

    def close(self) -> None:
        """Stop the servers; wait until they are gone."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _answer(pool: servers.Pool, name: str) -> dict[str, Any]:
    try:
        fields = dataclasses.asdict(pool.get(name))
    except servers.Missing as missing:
        return {"missing": str(missing)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {key: str(value) if isinstance(value, pathlib.Path) else value for key, value in fields.items()}


def ask(path: str, name: str) -> servers.Server:
    """The server of that name, from the desk at a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_LIMIT_S)
        connection.connect(path)
        connection.sendall(name.encode() + b"\n")
        answer = json.loads(connection.makefile().readline())
    if "missing" in answer:
        raise servers.Missing(answer["missing"])
    if "error" in answer:
        raise RuntimeError(answer["error"])
    paths = ("kubeconfig", "ca_file", "client_cert", "client_key")
    return servers.Server(
        **{key: pathlib.Path(value) if key in paths and value is not None else value for key, value in answer.items()}
    )
