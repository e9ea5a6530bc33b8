"""The view of `bedplate up`: how many nodes and pods there are, redrawn on a terminal or as a line when they change.

In: the nodes and pods of a cache, asked for again at every look. Out: text on standard output until cancelled. What
is worth a row is decided by `choose`: first what is not ready, then what is busiest.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Column, Table

from bedplate.api import core
from bedplate.cli import display

__all__ = ["Picture", "choose", "follow_live", "follow_plain", "panel"]

LOOK_EVERY_S = 0.5
MOST_ROWS = 12
# Lines of the panel that are not rows of nodes: its frame, the counts, the title of the table, what was left out.
FRAME_LINES = 8


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is at one moment."""

    nodes: Sequence[core.Node]
    pods: Sequence[core.Pod]

    @property
    def node_text(self) -> str:
        return f"{sum(node.is_ready for node in self.nodes)} of {len(self.nodes)} ready"

    @property
    def pod_text(self) -> str:
        return f"{sum(pod.status.phase == 'Running' for pod in self.pods)} of {len(self.pods)} running"


Look = Callable[[], Picture]


def choose(picture: Picture, rows: int) -> list[tuple[core.Node, int]]:
    """The nodes to show, each with the number of its pods."""
    pods = Counter(pod.spec.node_name for pod in picture.pods)
    ranked = sorted(picture.nodes, key=lambda node: (node.is_ready, -pods[node.metadata.name], node.metadata.name))
    return [(node, pods[node.metadata.name]) for node in ranked[:rows]]


def panel(picture: Picture, up_for_s: float, rows: int = MOST_ROWS) -> Panel:
    """The live view."""
    counts = Table.grid(*(Column(no_wrap=True) for _ in range(6)), padding=(0, 3))
    counts.add_row("nodes", picture.node_text, "pods", picture.pod_text, "up for", display.age(up_for_s))
    shown = choose(picture, rows)
    table = Table("node", "ready", "taints", "pods", box=None, padding=(0, 2, 0, 0))
    for node, pods in shown:
        state = "[green]yes[/]" if node.is_ready else "[red]no[/]"
        table.add_row(node.metadata.name, state, str(len(node.spec.taints)), str(pods))
    parts = Table.grid(padding=(1, 0))
    parts.add_row(counts)
    if shown:
        parts.add_row(table)
    if len(shown) < len(picture.nodes):
        parts.add_row(f"[dim]and {len(picture.nodes) - len(shown)} more nodes[/]")
    return Panel(parts, title="bedplate up", subtitle="Ctrl-C stops all", expand=False)


async def follow_plain(look: Look) -> None:
    """A line whenever a count changed."""
    last = ""
    while True:
        picture = look()
        text = f"nodes {picture.node_text}   pods {picture.pod_text}"
        if text != last:
            click.echo(text)
            last = text
        await asyncio.sleep(LOOK_EVERY_S)


async def follow_live(look: Look, header: Iterable[str], started: float) -> None:
    """Redraw the panel below `header`, which is on the screen already; take the panel away in the end."""
    console, above = Console(highlight=False), "\n".join(header)
    size = console.size
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            if console.size != size:
                # What stood there was wrapped for another width. The empty panel makes Live forget its old height.
                size = console.size
                live.update("", refresh=True)
                console.clear()
                console.print(above, soft_wrap=True)
            rows = max(0, min(MOST_ROWS, size.height - above.count("\n") - 1 - FRAME_LINES))
            live.update(panel(look(), time.monotonic() - started, rows), refresh=True)
            await asyncio.sleep(LOOK_EVERY_S)
