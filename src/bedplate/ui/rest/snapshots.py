"""Snapshots of etcd over HTTP: a member that was asked for one gives it, and one that was asked to restore gets it.

In: streams of agents, each for an errand that its node has accepted. Out: files of `head/clusters/snapshots.py`, or
their bytes. The first line is JSON and says how much follows; an answer without its end tells the agent that it failed.
A node whose credential ends meanwhile, that sends more than it said, or nothing for long, is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bedplate.api.headapi import ErrandState
from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.head import NODE, Lasting
from bedplate.head.clusters.snapshots import Snapshot, Snapshots
from bedplate.head.daemon import Service
from bedplate.ui.rest.auth import lasting
from bedplate.ui.rest.enrolment import fleet_of
from bedplate.ui.rest.operations import Ask

__all__ = ["Snapshotting"]

_LOG = get_logger("head.snapshots")
_CHUNK = 1 << 20
_LONGEST = 4096


class Snapshotting:
    """The handler of `/nodes/{name}/snapshots`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def transfer(self, ask: Ask) -> web.StreamResponse:
        """Take the snapshot of a node, or give it one, as its errand says."""
        name, id_ = ask.text("name"), ask.text("id")
        if ask.identity.role != NODE:
            raise errors.Denied(
                "only the node itself may open this", hint="cm-kubernetes-setup --etcd-snapshot asks it"
            )
        errand, snapshots = self._errand(name, id_), self._snapshots()
        if errand.care == "fetch":
            snapshots.get(errand.cluster, errand.snapshot)
        credential = lasting(self._service.access, self._service.clock, ask.request)
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.enable_chunked_encoding()
        await response.prepare(ask.request)
        try:
            if errand.care == "fetch":
                await _send(snapshots, errand, response, credential)
            else:
                await _receive(snapshots, errand, ask.request, credential, self._service.limits.stall_s)
        except (errors.BedplateError, ConnectionError) as err:
            _LOG.warning("head.snapshot_failed", node=name, id=id_, error=errors.describe(err))
            if isinstance(err, errors.BedplateError):
                await response.write(f"{errors.describe(err)}\n".encode())
            if ask.request.transport is not None:
                ask.request.transport.close()
            return response
        await response.write_eof()
        return response

    def _errand(self, node: str, id_: str) -> ErrandState:
        for errand in fleet_of(self._service).errands.list([node]):
            if errand.id == id_ and errand.care in ("snapshot", "fetch") and errand.state in ("waiting", "accepted"):
                return errand
        raise errors.NotFound(f"{node} was not asked for a snapshot with the id {id_}")

    def _snapshots(self) -> Snapshots:
        clusters = self._service.clusters
        if clusters is None or clusters.snapshots is None:
            raise errors.Unavailable("this head keeps nothing for clusters", hint="serve it from a data folder")
        return clusters.snapshots


async def _receive(
    snapshots: Snapshots, errand: ErrandState, request: web.Request, credential: Lasting, stall_s: float
) -> None:
    try:
        async with asyncio.timeout(stall_s):
            line = await request.content.readuntil(b"\n")
    except (TimeoutError, ValueError, HttpProcessingError) as err:
        raise errors.Invalid("the first line of a snapshot did not arrive, or is too long") from err
    try:
        about = msgspec.json.decode(line[:_LONGEST], type=Snapshot)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"the first line of a snapshot cannot be read: {err}") from err
    about = msgspec.structs.replace(about, member=errand.node, taken=errand.asked)

    async def chunks() -> AsyncIterator[bytes]:
        left = about.size
        while True:
            try:
                async with asyncio.timeout(stall_s):
                    data = await request.content.readany()
            except TimeoutError as err:
                raise errors.Invalid(f"nothing of the snapshot arrived for {stall_s:.0f} s") from err
            credential.holds()
            left -= len(data)
            if left < 0:
                raise errors.Invalid(f"the snapshot is larger than the {about.size} bytes that its member said")
            if not data:
                return
            yield data

    await snapshots.receive(errand.cluster, errand.snapshot, about, chunks())


async def _send(snapshots: Snapshots, errand: ErrandState, response: web.StreamResponse, credential: Lasting) -> None:
    about = msgspec.to_builtins(snapshots.get(errand.cluster, errand.snapshot))
    # Members of a restored cluster must not take those that still have the former data for their own: all members are
    # asked at the same time, and no two restores are.
    await response.write(msgspec.json.encode({**about, "restore": errand.asked}) + b"\n")
    with snapshots.place(errand.cluster, errand.snapshot).open("rb") as stream:
        while chunk := await asyncio.to_thread(stream.read, _CHUNK):
            credential.holds()
            await response.write(chunk)
