"""The ledger gives the addresses that the original gives, and keeps what it gave."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ipam.node.storekit import VECTORS, owner, pool

from bedplate.core.clock import ManualClock
from bedplate.ipam import addresses, pools
from bedplate.ipam.addresses import Address
from bedplate.ipam.node import poolconfig, storefile
from bedplate.ipam.node.ledger import Ledger, LedgerOptions, timestamp
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import (
    AlreadyReserved,
    Exhausted,
    Owner,
    Refused,
    Reservation,
    StaticIPCheck,
    StoreBusy,
    Usage,
    Wanted,
)

Open = Callable[..., Awaitable[Ledger]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    ledgers: list[Ledger] = []

    async def open_(**options: Any) -> Ledger:
        ledger = await Ledger.open(tmp_path / "store", clock=ManualClock(), options=LedgerOptions(**options))
        ledgers.append(ledger)
        return ledger

    yield open_
    for ledger in ledgers:
        await ledger.close()


async def give(ledger: Ledger, number: int, config: PoolConfig, **wanted: Any) -> str:
    (made,) = await ledger.allocate(owner(number), [Wanted(config, **wanted)])
    return made.address


def ip(text: str) -> Address:
    found = addresses.parse_address(text)
    assert found is not None
    return found


async def test_addresses_ascend_skip_the_gateway_and_go_round(opened: Open) -> None:
    ledger, block = await opened(), pool(size=4)
    assert [await give(ledger, n, block) for n in range(3)] == ["10.7.0.2", "10.7.0.3", "10.7.0.4"]
    with pytest.raises(Exhausted, match="no free address"):
        await give(ledger, 9, block)
    await ledger.release(owner(0).container_id, "net0", ["v4"])
    await ledger.release(owner(1).container_id, "net0")
    assert [await give(ledger, n, block) for n in (5, 6)] == ["10.7.0.2", "10.7.0.3"]


async def test_a_freed_address_comes_last_also_after_a_restart(opened: Open) -> None:
    ledger, block = await opened(), pool(size=5)
    for n in range(2):
        await give(ledger, n, block)
    for n in range(2):
        await ledger.release(owner(n).container_id, "net0")
    await ledger.close()
    ledger = await opened()
    assert [await give(ledger, n, block) for n in range(4)] == ["10.7.0.4", "10.7.0.5", "10.7.0.2", "10.7.0.3"]


async def test_a_pointer_outside_the_block_starts_at_the_block(opened: Open) -> None:
    ledger = await opened()
    await give(ledger, 1, pool(size=5))
    moved = poolconfig.make("v4", subnet="10.7.0.0/16", start="10.7.9.1", end="10.7.9.5")
    assert await give(ledger, 2, moved) == "10.7.9.1"
    six = poolconfig.make("v4", subnet="fd00::/64", start="fd00::1", end="fd00::5")
    assert await give(ledger, 3, six) == "fd00::1"


async def test_static_addresses_leave_the_rotation_alone(opened: Open) -> None:
    ledger, block = await opened(), pool(size=8)
    assert await give(ledger, 1, block, requested=(ip("10.7.0.6"),)) == "10.7.0.6"
    assert await give(ledger, 2, block, index=2) == "10.7.0.3"
    assert await give(ledger, 3, block, is_gateway=True) == "10.7.0.1"
    assert await give(ledger, 4, block, requested=(ip("10.7.200.9"),)) == "10.7.200.9"
    assert [await give(ledger, n, block) for n in range(5, 9)] == ["10.7.0.2", "10.7.0.4", "10.7.0.5", "10.7.0.7"]
    with pytest.raises(Exhausted, match="already reserved"):
        await give(ledger, 20, block, requested=(ip("10.7.0.4"),))


async def test_exclusions_bind_the_rotation_but_no_static_request(opened: Open) -> None:
    ledger = await opened()
    block = poolconfig.make(
        "v4",
        subnet="10.7.0.0/16",
        start="10.7.0.1",
        end="10.7.0.8",
        exclusions=[("10.7.0.1", "10.7.0.4"), ("10.7.0.3", "10.7.0.5")],
    )
    assert await give(ledger, 1, block) == "10.7.0.6"
    assert await give(ledger, 2, block, requested=(ip("10.7.0.3"),)) == "10.7.0.3"
    assert await give(ledger, 3, block, index=0) == "10.7.0.1"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"index": 0}, "gateway"),
        ({"index": -1}, "outside"),
        ({"index": 8}, "outside"),
        ({"requested": (Address(32, 0x0B000001),)}, "not in any pool"),
        ({"requested": (Address(32, 0x0A070002), Address(32, 0x0A070003))}, "not in any pool"),
        ({"requested": (Address(32, 0x0A070000),)}, "network"),
        ({"requested": (Address(32, 0x0A07FFFF),)}, "broadcast"),
    ],
)
async def test_what_cannot_be_right_is_refused_and_leaves_no_trace(
    opened: Open, tmp_path: Path, wanted: dict[str, Any], reason: str
) -> None:
    ledger = await opened()
    with pytest.raises(Refused, match=reason):
        await give(ledger, 1, pool(size=8), **wanted)
    assert not ledger.pools() and (tmp_path / "store").read_bytes() == b""
    without = poolconfig.make("v4", subnet="10.7.0.0/16", start="10.7.0.1", end="10.7.0.8")
    with pytest.raises(Refused, match="no gateway"):
        await give(ledger, 1, without, is_gateway=True)


async def test_without_checks_the_ends_of_a_network_are_given_as_by_the_original(opened: Open) -> None:
    ledger = await opened(static_ip_check=StaticIPCheck.OFF)
    assert await give(ledger, 1, pool(), requested=(ip("10.7.0.0"),)) == "10.7.0.0"
    assert await give(ledger, 2, pool(), requested=(ip("10.7.255.255"),)) == "10.7.255.255"


async def test_small_networks_have_no_ends_that_are_refused(opened: Open) -> None:
    ledger = await opened()
    link = poolconfig.make("cidrpool/l", subnet="10.9.0.0/31", start="10.9.0.0", end="10.9.0.1")
    assert await give(ledger, 1, link, requested=(ip("10.9.0.0"),)) == "10.9.0.0"
    assert await give(ledger, 2, link) == "10.9.0.1"


@pytest.mark.parametrize("check", list(StaticIPCheck))
async def test_an_address_of_another_nodes_block_is_refused_told_or_given(opened: Open, check: StaticIPCheck) -> None:
    told: list[tuple[str, str, str]] = []
    ledger = await opened(
        static_ip_check=check, on_foreign=lambda key, address, node: told.append((key, str(address), node))
    )
    wanted = {"requested": (ip("10.7.9.9"),), "node_of": lambda address: "node-b"}
    if check is StaticIPCheck.REFUSE:
        with pytest.raises(Refused, match="node-b"):
            await give(ledger, 1, pool(), **wanted)
    else:
        assert await give(ledger, 1, pool(), **wanted) == "10.7.9.9"
    assert told == ([("v4", "10.7.9.9", "node-b")] if check is StaticIPCheck.WARN else [])
    assert await give(ledger, 2, pool(), requested=(ip("10.7.0.9"),), node_of=lambda address: "node-b") == "10.7.0.9"


async def test_two_pools_get_both_or_nothing(opened: Open) -> None:
    ledger = await opened()
    full, six = pool("a", size=2), poolconfig.make("six", subnet="fd00::/64", start="fd00::1", end="fd00::ff")
    made = await ledger.allocate(owner(1), [Wanted(full), Wanted(six)])
    assert [one.address for one in made] == ["10.7.0.2", "fd00::1"]
    with pytest.raises(Exhausted):
        await ledger.allocate(owner(2), [Wanted(six), Wanted(full)])
    assert len(list(ledger.reservations())) == 2
    assert await give(ledger, 3, six) == "fd00::2"
    with pytest.raises(AlreadyReserved, match="has the address"):
        await ledger.allocate(owner(4), [Wanted(six), Wanted(six)])
    assert ledger.find("six", owner(4).container_id, "net0") is None


async def test_an_interface_has_one_address_in_a_pool_and_a_container_several_interfaces(opened: Open) -> None:
    ledger = await opened()
    await give(ledger, 1, pool())
    with pytest.raises(AlreadyReserved):
        await give(ledger, 1, pool())
    await ledger.allocate(owner(1, "net1"), [Wanted(pool())])
    assert await ledger.release(owner(1).container_id, "net0") == 1
    assert [one.interface_name for one in ledger.reservations("v4")] == ["net1"]


async def test_a_release_does_not_touch_a_namesake(opened: Open) -> None:
    ledger = await opened()
    await ledger.allocate(Owner("a_b", "c"), [Wanted(pool())])
    assert await ledger.release("a", "b_c") == 0
    assert ledger.find("v4", "a", "b_c") is None and ledger.find("v4", "a_b", "c") is not None


async def test_releasing_nothing_writes_nothing(opened: Open, tmp_path: Path) -> None:
    ledger = await opened()
    await give(ledger, 1, pool())
    before = (tmp_path / "store").stat()
    assert await ledger.release("nobody", "net0", ["v4", "unknown"]) == 0
    assert await ledger.release("nobody", "net0") == 0
    after = (tmp_path / "store").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


async def test_only_what_is_still_the_same_is_released_as_dead(opened: Open) -> None:
    ledger = await opened()
    (old,) = await ledger.allocate(owner(1), [Wanted(pool())])
    await ledger.release(old.container_id, old.interface_name)
    (new,) = await ledger.allocate(owner(1), [Wanted(pool())])
    assert await ledger.release_proven([old]) == 0
    assert await ledger.release_proven([old, new, new]) == 1


async def test_a_pool_that_is_named_twice_counts_once(opened: Open) -> None:
    ledger = await opened()
    await give(ledger, 1, pool())
    assert await ledger.release(owner(1).container_id, "net0", ["v4", "v4"]) == 1
    assert await ledger.forget_pools(["v4", "v4"]) == 1


async def test_only_empty_records_are_forgotten(opened: Open) -> None:
    ledger = await opened()
    await give(ledger, 1, pool("a"))
    await give(ledger, 2, pool("b"))
    await ledger.release(owner(2).container_id, "net0")
    assert await ledger.forget_pools(["a", "b", "c"]) == 1
    assert set(ledger.pools()) == {"a"}
    await ledger.close()
    assert set((await opened()).pools()) == {"a"}


async def test_usage_counts_what_can_be_given(opened: Open) -> None:
    ledger, block = await opened(), pool(size=10)
    await give(ledger, 1, block)
    await give(ledger, 2, block, requested=(ip("10.7.99.1"),))
    await give(ledger, 3, block, is_gateway=True)
    await give(ledger, 4, pool("gone"))
    usage = ledger.usage({"v4": block, "new": pool("new", size=3)})
    assert usage == {"v4": Usage(3, 9, 8), "new": Usage(0, 2, 2), "gone": Usage(1)}


async def test_what_a_store_remembers_of_its_pools_can_be_allocated_from(opened: Open) -> None:
    ledger = await opened()
    await give(ledger, 1, pool(size=9))
    await ledger.close()
    ledger = await opened()
    remembered = ledger.pools()["v4"]
    assert remembered == pool(size=9)
    assert await give(ledger, 2, remembered) == "10.7.0.3"


async def test_many_calls_share_few_writes_and_never_an_address(opened: Open) -> None:
    commits: list[int] = []
    ledger = await opened(on_commit=lambda commit: commits.append(commit.calls))
    made = await asyncio.gather(*(give(ledger, n, pool()) for n in range(200)))
    assert len(set(made)) == 200
    assert sum(commits) == 200 and len(commits) < 20


async def test_a_second_process_is_told_who_has_the_store(opened: Open, tmp_path: Path) -> None:
    await opened()
    with pytest.raises(StoreBusy, match=f"process {os.getpid()}") as caught:
        await Ledger.open(tmp_path / "store", clock=ManualClock())
    assert caught.value.pid == os.getpid() and caught.value.hint


async def test_a_caller_that_gives_up_leaves_a_whole_store(opened: Open) -> None:
    ledger = await opened()
    task = asyncio.create_task(give(ledger, 1, pool()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await give(ledger, 2, pool()) == "10.7.0.3"
    await ledger.close()
    assert len(list((await opened()).reservations())) == 2


@pytest.mark.parametrize(
    ("zone", "nanoseconds", "written"),
    [
        ("UTC", 1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789Z"),
        ("UTC", 1_700_000_000_120_000_000, "2023-11-14T22:13:20.12Z"),
        ("UTC", 1_700_000_000_000_000_000, "2023-11-14T22:13:20Z"),
        ("XXX-05:30", 1_700_000_000_000_000_001, "2023-11-15T03:43:20.000000001+05:30"),
        ("XXX03:30", 1_700_000_000_500_000_000, "2023-11-14T18:43:20.5-03:30"),
    ],
)
def test_times_are_written_as_by_the_original(
    monkeypatch: pytest.MonkeyPatch, zone: str, nanoseconds: int, written: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert timestamp(nanoseconds) == written
    finally:
        monkeypatch.undo()
        time.tzset()


# The recorded stores of the original.

STORES = sorted((VECTORS / "stores").glob("*.json"))


def configs_of(record: dict[str, Any], moved: dict[str, Any] | None = None) -> dict[str, PoolConfig]:
    """The pools of a recorded node."""
    found = []
    for one in record["pools"]:
        entries = (moved or {}).get(one["name"], one["allocations"])
        for entry in (entry for entry in entries if entry["nodeName"] == record["node"]):
            if one["kind"] == "IPPool":
                spec, own = msgspec.convert(one["spec"], pools.IPPoolSpec), msgspec.convert(entry, pools.IPAllocation)
                found.append(poolconfig.ippool_config(one["name"], spec, own))
            else:
                wide = msgspec.convert(one["spec"], pools.CIDRPoolSpec)
                found.append(
                    poolconfig.cidrpool_config(one["name"], wide, msgspec.convert(entry, pools.CIDRAllocation))
                )
    return {config.key: config for config in found}


def asked(call: dict[str, Any], configs: dict[str, PoolConfig]) -> tuple[Owner, list[str], dict[str, Any]]:
    """Owner, pools and wishes of a recorded call."""
    if "container" in call:
        return Owner(call["container"], "net0", "", "", "default"), ["v4"], {}
    env, conf = call["env"], call["stdin"]
    pairs = dict(pair.split("=", 1) for pair in env["CNI_ARGS"].split(";"))
    own = Owner(
        env["CNI_CONTAINERID"],
        env["CNI_IFNAME"],
        pairs.get("K8S_POD_UID", ""),
        pairs["K8S_POD_NAME"],
        pairs["K8S_POD_NAMESPACE"],
        conf.get("deviceID", ""),
    )
    args = conf.get("args", {}).get("cni", {})
    prefix = "cidrpool/" if (args.get("poolType") or conf["ipam"].get("poolType", "")).lower() == "cidrpool" else ""
    names = args.get("poolNames") or conf["ipam"]["poolName"].split(",")
    written = conf.get("runtimeConfig", {}).get("ips") or args.get("ips") or ([pairs["IP"]] if "IP" in pairs else [])
    wishes = {
        "requested": tuple(ip(text.split("/")[0]) for text in written),
        "is_gateway": args.get("allocateDefaultGateway", False),
        "index": args.get("allocateIPWithIndex"),
    }
    return own, [prefix + name for name in names], wishes


async def play(ledger: Ledger, call: dict[str, Any], configs: dict[str, PoolConfig]) -> None:
    """Make a recorded call and hold the answer against the recorded one."""
    own, keys, wishes = asked(call, configs)
    if call["command"] == "DEL":
        await ledger.release(own.container_id, own.interface_name, keys)
        return
    if call["exit"]:
        with pytest.raises((AlreadyReserved, Exhausted, Refused)):
            await ledger.allocate(own, [Wanted(configs[key], **wishes) for key in keys])
        return
    made = await ledger.allocate(own, [Wanted(configs[key], **wishes) for key in keys])
    expected = [call["address"]] if "address" in call else [one["address"] for one in call["stdout"]["ips"]]
    assert [f"{one.address}/{configs[one.pool].network.length}" for one in made] == expected


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
async def test_a_store_of_the_original_is_taken_over(path: Path, opened: Open, tmp_path: Path) -> None:
    record = json.loads(path.read_text())
    content = path.with_suffix(".store").read_bytes()
    (tmp_path / "store").write_bytes(content)
    ledger = await opened()
    document, _ = storefile.decode(content)
    for key, pool_record in document.pools.items():
        for entry in pool_record.entries.values():
            one = entry.reservation
            assert ledger.find(key, one.container_id, one.interface_name) == one
    before = record.get("before_reopening")
    configs = configs_of(record, {before["name"]: before["allocations"]} if before else None)
    if "next_alternative" in record:
        # The pointer of an emptied pool is kept.
        for call, answer in zip(record["next"], record["next_alternative"], strict=True):
            call["stdout"]["ips"][0]["address"] = answer
    for call in record["next"]:
        await play(ledger, call, configs)


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
async def test_the_calls_of_the_original_give_its_store(path: Path, opened: Open, tmp_path: Path) -> None:
    record = json.loads(path.read_text())
    ledger = await opened()
    configs = configs_of(record)
    for call in record["calls"]:
        await play(ledger, call, configs)
    await ledger.close()

    def plain(content: bytes) -> bytes:
        patterns = [rb'"create_time":"[^"]*"', rb'"checksum":\d+']
        if "container" in (record["calls"] or [{}])[0]:
            patterns += [rb'"pod_uuid":"[^"]*"', rb'"pod_name":"[^"]*"']
        return re.sub(b"|".join(patterns), b"", content)

    ours, theirs = (tmp_path / "store").read_bytes(), path.with_suffix(".store").read_bytes()
    if path.stem == "02-del-only":
        assert ours == b""  # No record for a DEL of nothing.
    else:
        assert plain(ours) == plain(theirs)


# The rules of the ledger once more, as simply as possible.


class Model:
    """One pool: what is held, and the pointer."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.pointer: int | None = None

    def next(self, config: PoolConfig) -> int | None:
        size = config.end - config.start + 1
        inside = self.pointer is not None and config.start <= self.pointer <= config.end
        begin = self.pointer + 1 if inside and self.pointer is not None else config.start
        for step in range(size):
            number = config.start + (begin - config.start + step) % size
            excluded = any(first <= number <= last for first, last in config.exclusions)
            is_gateway = config.gateway is not None and config.gateway.value == number
            if not excluded and not is_gateway and number not in self.held.values():
                return number
        return None


