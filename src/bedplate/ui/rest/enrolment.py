"""How machines become nodes, over HTTP: their requests, what becomes of them, and the next certificate of a node.

In: checked requests of machines with a token, of administrators, and of nodes over a connection with their certificate.
Out: certificates, and what waits for an administrator.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.core.clock import rfc3339
from bedplate.head.daemon import Service
from bedplate.head.fleet import Fleet
from bedplate.ui.rest.auth import lasting, presented
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask

__all__ = ["Enrolling", "fleet_of"]

_REQUEST = msgspec.json.Decoder(headapi.EnrolmentRequest)
_DECISION = msgspec.json.Decoder(headapi.EnrolmentDecision)
_CERTIFICATE = msgspec.json.Decoder(headapi.CertificateRequest)


def fleet_of(service: Service) -> Fleet:
    """What the head keeps for its nodes. Raises `NotFound` where there is nothing."""
    if service.fleet is None:
        raise errors.NotFound("this head keeps nothing for nodes", hint="it serves no data folder")
    return service.fleet


class Enrolling:
    """The handlers of `/enrolments` and `/nodes/{name}/certificate`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ask(self, ask: Ask) -> web.StreamResponse:
        """A machine asks to be a node: its certificate, or 202 while somebody has to approve it."""
        request = await ask.body(_REQUEST)
        answer = await fleet_of(self._service).enrolments.ask(ask.identity, request)
        return json(msgspec.json.encode(answer), status=202 if answer.state == "pending" else 200)

    async def list(self, ask: Ask) -> web.StreamResponse:
        """All enrolments."""
        items = list(fleet_of(self._service).enrolments.list())
        return json(msgspec.json.encode(headapi.EnrolmentList(items=items)))

    async def get(self, ask: Ask) -> web.StreamResponse:
        """What became of an enrolment; a machine may wait for the decision."""
        enrolments, id_ = fleet_of(self._service).enrolments, ask.text("id")
        answer, wait_s = enrolments.answer(ask.identity, id_), ask.number("wait", 0)
        credential = lasting(self._service.access, self._service.clock, ask.request)
        try:
            async with asyncio.timeout(wait_s):
                while wait_s and answer.state == "pending":
                    moved = asyncio.ensure_future(enrolments.book.moved())
                    try:
                        await asyncio.wait([moved], timeout=self._service.limits.heartbeat_s)
                    finally:
                        moved.cancel()
                    credential.holds()
                    answer = enrolments.answer(ask.identity, id_)
        except TimeoutError:
            pass
        return json(msgspec.json.encode(answer))

    async def decide(self, ask: Ask) -> web.StreamResponse:
        """Approve or deny an enrolment that waits."""
        decision = await ask.body(_DECISION)
        enrolment = await fleet_of(self._service).enrolments.decide(
            ask.text("id"), approve=decision.approve, by=ask.identity.name, text=decision.text
        )
        return json(msgspec.json.encode(enrolment))

    async def renew(self, ask: Ask) -> web.StreamResponse:
        """The next certificate of a node, for who has the present one."""
        request = await ask.body(_CERTIFICATE)
        self._service.intake.admit(ask.identity.name)
        der, keys, enrolments = presented(ask.request), self._service.keys, fleet_of(self._service).enrolments
        if der is None or keys is None:
            raise errors.Denied("this connection has no client certificate", hint="use the certificate of the node")
        issued = await enrolments.renew(ask.identity, request.csr, keys.present(der))
        answer = headapi.CertificateAnswer(
            certificate=issued.certificate, authority=keys.bundle(), ends=rfc3339(issued.ends)
        )
        return json(msgspec.json.encode(answer))
