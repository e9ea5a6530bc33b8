"""The REST API as an aiohttp application.

In: `Service`. Out: an application with every address of the API, the OpenAPI document, health and metrics; the daemon
serves it over TLS, and mounts the page on it (`bedplate.ui.web.mount`). Its event stream runs as long as the
application does.
"""

from __future__ import annotations

from aiohttp import web

from bedplate.ui.rest.service import Service

__all__ = ["make"]


def make(service: Service) -> web.Application:
    """The application; routes may be added to it until it starts."""
    return web.Application()
