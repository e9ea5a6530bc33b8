"""What is written into a journal is read back, and does to a document what it did to the ledger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam.node import journal, storefile
from bedplate.ipam.node.reservations import Reservation
from bedplate.ipam.node.storefile import Document

texts = st.text(max_size=8)


def made(pool: str, container: str, address: str = "10.0.0.1") -> tuple[str, Reservation]:
    return f"{container}_net0", Reservation(pool, container, "net0", address, "t", "u", "p", "n", "d", "config")


@given(st.lists(st.tuples(texts, texts, st.sampled_from(["add", "del", "drop"])), max_size=20))
def test_calls_done_again_give_the_same_document(steps: list[tuple[str, str, str]]) -> None:
    expected: dict[str, dict[str, Reservation]] = {}
    content = journal.mark(1) + journal.file(1, 7, 9)
    for pool, container, verb in steps:
        key, reservation = made(pool, container)
        if verb == "add":
            expected.setdefault(pool, {})[key] = reservation
            content += journal.call([journal.add(pool, "10.0.0.1", storefile.encode_entry(key, reservation))])
        elif verb == "del":
            expected.get(pool, {}).pop(key, None)
            content += journal.call([journal.delete(pool, key)])
        else:
            expected.pop(pool, None)
            content += journal.call([journal.drop(pool)])
    found = journal.read(content)
    assert (found.damaged, found.end, found.calls) == ((), len(content), len(steps))
    assert (found.place_of(7, 9), found.place_of(7, 8), found.place_of(6, 9)) == (1, None, None)
    document = Document()
    # Twice, as it happens when a file holds some of the calls already.
    for line in (*found.after(1), *found.after(1)):
        journal.apply(document, line)
    plain = {name: {key: one.reservation for key, one in pool.entries.items()} for name, pool in document.pools.items()}
    assert plain == expected
    assert all(pool.pointer == "10.0.0.1" and pool.config == "config" for pool in document.pools.values())


def test_a_file_holds_what_stands_before_its_last_mark() -> None:
    one, two = journal.call([journal.delete("p", "one")]), journal.call([journal.delete("p", "two")])
    begin = journal.mark(1) + journal.file(1, 5, 100)
    found = journal.read(begin + one + journal.mark(2) + two + journal.file(2, 6, 90))
    assert [line.do[0].key for line in found.after(1) if line.do] == ["one", "two"]
    assert [line.do[0].key for line in found.after(found.place_of(6, 90) or 0) if line.do] == ["two"]
    assert found.last_mark == 2


@given(st.binary(max_size=120))
def test_no_bytes_crash_the_reading(content: bytes) -> None:
    found = journal.read(content)
    assert found.size == len(content) and found.end <= found.size
