"""Node daemons as processes, ours and the original's, and callers of their socket.

In: a kubeconfig, a node's name, a folder. Out: `NodeDaemon`, which ends with its block whatever happens, and
`Caller`, a gRPC client of another make than the server. Every daemon has a store, a socket and files of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from tests import forkserver, servers
from tests.waiting import DEADLINE_S, wait_until

from bedplate.ipam.node.pb import bedplate_ipam_pb2 as own_pb
from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb

SERVICE = "/nvidia.ipam.node.v1.IPAMService/"
OWN_SERVICE = "/bedplate.ipam.node.v1.NodeService/"


class NodeDaemon:
    """One daemon. The folder outlives it, so that another can be started on the same store."""

    def __init__(
        self, folder: Path, kubeconfig: Path, node: str, namespace: str, *, program: Path | None = None
    ) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.socket = folder / "daemon.sock"
        self.conf_dir = folder / "conf"
        self.bin_dir = folder / "bin"
        self.log = folder / "daemon.log"
        self.probe_port = servers.free_port()
        self.metrics_port = servers.free_port()
        self._program = program
        self._kubeconfig, self._node, self._namespace = kubeconfig, node, namespace
        self.process: subprocess.Popen[bytes] | forkserver.Process | None = None
        for one in (self.conf_dir, self.bin_dir):
            one.mkdir(exist_ok=True)
        self.plugin = folder / "plugin"
        if not self.plugin.exists():
            self.plugin.write_text("#!/bin/sh\nexit 0\n")
            self.plugin.chmod(0o755)

    def words(self, *more: str) -> list[str]:
        """The command line."""
        program = [str(self._program)] if self._program else [sys.executable, "-m", "bedplate.apps.ipamnode"]
        return [
            *program,
            f"--kubeconfig={self._kubeconfig}",
            f"--node-name={self._node}",
            f"--ippools-namespace={self._namespace}",
            f"--bind-address=unix://{self.socket}",
            f"--store-file={self.store}",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{self.probe_port}",
            f"--cni-bin-dir={self.bin_dir}",
            f"--cni-nv-ipam-bin-file={self.plugin}",
            f"--cni-conf-dir={self.conf_dir}",
            f"--cni-daemon-socket=unix://{self.socket}",
            f"--cni-log-file={self.folder / 'cni.log'}",
            "--v=1",
            *more,
        ]

    def start(self, *more: str) -> NodeDaemon:
        """Start it; returns when it listens."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        # The folder of the peer is of no use to it, and an inherited KUBECONFIG must not be either.
        env = {**os.environ, "KUBECONFIG": ""}
        with self.log.open("ab") as out:
            words = self.words(*more)
            start = forkserver.Process if forkserver.is_ours(words) else subprocess.Popen
            self.process = start(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)
        wait_until(self._listens, "the daemon listens", describe=self.tail)
        return self

    def _listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, f"it ended: {self.tail()}"
        if not self.socket.exists():
            return False
        with contextlib.suppress(OSError), Caller(self.socket) as caller:
            return caller.is_there()
        return False

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def ready(self) -> NodeDaemon:
        """Wait until its probe says that it is ready."""
        wait_until(lambda: self.probe("/readyz")[0] == 200, "the daemon is ready", describe=self.tail)
        return self

    def probe(self, path: str) -> tuple[int, str]:
        """What a probe gets; 0 when nobody answers."""
        return _get(f"http://127.0.0.1:{self.probe_port}{path}")

    def metrics(self) -> str:
        """What a scraper gets."""
        return _get(f"http://127.0.0.1:{self.metrics_port}/metrics")[1]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=DEADLINE_S)

    def caller(self) -> Caller:
        """A client of its socket."""
        return Caller(self.socket)


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()
    except OSError as err:
        return 0, str(err)


@contextlib.contextmanager
def daemon(
    folder: Path, kubeconfig: Path, node: str, namespace: str, *more: str, program: Path | None = None
) -> Iterator[NodeDaemon]:
    """A running daemon, which ends with the block."""
    made = NodeDaemon(folder, kubeconfig, node, namespace, program=program)
    try:
        yield made.start(*more)
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()


