"""Who is asking, tokens, and what the head is made of.

In: checked requests. Out: the caller; tokens without their texts, but for the one that was just made; which client
certificates are revoked; the schema.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import ENROL, ENROL_CATEGORY, JOIN, NODE, SiteKeys
from bedplate.head.daemon import Service
from bedplate.head.schema.tables import describe
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask

__all__ = ["Accounts"]

_TOKEN = msgspec.json.Decoder(headapi.TokenRequest)
_ROTATION = msgspec.json.Decoder(headapi.RotationRequest)
_JOIN = msgspec.json.Decoder(headapi.JoinRequest)
_REVOCATION = msgspec.json.Decoder(headapi.RevocationRequest)


_JOINS_WITHIN = timedelta(days=1)


class Accounts:
    """The handlers of `/whoami`, `/tokens`, `/certificates`, `/revocations`, `/authority`, `/join` and `/schema`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        schema = service.head.tree.schema
        self._schema = msgspec.json.encode(
            {
                "modes": [
                    {
                        "mode": mode.shell,
                        "label": mode.label,
                        "doc": mode.doc,
                        "of": [entity.type_name() for entity in mode.of],
                        "words": mode.words(),
                    }
                    for mode in schema.modes.values()
                ],
                "entities": [describe(entity) for entity in schema.types.values()],
                "largestObjectBytes": schema.largest_bytes,
            }
        )

    async def whoami(self, ask: Ask) -> web.StreamResponse:
        """The caller as the head knows it."""
        identity, standing = ask.identity, self._service.head.standing
        answer = headapi.Whoami(
            user=identity.name,
            role=identity.role,
            head=self._service.name,
            revision=self._service.head.revision,
            node=identity.name if identity.role == NODE else "",
            via=identity.via,
            active=standing.active_url,
            is_active=standing.is_active,
            trouble=standing.trouble,
        )
        return json(msgspec.json.encode(answer))

    async def schema(self, ask: Ask) -> web.StreamResponse:
        """Modes and entities as data."""
        return json(self._schema)

    async def tokens(self, ask: Ask) -> web.StreamResponse:
        """All tokens, without their texts."""
        return json(msgspec.json.encode(headapi.TokenList(items=self._service.access.tokens.list())))

    async def create(self, ask: Ask) -> web.StreamResponse:
        """A new token for a user or a node of the tree, for a new head node, or for enrolments."""
        request = await ask.body(_TOKEN)
        self._service.head.standing.refuse_writes()
        # A token for a machine names the authority, so that whoever has it knows whom to give it to.
        authority = f".{self._keys.state().fingerprint}" if request.kind in (JOIN, ENROL, ENROL_CATEGORY) else ""
        access = self._service.access
        if request.kind == JOIN:
            token, text = await access.tokens.create(
                JOIN, request.subject, "one head node", lasts=_JOINS_WITHIN, by=ask.identity.name
            )
        else:
            token, text = await access.create_token(ask.identity, request)
        response = json(msgspec.json.encode(headapi.TokenMade(token=text + authority, about=token)), status=201)
        response.headers["Cache-Control"] = "no-store"
        return response

    async def revoke(self, ask: Ask) -> web.StreamResponse:
        """Revoke a token."""
        self._service.head.standing.refuse_writes()
        await self._service.access.revoke_token(ask.identity, ask.text("id"))
        return web.Response(status=204)

    async def certificates(self, ask: Ask) -> web.StreamResponse:
        """The certificates of the site, of enrolled nodes, and those that were used, with their ends."""
        return json(msgspec.json.encode(headapi.CertificateList(items=self._service.certificates())))

    async def revocations(self, ask: Ask) -> web.StreamResponse:
        """The certificates that no longer count."""
        items = self._service.access.tokens.revocations.list()
        return json(msgspec.json.encode(headapi.RevocationList(items=items)))

    async def revoke_certificates(self, ask: Ask) -> web.StreamResponse:
        """Refuse a certificate, or those that a user or node has so far."""
        request = await ask.body(_REVOCATION)
        self._service.head.standing.refuse_writes()
        revocation = await self._service.access.tokens.revocations.revoke(
            kind=request.kind, subject=request.subject or "", fingerprint=request.fingerprint, by=ask.identity.name
        )
        await self._renew()
        return json(msgspec.json.encode(revocation), status=201)

    # The site's keys

    @property
    def _keys(self) -> SiteKeys:
        if self._service.keys is None:
            raise errors.NotFound("this head has no keys of a site", hint="it serves no data folder")
        return self._service.keys

    async def _renew(self) -> None:
        """The answer waits for it, so that the data folder's next command has a certificate that counts."""
        if self._service.renew is not None:
            await self._service.renew()

    async def authority(self, ask: Ask) -> web.StreamResponse:
        """What clients have to trust."""
        return json(msgspec.json.encode(self._keys.state()))

    async def authority_file(self, ask: Ask) -> web.StreamResponse:
        """The same as a file, for anybody: it is public."""
        return web.Response(text=self._keys.state().certificates, content_type="application/x-pem-file")

    async def rotate(self, ask: Ask) -> web.StreamResponse:
        """Begin to replace the authority, or finish that."""
        request = await ask.body(_ROTATION)
        self._service.head.standing.refuse_writes()
        state = await (self._keys.finish() if request.finish else self._keys.begin())
        await self._renew()
        return json(msgspec.json.encode(state))

    async def join(self, ask: Ask) -> web.StreamResponse:
        """The site's keys, for a new head node with a token that is good for this once."""
        request = await ask.body(_JOIN)
        if ask.identity.role != JOIN or ask.identity.name != request.name:
            raise errors.Denied(
                f"this credential does not let {request.name} join",
                hint=f"bedplate head token create {request.name} --join",
            )
        self._service.head.standing.refuse_writes()
        answer = self._keys.material()
        id_ = ask.identity.via.removeprefix("token ")
        if await self._service.access.tokens.spend(id_, by=request.name, proof=request.proof):
            text = f"{request.name} joined the site as a head node"
            await self._service.notices.add(self._service.name, text, "warning")
        response = json(msgspec.json.encode(answer))
        response.headers["Cache-Control"] = "no-store"
        return response
