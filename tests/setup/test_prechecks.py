"""The checks before a deployment: DNS and the package index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.setup.engine import fakes
from tests.waiting import DEADLINE_S

from bedplate.setup import prechecks
from bedplate.setup.engine import order

ANSWERS = {"kubernetes": {"fqdn": "head.example.com"}}


class NameServer(asyncio.DatagramProtocol):
    """Knows no name, and says so."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert b"\x04head\x07example\x03com\x00" in data
        self._transport.sendto(data[:2] + b"\x81\x83" + data[4:], addr)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    yield transport.get_extra_info("sockname")[1]
    transport.close()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


async def dns(tmp_path: Path, text: str, port: int) -> tuple[str, str]:
    bench = fakes.Bench(tmp_path / "state")
    stages = prechecks.stages(written(tmp_path / "resolv.conf", text), port=port, answer_s=DEADLINE_S)[:1]
    status = await bench.run(stages, answers=ANSWERS).execute()
    return status, bench.printed


async def test_a_name_server_that_answers_is_enough(tmp_path: Path, port: int) -> None:
    status, printed = await dns(tmp_path, "search x\nnameserver not-an-address\nnameserver 127.0.0.1\n", port)
    assert status == "completed"
    assert "127.0.0.1 answers" in printed


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "has no name server"), ("nameserver 127.0.0.1\n", "no name server answers: 127.0.0.1: ")],
)
async def test_without_one_the_setup_stops(tmp_path: Path, text: str, expected: str) -> None:
    # Nothing can be sent to port 0.
    status, printed = await dns(tmp_path, text, 0)
    assert status == "failed"
    assert expected in printed
    assert "--skip-dns-configuration-check" in printed


def manager(tmp_path: Path, name: str, code: int) -> str:
    program = written(tmp_path / name, f"#!/bin/sh\necho refreshing with $*\nexit {code}\n")
    program.chmod(0o755)
    return str(tmp_path)


async def packages(tmp_path: Path, path: str) -> tuple[str, str]:
    bench = fakes.Bench(tmp_path / "state")
    status = await bench.run(prechecks.stages(path=path)[1:], answers=ANSWERS).execute()
    return status, bench.printed


@pytest.mark.parametrize("name", ["apt-get", "dnf", "zypper"])
async def test_a_package_index_that_can_be_refreshed_is_good(tmp_path: Path, name: str) -> None:
    assert (await packages(tmp_path, manager(tmp_path, name, 0)))[0] == "completed"


async def test_one_that_cannot_be_refreshed_stops_the_setup(tmp_path: Path) -> None:
    status, printed = await packages(tmp_path, manager(tmp_path, "apt-get", 100))
    assert status == "failed"
    assert "apt-get update -qq failed with code 100: refreshing with update -qq" in printed
    assert "--skip-package-manager-update-check" in printed


async def test_a_machine_without_a_package_manager_has_nothing_to_refresh(tmp_path: Path) -> None:
    status, printed = await packages(tmp_path, str(tmp_path))
    assert status == "completed"
    assert "No package manager was found" in printed


def test_each_flag_removes_its_check() -> None:
    names = [stage.name for stage in order.without(prechecks.stages(), {"dns-check"})]
    assert names == ["Check Package Manager Update"]
