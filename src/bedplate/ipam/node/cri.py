"""Which pod sandboxes the container runtime has: the strongest proof that an address is or is not in use.

In: the path of the runtime's CRI socket. Out: sandboxes, those that have stopped too, for their network is torn down
only with a DEL. The container id of a CNI call is the sandbox's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bedplate.ipam.node import grpcclient

__all__ = ["NoSocket", "Runtime", "Sandbox"]

_LIST = "/runtime.v1.RuntimeService/ListPodSandbox"
_TIMEOUT_S = 10.0


class NoSocket(grpcclient.CallFailed):
    """The socket does not exist: the runtime is down, or its path is different."""


class Sandbox(NamedTuple):
    """One sandbox, and the pod it is of."""

    id: str
    pod_uid: str
    pod_namespace: str
    pod_name: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """The container runtime behind a socket."""

    socket: str

    async def sandboxes(self) -> list[Sandbox]:
        """All sandboxes. Raises `CallFailed`: no answer proves nothing; `NoSocket` where nobody could answer."""
        from google.protobuf.message import DecodeError

        from bedplate.ipam.node.pb import bedplate_cri_pb2 as pb

        if not self._is_there():
            raise NoSocket(f"{self.socket}: there is no such socket")
        answer = await grpcclient.call(
            self.socket, _LIST, pb.ListPodSandboxRequest().SerializeToString(), timeout_s=_TIMEOUT_S
        )
        try:
            items = pb.ListPodSandboxResponse.FromString(answer).items
        except DecodeError as err:
            raise grpcclient.CallFailed(f"{self.socket}: the list of sandboxes cannot be decoded: {err}") from err
        return [
            Sandbox(sandbox.id, sandbox.metadata.uid, sandbox.metadata.namespace, sandbox.metadata.name)
            for sandbox in items
        ]

    def _is_there(self) -> bool:
        return Path(self.socket).exists()
