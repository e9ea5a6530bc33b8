"""Servers of the runtime's tests forget old revisions when asked, or after a second, so that watches expire."""

from __future__ import annotations

import pytest
from tests import programs, servers


@pytest.fixture(params=["real", "embedded-forgetful"])
def server(request: pytest.FixtureRequest) -> servers.Server:
    return programs.server(request.param)
