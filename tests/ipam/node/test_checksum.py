"""The checksum is the same with the library, without it, and with one that is none."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ipam.node.documents import sum_of

from bedplate.ipam.node import checksum

TEXTS = (b"", b"a", b"foobar", b"\x00" * 9, bytes(range(256)) * 9)


@pytest.fixture(autouse=True)
def looked_for_anew() -> Iterator[None]:
    checksum._native.cache_clear()
    yield
    checksum._native.cache_clear()


def test_known_sums_come_out() -> None:
    assert [checksum.fnv1a32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    for text in TEXTS:
        assert checksum.slow(text) == checksum.fnv1a32(text) == sum_of(text)


def test_a_sum_goes_on_where_another_ended() -> None:
    for text in TEXTS:
        assert checksum.fnv1a32(text[3:], checksum.fnv1a32(text[:3])) == sum_of(text)


def test_without_the_library_python_does_it(monkeypatch: pytest.MonkeyPatch, logs: io.StringIO) -> None:
    monkeypatch.setattr(checksum, "LIBRARY", "libnothing.so")
    assert not checksum.is_native()
    assert [checksum.fnv1a32(text) for text in TEXTS] == [sum_of(text) for text in TEXTS]
    assert "checksum.slow" in logs.getvalue()


def test_a_library_that_is_none_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: io.StringIO
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnothing.so").write_bytes(b"\x7fELF and no more")
    monkeypatch.setattr(checksum, "LIBRARY", "libnothing.so")
    monkeypatch.setattr(checksum.sys, "prefix", str(tmp_path))
    assert checksum.fnv1a32(b"foobar") == sum_of(b"foobar")
    assert "checksum.library_unusable" in logs.getvalue()
