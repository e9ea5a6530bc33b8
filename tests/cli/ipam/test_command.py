"""Reading a large cluster: what was read is handed on as it is."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.cli.ipam import command


class Large:
    """Something that takes a second to show."""

    shown = 0

    def __repr__(self) -> str:
        self.shown += 1
        return "a very long text"


def test_no_text_is_made_of_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Large()

    async def read(*args: Any) -> Any:
        return large

    monkeypatch.setattr(command, "_read", read)
    assert command._look("", "kube-system") is large
    assert not large.shown
