"""Transfers whose other end lies: names that lead out of the tree, rules that are ignored, garbage, silence.

Both ends are real; what one of them says is changed on its way, so that it is what a hostile one would say. Whatever it
is, a node is written below its root only and keeps what is its own; an image is what it was, or whole; nothing is left
beside it, and it ends.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.agent.imaging import agent, contents, grow, transfer
from tests.agent.machines import Machine
from tests.ui.rest.serving import Served
from tests.waiting import until

from bedplate.agent import images, link
from bedplate.api.headapi import ErrandState
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.images import serving

pytestmark = pytest.mark.external

IMAGE = {
    "/usr/bin/tool": "of the image",
    "/etc/hostname": "of the image",
    "/var/lib/bedplate-agent/held.json": "of the image",
    "/aa_evil_1": "evil",
    "/zz_dir/evil": "evil",
    "/zz_lnk": "-> ../outside",
}
NODE = {
    "/usr/bin/tool": "of the node",
    "/etc/hostname": "of the node",
    "/aa_evil_1": "evil",
    "/home/ann/thesis": "stays",
}
OWN = ("/etc/hostname", "/home/ann/thesis")

Change = Callable[[bytes], bytes]


def same(data: bytes) -> bytes:
    return data


def swapped(old: bytes, new: bytes) -> Change:
    """Other words of the same length in what is said."""
    assert len(old) == len(new)
    return lambda data: data.replace(old, new)


def flipped(rng: random.Random, *, first: int) -> Change:
    """One byte in so many is another one, after the first few that open the conversation."""
    seen, every = 0, rng.choice((40, 400, 4000))

    def change(data: bytes) -> bytes:
        nonlocal seen
        made = bytearray(data)
        for at in range(len(made)):
            seen += 1
            if seen > first and rng.randrange(every) == 0:
                made[at] = rng.randrange(256)
        return bytes(made)

    return change


class Liar:
    """Stands in the way of what the head and a node say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up: Change = same
        self.down: Change = same
        right = serving.Serving.carry

        async def carry(
            this: serving.Serving, incoming: AsyncIterator[bytes], outgoing: Callable[[bytes], Awaitable[None]]
        ) -> int:
            async def changed() -> AsyncIterator[bytes]:
                async for data in incoming:
                    yield self.up(data)

            async def out(data: bytes) -> None:
                await outgoing(self.down(data))

            return await right(this, changed(), out)

        monkeypatch.setattr(serving.Serving, "carry", carry)


@pytest.fixture(autouse=True)
def around(tmp_path: pathlib.Path) -> None:
    """Others' trees, beside the image and beside the node."""
    grow(tmp_path / "images" / "outside", {"/kept": "x"})
    grow(tmp_path / "outside", {"/kept": "x"})


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Liar:
    monkeypatch.setattr(images, "_TRIES", 1)
    monkeypatch.setattr(images, "_IDLE_S", 2)
    monkeypatch.setattr(serving, "_IDLE_S", 2)
    monkeypatch.setattr(serving, "_STILL_S", 5.0)
    return Liar(monkeypatch)


def strangers(folder: pathlib.Path) -> dict[str, str]:
    """Everything that belongs to neither the image nor the node."""
    return contents(folder, "/node001", "/images/default-image", "/images/.default-image.grab", "/token", "/head.db")


def check_node(machine: Machine) -> None:
    now = contents(machine.folder)
    assert {path: now.get(path) for path in OWN} == {path: NODE[path] for path in OWN}
    held = machine.at("/var/lib/bedplate-agent/held.json")
    assert not held.exists() or held.read_text() != "of the image"


