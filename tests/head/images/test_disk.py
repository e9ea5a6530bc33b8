"""The disk under software images: it is never filled up."""

from __future__ import annotations

import asyncio
import os
import pathlib
from types import SimpleNamespace

import pytest

from bedplate.core import errors
from bedplate.head.images import disk


@pytest.mark.parametrize(("blocks", "files"), [(4, 1000), (900, 9)], ids=["space", "files"])
async def test_nothing_is_written_when_the_disk_is_almost_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, blocks: int, files: int
) -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def short() -> int:
        return 7

    assert await disk.spared(f"{tmp_path}/one", short()) == 7
    monkeypatch.setattr(disk, "_LOOK_EACH_S", 0.001)
    writing = asyncio.create_task(disk.spared(f"{tmp_path}/one", endless()))
    await asyncio.sleep(0)
    full = SimpleNamespace(f_frsize=4096, f_blocks=100, f_bavail=blocks, f_files=1000, f_favail=files)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(errors.Invalid, match="almost full"):
        await writing
    assert ended.is_set()
