"""A read-only image registry for the nodes of one lab.

In: image stores (`images.Store` folders), an address. Out: the pull half of the OCI distribution protocol over plain
HTTP. Every node's containerd uses it as the mirror of *all* registries and says which one it means in the query
(`?ns=docker.io`), so `busybox`, `registry.k8s.io/pause` and images loaded by the user are found here and nothing is
ever asked of the internet.

Run as `python -m bedplate.lab.registry ADDRESS PORT STORE…` inside the lab's switch namespace.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from bedplate.lab import images

__all__ = ["Handler", "serve"]

_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers pulls from `stores`, the first that has the thing wins."""

    stores: tuple[images.Store, ...] = ()
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/v2/":
            self._send_bytes(b"{}", "application/json", has_body)
            return
        match = _PATH.fullmatch(url.path)
        blob = self._find(match, urllib.parse.parse_qs(url.query)) if match else None
        if blob is None:
            body = json.dumps({"errors": [{"code": "NAME_UNKNOWN", "message": "not in this lab"}]}).encode()
            self._send_bytes(body, "application/json", has_body, status=404)
            return
        digest, path, kind = blob
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if has_body:
            with open(path, "rb") as handle:
                shutil.copyfileobj(handle, self.wfile, 1 << 20)

    def _find(self, match: re.Match[str], query: dict[str, list[str]]) -> tuple[str, Path, str] | None:
        reference, is_blob = match["reference"], match["kind"] == "blobs"
        registry = query.get("ns", ["docker.io"])[0]
        for store in self.stores:
            by_digest = reference.startswith("sha256:")
            digest = reference if by_digest else store.find(f"{registry}/{match['name']}:{reference}")
            path = store.blob(digest) if digest else None
            if digest and path is not None:
                return digest, path, "application/octet-stream" if is_blob else _media_type(path)
        return None

    def _send_bytes(self, body: bytes, kind: str, has_body: bool, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        sys.stderr.write(f"{self.client_address[0]} {format % args}\n")


def _media_type(manifest: Path) -> str:
    return str(json.loads(manifest.read_bytes()).get("mediaType", "application/vnd.oci.image.manifest.v1+json"))


def serve(address: str, port: int, stores: list[Path]) -> None:
    """Serve until killed."""
    Handler.stores = tuple(images.Store(path) for path in stores)
    http.server.ThreadingHTTPServer((address, port), Handler).serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), [Path(arg) for arg in sys.argv[3:]])
