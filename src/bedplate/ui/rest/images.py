"""Software images over HTTP: their trees, and the transfers of nodes.

In: checked requests of people, and streams of agents. Out: the condition of trees, results of what was done with them;
the bytes of rsync. A transfer is a request whose body and answer go on at the same time: what the node's rsync says is
the body, what the head's says is the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.head import NODE
from bedplate.head.daemon import Service
from bedplate.head.images.imaging import Imaging
from bedplate.head.images.serving import Serving
from bedplate.ui.rest.auth import lasting
from bedplate.ui.rest.enrolment import fleet_of
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask

__all__ = ["ImageTrees"]

_LOG = get_logger("head.images")
_ACTION = msgspec.json.Decoder(headapi.ImageAction)
_GOOD = (0, 24)


class ImageTrees:
    """The handlers of `/images` and `/nodes/{name}/images`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _imaging(self) -> Imaging:
        return fleet_of(self._service).imaging

    async def list(self, ask: Ask) -> web.StreamResponse:
        """All images."""
        answer = headapi.ImageList(folder=self._imaging.trees.folder, items=[*self._imaging.states()])
        return json(msgspec.json.encode(answer))

    async def act(self, ask: Ask) -> web.StreamResponse:
        """Do something with a tree."""
        action = await ask.body(_ACTION)
        result = await self._imaging.act(ask.text("image"), action, by=ask.identity.name)
        return json(msgspec.json.encode(result))

    async def transfer(self, ask: Ask) -> web.StreamResponse:
        """Carry the bytes of a transfer until rsync ends, or the node's credential does."""
        name, id_ = ask.text("name"), ask.text("id")
        if ask.identity.role != NODE:
            raise errors.Denied("only the node itself may open its transfer", hint="imageupdate asks it to")
        async with self._imaging.transfer(name, id_) as (errand, serving):
            response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            response.enable_chunked_encoding()
            await response.prepare(ask.request)
            try:
                code = await self._carry(ask, serving, response)
                if serving.is_written and code not in _GOOD:
                    why = serving.reason() or "it gave no reason"
                    raise errors.Invalid(f"nothing was kept: rsync of the head ended with {code}: {why}")
                if serving.is_written:
                    await serving.keep()
            except ConnectionError as err:
                # The agent tries again, or another one after a restart.
                _LOG.info("head.transfer_lost", node=name, id=id_, image=errand.image, error=str(err))
                return response
            except (errors.BedplateError, OSError) as err:
                _LOG.warning("head.transfer_failed", node=name, id=id_, image=errand.image, error=str(err))
                await self._imaging.fail(name, id_, str(err))
                # An answer without its end tells the agent that it failed.
                if ask.request.transport is not None:
                    ask.request.transport.abort()
                return response
            await response.write_eof()
            return response

    async def _carry(self, ask: Ask, serving: Serving, response: web.StreamResponse) -> int:
        """Carry bytes for as long as the node's credential is valid, and the transfer is not over or given up."""
        credential = lasting(self._service.access, self._service.clock, ask.request)
        carrying = asyncio.ensure_future(serving.carry(_chunks(ask.request), response.write))
        try:
            while not carrying.done():
                await asyncio.wait([carrying], timeout=self._service.limits.heartbeat_s)
                credential.holds()
                self._imaging.asked(ask.text("name"), ask.text("id"))
            return carrying.result()
        finally:
            carrying.cancel()
            await asyncio.wait([carrying])


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    async for data in request.content.iter_any():
        yield data
