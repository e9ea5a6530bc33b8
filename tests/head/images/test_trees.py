"""Trees of software images: what is one, and what is done with it as a whole."""

from __future__ import annotations

import pathlib

import pytest
from tests.agent.imaging import grow

from bedplate.api.images import MARKER
from bedplate.core import errors
from bedplate.head.images.trees import Trees


def test_a_folder_is_an_image_only_with_its_marker(tmp_path: pathlib.Path) -> None:
    trees, tree = Trees(str(tmp_path)), tmp_path / "one"
    assert trees.condition("/cm/images/one").state == "missing"
    tree.mkdir()
    assert trees.condition("/cm/images/one").state == "empty"
    (tree / MARKER).write_text("{}")
    assert trees.condition("/cm/images/one").state == "empty", "a marker alone wipes nothing"
    (tree / MARKER).unlink()
    (tree / "etc").mkdir()
    assert trees.condition("/cm/images/one").state == "unmarked"
    (tree / MARKER).write_text("not JSON")
    assert trees.condition("/cm/images/one").state == "unmarked"
    (tree / MARKER).unlink()
    (tree / MARKER).symlink_to("/etc/hostname")
    assert trees.condition("/cm/images/one").state == "unmarked"
    (tree / MARKER).unlink()
    assert trees.adopt("/cm/images/one", by="ann").endswith("is an image now")
    assert trees.condition("/cm/images/one").state == "ready"
    assert trees.adopt("/cm/images/one", by="ann").endswith("is an image already")


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/cm/images", "/cm/images/", "/cm/images/../../etc", "/cm/images/.hidden", "/cm/images/a b",
     "/cm/images/.one.grab/etc", "/cm/images/image/etc", "/cm/images/image/etc/new",
     "relative", "/cm/images/a%b", "/cm/images/link", "/cm/images/link/inner", "/cm/imagesx/a", "/cm/images//etc"],
)  # fmt: skip
def test_a_tree_lies_below_the_folder_of_images_and_behind_no_link(tmp_path: pathlib.Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    grow(tmp_path / "image", {"/etc/a": "1", f"/{MARKER}": "{}"})
    trees = Trees(str(tmp_path))
    with pytest.raises(errors.Invalid):
        trees.place(path)
    assert trees.condition(path).state == "outside"


def test_the_folder_stands_for_the_usual_one_and_is_a_place_itself(tmp_path: pathlib.Path) -> None:
    trees = Trees(str(tmp_path))
    assert trees.place("/cm/images/a/b") == trees.place(f"{tmp_path}/a/b") == f"{tmp_path}/a/b"


async def test_trees_are_copied_and_removed_as_a_whole(tmp_path: pathlib.Path) -> None:
    trees = Trees(str(tmp_path))
    grow(tmp_path / "one", {"/etc/a": "1", "/link": "-> etc/a"})
    with pytest.raises(errors.Invalid, match=r"has no \.bedplate-image"):
        await trees.copy("/cm/images/one", "/cm/images/two")
    with pytest.raises(errors.Invalid, match="is not removed"):
        await trees.remove("/cm/images/one")
    trees.adopt("/cm/images/one", by="ann")
    await trees.copy("/cm/images/one", "/cm/images/two")
    assert (tmp_path / "two/etc/a").read_text() == "1" and (tmp_path / "two/link").is_symlink()
    assert trees.condition("/cm/images/two").marker.origin == f"copy of {tmp_path}/one"
    with pytest.raises(errors.AlreadyExists):
        await trees.copy("/cm/images/one", "/cm/images/two")
    await trees.remove("/cm/images/one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two"]


async def test_a_command_in_an_image_is_for_a_head_that_runs_as_root(tmp_path: pathlib.Path) -> None:
    grow(tmp_path / "one", {"/etc/a": "1"})
    trees = Trees(str(tmp_path), is_root=False)
    trees.adopt("/cm/images/one", by="ann")
    with pytest.raises(errors.Invalid, match="only by a head that runs as root") as caught:
        await trees.run("/cm/images/one", ["true"], timeout_s=1, by="ann")
    assert caught.value.hint == f"as root on the head node: chroot {tmp_path}/one COMMAND"


async def test_a_tree_that_is_changed_is_nobody_elses(tmp_path: pathlib.Path) -> None:
    grow(tmp_path / "one", {"/etc/a": "1"})
    trees = Trees(str(tmp_path))
    trees.adopt("/cm/images/one", by="ann")
    async with trees.changing(trees.place("/cm/images/one"), "grabbed"):
        with pytest.raises(errors.Conflict, match="is being grabbed"):
            await trees.remove("/cm/images/one")
    await trees.remove("/cm/images/one")


async def test_a_tree_that_is_read_is_not_changed_meanwhile(tmp_path: pathlib.Path) -> None:
    grow(tmp_path / "one", {"/etc/a": "1"})
    trees, place = Trees(str(tmp_path)), f"{tmp_path}/one"
    trees.adopt("/cm/images/one", by="ann")
    with (
        trees.reading(place, "copied to node001"),
        trees.reading(place, "copied to node002"),
        pytest.raises(errors.Conflict, match="one is being copied to node001"),
    ):
        await trees.remove("/cm/images/one")
    async with trees.changing(place, "grabbed"):
        with pytest.raises(errors.Conflict, match="one is being grabbed"), trees.reading(place, "copied"):
            pass
    await trees.remove("/cm/images/one")


async def test_what_a_killed_head_left_is_put_right(tmp_path: pathlib.Path) -> None:
    grow(tmp_path / ".one.grab.old", {"/etc/a": "1", f"/{MARKER}": "{}"})
    for name in (".one.grab", ".one.new", ".one.gone"):
        grow(tmp_path / name, {"/etc/half": "x"})
    trees = Trees(str(tmp_path))
    assert trees.condition("/cm/images/one").state == "ready", "it was killed between two names"
    async with trees.changing(f"{tmp_path}/one", "grabbed"):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]
