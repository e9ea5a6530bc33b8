"""A real nginx with the rendered file: it balances, passes over a dead server, opens and closes the ingress' port."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
from tests import programs, servers
from tests.head.render import rooms
from tests.head.render.test_proxy import MODULE, rebased
from tests.waiting import DEADLINE_S, wait_until

from bedplate.head.render import proxy
from bedplate.head.session import Session

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


class Backend:
    """Answers every connection with its own address."""

    def __init__(self, host: str, port: int) -> None:
        self._listener = socket.create_server((host, port))
        self._answer = host.encode()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.sendall(self._answer)

    def close(self) -> None:
        # A thread that waits in accept() keeps the socket open: shutting it down wakes the thread.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE_S)


@contextlib.contextmanager
def nginx(folder: pathlib.Path, session: Session) -> Iterator[subprocess.Popen[bytes]]:
    program = programs.on_path("nginx")
    if not MODULE.exists():
        pytest.skip("nginx has no stream module (make setup)")
    for name in ("etc/nginx/modules-enabled", "run", "var/log/nginx"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "etc/nginx/modules-enabled/50-stream.conf").write_text(f"load_module {MODULE};\n")
    write(folder, session)
    process = subprocess.Popen(
        [program, "-p", folder, "-c", folder / "etc/nginx/nginx.conf", "-g", "daemon off;"], stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def write(folder: pathlib.Path, session: Session) -> None:
    text = rebased(rooms.file_of(session.tree, "basecm10", proxy.CONF), folder).content
    # One worker: what it learnt about a server is then known at once. As root it stays root, who may read the folder.
    few = "worker_processes 1;\nuser root;" if os.geteuid() == 0 else "worker_processes 1;"
    text = text.replace("worker_processes auto;", few)
    (folder / "etc/nginx/nginx.conf").write_text(text.replace("worker_connections 8192", "worker_connections 256"))


def ask(port: int) -> str:
    """Which server answers on a port of this machine; empty: none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.settimeout(60)
            return connection.recv(64).decode()
    except OSError:
        return ""


def eventually(port: int, wanted: set[str]) -> None:
    """Wait until nine connections in a row are answered by just those."""
    wait_until(lambda: {ask(port) for _ in range(9)} == wanted, f"{wanted} answer and nobody else", step_s=0.1)


@pytest.fixture
def session() -> Session:
    session = Session(rooms.full())
    for node, host in zip(rooms.MASTERS, HOSTS, strict=True):
        session.set(("device", node), "ip", host)
    return session


@pytest.mark.external
def test_item_128_the_listener_of_the_ingress_comes_and_goes_with_a_reload(
    session: Session, tmp_path: pathlib.Path
) -> None:
    api, ingress, target = servers.free_port(), servers.free_port(), servers.free_port()
    session.set(rooms.CLUSTER, "kubernetesapiserverproxyport", str(api))
    session.set(rooms.CLUSTER, "kubernetesapiserver", f"https://api:{target}")
    session.set_extra(rooms.CLUSTER, "ingress_proxy_listen_port", str(ingress))
    session.set_extra(rooms.CLUSTER, "ingress_proxy_backend_port", str(target))
    backends = [Backend(host, target) for host in HOSTS]
    try:
        with nginx(tmp_path, session) as process:
            eventually(api, set(HOSTS))
            assert ask(ingress) == ""
            session.set_extra(rooms.CLUSTER, "ingress_proxy_enable", "true")
            write(tmp_path, session)
            process.send_signal(signal.SIGHUP)
            eventually(ingress, set(HOSTS))
            session.set_extra(rooms.CLUSTER, "ingress_proxy_enable", "no")
            write(tmp_path, session)
            process.send_signal(signal.SIGHUP)
            eventually(ingress, {""})
            eventually(api, set(HOSTS))
    finally:
        for backend in backends:
            backend.close()


@pytest.mark.external
def test_a_dead_api_server_is_passed_over(session: Session, tmp_path: pathlib.Path) -> None:
    api, target = servers.free_port(), servers.free_port()
    session.set(rooms.CLUSTER, "kubernetesapiserverproxyport", str(api))
    session.set(rooms.CLUSTER, "kubernetesapiserver", f"https://api:{target}")
    backends = [Backend(host, target) for host in HOSTS]
    try:
        with nginx(tmp_path, session):
            eventually(api, set(HOSTS))
            backends[0].close()
            assert {ask(api) for _ in range(30)} == set(HOSTS[1:])
    finally:
        for backend in backends:
            backend.close()