async def check_image(server: Served, before: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The image is what it was, or one that is whole; what was written on the way is gone."""
    fleet = server.service.fleet
    assert fleet is not None
    await until(lambda: not fleet.imaging.trees.busy)
    folder = tmp_path / "images"
    await until(lambda: sorted(path.name for path in folder.iterdir()) == ["default-image", "outside"])
    condition = fleet.imaging.trees.condition("/cm/images/default-image")
    assert condition.state == "ready"
    if condition.marker.generation == 1:
        assert contents(folder / "default-image") == before


LIES = {
    "up": swapped(b"aa_evil_1", b"../evil_1"),
    "deep": swapped(b"aa_evil_1", b"zz_lnk/ev"),
    "absolute": swapped(b"aa_evil_1", b"/tmp/evl1"),
    "end": swapped(b"aa_evil_1", b"evil_1/.."),
    "nothing": swapped(b"aa_evil_1", b"\0\0\0\0\0\0\0\0\0"),
    "link": swapped(b"zz_dir", b"zz_lnk"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_hostile_head_writes_below_the_root_of_the_node_only(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar, lie: str
) -> None:
    before, liar.down = strangers(tmp_path), LIES[lie]
    async with agent(server, machine, "node001", tmp_path / "token"):
        (over,) = await transfer(client, ["node001"], write=True)
    assert over.state in ("done", "failed")
    assert strangers(tmp_path) == before and not pathlib.Path("/tmp/evl1").exists()
    check_node(machine)
    assert machine.at("/home/ann/thesis").exists()


async def test_a_hostile_head_that_ignores_the_exclude_lists_is_refused_by_the_node(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar
) -> None:
    def deaf(data: bytes) -> bytes:
        for rule in (b"/etc/hostname", b"/var/lib/bedplate-agent", b"/home/*"):
            data = data.replace(rule, rule[:-1] + b"Z")
        return data

    liar.up = deaf
    async with agent(server, machine, "node001", tmp_path / "token"):
        (over,) = await transfer(client, ["node001"], write=True)
    assert over.state == "failed" and "excluded" in over.text, over.text
    check_node(machine)


@pytest.mark.parametrize("lie", LIES)
async def test_a_hostile_node_writes_into_the_image_only(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar, lie: str
) -> None:
    grow(machine.folder, {"/zz_dir/evil": "evil", "/zz_lnk": "-> ../outside"})
    image = tmp_path / "images" / "default-image"
    before, around, liar.up = contents(image), strangers(tmp_path), LIES[lie]
    async with agent(server, machine, "node001", tmp_path / "token"):
        await transfer(client, ["node001"], kind="grabimage", write=True)
    assert strangers(tmp_path) == around and not pathlib.Path("/tmp/evl1").exists()
    await check_image(server, before, tmp_path)


async def rounds(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar, count: int
) -> list[ErrandState]:
    """Transfers of both kinds in which one end talks more or less nonsense."""
    around, told = strangers(tmp_path), []
    image = tmp_path / "images" / "default-image"
    before = contents(image)
    async with agent(server, machine, "node001", tmp_path / "token"):
        for number in range(count):
            rng = random.Random(number)
            kind = ("imageupdate", "grabimage")[number % 2]
            noise = flipped(rng, first=rng.choice((0, 20, 200)))
            liar.up, liar.down = (noise, same) if number % 4 in (1, 2) else (same, noise)
            (over,) = await transfer(client, ["node001"], kind=kind, write=True)
            told.append(over)
            assert strangers(tmp_path) == around
            check_node(machine)
            await check_image(server, before, tmp_path)
    return told


async def test_garbage_from_either_end_ends_and_leaves_everything_whole(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar
) -> None:
    told = await rounds(server, client, machine, tmp_path, liar, 8)
    assert any(errand.state == "failed" for errand in told)


@pytest.mark.soak
async def test_garbage_from_either_end_many_times(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar
) -> None:
    told = await rounds(server, client, machine, tmp_path, liar, 300)
    assert sum(errand.state == "failed" for errand in told) > 100


@pytest.mark.parametrize("kind", ["imageupdate", "grabimage"])
async def test_an_end_that_falls_silent_is_given_up(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, liar: Liar, kind: str
) -> None:
    """After the greeting nothing more arrives, from either side."""
    image = tmp_path / "images" / "default-image"
    before, said = contents(image), 0

    def silent(data: bytes) -> bytes:
        nonlocal said
        said += len(data)
        return data if said < 60 else b""

    liar.up = liar.down = silent
    async with agent(server, machine, "node001", tmp_path / "token"):
        (over,) = await transfer(client, ["node001"], kind=kind, write=True)
    assert over.state == "failed"
    check_node(machine)
    await check_image(server, before, tmp_path)
    assert contents(image) == before


async def test_rsync_takes_no_more_memory_than_it_may(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With next to none it fails, and says so: the limit is in force before a byte of the node is read."""
    monkeypatch.setattr(serving, "_MEMORY", 1 << 20)
    monkeypatch.setattr(images, "_TRIES", 1)
    before = contents(tmp_path / "images" / "default-image")
    async with agent(server, machine, "node001", tmp_path / "token"):
        (over,) = await transfer(client, ["node001"], kind="grabimage", write=True)
    assert over.state == "failed"
    assert contents(tmp_path / "images" / "default-image") == before


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_a_node_that_does_not_listen_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_IDLE_S", 0.01)

    async def deaf(data: bytes) -> None:
        await asyncio.Event().wait()

    one = serving.Serving(None, "/dev/null", "", "", None, "", False, bytearray())  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="does not listen"):
        await one.carry(_silence(), deaf)


