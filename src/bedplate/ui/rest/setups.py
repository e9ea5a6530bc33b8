"""Setups over HTTP: the form of a deployment, runs with their stages, and what is done with them.

In: checked requests; answers are the file that `cm-kubernetes-setup -c` reads, JSON being YAML. Out: the form with what
is wrong, and runs. Who may start one is decided in `bedplate.ui.setups`, as for the page.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from bedplate.api.setups import SetupAction, SetupForm, SetupList
from bedplate.core import errors
from bedplate.head.daemon import Service
from bedplate.ui import setups
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import JSON, YAML, Ask
from bedplate.ui.rest.problems import Malformed

__all__ = ["SetupRuns"]

_ACTION = msgspec.json.Decoder(SetupAction)


class SetupRuns:
    """The handlers of `/setups` and `/setup-form`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def form(self, ask: Ask) -> web.StreamResponse:
        """The form with prefilled values."""
        return json(msgspec.json.encode(setups.setups_of(self._service).form({}, {})))

    async def check(self, ask: Ask) -> web.StreamResponse:
        """The form with answers."""
        return json(msgspec.json.encode(await self._answered(ask)))

    async def list(self, ask: Ask) -> web.StreamResponse:
        """The last run for each cluster."""
        return json(msgspec.json.encode(SetupList(items=[*setups.setups_of(self._service).runs()])))

    async def start(self, ask: Ask) -> web.StreamResponse:
        """Deploy a cluster."""
        run = await setups.deploy(self._service, ask.identity, await self._answered(ask))
        return json(msgspec.json.encode(run), status=202)

    async def get(self, ask: Ask) -> web.StreamResponse:
        """The last run for a cluster."""
        return json(msgspec.json.encode(setups.setups_of(self._service).run(ask.text("name"))))

    async def act(self, ask: Ask) -> web.StreamResponse:
        """Do something with the run for a cluster."""
        action = await ask.body(_ACTION)
        run = await setups.act(self._service, ask.identity, ask.text("name"), action.action, action.confirm)
        return json(msgspec.json.encode(run), status=202)

    async def _answered(self, ask: Ask) -> SetupForm:
        tool = setups.setups_of(self._service)
        ask.expect_type(YAML, JSON, "application/x-yaml", "text/yaml", "text/x-yaml")
        try:
            content = await ask.content()
            if len(content) > self._service.limits.form_bytes:
                raise web.HTTPRequestEntityTooLarge(max_size=self._service.limits.form_bytes, actual_size=len(content))
            # Long lists take their time: others are answered meanwhile.
            return await asyncio.to_thread(tool.check, content)
        except errors.Invalid as err:
            if err.problems:
                raise
            raise Malformed(err.message, hint=err.hint) from None
