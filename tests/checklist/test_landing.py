"""Item 130: what no rule of the ingress matches is answered with the landing page of the head node."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs, servers
from tests.waiting import DEADLINE_S, wait_until

MANIFEST = Path(__file__).resolve().parents[2] / "deploy/head/landingpage.yaml"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {found["kind"]: found for found in yaml.safe_load_all(MANIFEST.read_text())}


def test_item_130_the_fallback_leads_from_the_ingress_to_the_configuration(objects: dict[str, Any]) -> None:
    names = {kind: found["metadata"]["name"] for kind, found in objects.items()}
    assert names == {
        "ConfigMap": "nginx-proxy-config",
        "Deployment": "nginx-proxy",
        "Service": "nginx-proxy-service",
        "Ingress": "default-ingress",
    }
    # Without rules the ingress gets what those of all others leave.
    assert "rules" not in objects["Ingress"]["spec"]
    assert objects["Ingress"]["spec"]["defaultBackend"]["service"] == {
        "name": names["Service"],
        "port": {"name": "http"},
    }
    pod = objects["Deployment"]["spec"]["template"]
    assert objects["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    (port,) = objects["Service"]["spec"]["ports"]
    assert port["targetPort"] == container["ports"][0]["name"]
    listens = f"listen {container['ports'][0]['containerPort']} default_server;"
    assert listens in objects["ConfigMap"]["data"]["nginx.conf"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == container["volumeMounts"][0]["name"]]
    assert volume["configMap"]["name"] == names["ConfigMap"]
    assert f"{container['volumeMounts'][0]['mountPath']}/nginx.conf" in container["command"]


class Master(http.server.BaseHTTPRequestHandler):
    """The head node: whatever is asked for, the page says who was asked."""

    def do_GET(self) -> None:
        body = f"landing page of {self.headers['Host']} for {self.headers['X-Forwarded-Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def fallback(objects: dict[str, Any], tmp_path: Path) -> Iterator[int]:
    """A port with a real nginx that has the manifest's configuration, and this machine as the head node."""
    master = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Master)
    threading.Thread(target=master.serve_forever, daemon=True).start()
    port, scratch = servers.free_port(), tmp_path / "tmp"
    scratch.mkdir()
    text = objects["ConfigMap"]["data"]["nginx.conf"].replace("http://master", f"http://127.0.0.1:{master.server_port}")
    text = text.replace("listen 8080", f"listen 127.0.0.1:{port}").replace("/tmp/", f"{scratch}/")
    conf = tmp_path / "nginx.conf"
    # As root the worker stays root, who may read the folder; in the pod nobody is.
    conf.write_text(("user root;\n" if os.geteuid() == 0 else "") + text)
    process = subprocess.Popen([programs.on_path("nginx"), "-p", tmp_path, "-c", conf, "-g", "daemon off;"])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        master.shutdown()
        master.server_close()


def asked(port: int, host: str, path: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except OSError as err:
        return 0, str(err)


@pytest.mark.external
def test_item_130_whatever_is_asked_for_is_answered_with_the_landing_page(fallback: int) -> None:
    wait_until(lambda: asked(fallback, "kube.example.com", "/nginx-proxy-alive")[0] == 204, "nginx listens")
    for host, path in (("kube.example.com", "/"), ("nothing.example.com", "/no/such/page?x=1")):
        assert asked(fallback, host, path) == (200, f"landing page of master for {host}")
