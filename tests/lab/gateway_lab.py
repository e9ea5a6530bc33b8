"""Jupyter Enterprise Gateway on a node of a lab, with our process proxy and a kernelspec of our template.

In: a `Cluster` of `people_lab`, an image with ipykernel. Out: a gateway that is a process of this machine in the node's
namespaces, with the person's accounts and rights; somebody who uses it; a `jupyter_client` outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.people_lab import NODES, PATIENCE_S, Cluster
from tests.operators.jupyter import peers
from tests.operators.jupyter import test_gateway as stand_in
from tests.waiting import wait_until

from bedplate.operators.jupyter.kernelspecs import folders, render, template
from bedplate.operators.jupyter.names import CHANNELS

_CLIENT = Path(__file__).parents[1] / "operators" / "jupyter" / "sidecar" / "clients.py"
PORT = 8888
TIMEOUT_S = 60
"""After so many seconds without a gateway a kernel ends, as our templates say."""


def write_kernelspec(folder: Path, namespace: str, image: str) -> None:
    """Our template as `bedplate jupyter kernel create` writes it."""
    given = template.built_in(template.BUILT_IN[0])
    values = {"namespace": namespace, "kernel_name": "ours", "image": image}
    files = render.kernelspec(given, template.values(given, values))
    assert f"--timeout={TIMEOUT_S}" in files["templates/cmjk.yaml.j2"]
    folders.write(folder / "jupyter" / "kernels", "ours", files, False)


class Gateway:
    """A gateway that runs on the first node."""

    def __init__(self, address: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.url = f"http://{address}:{PORT}"
        self.process = process
        self.log = log

    def kill(self) -> None:
        """Without a word to its kernels."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def gateway(cluster: Cluster, user: str, folder: Path) -> Iterator[Gateway]:
    """It has the rights of a person, and finds accounts where it runs."""
    address = cluster.get("", "node", NODES[0])["status"]["addresses"][0]["address"]
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig(user)),
        "JUPYTER_PATH": str(folder / "jupyter"),
        "HOME": str(folder / "home"),
        "PYTHONPATH": str(stand_in.PROXY),
        "EG_RESPONSE_IP": address,
        "EG_KERNEL_LAUNCH_TIMEOUT": str(PATIENCE_S),
        "NO_PROXY": "*",
    }
    words = ("-m", "enterprise_gateway", "--ip=0.0.0.0", f"--port={PORT}")
    told = [f"{name}={value}" for name, value in variables.items()]
    line = cluster.inside(NODES[0], "env", *told, str(peers.python()), *words)
    log = folder / "gateway.log"
    with log.open("wb") as target:
        process = subprocess.Popen(line, env=cluster.lab.environ, stdout=target, stderr=target)
    try:
        wait_until(
            lambda: " available at http://" in log.read_text() or process.poll() is not None,
            "the gateway is there",
            deadline_s=PATIENCE_S,
            describe=log.read_text,
        )
        assert process.poll() is None, log.read_text()
        yield Gateway(address, process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()


class Person:
    """A program that does one step after the other, each told by a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def step(self, word: str = "") -> dict[str, Any]:
        """What comes of the next step; `word` asks for it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if word:
            print(word, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the person's program ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def _program(path: Path, *words: str) -> Iterator[Person]:
    environ = {"PATH": os.environ.get("PATH", os.defpath), "NO_PROXY": "*"}
    process = subprocess.Popen(
        [str(peers.python()), str(path), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    try:
        yield Person(process)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def somebody(url: str, user: str) -> Iterator[Person]:
    """Somebody who uses the gateway from this machine, outside the lab."""
    with _program(stand_in.CLIENT, url, "ours", user) as person:
        yield person


@contextlib.contextmanager
def jupyter_client(folder: Path, address: str, given: dict[str, Any]) -> Iterator[Person]:
    """A `jupyter_client` on this machine, at the sidecar's ports of a pod; `given` is the kernel's connection file."""
    ports = {f"{name}_port": port for name, port in CHANNELS.items()}
    path = folder / "outside.json"
    path.write_text(json.dumps({**given, **ports, "ip": address}))
    with _program(_CLIENT, str(path)) as person:
        assert person.step()["ready"]
        yield person
