"""A real kube-apiserver for tests that compare with it: one per test module, spoken to over one plain connection."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from bedplate.lab.controlplane import ControlPlane

Answer = tuple[int, dict[str, Any]]


class RealServer:
    """etcd and kube-apiserver without controllers, so that nobody else writes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._plane = ControlPlane()
        self._connection: http.client.HTTPSConnection | None = None

    def __enter__(self) -> RealServer:
        self._thread.start()
        self._wait(self._plane.start())
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
        self._wait(self._plane.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=180)

    def _connect(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            self._connection = connect(self._plane.kubeconfig)
        return self._connection

    def call(self, method: str, path: str, body: Any = None, *, content: str = "json", **query: str) -> Answer:
        """One request; `content` is the patch type for PATCH (json-patch, merge-patch, ...)."""
        headers = {"Content-Type": content if "/" in content else f"application/{content}"}
        connection = self._connect()
        connection.request(
            method, f"{path}?{urlencode(query)}", None if body is None else json.dumps(body).encode(), headers
        )
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text.startswith(b"{") else {"message": text.decode()}


def connect(kubeconfig: Path) -> http.client.HTTPSConnection:
    """A connection as the first user of a kubeconfig."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = _content(cluster, "certificate-authority").decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(_content(user, "client-certificate") + b"\n" + _content(user, "client-key"))
        pair.flush()
        context.load_cert_chain(pair.name)
    address = urlsplit(cluster["server"])
    return http.client.HTTPSConnection(address.hostname or "", address.port, context=context, timeout=60)


def _content(section: dict[str, str], key: str) -> bytes:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"])
    return Path(section[key]).read_bytes()
