"""The backend over a head in the same process."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.head.committing import commit
from tests.ui.backend_suite import BackendSuite

from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.head.site import first_tree
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore
from bedplate.ui.backend import Backend
from bedplate.ui.local import LocalBackend


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[Head]:
    vault = Vault(base64.urlsafe_b64encode(bytes(range(32))))
    async with (
        SqliteStore(tmp_path / "head.db", history_s=None) as store,
        Head(store, SCHEMA, vault, clock=ManualClock()) as opened,
    ):
        await commit(opened, first_tree("basecm10", 3), "setup", "the site")
        yield opened


@pytest.fixture
def backend(head: Head) -> Backend:
    return LocalBackend(head, name="basecm10", identity=Identity.local("admin"))


class TestLocalBackend(BackendSuite):
    """See the suite."""
