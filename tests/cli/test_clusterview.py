"""The view of `bedplate up`: what it shows first, how it fits, and that it goes without a trace."""

from __future__ import annotations

import asyncio
import io
import re
import time
from datetime import datetime

import pytest
from rich.console import Console
from tests.waiting import until

from bedplate.api import core, meta
from bedplate.cli import clusterview


def node(name: str, ready: str = "True") -> core.Node:
    conditions = (meta.Condition(type="Ready", status=ready),)
    return core.Node(metadata=meta.ObjectMeta(name=name), status=core.NodeStatus(conditions=conditions))


def pod(on: str, phase: str = "Running") -> core.Pod:
    return core.Pod(spec=core.PodSpec(node_name=on), status=core.PodStatus(phase=phase))


def drawn(picture: clusterview.Picture, rows: int = 12, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(clusterview.panel(picture, 65, rows, is_narrow=width < clusterview.NARROW))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_nodes_that_are_not_ready_come_first_then_the_busiest() -> None:
    nodes = (node("a"), node("b"), node("c", "False"), node("d"))
    pods = (pod("d"), pod("b"), pod("d"))
    chosen = clusterview.choose(clusterview.Picture(nodes, pods), 3)
    assert [(each.metadata.name, count) for each, count in chosen] == [("c", 0), ("d", 2), ("b", 1)]


def test_the_panel_counts_and_says_how_many_nodes_it_leaves_out() -> None:
    text = drawn(clusterview.Picture((node("a"), node("b", "Unknown")), (pod("a"), pod("", "Pending"))), rows=1)
    assert "1 of 2 ready" in text
    assert "1 of 2 running" in text
    assert "65s" in text
    assert "and 1 more nodes" in text


def test_a_narrow_panel_cuts_nothing() -> None:
    text = drawn(clusterview.Picture((node("a"), node("b", "Unknown")), (pod("a"),)), width=57)
    assert "nodes   1 of 2 ready, 2 of 2 initialised" in text
    assert "pods   1 of 1 running" in text
    assert "up for   65s" in text
    assert "…" not in text


def test_an_empty_cluster_can_be_drawn() -> None:
    assert "0 of 0 ready" in drawn(clusterview.Picture((), ()), rows=0)


async def test_plain_lines_are_printed_when_something_changed_only(capsys: pytest.CaptureFixture[str]) -> None:
    looks = 0

    def look() -> clusterview.Picture:
        nonlocal looks
        looks += 1
        return clusterview.Picture((node("a"),) if looks > 2 else (), ())

    task = asyncio.create_task(clusterview.follow_plain(look))
    while looks < 4 and not task.done():
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert capsys.readouterr().out.splitlines() == [
        "nodes 0 of 0 ready, 0 of 0 initialised   pods 0 of 0 running",
        "nodes 1 of 1 ready, 1 of 1 initialised   pods 0 of 0 running",
    ]


async def test_the_live_view_ends_when_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    seen = asyncio.Event()

    def look() -> clusterview.Picture:
        seen.set()
        return clusterview.Picture((), ())

    task = asyncio.create_task(clusterview.follow_live(look, ["above"], time.monotonic()))
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Standard output is not a terminal here: nothing that moves a cursor may reach it.
    assert "\x1b" not in capsys.readouterr().out


async def test_the_live_view_leaves_room_for_the_ctrl_c_that_a_terminal_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COLUMNS": "60", "LINES": "50", "TERM": "xterm", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    looks = 0

    def look() -> clusterview.Picture:
        nonlocal looks
        looks += 1
        return clusterview.Picture((node("a"),), (), [clusterview.Cloud("nvidia-bmm", 1, 1, 8)])

    task = asyncio.create_task(clusterview.follow_live(look, ["above"], time.monotonic()))
    while looks < 2 and not task.done():
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out).replace("\r", "\n").splitlines()
    assert any("bedplate up" in line for line in lines)
    assert max(map(len, lines)) <= 60 - len("^C")


POOL = clusterview.Pool("rail", "172.16.0.0/15", blocks=2, free_blocks=5, used=9, usable=10)


