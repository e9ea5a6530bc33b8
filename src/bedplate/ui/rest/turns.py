"""Turns over HTTP: what nodes do one after the other.

In: checked requests of nodes and of people. Out: who has a turn; who waits is answered once it has it.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import NODE
from bedplate.head.daemon import Service
from bedplate.ui.rest.auth import lasting
from bedplate.ui.rest.enrolment import fleet_of
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask

__all__ = ["Turning"]

_TAKE = msgspec.json.Decoder(headapi.TurnRequest)
_END = msgspec.json.Decoder(headapi.TurnEnd)


class Turning:
    """The handlers of `/turns` and `/nodes/{name}/turns`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def take(self, ask: Ask) -> web.StreamResponse:
        """Give a node the turn of a group, once it is free."""
        request, name = await ask.body(_TAKE), ask.text("name")
        self._service.head.tree.get(("device", name))
        fleet = fleet_of(self._service)
        # A node that is not what it was must not keep others from restarting services that it has no part in.
        if ask.identity.role == NODE and not any(
            service.serial == request.group for service in fleet.wants.state(name).services
        ):
            raise errors.Denied(
                f"{name} has no service that takes turns with {request.group}", hint="its roles say which it has"
            )
        credential = lasting(self._service.access, self._service.clock, ask.request)
        answer = await fleet.turns.take(
            name,
            request.group,
            wait_s=request.wait,
            lasts_s=request.lasts,
            check=credential.holds,
        )
        return json(msgspec.json.encode(answer))

    async def end(self, ask: Ask) -> web.StreamResponse:
        """Take a turn back."""
        end, name = await ask.body(_END), ask.text("name")
        self._service.head.tree.get(("device", name))
        turns = fleet_of(self._service).turns
        state = await turns.end(name, ask.text("group"), has_failed=end.failed, why=end.text)
        return json(msgspec.json.encode(state))

    async def list(self, ask: Ask) -> web.StreamResponse:
        """All turns."""
        return json(msgspec.json.encode(headapi.TurnList(items=fleet_of(self._service).turns.states())))

    async def release(self, ask: Ask) -> web.StreamResponse:
        """Let those go on who wait because a node failed."""
        state = await fleet_of(self._service).turns.release(ask.text("group"), ask.identity.name)
        return json(msgspec.json.encode(state))
