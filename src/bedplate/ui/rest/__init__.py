"""The head's REST API: `make(Service(head, access, notices, health, …))` is an aiohttp application.

In: a head with what stands beside it. Out: JSON over HTTP for `bedplate.client`, scripts and agents. What an address
takes and gives is declared once (`operations`), and gives routes, checks of requests and the OpenAPI document.
"""

from __future__ import annotations

from bedplate.head.daemon import Limits, Service
from bedplate.ui.rest.app import make, runner

__all__ = ["Limits", "Service", "make", "runner"]