def test_pools_are_drawn_with_how_full_they_are() -> None:
    text = drawn(clusterview.Picture((node("a"),), (), pools=[POOL]))
    assert "rail" in text and "██████████████████░░" in text
    assert "9 of 10 addresses used, 2 blocks given, 5 free" in text
    narrow = drawn(clusterview.Picture((node("a"),), (), pools=[POOL]), width=57)
    assert "░░  9 of 10 addresses " in narrow and "…" not in narrow


async def test_pods_and_their_addresses_alone_are_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    looks = 0

    def look() -> clusterview.Picture:
        nonlocal looks
        looks += 1
        pool = clusterview.Pool("rail", "", 1, 0, used=looks, usable=10)
        return clusterview.Picture((node("a"),) if looks > 3 else (), (), pools=[pool])

    task = asyncio.create_task(clusterview.follow_plain(look))
    while looks < 5 and not task.done():
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The first look, and the one that saw another node: what happened to pods in between was not worth a line.
    ends = [line.rpartition("   ")[2] for line in capsys.readouterr().out.splitlines()]
    assert ends == ["rail 1 of 10 addresses", "rail 4 of 10 addresses"]


def test_the_head_is_drawn_with_its_address_and_the_latest_notice() -> None:
    head = clusterview.Head(
        "https://127.0.0.1:8081", 7, 20, 21, [(1, "old"), (2, "12:00:00 node001: Service x was restarted")]
    )
    text = drawn(clusterview.Picture((node("a"),), (), head=head))
    assert "head   https://127.0.0.1:8081   revision 7, held by 20 of 21 devices" in text
    assert "12:00:00 node001: Service x was restarted" in text
    assert "old" not in text


async def test_a_notice_of_the_head_is_told_once_in_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    looks = 0

    def look() -> clusterview.Picture:
        nonlocal looks
        looks += 1
        told = [(1, "one"), (2, "two")][: min(looks, 2)]
        return clusterview.Picture((), (), head=clusterview.Head("https://h", 1, 1, 1, told))

    task = asyncio.create_task(clusterview.follow_plain(look))
    await until(lambda: looks >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("head:")]
    assert lines == ["head: one", "head: two"]


HEADER = [
    "API server ready after 0.6 s at https://127.0.0.1:39537",
    "",
    "  export KUBECONFIG=/home/you/bedplate/.bedplate/kubeconfig",
    "",
    "50 simulated nodes ready after 3.1 s; Ctrl-C stops all",
    "the cloud: a simulated NVIDIA BMM site at http://127.0.0.1:39683, configured in .bedplate/nvidia-bmm.yaml",
    "try: .venv/bin/bedplate kubectl get nodes",
    "the head: https://127.0.0.1:36991 (sign in with the token in .bedplate/head/admin.token), 20 machines",
    "try: .venv/bin/cmsh --data .bedplate/head",
]
BUSY = clusterview.Picture(
    tuple(node(f"node{number:03}") for number in range(50)),
    (pod("node001"),),
    [clusterview.Cloud("nvidia-bmm", 49, 50, 14)],
    tuple(
        core.Event(metadata=meta.ObjectMeta(name=f"e{number}"), message="x", last_timestamp=datetime(2026, 1, 1))
        for number in range(9)
    ),
    [clusterview.Pool(name, "172.16.0.0/15", 50, 16333, 96, 399) for name in ("rail", "storage")],
    clusterview.Head("https://127.0.0.1:38423", revision=3, settled=20, devices=21),
)


@pytest.mark.parametrize("width", [57, 80, 100, 200])
@pytest.mark.parametrize("height", [8, 14, 20, 24, 30, 40, 60])
def test_the_line_to_paste_stays_on_the_screen(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    above = clusterview.lines_of(HEADER, width)
    view = clusterview.fitted(console, BUSY, 65, height - 1 - above)
    drawn_lines = len(console.render_lines(view, console.options, pad=False))
    # Where the header alone fills the window, nothing can be drawn below it.
    assert above + drawn_lines < height or drawn_lines <= 1
    if (width, height) == (80, 24):
        console.print(view)
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        assert "50 of 50 ready" in text and "49 of 50 machines running" in text and "storage" in text
    if height == 60:
        assert drawn_lines > 25, "a large window shows nodes, events and all other parts"
