"""The head's page: plain HTML from the daemon, readable without JavaScript; a small script adds what is live.

In: `Service`. Out: routes for the daemon's aiohttp application. Every page but the one for signing in, the style sheet
and the script asks for a login; a login keeps its staged changes, also when the daemon starts again or another head
takes over, until they are committed or dropped.
"""

from __future__ import annotations

from aiohttp import web

from bedplate.head.daemon import Service

__all__ = ["mount", "serve"]


def serve(service: Service) -> web.AppRunner:
    """The REST API with the page at `/`: what the daemon of a head runs."""
    from bedplate.ui import rest

    app = rest.make(service)
    mount(app, service)
    return rest.runner(app, service.limits)


def mount(app: web.Application, service: Service) -> None:
    """Add the page at `/`. Call it after the routes of the API: whatever nobody else answers gets the page's 404."""
    from bedplate.ui.web import routes  # templates and their engine load with the daemon, not with the shell

    app.add_routes(routes.routes(service))
