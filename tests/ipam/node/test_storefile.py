"""The store file's text is the original's, byte for byte, and what the original refuses is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ipam.node.documents import CANONICAL, ODD, REFUSED, TAKEN, sealed, sum_of
from tests.ipam.node.storekit import VECTORS

from bedplate.ipam.node import gojson, storefile
from bedplate.ipam.node.gojson import Corrupt
from bedplate.ipam.node.reservations import Reservation
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord

STORES = sorted((VECTORS / "stores").glob("*.store"))
CONFIG = (
    '{"subnet":"192.168.0.0/16","startIP":"192.168.0.1","endIP":"192.168.0.24","gateway":"192.168.0.1",'
    '"exclusions":[],"routes":[],"defaultGateway":false}'
)
ONE = Reservation(
    "pool1",
    "id1",
    "net0",
    "192.168.0.2",
    "2024-01-02T03:04:05.678901234Z",
    "uid-1",
    "pod1",
    "default",
    "0000:d8:00.1",
    CONFIG,
)


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_a_file_of_the_original_is_written_back_byte_for_byte(path: Path) -> None:
    content = path.read_bytes()
    document, total = storefile.decode(content)
    if content:
        assert storefile.encode(document) == content
        written = json.loads(content)
        assert written["checksum"] == total
        assert {(key, name) for key, pool in written["pools"].items() for name in pool["entries"]} == {
            (key, name) for key, pool in document.pools.items() for name in pool.entries
        }
    else:
        assert (document, total) == (Document(), 0)


def test_the_checksums_of_the_specification_come_out() -> None:
    assert storefile.encode(Document()) == b'{"version":1,"checksum":1512731210,"pools":{}}'
    empty = Document({"cidrpool/p": PoolRecord("cidrpool/p")})
    assert b'"checksum":3578377714,' in storefile.encode(empty)
    entry = Entry(ONE, storefile.encode_entry("id1_net0", ONE))
    text = storefile.encode(Document({"pool1": PoolRecord("pool1", {"id1_net0": entry}, CONFIG, "192.168.0.2")}))
    # 731 with the checksum 0.
    assert (len(text) - len("1402365892") + 1, storefile.decode(text)[1]) == (731, 1402365892)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain é😀", '"plain é😀"'),
        ('<a> & "b" \\', '"\\u003ca\\u003e \\u0026 \\"b\\" \\\\"'),
        ("\b\f\n\r\t\x00\x1f\x7f", '"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f"'),
        ("\u2028\u2029", '"\\u2028\\u2029"'),
        ("\ud800", '"\\ufffd"'),
    ],
)
def test_texts_are_escaped_as_in_the_original(text: str, written: str) -> None:
    assert gojson.quote(text) == written


def test_keys_are_sorted_by_their_bytes() -> None:
    keys = ["b", "a", "Z", "é", "😀", "\uffff", "a_"]
    text = storefile.encode(Document({key: PoolRecord(key) for key in keys}))
    assert list(json.loads(text)["pools"]) == sorted(keys, key=str.encode)


@pytest.mark.parametrize("content", TAKEN)
def test_what_the_original_takes_is_taken(content: bytes) -> None:
    document, _ = storefile.decode(content)
    assert all(not pool.entries for pool in document.pools.values())


def test_blanks_case_and_repetition_do_not_matter_as_the_checksum_is_that_of_the_content() -> None:
    assert storefile.encode(storefile.decode(ODD)[0]) == CANONICAL


@pytest.mark.parametrize(("content", "reason"), list(REFUSED.items()))
def test_what_the_original_refuses_is_refused_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason):
        storefile.decode(content)


def test_bytes_that_are_no_characters_become_one_sign_each() -> None:
    rest = '"entries":{},"last_pool_config":"","last_reserved_ip":""}}}'
    record = '{"version":1,"checksum":0,"pools":{"p":{"name":"a��b�",' + rest
    good = sealed(record.replace("�", "\\ufffd"))
    # The original writes the sign as it is when it reads the raw bytes.
    raw = sealed(record)
    total = storefile.decode(raw)[1]
    odd = raw.replace("��".encode(), b"\xe2\x82").replace("b�".encode(), b"b\\ud800")
    assert storefile.decode(odd)[0].pools["p"].name == "a��b�"
    assert storefile.decode(odd)[1] == total
    with pytest.raises(Corrupt):
        storefile.decode(good)


texts = st.text(max_size=12)


@given(texts, texts, texts, st.sampled_from(["10.0.0.9", "fd00::9", ""]), texts)
def test_whatever_a_reservation_says_is_read_back(
    container: str, interface: str, pod: str, address: str, config: str
) -> None:
    one = Reservation("p", container, interface, address, "t", pod, pod, pod, interface, config)
    key = f"{container}_{interface}"
    content = storefile.encode(Document({"p": PoolRecord("p", {key: Entry(one, storefile.encode_entry(key, one))})}))
    found, total = storefile.decode(content)
    assert found.pools["p"].entries[key].reservation == one
    assert sum_of(content.replace(b'"checksum":%d' % total, b'"checksum":0', 1)) == total
    assert json.loads(content)["pools"]["p"]["entries"][key]["metadata"]["pod_name"] == pod


words = texts | st.sampled_from(["a<b", "a&b", "\u2028", "\\\\u0041", "\\b", "\x08", "\x7f", "\x01", '"', "/", "é😀"])
written = st.sampled_from(
    ["10.0.0.9", "10.0.0.10", "fd00::9", "::ffff:10.0.0.9", "::10.0.0.9", "fd00:0::9", "010.0.0.1", ""]
)


@given(st.dictionaries(words, st.dictionaries(words, st.tuples(words, written), max_size=3), max_size=3), st.booleans())
def test_a_text_read_the_quick_way_is_what_the_careful_way_reads(
    pools: dict[str, dict[str, tuple[str, str]]], is_turned: bool
) -> None:
    """Whatever the quick way takes; what it does not take is the careful way's."""
    document = Document()
    for key, held in pools.items():
        record = document.pools[key] = PoolRecord(key, {}, CONFIG)
        for name, (word, address) in held.items():
            one = Reservation(key, word, name, address, "t", word, word, word, "", CONFIG)
            record.entries[name] = Entry(one, storefile.encode_entry(name, one))
    body = storefile.body_of(
        (
            storefile.pool_head(key, pool.name),
            [pool.entries[name].text for name in sorted(pool.entries, reverse=is_turned)],
            storefile.pool_tail(pool.config, pool.pointer),
        )
        for key, pool in sorted(document.pools.items(), reverse=is_turned)
    )
    content = storefile.seal(body)[1] + body
    quick = storefile._decode_plain(content)
    if quick is not None:
        assert quick == storefile._decode_any(content)
        assert storefile.encode(quick[0]) == content


