"""status, health, events: what nodes told, as the shell shows it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.api.headapi import Result, System
from bedplate.core.clock import ManualClock
from bedplate.head.folder import creation, datafolder
from bedplate.head.health import Health
from bedplate.head.policy import Identity
from bedplate.ui.local import LocalBackend

HEALTHY = Result(check="Docker", status="PASS", value=1.5)
SICK = Result(check="Docker", status="FAIL", info="the daemon does not answer")


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[datafolder.Opened]:
    await creation.make(tmp_path / "data", name="basecm10", nodes=3)
    async with datafolder.open_head(tmp_path / "data") as opened:
        health, notices = await opened.health(), await opened.notices()
        await health.record("node001", [HEALTHY], applied=1)
        await health.record("node002", [HEALTHY])
        await health.record("node002", [SICK])
        await notices.add("node002", "Check Docker failed", "warning")
        await notices.add("basecm10", "Service nginx was reloaded")
        yield opened


@pytest.fixture
def watching(opened: datafolder.Opened) -> Desk:
    backend = LocalBackend(
        opened.head, name="basecm10", identity=Identity.local("a"), health=opened.health, notices=opened.notices
    )
    return Desk(opened.head, backend=backend)


def rows(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines()[1:]]


async def test_status_tells_state_health_and_revision_of_every_device(watching: Desk) -> None:
    text = await watching.do("device status -d ,")
    assert [row[:4] for row in rows(text)] == [
        ["basecm10", "UNKNOWN", "UNKNOWN", ""],
        ["node001", "UP", "PASS", "1"],
        ["node002", "UP", "FAIL", ""],
        ["node003", "UNKNOWN", "UNKNOWN", ""],
    ]
    assert rows(text)[2][6] == "Docker: the daemon does not answer"
    assert (await watching.do("device status")).splitlines()[-1] == "4 devices: 2 UP, 0 DOWN, 2 UNKNOWN"


async def test_status_says_what_to_do_about_devices_that_stopped_reporting(
    opened: datafolder.Opened, watching: Desk
) -> None:
    assert (await watching.type("device status")).err == ""
    async with Health(opened.store, clock=ManualClock()) as yesterday:
        await yesterday.record("node003")
    said = await watching.type("device status")
    assert said.err.startswith("note: node003 stopped reporting: see that the machine runs")
    assert "2 UP, 1 DOWN" in said.out
    assert (await watching.type("device status -s UP")).err == ""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("device status -d , node00[1-2]", ["node001", "node002"]),
        ("device status -d , -s up", ["node001", "node002"]),
        ("device status -d , -n node001,node003", ["node001", "node003"]),
        ("device status -d , -c default -s UNKNOWN", ["node003"]),
        ("device use node002; status -d ,", ["node002"]),
        ("device use node002; roles; status -d ,", ["node002"]),
        ("device use node002; status -d , node001", ["node001"]),
    ],
)
async def test_status_of_some_devices(watching: Desk, line: str, names: list[str]) -> None:
    assert [row[0] for row in rows(await watching.do(line))] == names


async def test_status_in_json_has_numbers(watching: Desk) -> None:
    (state,) = json.loads(await watching.do("device status node001 -d {}"))
    assert state["Revision"] == 1
    assert state["Last report"].endswith("Z")


async def test_health_shows_the_latest_result_of_each_check(watching: Desk) -> None:
    table = await watching.table("device health")
    assert [row[:4] for row in table.rows] == [["node001", "Docker", "PASS", "1.5"], ["node002", "Docker", "FAIL", ""]]
    assert [row[0] for row in (await watching.table("device health -s FAIL")).rows] == ["node002"]
    assert json.loads(await watching.do("device health node001 -d {}"))[0]["Value"] == 1.5


async def test_health_of_one_check_is_its_history(watching: Desk) -> None:
    for line in ("device health node002 Docker", "device use node002; health Docker"):
        assert [row[2] for row in (await watching.table(line)).rows] == ["PASS", "FAIL"]
    assert "nothing" in (await watching.fails("device health node002 nothing")).err
    assert "nobody" in (await watching.fails("device health nobody")).err


async def test_a_device_without_results_says_so(watching: Desk) -> None:
    said = await watching.type("device health node003")
    assert (said.code, "no result" in said.err) == (0, True)


async def test_events_are_the_latest_notices_oldest_first(watching: Desk) -> None:
    assert [row[1:] for row in (await watching.table("events")).rows] == [
        ["warning", "node002", "Check Docker failed"],
        ["notice", "basecm10", "Service nginx was reloaded"],
    ]
    assert [row[2] for row in (await watching.table("events -n 1")).rows] == ["basecm10"]
    assert [row[2] for row in (await watching.table("events node002")).rows] == ["node002"]
    assert (await watching.table("events master")).column("Host") == ["basecm10"]
    assert "nobody" in (await watching.fails("events nobody")).err
    await watching.do("events off")
    assert not watching.shell.desk.shows_events
    await watching.do("events on")
    assert watching.shell.desk.shows_events


async def test_what_devices_say_of_their_machines_is_shown(watching: Desk, opened: datafolder.Opened) -> None:
    health = await opened.health()
    machine = System(id="debian", version="12", packages="apt", memory=3 * 2**29, cores=2, reboot=True)
    await health.record("node001", system=machine, version="0.8.0")
    table = await watching.table("device use node001; sysinfo")
    assert table.headers == ["Parameter", "Value"]
    assert table.rows == [
        ["Hostname", "node001"],
        ["Distribution", "debian 12"],
        ["Package manager", "apt"],
        ["Number of cores", "2"],
        ["Memory", "1.5 GiB"],
        ["Agent", "0.8.0"],
        ["Reboot required", "yes"],
    ]
    assert (await watching.do("sysinfo | grep Memory")).split() == ["Memory", "1.5", "GiB"]
    said = await watching.type("/; device sysinfo node00[1-3]")
    assert "node002,node003: no agent has told" in said.err and "Distribution" in said.out
    assert "device mode" in (await watching.fails("category; sysinfo")).err


async def test_item_162_monitoring_data_is_dumped_with_its_times(watching: Desk, opened: datafolder.Opened) -> None:
    table = await watching.table("device use node002; dumpmonitoringdata -1h now Docker")
    assert table.headers == ["Timestamp", "Value", "Info"]
    assert [row[1:] for row in table.rows] == [["PASS", ""], ["FAIL", "the daemon does not answer"]]
    assert all(re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", row[0]) for row in table.rows)
    assert (await watching.table("dumpmonitoringdata -2h -1h Docker")).rows == []
    (first, _) = json.loads(await watching.do("dumpmonitoringdata -d {} 2020/01/01 now Docker"))
    assert first["Timestamp"].endswith("Z") and first["Value"] == "PASS"
    await watching.do("/")
    assert len((await watching.table("device dumpmonitoringdata -n node00[1-2] -1d now Docker")).rows) == 3
    assert "nothing" in (await watching.fails("device dumpmonitoringdata -n node001 -1h now nothing")).err
    for line in ("dumpmonitoringdata -1h now Docker", "dumpmonitoringdata -n node001 yesterday now Docker"):
        assert (await watching.fails(f"device {line}")).code == 2


async def test_the_remedy_of_a_check_is_shown(watching: Desk, opened: datafolder.Opened) -> None:
    health = await opened.health()
    dead = Result(check="Docker", status="FAIL", info="dead", remedy="systemctl start docker")
    await health.record("node003", [dead])
    watching.leave()
    backend = LocalBackend(opened.head, name="basecm10", identity=Identity.local("a"), health=opened.health)
    desk = Desk(opened.head, backend=backend)
    assert (await desk.table("device health node003")).column("Remedy") == ["systemctl start docker"]
    assert (await desk.table("device health node003 Docker")).column("Remedy") == ["systemctl start docker"]


async def test_wrong_states_and_places_are_usage(watching: Desk) -> None:
    assert (await watching.fails("device status -s HAPPY")).code == 2
    assert (await watching.fails("device health -s UP")).code == 2
    assert (await watching.fails("status")).code == 2
