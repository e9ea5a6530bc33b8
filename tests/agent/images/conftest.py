"""What transfers of images begin with: a head with an image, its administrator, and a machine. The trees are those that
a module of tests names: IMAGE and NODE, content by path."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.agent.imaging import bare, grow
from tests.agent.machines import Machine
from tests.ui.rest.serving import Served, served

from bedplate.api.headapi import ImageAction
from bedplate.client import HeadClient
from bedplate.head.intake import Rate
from bedplate.ui import rest


@pytest.fixture
async def server(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    grow(tmp_path / "images" / "default-image", request.module.IMAGE)
    # Hundreds of transfers in a row are more reports than a node may send.
    limits = rest.Limits(slowed_s=0.0, heartbeat_s=0.2, reports=Rate(10_000, 100.0))
    async with served(tmp_path, tree=bare(), limits=limits) as opened:
        yield opened


@pytest.fixture
async def client(server: Served) -> AsyncIterator[HeadClient]:
    async with server.client() as opened:
        await opened.act_on_image("default-image", ImageAction(action="adopt"))
        yield opened


@pytest.fixture
def machine(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Machine:
    """A machine that has been as it is for a while."""
    made = Machine(tmp_path / "node001")
    grow(made.folder, request.module.NODE, age_s=1000.0)
    return made
