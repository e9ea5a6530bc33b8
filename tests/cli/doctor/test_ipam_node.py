"""The doctor on a node: plugin, configuration, log, socket and store, with a running daemon and without one."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests import servers
from tests.apps.test_ipam_cli import install_definitions
from tests.waiting import DEADLINE_S

from bedplate.cli.doctor.ipam_node import Places, check_node, is_node
from bedplate.cloud.doctor import Finding
from bedplate.kube import Client

BIN = Path(sys.executable).parent
STORES = Path(__file__).resolve().parents[2] / "vectors/ipam/stores"


def program(name: str) -> Path:
    path = BIN / name
    if not path.exists():
        pytest.skip(f"{name} is not built (make setup)")
    return path


@pytest.fixture
def places(tmp_path: Path, nv_ipam: Path) -> Places:
    """The folders of a node, with a plugin and its configuration."""
    made = Places(tmp_path / "conf", tmp_path / "bin", tmp_path / "state" / "store")
    for folder in (made.conf_dir, made.bin_dir, made.store.parent):
        folder.mkdir()
    shutil.copy(nv_ipam, made.plugin)
    write_conf(made)
    return made


def socket_of(places: Places) -> str:
    return f"unix://{places.store.parent}/daemon.sock"


def write_conf(places: Places, **changes: object) -> None:
    conf = {"daemonSocket": socket_of(places), "logFile": str(places.store.parent / "cni.log"), "logLevel": "info"}
    places.conf.write_text(json.dumps(conf | changes))


async def found(places: Places, about: str) -> Finding:
    matching = [one for one in await check_node(places) if one.about.startswith(about)]
    assert len(matching) == 1, matching
    return matching[0]


@asynccontextmanager
async def daemon(server: servers.Server, places: Places) -> AsyncIterator[None]:
    words = [
        f"--node-name=doctor-{uuid.uuid4().hex[:8]}",
        f"--kubeconfig={server.kubeconfig}",
        f"--bind-address={socket_of(places)}",
        f"--cni-daemon-socket={socket_of(places)}",
        f"--store-file={places.store}",
        f"--cni-bin-dir={places.bin_dir}",
        f"--cni-conf-dir={places.conf_dir}",
        f"--cni-log-file={places.store.parent}/cni.log",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ]
    null = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(str(program("ipam-node")), *words, stdout=null, stderr=null)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while (await found(places, "daemon at")).level != "ok":
                assert child.returncode is None
                await asyncio.sleep(0.1)
        yield
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


async def test_a_node_with_a_running_daemon_is_in_order(server: servers.Server, client: Client, places: Places) -> None:
    await install_definitions(client)
    async with daemon(server, places):
        told = await check_node(places)
    assert {one.level for one in told} <= {"ok", "note"}
    levels = {one.about.split()[0]: one.level for one in told}
    assert (levels["file"], levels["plugin"], levels["daemon"]) == ("ok", "ok", "ok")
    assert is_node(places)


async def test_a_daemon_that_is_not_there_is_told_with_where_to_look(places: Places) -> None:
    one = await found(places, "daemon at")
    assert one.level == "problem" and "does not respond" in one.message and "name=nv-ipam-node" in one.fix


async def test_a_missing_or_broken_configuration_is_told(places: Places) -> None:
    places.conf.write_text("{")
    assert "every ADD fails" in (await found(places, "file")).message
    write_conf(places, logLevel="loud")
    assert "not one of panic, error" in (await found(places, "file")).message
    places.conf.unlink()
    assert "does not exist" in (await found(places, "file")).message


async def test_how_to_raise_the_log_level_is_told_until_it_is_raised(places: Places) -> None:
    assert f'set "logLevel": "debug" in {places.conf}' in (await found(places, "file")).message
    write_conf(places, logLevel="debug")
    assert "set" not in (await found(places, "file")).message


async def test_a_plugin_that_cannot_run_is_told(places: Places) -> None:
    assert "speaks CNI 0.1.0 to 1.1.0" in (await found(places, "plugin")).message
    places.plugin.write_text("#!/bin/sh\nexit 1\n")
    assert "does not respond" in (await found(places, "plugin")).message
    places.plugin.chmod(0o644)
    assert "cannot be executed" in (await found(places, "plugin")).message
    places.plugin.unlink()
    assert "does not exist" in (await found(places, "plugin")).message


async def test_errors_at_the_end_of_the_plugins_log_are_told(places: Places) -> None:
    log = places.store.parent / "cni.log"
    log.write_text("2026-01-01T00:00:00Z [info] well\n2026-01-01T00:00:01Z [error] no block of pool1\n")
    one = await found(places, "log")
    assert one.level == "note" and "no block of pool1" in one.message
    log.write_text("2026-01-01T00:00:00Z [info] well\n")
    assert (await found(places, "log")).level == "ok"


async def test_a_store_that_is_well_and_one_that_is_broken_are_told_apart(places: Places) -> None:
    shutil.copy(STORES / "03-one.store", places.store)
    assert "holds 1 reservations" in (await found(places, "store")).message
    places.store.write_text("{")
    told = [one for one in await check_node(places) if one.about.startswith("store") and one.level == "problem"]
    assert told and "broken" in told[0].message


def test_a_machine_without_any_of_it_is_no_node(tmp_path: Path) -> None:
    assert not is_node(Places(tmp_path / "a", tmp_path / "b", tmp_path / "c"))
