"""The paths of probes: each answers in its own name, from its own checks."""

from __future__ import annotations

import aiohttp
import pytest

from bedplate.program.endpoints import add_health
from bedplate.serving.health import Checks
from bedplate.serving.routes import Listener, Routes


def not_yet() -> None:
    raise RuntimeError("caches are not synced")


def routes() -> Routes:
    """As the manager serves them: `/livez` and `/healthz` have the same checks."""
    served = Routes()
    live, ready = Checks("healthz"), Checks("readyz", {"caches": not_yet})
    for name, checks in (("healthz", live), ("livez", live), ("readyz", ready)):
        add_health(served, name, checks)
    return served


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/healthz", 200, "ok"),
        ("/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"),
        ("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"),
        ("/readyz", 500, "[+]ping ok\n[-]caches failed: reason withheld\nreadyz check failed\n"),
        ("/readyz?exclude=caches", 200, "ok"),
        ("/readyz/ping", 200, "ok"),
        ("/readyz/caches", 500, "internal server error\n"),
        ("/livez/caches", 404, "no check named caches\n"),
    ],
)
async def test_a_path_answers_in_its_own_name_from_its_own_checks(path: str, status: int, text: str) -> None:
    listener = Listener(routes().answer)
    await listener.open("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{listener.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert (answer.status, await answer.text()) == (status, text)
    finally:
        await listener.close(1.0)