blocks = st.tuples(
    st.integers(1, 20),
    st.integers(0, 10),
    st.none() | st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=3),
)
moves = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "del", "index"]), st.integers(0, 12)), max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.lists(blocks, min_size=1, max_size=3), moves)
async def test_every_choice_is_that_of_the_rules(
    tmp_path_factory: pytest.TempPathFactory,
    is_six: bool,
    shapes: list[tuple[int, int, int | None, list[tuple[int, int]]]],
    steps: list[tuple[str, int]],
) -> None:
    bits, base, subnet = (128, 0xFD00 << 112, "fd00::/64") if is_six else (32, 0x0A070000, "10.7.0.0/16")

    def written(number: int) -> str:
        return addresses.text(bits, base + number)

    configs = [
        poolconfig.make(
            "p",
            subnet=subnet,
            start=written(start),
            end=written(start + size),
            gateway="" if gateway is None else written(gateway),
            exclusions=[(written(first), written(first + more)) for first, more in left_out],
        )
        for start, size, gateway, left_out in shapes
    ]
    folder = tmp_path_factory.mktemp("model")
    ledger, model = await Ledger.open(folder / "store", clock=ManualClock()), Model()
    for turn, (move, number) in enumerate(steps):
        config = configs[turn * len(configs) // len(steps)]
        if move == "del":
            assert await ledger.release(owner(number).container_id, "net0") == (number in model.held)
            model.held.pop(number, None)
            continue
        index = number if move == "index" else None
        expected = config.start + number if move == "index" else model.next(config)
        try:
            (made,) = await ledger.allocate(owner(number), [Wanted(config, index=index)])
        except AlreadyReserved:
            assert number in model.held
        except Exhausted:
            assert number not in model.held and (expected is None or expected in model.held.values())
        except Refused:
            assert move == "index"
            assert expected is not None and (expected > config.end or Address(bits, expected) == config.gateway)
        else:
            assert number not in model.held and made.address == addresses.text(bits, expected or 0)
            model.held[number] = expected or 0
            model.pointer = model.pointer if move == "index" else expected
    await ledger.close()
    document, _ = storefile.decode((folder / "store").read_bytes())
    found: dict[str, Reservation] = {}
    for pool_record in document.pools.values():
        found |= {key: entry.reservation for key, entry in pool_record.entries.items()}
    assert {one.address for one in found.values()} == {addresses.text(bits, number) for number in model.held.values()}
