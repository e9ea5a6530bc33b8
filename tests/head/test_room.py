"""A head says in time that it runs out of files and connections, and what to set; nodes would only seem to be down."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.head.folder.test_sitekeys import serving
from tests.ui.rest.serving import KEY
from tests.waiting import until

from bedplate.core import openfiles
from bedplate.core.clock import ManualClock
from bedplate.core.openfiles import Usage
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import administration, creation
from bedplate.head.notices import Notices
from bedplate.head.room import Room, shortage
from bedplate.head.service import Alone, Head
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore


def kind(count: int, limit: int, devices: int, *, is_full: bool = False) -> str:
    lack = shortage(Usage(count, limit), devices, is_full=is_full)
    return lack.kind if lack is not None else ""


def test_each_node_needs_two_connections_and_the_head_some_of_its_own() -> None:
    assert kind(10, 65536, 10_000) == ""
    assert kind(10, 20_200, 10_000) == ""
    assert kind(10, 20_199, 10_000) == "small"
    assert kind(10, 1024, 10) == ""


def test_it_is_full_before_it_is_too_late_and_until_there_is_room_again() -> None:
    assert [kind(count, 1000, 10) for count in (899, 900, 1000)] == ["", "full", "full"]
    assert [kind(count, 1000, 10, is_full=True) for count in (800, 799)] == ["full", ""]


def test_the_remedy_names_the_setting_and_a_number_that_is_enough() -> None:
    full, small = shortage(Usage(950, 1000), 10), shortage(Usage(10, 1024), 5000)
    assert full is not None and "950 of 1000" in full.text and "LimitNOFILE= of bedplate-head.service" in full.text
    assert "to 2000, and restart it" in full.text
    assert small is not None and "5000 devices need about 10200" in small.text and "to 10200," in small.text


class Watched:
    def __init__(self, room: Room, notices: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self.notices, self._monkeypatch = room, notices, monkeypatch

    async def look(self, count: int) -> list[str]:
        """The notices after a look at so many open files of a thousand."""
        self._monkeypatch.setattr(openfiles, "usage", lambda: Usage(count, 1000))
        await self.room.look()
        return [f"{notice.severity} {notice.text}" for notice in reversed(self.notices.latest())]


@pytest.fixture
async def watched(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    clock = ManualClock()
    async with (
        SqliteStore(tmp_path / "x.db", clock=clock, history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock, standing=Alone("basecm10", "")) as head,
        Notices(store, clock=clock) as notices,
    ):
        yield Watched(Room(head, notices, "basecm10", clock=clock), notices, monkeypatch)


async def test_it_is_told_once_however_long_it_lasts_and_when_it_is_over(watched: Watched) -> None:
    assert await watched.look(100) == []
    (full,) = await watched.look(950)
    assert full.startswith("warning This head has 950 of 1000 files and connections open")
    assert await watched.look(990) == [full] == await watched.look(850)
    assert (await watched.look(100))[1:] == ["notice This head has room for connections again (100 of 1000 are open)"]


async def test_a_daemon_looks_by_itself(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openfiles, "usage", lambda: Usage(999, 1000))
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=1)
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:

        async def told() -> bool:
            return any("LimitNOFILE" in notice.text for notice in await admin.notices())

        await until(told)
