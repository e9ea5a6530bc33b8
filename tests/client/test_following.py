"""Server-sent events out of bytes, however they are cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bedplate.client.following import Parser, Raw

TEXT = (
    b": a comment\n\nid: 1.0.0\n\nid: 2\nevent: revision\ndata: {\ndata: }\n\n"
    b"event:notice\r\ndata:x\r\n\r\nunknown: field\nretry: 3\ndata\n\n"
)
EVENTS = [
    Raw("1.0.0", "message", b""),
    Raw("2", "revision", b"{\n}"),
    Raw("2", "notice", b"x"),
    Raw("2", "message", b""),
]


def test_events_are_read_with_their_ids_and_types() -> None:
    assert Parser().feed(TEXT) == EVENTS


@given(st.lists(st.integers(0, len(TEXT)), max_size=10))
def test_where_chunks_are_cut_means_nothing(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(TEXT)})
    parser = Parser()
    found = [event for a, b in itertools.pairwise(places) for event in parser.feed(TEXT[a:b])]
    assert found == EVENTS


def test_an_event_that_is_not_complete_is_kept_back() -> None:
    parser = Parser()
    assert parser.feed(b"data: half") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\n") == [Raw("", "message", b"half")]
