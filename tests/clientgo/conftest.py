"""Stop the shared servers at the end of the session."""

from __future__ import annotations

from tests import servers


def pytest_sessionfinish() -> None:
    servers.shared.close()
