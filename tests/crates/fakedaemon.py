"""A daemon of a few lines for tests of the plugin: it remembers what it was asked and answers as told.

In: an address to listen on. Out: `FakeDaemon`, with the calls it got. Another implementation of gRPC than the plugin's
own serves it; it knows the original's service and ours.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc

from bedplate.ipam.node.pb import bedplate_ipam_pb2 as own_pb
from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb

SERVICES = {
    "nvidia.ipam.node.v1.IPAMService": {
        "Allocate": pb.AllocateRequest,
        "Deallocate": pb.DeallocateRequest,
        "IsAllocated": pb.IsAllocatedRequest,
    },
    "bedplate.ipam.node.v1.NodeService": {"Collect": own_pb.CollectRequest, "Status": own_pb.StatusRequest},
}
ADDRESS = pb.AllocateResponse(
    allocations=[pb.AllocationInfo(pool="p", ip="10.0.0.5/24", gateway="10.0.0.1", routes=[pb.Route(dest="0.0.0.0/0")])]
)


@dataclass
class FakeDaemon:
    """What was asked, and what to answer: a message, a status, or silence."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    deadlines_s: list[float | None] = field(default_factory=list)
    refusals: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=lambda: {"Allocate": ADDRESS.SerializeToString()})
    is_silent: bool = False
    has_own_service: bool = True
    port: int = 0
    _awake: threading.Event = field(default_factory=threading.Event)

    def handle(self, method: str, message: bytes, context: grpc.ServicerContext) -> bytes:
        service, name = method.lstrip("/").split("/")
        self.calls.append((name, SERVICES[service][name].FromString(message)))
        self.deadlines_s.append(context.time_remaining())
        if self.is_silent:
            self._awake.wait(60)
        if name in self.refusals:
            context.abort(*self.refusals[name])
        return self.answers.get(name, b"")

    def names(self) -> list[str]:
        """The methods that were called."""
        return [name for name, _ in self.calls]

    def parameters(self) -> pb.IPAMParameters:
        """What the last call of the original's service was about."""
        found: pb.IPAMParameters = self.calls[-1][1].parameters
        return found


class _Generic(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        service, _, name = details.method.lstrip("/").partition("/")
        is_ours = service.startswith("bedplate")
        if name not in SERVICES.get(service, {}) or (is_ours and not self._daemon.has_own_service):
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: self._daemon.handle(details.method, message, context)
        )


@contextlib.contextmanager
def fake_daemon(address: str) -> Iterator[FakeDaemon]:
    """A daemon that listens there (`unix:PATH` or `HOST:0`) until the block ends."""
    daemon = FakeDaemon()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_Generic(daemon),))
    daemon.port = server.add_insecure_port(address)
    server.start()
    try:
        yield daemon
    finally:
        daemon._awake.set()
        server.stop(None).wait()
