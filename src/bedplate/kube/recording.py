"""Dry run in one place: a client whose writes are recorded and never persisted.

In: the calls that a controller makes on a `Client`. Out: answers as if, and a record of every write. With
`Mode.SERVER` (default) each write is sent with `dryRun=All`: admission and validation judge it, nothing is stored.
With `Mode.LOCAL` no write leaves the process: the answer is the present object, or for a creation the object that was
handed in. Reads and reviews always go through. A controller cannot tell the difference, so it needs no dry-run code
of its own.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from bedplate.api.identity import name_of
from bedplate.core import clock
from bedplate.core.logging import get_logger
from bedplate.kube import errors
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig
from bedplate.kube.metrics import RequestMetrics
from bedplate.kube.transport import Request, Response

__all__ = ["Mode", "RecordedWrite", "RecordingClient"]

log = get_logger("kube.dryrun")
KEPT_WRITES = 10_000
# Creating one of these asks a question and stores nothing.
_REVIEW_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


class Mode(StrEnum):
    """Who answers a write that must not happen."""

    SERVER = "server"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class RecordedWrite:
    """A write that would have happened. `body` is empty for what must not be shown, such as secrets."""

    method: str
    resource: str
    namespace: str
    name: str
    path: str
    content_type: str
    body: Any


class RecordingClient(Client):
    """A `Client` that writes nothing; `writes` holds what it would have written, oldest first."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        mode: Mode = Mode.SERVER,
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
        metrics: RequestMetrics | None = None,
    ) -> None:
        super().__init__(config, time=time, rng=rng, metrics=metrics)
        self.mode = mode
        self.writes: deque[RecordedWrite] = deque(maxlen=KEPT_WRITES)

    async def _perform(self, request: Request) -> Response:
        target, body = request.target, request.body
        if target.method == "GET" or (target.ref is not None and target.ref.group in _REVIEW_GROUPS):
            return await super()._perform(request)
        decoded = msgspec.json.decode(body) if body else None
        self._record(request, decoded)
        if self.mode is Mode.LOCAL:
            return await self._present(target, decoded, request.accept)
        if target.method == "DELETE":
            # The options of a deletion stand in its body, and the server then ignores the query.
            body = msgspec.json.encode({**(decoded or {}), "dryRun": ["All"]})
        query = [pair for pair in request.query if pair[0] != "dryRun"] + [("dryRun", "All")]
        return await super()._perform(replace(request, query=query, body=body))

    def _record(self, request: Request, body: Any) -> None:
        target, content_type = request.target, request.content_type
        shown = None if request.is_secret else body
        name = target.name or (name_of(body) if isinstance(body, dict) else "")
        resource = target.ref.qualified if target.ref is not None else ""
        write = RecordedWrite(target.method, resource, target.namespace, name, target.path, content_type, shown)
        self.writes.append(write)
        log.info("dryrun.write", method=write.method, path=write.path, name=name)
        log.v(4).info("dryrun.body", path=write.path, content_type=content_type, body=shown)

    async def _present(self, target: errors.Target, body: Any, accept: str) -> Response:
        """What a local dry run answers: the object as it is now, or as it was handed in."""
        handed_in = Response(200, msgspec.json.encode(_as_created(body)))
        if target.method in ("POST", "DELETE"):
            return handed_in
        now = errors.Target("GET", target.path, target.ref, target.namespace, target.name)
        try:
            return await super()._perform(Request(now, accept=accept))
        except errors.NotFound:
            # Server-side apply creates what is not there; every other change of it is an error as it would be.
            if target.method == "PATCH" and isinstance(body, dict) and "apiVersion" in body:
                metadata = {**(body.get("metadata") or {}), "name": target.name}
                return Response(201, msgspec.json.encode({**body, "metadata": metadata}))
            raise


def _as_created(body: Any) -> Any:
    if not isinstance(body, dict):
        return {}
    metadata = dict(body.get("metadata") or {})
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}dryrun"
    return {**body, "metadata": metadata}
