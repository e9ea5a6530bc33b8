"""A user at a shell over a head that holds what a deployment leaves behind; a second user at the same head."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.ui.transcripts.driving import Desk, head_with, sized_files

from bedplate.head.service import Head


@pytest.fixture
async def site_head(tmp_path: Path) -> AsyncIterator[Head]:
    async with head_with("deployed", tmp_path) as head:
        yield head


@pytest.fixture
async def desk(site_head: Head, tmp_path: Path) -> Desk:
    return Desk(site_head, user="alice", files=sized_files(tmp_path / "files"))


@pytest.fixture
async def other(site_head: Head, tmp_path: Path) -> Desk:
    return Desk(site_head, user="bob", files=tmp_path / "files")