def test_only_five_signs_are_written_otherwise_than_by_the_library() -> None:
    signs = [
        chr(number) for number in range(0x3000) if storefile._ENCODE(chr(number)) != gojson.quote(chr(number)).encode()
    ]
    assert [sign.encode() for sign in signs] == sorted(storefile._OTHERWISE)


@pytest.mark.parametrize("sign", ["<", ">", "&", "\u2028", "\u2029"])
def test_a_sign_that_the_original_would_escape_is_not_taken_as_it_is(sign: str) -> None:
    """Its checksum is that of the bytes there are, and not that of the bytes the original would write."""
    rest = '"entries":{},"last_pool_config":"","last_reserved_ip":""}}}'
    content = sealed('{"version":1,"checksum":0,"pools":{"p":{"name":"a' + sign + '",' + rest)
    assert storefile._decode_plain(content) is None


def test_a_usual_text_is_read_the_quick_way() -> None:
    entry = Entry(ONE, storefile.encode_entry("id1_net0", ONE))
    content = storefile.encode(Document({"pool1": PoolRecord("pool1", {"id1_net0": entry}, CONFIG, "192.168.0.2")}))
    quick = storefile._decode_plain(content)
    assert quick is not None and quick == storefile._decode_any(content)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_loader(content: bytes) -> None:
    try:
        storefile.decode(content)
    except Corrupt:
        pass


@given(st.data())
def test_no_damage_crashes_the_loader_and_none_goes_unseen(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(STORES[3:])).read_bytes())
    before = storefile.decode(bytes(content))[0]
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert storefile.decode(bytes(content))[0] == before
    except Corrupt:
        pass


def test_the_slow_and_the_native_sum_are_the_same() -> None:
    for content in (b"", b"a", b"foobar", bytes(range(256)) * 9):
        assert storefile.slow_fnv1a32(content) == storefile.fnv1a32(content) == sum_of(content)
        assert storefile.fnv1a32(content[3:], storefile.fnv1a32(content[:3])) == sum_of(content)


# The checksum is the same with the library, without it, and with one that is none.

TEXTS = (b"", b"a", b"foobar", b"\x00" * 9, bytes(range(256)) * 9)


@pytest.fixture
def library() -> Iterator[None]:
    """The library is looked for again, before the test and after it."""
    storefile._native.cache_clear()
    yield
    storefile._native.cache_clear()


def test_known_sums_come_out() -> None:
    assert [storefile.fnv1a32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    for text in TEXTS:
        assert storefile.slow_fnv1a32(text) == storefile.fnv1a32(text) == sum_of(text)


def test_a_sum_goes_on_where_another_ended() -> None:
    for text in TEXTS:
        assert storefile.fnv1a32(text[3:], storefile.fnv1a32(text[:3])) == sum_of(text)


@pytest.mark.usefixtures("library")
def test_without_the_library_python_does_it(monkeypatch: pytest.MonkeyPatch, logs: io.StringIO) -> None:
    monkeypatch.setattr(storefile, "LIBRARY", "libnothing.so")
    assert storefile._native() is None
    assert [storefile.fnv1a32(text) for text in TEXTS] == [sum_of(text) for text in TEXTS]
    assert "checksum.slow" in logs.getvalue()


@pytest.mark.usefixtures("library")
def test_a_library_that_is_none_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: io.StringIO
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnothing.so").write_bytes(b"\x7fELF and no more")
    monkeypatch.setattr(storefile, "LIBRARY", "libnothing.so")
    monkeypatch.setattr(storefile.sys, "prefix", str(tmp_path))
    assert storefile.fnv1a32(b"foobar") == sum_of(b"foobar")
    assert "checksum.library_unusable" in logs.getvalue()
