"""Broken, foreign and torn files: nothing that can be read is lost, nothing is deleted, and it is said."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ipam.node.storekit import StepDisk, owner, pool

from bedplate.core.clock import ManualClock
from bedplate.ipam.addresses import Address
from bedplate.ipam.node import journal, storefile, storeload
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.reservations import Proven, Wanted

SMALL = LedgerOptions(whole_below=3000)
BLOCK = pool(size=200)


async def opened(folder: Path, disk: StepDisk | None = None) -> Ledger:
    return await Ledger.open(folder / "store", clock=ManualClock(), options=SMALL, disk=disk)


async def add(ledger: Ledger, *numbers: int) -> None:
    for number in numbers:
        await ledger.allocate(owner(number), [Wanted(BLOCK)])


def held(ledger: Ledger) -> dict[str, str]:
    return {one.container_id: one.address for one in ledger.reservations()}


async def killed(folder: Path, ledger: Ledger, disk: StepDisk) -> dict[str, str]:
    """End a ledger as kill -9 does; what it had acknowledged."""
    before = held(ledger)
    disk.last = disk.steps + 1
    try:
        await ledger.close()
    except Exception as error:
        assert "power lost" in str(error)
    disk.abandon()
    return before


async def with_journal(folder: Path) -> dict[str, str]:
    """A store with a journal that its file lacks."""
    disk = StepDisk(folder / "store")
    ledger = await opened(folder, disk)
    await add(ledger, *range(8))
    await ledger.sync()
    await ledger.release(owner(3).container_id, "net0")
    await add(ledger, *range(20, 24))
    assert (folder / "store.journal").exists()
    return await killed(folder, ledger, disk)


async def test_what_stands_in_the_journal_alone_is_found_and_brought_into_the_file(tmp_path: Path) -> None:
    before = await with_journal(tmp_path)
    assert len(before) == 11
    ledger = await opened(tmp_path)
    assert held(ledger) == before and ledger.recovery is None
    document, _ = storefile.decode((tmp_path / "store").read_bytes())
    assert len(document.pools["v4"].entries) == 11
    assert not (tmp_path / "store.journal").exists()
    await ledger.close()


async def test_a_journal_torn_at_any_byte_gives_a_state_that_was(tmp_path: Path) -> None:
    before = await with_journal(tmp_path)
    file, whole = (tmp_path / "store").read_bytes(), (tmp_path / "store.journal").read_bytes()
    lines = journal.read(whole).lines
    for cut in range(len(whole) + 1):
        found = storeload.assess(file, whole[:cut], None)
        complete = sum(line.end <= cut and line.do is not None for line in lines)
        assert not found.broken_file and not found.broken_journal
        if found.place is not None:
            assert found.torn == cut - max(line.end for line in lines if line.end <= cut)
            assert found.journal is not None and found.journal.calls == complete
    entries = storeload.assess(file, whole, None).document.pools["v4"].entries
    assert {one.reservation.container_id: one.reservation.address for one in entries.values()} == before


async def test_a_torn_end_is_cut_off_and_the_journal_goes_on(tmp_path: Path) -> None:
    before = await with_journal(tmp_path)
    with (tmp_path / "store.journal").open("ab") as stream:
        stream.write(b'deadbeef {"do":[{"add":"v4"')
    ledger = await opened(tmp_path)
    assert held(ledger) == before and ledger.recovery is None
    await add(ledger, 90)
    await ledger.close()


async def test_garbage_at_the_end_is_told_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    before = await with_journal(tmp_path)
    with (tmp_path / "store.journal").open("ab") as stream:
        stream.write(b"\x00\xffgarbage\nmore\n")
    ledger = await opened(tmp_path)
    assert held(ledger) == before
    assert ledger.recovery is not None and "store.journal" in ledger.recovery.what
    assert [path.name for path in tmp_path.glob("store.journal.corrupt-*")] == list(ledger.recovery.set_aside)
    await ledger.close()


def test_a_journal_damaged_at_any_byte_is_seen_and_costs_no_more_than_its_line(tmp_path: Path) -> None:
    before = asyncio.run(with_journal(tmp_path))
    file, whole = (tmp_path / "store").read_bytes(), (tmp_path / "store.journal").read_bytes()
    place = storeload.assess(file, whole, None).place
    begin = next(line.begin for line in journal.read(whole).lines if line.mark == place)
    for at in range(0, len(whole), 3):
        damaged = whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :]
        found = storeload.assess(file, damaged, None)
        assert not found.is_foreign
        entries = found.document.pools["v4"].entries.values()
        missing = set(before.items()) - {(one.reservation.container_id, one.reservation.address) for one in entries}
        assert len(missing) <= 2
        if at >= begin and (missing or len(entries) != len(before)):
            # A newline that is gone joins two lines; at the very end it leaves a torn one.
            assert found.broken_journal or found.torn


async def test_a_file_that_another_daemon_wrote_wins_and_the_journal_is_set_aside(tmp_path: Path) -> None:
    await with_journal(tmp_path)
    log = (tmp_path / "store.journal").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    ledger = await opened(other)
    await add(ledger, 70)
    theirs = held(ledger)
    await ledger.close()
    shutil.copy(other / "store", tmp_path / "store")
    ledger = await opened(tmp_path)
    assert held(ledger) == theirs and ledger.recovery is None
    (aside,) = tmp_path.glob("store.journal.foreign-*")
    assert aside.read_bytes() == log
    await ledger.close()


async def test_a_store_that_was_removed_on_purpose_is_empty(tmp_path: Path) -> None:
    await with_journal(tmp_path)
    (tmp_path / "store").unlink()
    ledger = await opened(tmp_path)
    assert not held(ledger) and ledger.recovery is None
    assert list(tmp_path.glob("store.journal.foreign-*"))
    await ledger.close()


@pytest.mark.parametrize("damage", ["cut", "zeros", "flip", "nothing left"])
@pytest.mark.parametrize("is_large", [False, True], ids=["whole", "journal"])
async def test_a_broken_file_is_set_aside_and_rebuilt(tmp_path: Path, damage: str, is_large: bool) -> None:
    if is_large:
        before = await with_journal(tmp_path)
    else:
        ledger = await opened(tmp_path)
        await add(ledger, 1, 2, 3, 4)
        before = held(ledger)
        await ledger.close()
    content = (tmp_path / "store").read_bytes()
    broken = {
        "cut": content[:-200],
        "zeros": content[:900] + bytes(100) + content[1000:],
        "flip": content[:700] + bytes([content[700] ^ 1]) + content[701:],
        "nothing left": b"\x00" * len(content),
    }[damage]
    (tmp_path / "store").write_bytes(broken)
    ledger = await opened(tmp_path)
    assert ledger.recovery is not None
    (aside,) = tmp_path.glob("store.corrupt-*")
    assert aside.read_bytes() == broken and ledger.recovery.set_aside == (aside.name,)
    lost = set(before.items()) - set(held(ledger).items())
    if is_large:
        # The snapshot before it and the journal since then hold everything.
        assert not lost
    else:
        # The snapshot before it lacks the last call; what is whole in the broken file makes up for it where it can.
        assert len(lost) <= (1 if damage in ("cut", "nothing left") else 0)
    assert len(set(held(ledger).values())) == len(held(ledger))
    await add(ledger, 150)
    now = held(ledger)
    await ledger.close()
    ledger = await opened(tmp_path)
    assert held(ledger) == now
    # It is known until somebody made up for it, whatever happens in between.
    assert ledger.recovery is not None and aside.name in ledger.recovery.set_aside
    await ledger.close()


async def test_what_pods_prove_to_have_is_added_and_ends_the_recovery(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await add(ledger, 1, 2)
    await ledger.close()
    (tmp_path / "store").write_bytes(b"\x00" * 500)
    (tmp_path / "store.previous").unlink()
    ledger = await opened(tmp_path)
    assert ledger.recovery is not None and not held(ledger)
    one = Proven(BLOCK, Address(32, 0x0A070002), "net0", "uid-1", "pod-1", "default", owner(1).container_id)
    two = Proven(BLOCK, Address(32, 0x0A070003), "net1", "uid-2", "pod-2", "default")
    assert await ledger.adopt([one, two, one]) == 2
    assert ledger.recovery is None
    assert ledger.find("v4", owner(1).container_id, "net0") is not None
    assert {item.address: item.pod_name for item in ledger.reservations()} == {"10.7.0.2": "pod-1", "10.7.0.3": "pod-2"}
    await add(ledger, 9)
    assert held(ledger)[owner(9).container_id] == "10.7.0.4"
    await ledger.close()
    ledger = await opened(tmp_path)
    assert ledger.recovery is None and len(held(ledger)) == 3
    assert await ledger.adopt([one]) == 0
    await ledger.close()


async def test_leftovers_of_a_killed_predecessor_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".store123", ".store.journal9", ".store", ".storex1", "store1", ".other12"):
        (tmp_path / name).write_bytes(b"x")
    await (await opened(tmp_path)).close()
    assert {path.name for path in tmp_path.iterdir()} == {
        ".store",
        ".storex1",
        "store1",
        ".other12",
        "store",
        "store.lock",
    }


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bytes_crash_the_loading(data: st.DataObject) -> None:
    stores = Path(__file__).parents[2] / "vectors" / "ipam" / "stores"
    samples = [path.read_bytes() for path in sorted(stores.glob("*.store"))]
    logs = [
        journal.mark(1) + journal.file(1, 5, 9) + journal.call([journal.delete("v4", "x")]),
        journal.call([b'{"add":"v4","pointer":7,"entry":{}}']) + journal.call([b'{"add":"v4","entry":{"k":[]}}']),
        journal.call([b'{"add":"v4","entry":{"k":{"ip_address":"x"}}}', b"{}"]),
    ]

    def damaged(content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(data.draw(st.integers(0, 3))):
            if changed:
                changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        return bytes(changed[: data.draw(st.integers(0, len(changed)))])

    content = damaged(data.draw(st.sampled_from(samples) | st.binary(max_size=80)))
    log = data.draw(st.none() | st.sampled_from(logs) | st.binary(max_size=80))
    previous = data.draw(st.none() | st.sampled_from(samples) | st.binary(max_size=80))
    found = storeload.assess(content, damaged(log) if log is not None else None, previous)
    storefile.decode(storefile.encode(found.document))
