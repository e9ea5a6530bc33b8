"""Start API servers for tests: a real kube-apiserver with etcd and kube-controller-manager, or Bedplate's embedded one.

In: binaries of the cache folder (`BEDPLATE_CACHE`), the `bedplate` program beside the running Python. Out: `Server`
values with the address, the credentials and a kubeconfig of a running server. A server belongs to the process that
started it and dies with it, even after `kill -9`. This module decides nothing about tests: `Missing` carries the reason
why a server cannot be had, the caller skips or fails.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml
from tests import forkserver, tiers

from bedplate.lab import binaries

KUBERNETES = "v1.35.4"
REAL = os.environ.get("BEDPLATE_TEST_KUBERNETES") or KUBERNETES
"""The release of the real API server; another one shows whether an older or newer Kubernetes is served as well."""
ETCD = "v3.6.6"
CONTROLLERS = ",".join(
    (
        "garbage-collector-controller",
        "namespace-controller",
        "serviceaccount-controller",
        "serviceaccount-token-controller",
        "root-ca-certificate-publisher-controller",
        "clusterrole-aggregation-controller",
        "disruption-controller",
        "deployment-controller",
        "replicaset-controller",
        "endpointslice-controller",
        "endpoints-controller",
    )
)
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 20.0
_CHANCE = random.SystemRandom()
_FIRST_PORT, _PORTS = 15000, 15000
_OWN_PORTS = 9
"""Shares of ports: one for each worker of the most that there are, and one for runs without workers."""
_GIVEN: set[int] = set()
"""Ports that this process was given."""
PR_SET_PDEATHSIG = 1


class Missing(Exception):
    """A server cannot be started here; the text is the reason a person reads beside the skipped test."""


@dataclasses.dataclass(frozen=True)
class Server:
    """A running API server: where it is, how to be its administrator, and how to make it forget old revisions."""

    name: str
    url: str
    kubeconfig: pathlib.Path
    ca_file: pathlib.Path
    token: str | None
    client_cert: pathlib.Path | None
    client_key: pathlib.Path | None
    etcd: str = ""
    """The address of its etcd, where it has one that tests may compact."""

    def forget_history(self) -> None:
        """Compact etcd: revisions before this moment are gone. A server without one forgets by itself."""
        if not self.etcd:
            return
        command = [str(binary("etcdctl", ETCD)), f"--endpoints={self.etcd}"]
        status = subprocess.run(
            [*command, "endpoint", "status", "--write-out=fields"], check=True, capture_output=True, text=True
        )
        lines = status.stdout.splitlines()
        revision = next(line.split(":")[1].strip() for line in lines if line.startswith('"Revision"'))
        subprocess.run([*command, "compact", revision], check=True, capture_output=True)

    def ssl_context(self, *, as_admin: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if as_admin and self.client_cert is not None and self.client_key is not None:
            context.load_cert_chain(str(self.client_cert), str(self.client_key))
        return context


def cache_folder() -> pathlib.Path:
    return binaries.cache_folder()


def binary(name: str, version: str = KUBERNETES) -> pathlib.Path:
    """The path of a built program, or `Missing`."""
    tiers.guard(name)
    family = {"etcd": "etcd", "etcdctl": "etcd", "etcdutl": "etcd", "helm": "helm"}.get(name, "kubernetes")
    path = cache_folder() / family / version / "bin" / name
    if not path.exists():
        raise Missing(f"{name} {version} is not in the cache folder (make setup builds it)")
    return path


def free_port() -> int:
    """A port for a program that binds it later. The kernel gives those above 32767 to every outgoing connection.
    Nothing keeps a port until its program has bound it: workers that run side by side choose from different ones, and
    none is given twice."""
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or _OWN_PORTS - 1) % _OWN_PORTS
    if len(_GIVEN) > _PORTS // _OWN_PORTS // 2:
        _GIVEN.clear()
    while True:
        port = _FIRST_PORT + worker + _OWN_PORTS * _CHANCE.randrange(_PORTS // _OWN_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Processes:
    """The processes of one server and their folder; `stop` ends them in reverse order and removes the folder."""

    def __init__(self, label: str) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"bedplate-{label}-"))
        self._running: list[subprocess.Popen[bytes] | forkserver.Process] = []

    def start(self, name: str, *command: str, env: dict[str, str] | None = None) -> None:
        environ = {**os.environ, **(env or {})}
        with (self.folder / f"{name}.log").open("wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            if forkserver.is_ours(command):
                self._running.append(forkserver.Process(command, env=environ, **streams))
            else:
                self._running.append(
                    subprocess.Popen(command, env=environ, preexec_fn=_die_with_parent, **streams)  # type: ignore[call-overload]
                )

    def log_tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def wait_until(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        process = self._running[-1]
        while not is_ready():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{self.log_tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} not ready after {START_DEADLINE_S:.0f} s:\n{self.log_tail(name)}")
            time.sleep(0.05)

    def stop(self) -> None:
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers(url: str, trust: Callable[[], ssl.SSLContext] | None = None, token: str | None = None) -> bool:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        # Made here: a certificate that is half written does not count.
        context = trust() if trust is not None else None
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def real(
    version: str = REAL, *, api_arguments: tuple[str, ...] = (), controllers: tuple[str, ...] = ()
) -> Iterator[Server]:
    """kube-apiserver on etcd, with the controllers that keep the API's own promises (garbage, namespaces, tokens).
    `controllers`: further ones."""
    paths = {name: binary(name, version) for name in ("kube-apiserver", "kube-controller-manager")}
    etcd = binary("etcd", ETCD)
    processes = Processes("real")
    try:
        endpoint = _start_etcd(processes, etcd)
        server = _start_apiserver(processes, paths["kube-apiserver"], endpoint, api_arguments)
        _start_controllers(processes, paths["kube-controller-manager"], server, controllers)
        yield server
    finally:
        processes.stop()


def _start_etcd(processes: Processes, etcd: pathlib.Path) -> str:
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    processes.start(
        "etcd",
        str(etcd),
        f"--data-dir={processes.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    processes.wait_until("etcd", lambda: _answers(f"{client}/health"))
    return client


def _start_apiserver(processes: Processes, program: pathlib.Path, endpoint: str, extra: tuple[str, ...]) -> Server:
    folder, port, token = processes.folder, free_port(), secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    key = folder / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    processes.start(
        "kube-apiserver",
        str(program),
        f"--etcd-servers={endpoint}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        # It taints every new node until a controller that does not run here has seen it ready.
        "--disable-admission-plugins=TaintNodesByCondition",
        # podtemplates are read straight from etcd, so that compacting etcd expires their watches.
        "--watch-cache-sizes=podtemplates#0",
        "--endpoint-reconciler-type=none",
        *extra,
    )
    certificate = folder / "certs" / "apiserver.crt"
    url = f"https://127.0.0.1:{port}"
    processes.wait_until(
        "kube-apiserver",
        lambda: _answers(f"{url}/readyz", lambda: ssl.create_default_context(cafile=str(certificate)), token),
    )
    kubeconfig = write_kubeconfig(folder / "kubeconfig", url, certificate, {"token": token})

    return Server("real", url, kubeconfig, certificate, token, None, None, endpoint)


def _start_controllers(
    processes: Processes, program: pathlib.Path, server: Server, controllers: tuple[str, ...]
) -> None:
    port = free_port()
    processes.start(
        "kube-controller-manager",
        str(program),
        f"--kubeconfig={server.kubeconfig}",
        f"--authentication-kubeconfig={server.kubeconfig}",
        f"--authorization-kubeconfig={server.kubeconfig}",
        f"--controllers={','.join((CONTROLLERS, *controllers))}",
        f"--service-account-private-key-file={processes.folder / 'service-account.key'}",
        f"--root-ca-file={server.ca_file}",
        f"--cert-dir={processes.folder / 'controller-certs'}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--use-service-account-credentials=false",
    )


def write_kubeconfig(path: pathlib.Path, url: str, ca_file: pathlib.Path, user: dict[str, str]) -> pathlib.Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def bedplate_program() -> pathlib.Path:
    return pathlib.Path(sys.executable).with_name("bedplate")


@contextlib.contextmanager
def embedded(
    *arguments: str, env: dict[str, str] | None = None, command: Sequence[str] | None = None
) -> Iterator[Server]:
    """`bedplate apiserver` (or `command` in its place) as a process of its own, as a user starts it."""
    processes = Processes("embedded")
    try:
        yield start_embedded(processes, *arguments, env=env, command=command)
    finally:
        processes.stop()


@contextlib.contextmanager
def embedded_on_etcd() -> Iterator[Server]:
    """The same with its state in an etcd."""
    etcd = binary("etcd", ETCD)
    processes = Processes("embedded-etcd")
    try:
        endpoint = _start_etcd(processes, etcd)
        yield start_embedded(processes, "--store", "etcd", "--etcd-endpoints", endpoint)
    finally:
        processes.stop()


def start_embedded(
    processes: Processes, *arguments: str, env: dict[str, str] | None = None, command: Sequence[str] | None = None
) -> Server:
    folder = processes.folder
    kubeconfig = folder / "kubeconfig"
    processes.start(
        "apiserver",
        *(command or (str(bedplate_program()), "apiserver")),
        "--data", str(folder / "data"), "--port", "0",
        "--kubeconfig-out", str(kubeconfig), *arguments,
        env=env,
    )  # fmt: skip
    processes.wait_until("apiserver", lambda: kubeconfig.exists() and kubeconfig.stat().st_size > 0)
    server = read_kubeconfig("embedded", kubeconfig, folder)
    processes.wait_until("apiserver", lambda: _answers(f"{server.url}/readyz", server.ssl_context, server.token))
    return server


def read_kubeconfig(name: str, kubeconfig: pathlib.Path, folder: pathlib.Path) -> Server:
    """A `Server` from a kubeconfig with one cluster and one user (token or client certificate, inline or by file)."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster: dict[str, Any] = document["clusters"][0]["cluster"]
    user: dict[str, Any] = document["users"][0]["user"]

    def as_file(holder: dict[str, Any], field: str, target: str) -> pathlib.Path | None:
        if inline := holder.get(f"{field}-data"):
            path = folder / target
            path.write_bytes(base64.b64decode(inline))
            return path
        return pathlib.Path(holder[field]) if field in holder else None

    ca_file = as_file(cluster, "certificate-authority", "test-ca.crt")
    assert ca_file is not None, "the kubeconfig has no certificate authority"
    return Server(
        name,
        cluster["server"].rstrip("/"),
        kubeconfig,
        ca_file,
        user.get("token"),
        as_file(user, "client-certificate", "test-client.crt"),
        as_file(user, "client-key", "test-client.key"),
    )


class Pool:
    """Servers by name, each started when first asked for; `close` stops them all and may be called twice.

    Every worker has its own: controllers look at the whole cluster, so two managers of two tests on one server would
    take each other's Nodes and Services.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._running: dict[str, Server] = {}
        self._command: Sequence[str] | None = None

    def use(self, command: Sequence[str]) -> None:
        """Start embedded servers with this command in place of `bedplate apiserver`."""
        self._command = command

    def get(self, name: str) -> Server:
        """`real`, `embedded`, `embedded-etcd`, or `embedded-forgetful`: old revisions are kept for a second."""
        if name not in self._running:
            starters: dict[str, Callable[[], contextlib.AbstractContextManager[Server]]] = {
                "real": real,
                "embedded": lambda: embedded(command=self._command),
                "embedded-forgetful": lambda: embedded("--history", "1s", command=self._command),
                "embedded-etcd": embedded_on_etcd,
            }
            self._running[name] = self._stack.enter_context(starters[name]())
        return self._running[name]

    def close(self) -> None:
        self._stack.close()
        self._running.clear()


shared = Pool()
"""The servers of this pytest process; `tests/conftest.py` closes it at the end of the session."""
