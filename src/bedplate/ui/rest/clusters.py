"""Kubernetes clusters over HTTP: how each stands, with its applications, its checks and its users.

In: checked requests. Out: states, and the history of checks; nothing is changed here.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from bedplate.core import errors
from bedplate.head.clusters.service import Clusters
from bedplate.head.daemon import Service
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask

__all__ = ["KubernetesClusters"]


class KubernetesClusters:
    """The handlers of `/clusters`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def state(self, ask: Ask) -> web.StreamResponse:
        """How a cluster stands."""
        return json(msgspec.json.encode(self._clusters().state(ask.text("name"))))

    async def people(self, ask: Ask) -> web.StreamResponse:
        """Who may do what in a cluster."""
        return json(msgspec.json.encode(self._clusters().people.state(ask.text("name"))))

    async def health(self, ask: Ask) -> web.StreamResponse:
        """A cluster with the history of its checks."""
        return json(msgspec.json.encode(await self._clusters().health(ask.text("name"), ask.text("check"))))

    def _clusters(self) -> Clusters:
        if self._service.clusters is None:
            raise errors.Unavailable("this head keeps nothing for clusters", hint="serve it from a data folder")
        return self._service.clusters
