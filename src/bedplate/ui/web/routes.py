"""The addresses of the page."""

from __future__ import annotations

from aiohttp import web

from bedplate.ui.web.site import Site

__all__ = ["routes"]


def routes(site: Site) -> list[web.AbstractRouteDef]:
    """Every address the page answers."""
    return []
