"""Chunks of a watch, however they are cut, are the same events."""

from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.api.resources import NODES
from bedplate.kube import errors
from bedplate.kube.codec import EventDecoder, codec_of

TARGET = errors.Target("GET", NODES.path(), NODES)


def line(kind: str, name: str, **extra: object) -> bytes:
    return (
        json.dumps({"type": kind, "object": {"metadata": {"name": name}, **extra}}, ensure_ascii=False).encode() + b"\n"
    )


def decoder() -> EventDecoder[object]:
    return EventDecoder(codec_of(NODES), TARGET)  # type: ignore[arg-type]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]),
        st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(EVENTS, st.lists(st.integers(0, 2000), max_size=20))
def test_events_do_not_depend_on_where_chunks_are_cut(events: list[tuple[str, str]], cuts: list[int]) -> None:
    stream = b"".join(line(kind, name) for kind, name in events)
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    feed = decoder()
    found = []
    for start, end in itertools.pairwise(edges):
        found += feed.feed(stream[start:end])
    found += feed.finish()
    assert [(event.type, event.object.name) for event in found] == events
    assert feed.failure is None


@given(st.lists(st.text(alphabet="abc", max_size=8), min_size=1, max_size=5), st.integers(1, 200))
def test_a_stream_cut_inside_an_event_gives_the_whole_events_and_a_failure(names: list[str], cut: int) -> None:
    lines = [line("ADDED", name) for name in names]
    stream = b"".join(lines)
    cut = cut % (len(lines[-1]) - 2) + 1
    feed = decoder()
    found = feed.feed(stream[: -cut - 1]) + feed.finish()
    assert [event.object.name for event in found] == names[:-1]
    assert isinstance(feed.failure, errors.Interrupted)


def test_a_last_event_without_its_newline_is_an_event() -> None:
    feed = decoder()
    assert [event.object.name for event in feed.feed(line("ADDED", "a")[:-1]) + feed.finish()] == ["a"]
    assert feed.failure is None


def test_an_error_event_ends_the_watch_after_the_events_before_it() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    error = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    feed = decoder()
    found = feed.feed(line("ADDED", "a") + error + line("ADDED", "never"))
    assert [event.object.name for event in found] == ["a"]
    assert isinstance(feed.failure, errors.Expired)


def test_garbage_ends_the_watch_after_the_events_before_it() -> None:
    for garbage in (
        b"<html>\n",
        b'{"type":"UNHEARD","object":{}}\n',
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":[]}\n',
    ):
        feed = decoder()
        found = feed.feed(line("ADDED", "a") + garbage + line("ADDED", "never"))
        assert [event.object.name for event in found] == ["a"]
        assert isinstance(feed.failure, errors.Undecodable)


def test_a_bookmark_needs_no_more_than_its_version() -> None:
    feed = decoder()
    (event,) = feed.feed(b'{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"12"}}}\n')
    assert (event.type, event.object.metadata.resource_version) == ("BOOKMARK", "12")


def test_raw_objects_come_as_they_were_sent() -> None:
    feed = EventDecoder(codec_of(NODES.raw()), TARGET)
    (event,) = feed.feed(line("ADDED", "a", novel=[1]))
    assert event.object == {"metadata": {"name": "a"}, "novel": [1]}


def test_empty_lines_are_no_events() -> None:
    feed = decoder()
    assert feed.feed(b"\n" + line("ADDED", "a") + b"\n")[0].object.name == "a"
    assert feed.failure is None
