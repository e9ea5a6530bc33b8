"""The original's daemon opens what we wrote, and we open what it wrote: by the original itself, where it is at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import Caller, NodeDaemon, daemon
from tests.ipam.node.documents import REFUSED, TAKEN
from tests.ipam.node.storekit import owner, pool
from tests.waiting import until

from bedplate.core.clock import SystemClock
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.reservations import Owner, Reservation, Wanted
from bedplate.ipam.node.storeview import read_store, sync_store

pytestmark = [pytest.mark.external, pytest.mark.parametrize("server", ["embedded"], indirect=True)]
ROOT = Path(__file__).parents[3]
ODD = Owner("odd_1.b-c", "net_0", "uid-<é>&", 'p"\\ \u2028😀\x01\x7f', "n\ts", "\b\f\n\r\ufffd'")


def original_on(world: World, folder: Path) -> object:
    return daemon(
        folder, world.server.kubeconfig, world.node("a"), world.namespace, program=programs.original("ipam-node")
    )


def checked(caller: Caller, one: Reservation) -> bool:
    kind = 2 if one.pool.startswith("cidrpool/") else 1
    name = one.pool.removeprefix("cidrpool/")
    return caller.is_allocated(name, container=one.container_id, interface=one.interface_name, kind=kind)


async def there_and_back(world: World, folder: Path) -> None:
    """The original finds every reservation; after it removed one we find all others."""
    expected = list(read_store(folder / "store").reservations())
    assert expected
    with original_on(world, folder) as original, original.caller() as caller:  # type: ignore[attr-defined]
        assert all(checked(caller, one) for one in expected)
        gone = next(one for one in expected if not one.pool.startswith("cidrpool/"))
        caller.deallocate(gone.pool, container=gone.container_id, interface=gone.interface_name)
        assert original.stop() == 0
    ledger = await Ledger.open(folder / "store", clock=SystemClock())
    assert ledger.recovery is None
    assert set(ledger.reservations()) == set(expected) - {gone}
    await ledger.close()


async def test_after_a_clean_stop(world: World, tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "store", clock=SystemClock())
    for number in range(20):
        await ledger.allocate(owner(number), [Wanted(pool()), Wanted(pool("cidrpool/v4"))])
    await ledger.allocate(ODD, [Wanted(pool())])
    await ledger.release(owner(3).container_id, "net0")
    await ledger.close()
    await there_and_back(world, tmp_path)


async def test_after_kill_while_the_file_is_small(world: World, tmp_path: Path, seed: int) -> None:
    output = tmp_path / "said"
    with output.open("wb") as stream:
        arguments = [str(tmp_path / "store"), str(256 * 1024), json.dumps([]), str(seed)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.ipam.node.hammer", *arguments], stdout=stream, cwd=ROOT
        )
    try:
        await until(lambda: b"got" in output.read_bytes(), step_s=0.01)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "store.journal").exists()
    await there_and_back(world, tmp_path)


async def test_a_large_store_after_it_was_synced(world: World, tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "store", clock=SystemClock(), options=LedgerOptions(whole_below=1000))
    for number in range(150):
        await ledger.allocate(owner(number), [Wanted(pool())])
    await sync_store(tmp_path / "store", clock=SystemClock())
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "store").write_bytes((tmp_path / "store").read_bytes())
    await ledger.close()
    await there_and_back(world, copy)


async def test_the_original_does_not_start_beside_us_also_after_we_wrote(world: World, tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "store", clock=SystemClock())
    for number in range(3):
        await ledger.allocate(owner(number), [Wanted(pool())])
    with pytest.raises(AssertionError, match="it ended"), original_on(world, tmp_path):  # type: ignore[attr-defined]
        pass
    await ledger.close()


@pytest.mark.parametrize("content", [*TAKEN, *REFUSED], ids=range(len(TAKEN) + len(REFUSED)))
def test_we_are_as_strict_as_the_original(world: World, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").write_bytes(content)
    made = NodeDaemon(
        tmp_path, world.server.kubeconfig, world.node("a"), world.namespace, program=programs.original("ipam-node")
    )
    try:
        made.start()
    except AssertionError:
        assert "store" in made.log.read_text()
        is_taken = False
    else:
        is_taken = True
        made.stop()
    assert is_taken == (content in TAKEN)