async def test_no_transfer_lasts_for_ever_however_alive_its_node_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_LONGEST_S", 0.01)

    async def listens(data: bytes) -> None:
        return None

    one = serving.Serving(None, "/dev/null", "", "", None, "", False, bytearray())  # type: ignore[arg-type]
    with pytest.raises(errors.Invalid, match="was not over within"):
        await one.carry(_silence(), listens)


async def test_two_ends_that_only_keep_each_other_alive_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rsync says when it has nothing to say, from both ends for as long as they are let."""
    monkeypatch.setattr(serving, "_STILL_S", 0.05)
    ended = asyncio.Event()

    async def alive() -> int:
        nonlocal count
        try:
            while True:
                count += 4
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    count = 0
    with pytest.raises(errors.Unavailable, match="nothing came of it"):
        await serving.moving(alive(), lambda: count)
    assert ended.is_set()


async def test_a_transfer_is_one_of_those_that_must_get_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_STILL_S", 0.05)

    async def alive(this: serving.Serving, incoming: AsyncIterator[bytes], outgoing: Callable[..., object]) -> int:
        async for _ in incoming:
            pass
        return 0

    async def murmur() -> AsyncIterator[bytes]:
        while True:
            yield b"\0\0\0\7"
            await asyncio.sleep(0.01)

    async def listens(data: bytes) -> None:
        return None

    monkeypatch.setattr(serving.Serving, "_carry", alive)
    one = serving.Serving(None, "/dev/null", "", "", None, "", False, bytearray())  # type: ignore[arg-type]
    with pytest.raises(errors.Unavailable, match="nothing came of it"):
        await one.carry(murmur(), listens)


@pytest.mark.parametrize("kind", ["imageupdate", "grabimage"])
async def test_a_head_that_vanishes_when_everything_was_said_is_not_waited_for_for_ever(
    server: Served,
    client: HeadClient,
    machine: Machine,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """rsync went well on the node, and the end of the head's answer never comes: nothing else could be done there."""
    monkeypatch.setattr(images, "_TRIES", 1)
    monkeypatch.setattr(link, "_TRANSFER_IDLE_S", 1.0)
    right = serving.Serving.carry

    async def carry(
        this: serving.Serving, incoming: AsyncIterator[bytes], outgoing: Callable[[bytes], Awaitable[None]]
    ) -> int:
        await right(this, incoming, outgoing)
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(serving.Serving, "carry", carry)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (over,) = await transfer(client, ["node001"], kind=kind, write=True)
    assert over.state == "failed" and "said nothing for 1 s" in over.text, over.text


async def test_a_slow_transfer_that_gets_on_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_STILL_S", 0.01)
    looks = 0

    async def slow() -> int:
        await until(lambda: looks > 5)
        return 7

    def count() -> int:
        nonlocal looks
        looks += 1
        return looks * serving._STILL_BYTES

    assert await serving.moving(slow(), count) == 7
