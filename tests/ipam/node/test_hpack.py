"""Header blocks: read as another implementation writes them, and refused without harm when they are broken."""

from __future__ import annotations

import hpack as other
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam.node.hpack import STATIC, HeaderDecoder, HeaderError, literal

texts = st.binary(max_size=40)
names = st.sampled_from([b":path", b"content-type", b"grpc-timeout", b"user-agent", b"x-own", b"te"]) | texts
blocks = st.lists(
    st.tuples(st.lists(st.tuples(names, texts), max_size=6), st.booleans(), st.sampled_from([None, 0, 64, 4096])),
    max_size=5,
)


@given(blocks)
def test_reads_what_another_encoder_writes(sent: list[tuple[list[tuple[bytes, bytes]], bool, int | None]]) -> None:
    encoder, decoder = other.Encoder(), HeaderDecoder()
    for headers, is_packed, size in sent:
        if size is not None:
            encoder.header_table_size = size
        assert decoder.decode(encoder.encode(headers, huffman=is_packed)) == headers


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_headers_or_an_error(pieces: list[bytes]) -> None:
    decoder = HeaderDecoder()
    for piece in pieces:
        try:
            decoder.decode(piece)
        except HeaderError:
            return


@given(st.lists(st.tuples(texts, st.binary(max_size=300))))
def test_another_decoder_reads_what_is_written_here(headers: list[tuple[bytes, bytes]]) -> None:
    written = b"".join(literal(name, value) for name, value in headers)
    decoded = other.Decoder().decode(written, raw=True)
    assert [(name, value) for name, value in decoded] == headers


def test_the_static_table_is_the_standards() -> None:
    assert other.table.HeaderTable.STATIC_TABLE == STATIC


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x80", "index 0"),
        (b"\xff\x80\x80\x80\x80\x80\x01", "a number without end"),
        (b"\xbe", "nothing was remembered"),
        (b"\x00\x05ab", "a name that is cut off"),
        (b"\x00\x01a", "no value"),
        (b"\x3f\xe2\x1f", "a table larger than offered"),
        (b"\x82\x20", "a table size after a header"),
        (b"\x00\x01a\x84\xff\xff\xff\xff", "the end-of-string symbol"),
        (b"\x00\x01a\x81\x00", "padding of zeros"),
        (b"\x00\x01a\x82\x1f\xff", "a whole byte of padding"),
    ],
)
def test_broken_blocks_are_refused(block: bytes, why: str) -> None:
    with pytest.raises(HeaderError):
        HeaderDecoder().decode(block)


def test_what_is_remembered_falls_out_when_the_table_is_full() -> None:
    decoder = HeaderDecoder()
    for number in range(200):
        decoder.decode(b"\x40" + b"\x04name" + bytes([40]) + f"{number:040d}".encode())
    newest = decoder.decode(b"\xbe")
    assert newest == [(b"name", f"{199:040d}".encode())]
    # 76 bytes each, 4096 of room.
    assert decoder.decode(bytes([0x80 | 61 + 53]))[0][1] == f"{199 - 52:040d}".encode()
    with pytest.raises(HeaderError):
        decoder.decode(bytes([0x80 | 61 + 54]))