class Caller:
    """A client of a daemon. Errors are `grpc.RpcError`s."""

    def __init__(self, socket: Path | str) -> None:
        target = f"unix:{socket}" if isinstance(socket, Path) else socket
        # Tests start many daemons on one path after another: no connection may be shared.
        self._channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()

    def raw(self, method: str, message: bytes, timeout: float | None = DEADLINE_S) -> bytes:
        """Any call."""
        found: bytes = self._channel.unary_unary(method)(message, timeout=timeout)
        return found

    def is_there(self) -> bool:
        """Somebody answers, whatever it is."""
        try:
            self.raw(SERVICE + "Nothing", b"", timeout=5)
        except grpc.RpcError as err:
            return err.code() is grpc.StatusCode.UNIMPLEMENTED
        return False

    def allocate(self, *pools: str, timeout: float | None = DEADLINE_S, **more: Any) -> list[pb.AllocationInfo]:
        """ADD."""
        request = pb.AllocateRequest(parameters=parameters(*pools, **more))
        answer = self.raw(SERVICE + "Allocate", request.SerializeToString(), timeout)
        return list(pb.AllocateResponse.FromString(answer).allocations)

    def address(self, *pools: str, **more: Any) -> str:
        """ADD of one pool: the address with its length."""
        found: str = self.allocate(*pools, **more)[0].ip
        return found

    def deallocate(self, *pools: str, **more: Any) -> None:
        """DEL."""
        self.raw(
            SERVICE + "Deallocate", pb.DeallocateRequest(parameters=parameters(*pools, **more)).SerializeToString()
        )

    def is_allocated(self, *pools: str, **more: Any) -> bool:
        """CHECK."""
        request = pb.IsAllocatedRequest(parameters=parameters(*pools, **more))
        try:
            self.raw(SERVICE + "IsAllocated", request.SerializeToString())
        except grpc.RpcError as err:
            if err.code() is grpc.StatusCode.NOT_FOUND:
                return False
            raise
        return True

    def collect(self, *pools: str, valid: tuple[tuple[str, str], ...] = (), kind: int = 1) -> own_pb.CollectResponse:
        """GC."""
        request = own_pb.CollectRequest(
            network="test",
            pools=pools,
            pool_type=kind,
            valid=[own_pb.Attachment(container_id=one, ifname=other) for one, other in valid],
        )
        return own_pb.CollectResponse.FromString(self.raw(OWN_SERVICE + "Collect", request.SerializeToString()))

    def status(self, *pools: str, kind: int = 1, timeout: float = DEADLINE_S) -> own_pb.StatusResponse:
        """STATUS."""
        request = own_pb.StatusRequest(pools=pools, pool_type=kind)
        return own_pb.StatusResponse.FromString(
            self.raw(OWN_SERVICE + "Status", request.SerializeToString(), timeout=timeout)
        )


def parameters(
    *pools: str,
    container: str = "c1",
    interface: str = "net1",
    kind: int = 1,
    pod: str = "pod1",
    namespace: str = "default",
    uid: str = "uid-1",
    device: str = "",
    requested: tuple[str, ...] = (),
    gateway: bool = False,
    index: int | None = None,
) -> pb.IPAMParameters:
    """What a plugin sends."""
    features = pb.IPAMFeatures(allocate_default_gateway=gateway)
    if index is not None:
        features.allocate_ip_with_index = index
    return pb.IPAMParameters(
        pools=pools,
        cni_containerid=container,
        cni_ifname=interface,
        metadata=pb.IPAMMetadata(k8s_pod_name=pod, k8s_pod_namespace=namespace, k8s_pod_uid=uid, device_id=device),
        pool_type=kind,  # type: ignore[arg-type]
        requested_ips=requested,
        features=features,
    )


def code_of(call: Callable[[], Any]) -> str:
    """How a call ends."""
    try:
        call()
    except grpc.RpcError as err:
        return str(err.code().name)
    return "OK"
