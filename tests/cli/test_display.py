"""Progress: silent when it is quick or nobody watches, and gone in the end."""

from __future__ import annotations

import pytest

from bedplate.cli import display


def test_nothing_is_said_within_the_first_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    told = display.Progress(is_watched=True)
    told("read 5 pods")
    told.done()
    assert capsys.readouterr().err == ""


def test_what_takes_longer_is_told_and_erased(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "QUIET_S", -1.0)
    told = display.Progress(is_watched=True)
    told("read 500 pods")
    told("read 501 pods")
    told.done()
    said = capsys.readouterr().err
    # The second came too soon after the first to be worth a line.
    assert "read 500 pods …" in said and "501" not in said
    assert said.endswith(("\r", "\x1b[K"))


def test_nobody_is_told_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "QUIET_S", -1.0)
    with pytest.raises(ValueError), display.progress() as told:
        told("read 500 pods")
        raise ValueError
    assert capsys.readouterr().err == ""
