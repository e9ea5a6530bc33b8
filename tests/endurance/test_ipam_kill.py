"""kill -9 of the node's address daemon at any moment, under 16-way load of the real CNI plugin.

No address is held twice, none that was acknowledged is lost, none is leaked: what a store holds is what was
acknowledged, and at most what a caller asked for and never learned the outcome of, which DEL then frees. Both ways of
keeping it are tried: the store file below 256 KB, and the journal above.
"""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Iterator

import pytest
from tests import programs, servers
from tests.endurance import cninodes
from tests.endurance.cniload import Caller, Truth, loaded
from tests.waiting import wait_until

pytestmark = pytest.mark.external

CALLERS = 16
HELD_EACH = 10
KILLS = 13
SOAK_KILLS = 150
SOAK_ROUNDS = 4
# Each reservation takes some 500 bytes of the store.
BIG = 800
WHOLE_BELOW = 256 * 1024


@pytest.fixture(scope="module")
def site() -> Iterator[cninodes.Site]:
    with cninodes.site(servers.shared.get("embedded")) as made:
        yield made


def prefill(daemon: cninodes.NodeDaemon, count: int) -> Truth:
    """A store that holds as many reservations of other containers."""
    content, held = cninodes.prefilled(daemon.site.pool, count)
    if count:
        daemon.store.write_bytes(content)
    return Truth(held=held)


def until_written(daemon: cninodes.NodeDaemon, truth: Truth) -> None:
    """Until the file, which follows the journal, says what is true."""

    def differences() -> list[str]:
        return truth.differences(daemon.entries())

    wait_until(lambda: not differences(), "the file holds what was acknowledged", describe=differences)


def kill_over_and_over(daemon: cninodes.NodeDaemon, truth: Truth, kills: int, seed: int, *, is_big: bool) -> None:
    rng = random.Random(seed)
    callers = [Caller(number, daemon, truth, random.Random(rng.random()), HELD_EACH) for number in range(CALLERS)]
    daemon.start()
    for life in range(kills):
        with loaded(callers):
            if rng.random() < 0.15:
                # Some lives end before they have begun: a crash while the store is opened.
                daemon.kill()
                daemon.launch()
                time.sleep(rng.uniform(0.0, 0.8))
            else:
                time.sleep(rng.uniform(0.01, 0.6))
            daemon.kill()
        assert truth.problems == [], f"life {life}"
        if not is_big:
            # The original's file alone, without any help of ours, holds it all.
            content = daemon.store.read_bytes()
            assert len(content) < WHOLE_BELOW
            assert truth.differences(daemon.entries()) == [], f"life {life}"
            assert not content or cninodes.checksum(content) == daemon_checksum(content)
        daemon.start()
        if is_big:
            until_written(daemon, truth)
    for caller in callers:
        caller.settle()
    assert truth.problems == []
    assert truth.unsure == set()


def daemon_checksum(content: bytes) -> int:
    """The checksum that a store says it has."""
    return int(content.partition(b'"checksum":')[2].partition(b",")[0])


def finish(daemon: cninodes.NodeDaemon, truth: Truth) -> None:
    """Everything acknowledged is there; DEL frees it; nothing stays."""
    for key in list(truth.held)[:200]:
        daemon.must("CHECK", key.partition("_")[0])
    assert daemon.stop() == 0
    assert truth.differences(daemon.entries()) == []
    assert sorted(path.name for path in daemon.disk.iterdir() if path.name.startswith(".")) == []
    daemon.start()
    for key in [one for one in truth.held if not one.startswith("old")]:
        daemon.must("DEL", key.partition("_")[0])
    assert daemon.stop() == 0
    assert [key for key in daemon.entries() if not key.startswith("old")] == []
    assert daemon.faults == []


@pytest.mark.parametrize("count", [0, BIG], ids=["file", "journal"])
def test_kills_lose_double_and_leak_no_address(count: int, site: cninodes.Site, tmp_path: pathlib.Path) -> None:
    daemon = cninodes.NodeDaemon(tmp_path, site)
    truth = prefill(daemon, count)
    with daemon.ended():
        kill_over_and_over(daemon, truth, KILLS, seed=11 + count, is_big=bool(count))
        assert truth.acknowledged > KILLS
        finish(daemon, truth)


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(SOAK_ROUNDS))
@pytest.mark.parametrize("count", [0, BIG], ids=["file", "journal"])
def test_a_thousand_kills_lose_double_and_leak_no_address(
    count: int, turn: int, site: cninodes.Site, tmp_path: pathlib.Path
) -> None:
    daemon = cninodes.NodeDaemon(tmp_path, site)
    truth = prefill(daemon, count)
    with daemon.ended():
        kill_over_and_over(daemon, truth, SOAK_KILLS, seed=1000 + 10 * turn + count, is_big=bool(count))
        finish(daemon, truth)


def test_the_original_goes_on_after_a_kill_and_so_do_we(site: cninodes.Site, tmp_path: pathlib.Path) -> None:
    """Below 256 KB nothing but the store file is needed."""
    program = programs.original("ipam-node")
    daemon = cninodes.NodeDaemon(tmp_path, site)
    truth = Truth()
    with daemon.ended():
        callers = [Caller(number, daemon, truth, random.Random(number), HELD_EACH) for number in range(CALLERS)]
        daemon.start()
        for _ in range(3):
            with loaded(callers):
                wait_until(lambda: len(truth.held) > 2 * CALLERS, "something is held")
                time.sleep(0.2)
                daemon.kill()
            assert truth.problems == []
            daemon.start(program=program)
            for key in truth.held:
                daemon.must("CHECK", key.partition("_")[0])
            wait_for_pools(daemon)
            with loaded(callers):
                time.sleep(0.5)
            assert truth.problems == []
            daemon.kill()
            daemon.start()
            for key in truth.held:
                daemon.must("CHECK", key.partition("_")[0])
        for caller in callers:
            caller.settle()
        finish(daemon, truth)


def wait_for_pools(daemon: cninodes.NodeDaemon) -> None:
    """The original refuses addresses until it has seen its pools."""
    wait_until(lambda: daemon.call("ADD", "first").is_ok, "the original gives addresses")
    daemon.must("DEL", "first")
