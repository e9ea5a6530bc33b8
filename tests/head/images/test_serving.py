"""A transfer at the head's end, without rsync: who has the tree, and what rsync is told."""

from __future__ import annotations

import asyncio
import pathlib
import threading

import pytest
from tests.agent.imaging import grow

from bedplate.core import errors
from bedplate.head.images.serving import Transfers, configuration
from bedplate.head.images.trees import Marker, Trees


def test_rsync_is_told_here_alone_what_it_serves() -> None:
    lines = configuration("/cm/images/x", is_written=False, is_root=True).splitlines()
    assert {"path = /cm/images/x", "use chroot = yes", "read only = yes", "list = no"} <= set(lines)
    (refused,) = [line for line in lines if line.startswith("refuse options = * ")]
    assert "!copy-links" not in refused and "!remove-source-files" not in refused
    assert "!iconv" not in refused, "it would load programs from the tree"
    written = configuration("/cm/images/.x.grab", is_written=True, is_root=False).splitlines()
    assert {"read only = no", "write only = yes", "munge symlinks = yes", "use chroot = no"} <= set(written)


async def test_two_names_of_one_tree_do_not_get_into_each_others_way(tmp_path: pathlib.Path) -> None:
    grow(tmp_path / "one", {"/etc/a": "1"})
    trees = Trees(str(tmp_path), which=lambda name: name)
    transfers = Transfers(trees)
    trees.adopt("/cm/images/one", by="ann")
    async with transfers.serve("1", "/cm/images/one", is_written=False, node="node001", by="ann"):
        with pytest.raises(errors.Conflict, match="is being copied to node001"):
            async with transfers.serve("2", f"{tmp_path}/one", is_written=True, node="node002", by="ann"):
                pass
    async with transfers.serve("3", "/cm/images/one", is_written=True, node="node001", by="ann") as serving:
        assert pathlib.Path(serving.tree).name == ".one.grab"
        with pytest.raises(errors.Conflict, match="is being grabbed from node001"):
            async with transfers.serve("4", f"{tmp_path}/one", is_written=False, node="node002", by="ann"):
                pass


async def test_a_grab_that_is_asked_for_again_while_it_is_put_in_place_is_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "one", {"/etc/a": "1"})
    trees = Trees(str(tmp_path), which=lambda name: name)
    transfers = Transfers(trees)
    trees.adopt("/cm/images/one", by="ann")
    going, go, right = asyncio.Event(), threading.Event(), Trees.replace
    loop = asyncio.get_running_loop()

    def slow(self: Trees, place: str, new: str, before: Marker, origin: str) -> None:
        loop.call_soon_threadsafe(going.set)
        go.wait(10)
        assert (pathlib.Path(new) / "etc/a").read_text() == "2", "nobody removes it meanwhile"
        right(self, place, new, before, origin)

    async def grab(text: str) -> None:
        async with transfers.serve("1", "/cm/images/one", is_written=True, node="node001", by="ann") as serving:
            (pathlib.Path(serving.tree) / "etc/a").write_text(text)
            await serving.keep()

    monkeypatch.setattr(Trees, "replace", slow)
    first = asyncio.create_task(grab("2"))
    await going.wait()
    first.cancel()
    await asyncio.wait([first], timeout=0.01)
    assert not first.done() and (tmp_path / ".one.grab/etc/a").exists()
    go.set()
    await asyncio.wait([first])
    assert first.cancelled() and (tmp_path / "one/etc/a").read_text() == "2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]
