"""The view of `bedplate up`: nodes, pods, clouds, pools, events and the head, redrawn or as lines when they change.

In: what there is, asked for again at every look. Out: text on standard output until cancelled. What is worth a row is
decided by `choose`: first nodes that are not ready or not initialised, then the busiest; the latest events.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import click
from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bedplate.api import core, names
from bedplate.cli import display

__all__ = ["Cloud", "Head", "Picture", "Pool", "choose", "fitted", "follow_live", "follow_plain", "panel", "state_of"]

LOOK_EVERY_S = 0.5
# Pods come and go all the time: a plain line about them alone is worth its place only now and then.
PODS_EVERY_S = 10.0
MOST_ROWS = 12
MOST_EVENTS = 5
MOST_ALIKE = 3
NARROW = 92
# Columns that stay free, so that the `^C` a terminal shows does not wrap and move the cursor that Live counts on.
MARGIN = 3
BAR_WIDTH = 20
# Parts of the panel in the order in which a small window loses them; the counts and the nodes are not among them.
PARTS = ("events", "head", "pools", "clouds")
# The titles of the table of nodes, and the empty line after it.
TABLE_LINES = 2


@dataclass(frozen=True, slots=True)
class Cloud:
    """One cloud at one moment."""

    name: str
    running: int
    machines: int
    calls_per_minute: int

    @property
    def text(self) -> str:
        return f"{self.running} of {self.machines} machines running, {self.calls_per_minute} calls in the last minute"


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of addresses at one moment."""

    name: str
    network: str
    blocks: int
    free_blocks: int
    used: int
    usable: int

    @property
    def use(self) -> str:
        return f"{self.used} of {self.usable} addresses"

    @property
    def text(self) -> str:
        return f"{self.use} used, {self.blocks} blocks given, {self.free_blocks} free"

    @property
    def bar(self) -> str:
        """How full it is."""
        full, empty = display.bar(self.used, self.usable, BAR_WIDTH)
        return f"[{display.heat(self.used, self.usable)}]{full}[/][dim]{empty}[/]"


@dataclass(frozen=True, slots=True)
class Head:
    """The head at one moment; `settled` of its devices are what they should be. `notices` are what happened on them,
    each with its number, the newest last."""

    url: str
    revision: int
    settled: int
    devices: int
    notices: Sequence[tuple[int, str]] = ()

    @property
    def text(self) -> str:
        return f"head   {self.url}   revision {self.revision}, held by {self.settled} of {self.devices} devices"

    @property
    def latest(self) -> str:
        return self.notices[-1][1] if self.notices else "no events yet"


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is at one moment."""

    nodes: Sequence[core.Node]
    pods: Sequence[core.Pod]
    clouds: Sequence[Cloud] = ()
    events: Sequence[core.Event] = ()
    pools: Sequence[Pool] = ()
    head: Head | None = None

    @property
    def initialised_text(self) -> str:
        return f"{sum(state_of(node) != WAITING for node in self.nodes)} of {len(self.nodes)} initialised"

    @property
    def node_text(self) -> str:
        return f"{sum(node.is_ready for node in self.nodes)} of {len(self.nodes)} ready"

    @property
    def pod_text(self) -> str:
        return f"{sum(pod.status.phase == 'Running' for pod in self.pods)} of {len(self.pods)} running"


Look = Callable[[], Picture]
WAITING, STOPPED, WELL = "waiting for its cloud", "machine stopped", "initialised"


def state_of(node: core.Node) -> str:
    """What the cloud controller manager has made of a node."""
    keys = {taint.key for taint in node.spec.taints}
    if names.TAINT_UNINITIALIZED in keys:
        return WAITING
    return STOPPED if names.TAINT_SHUTDOWN in keys else WELL


def latest(events: Iterable[core.Event], count: int) -> list[core.Event]:
    """The newest events, the newest last."""
    timed = [event for event in events if event.last_timestamp is not None]
    return sorted(timed, key=lambda event: (event.last_timestamp, event.metadata.name))[-count:] if count else []


def line_of(event: core.Event) -> str:
    """An event in one line."""
    stamp = f"{event.last_timestamp:%H:%M:%S} " if event.last_timestamp is not None else ""
    times = f" (x{event.count})" if event.count > 1 else ""
    return f"{stamp}{event.involved_object.kind} {event.involved_object.name}: {event.reason}: {event.message}{times}"


def choose(picture: Picture, rows: int) -> list[tuple[core.Node, int]]:
    """The nodes to show, each with the number of its pods."""
    pods = Counter(pod.spec.node_name for pod in picture.pods)

    def rank(node: core.Node) -> tuple[bool, bool, int, str]:
        return node.is_ready, state_of(node) == WELL, -pods[node.name], node.name

    ranked = sorted(picture.nodes, key=rank)
    return [(node, pods[node.metadata.name]) for node in ranked[:rows]]


def panel(
    picture: Picture,
    up_for_s: float,
    rows: int = MOST_ROWS,
    *,
    is_narrow: bool = False,
    has: Collection[str] = PARTS,
) -> Panel:
    """The live view; a narrow one has a line for each count, and leaves out types and zones. `has`: of `PARTS`."""
    counts = [
        f"nodes   {picture.node_text}, {picture.initialised_text}",
        f"pods   {picture.pod_text}",
        f"up for   {display.age(up_for_s)}",
    ]
    shown = choose(picture, rows)
    parts = Table.grid(padding=(1, 0))
    parts.add_row(("\n" if is_narrow else "   ").join(counts))
    if picture.clouds and "clouds" in has:
        parts.add_row("\n".join(f"{cloud.name}   {cloud.text}" for cloud in picture.clouds))
    if picture.pools and "pools" in has:
        parts.add_row(_pools(picture.pools, is_narrow=is_narrow))
    if picture.head is not None and "head" in has:
        lines = f"{picture.head.text}\n  {picture.head.latest}"
        parts.add_row(Text(lines, no_wrap=True, overflow="ellipsis"))
    if shown:
        parts.add_row(_table(shown, is_narrow=is_narrow))
    if len(shown) < len(picture.nodes):
        left = f"and {len(picture.nodes) - len(shown)} more nodes" if shown else "enlarge the window to see nodes"
        parts.add_row(f"[dim]{left}[/]")
    if "events" in has and (recent := latest(picture.events, MOST_EVENTS)):
        parts.add_row(
            Text("\n".join(line_of(event) for event in recent), style="dim", no_wrap=True, overflow="ellipsis")
        )
    return Panel(parts, title="bedplate up", subtitle="Ctrl-C stops all", expand=False)


def fitted(console: Console, picture: Picture, up_for_s: float, height: int) -> RenderableType:
    """The richest view that takes no more than `height` lines: what stands above it must stay on the screen."""
    width = console.size.width - MARGIN
    is_narrow = console.size.width < NARROW
    for lost in range(len(PARTS) + 1):
        has = PARTS[lost:]
        bare = Constrain(panel(picture, up_for_s, 0, is_narrow=is_narrow, has=has), width)
        left = height - len(console.render_lines(bare, console.options, pad=False))
        if left >= 0:
            rows = max(0, min(MOST_ROWS, left - TABLE_LINES))
            return Constrain(panel(picture, up_for_s, rows, is_narrow=is_narrow, has=has), width)
    counts = f"nodes {picture.node_text}, pods {picture.pod_text}; Ctrl-C stops all"
    return Text(counts, no_wrap=True, overflow="ellipsis") if height > 0 else Text("")


def _pools(pools: Iterable[Pool], *, is_narrow: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for pool in pools:
        table.add_row(pool.name, pool.bar, pool.use if is_narrow else pool.text)
    return table


def _table(shown: Iterable[tuple[core.Node, int]], *, is_narrow: bool) -> Table:
    titles = ("node", "ready", "state", "pods") if is_narrow else ("node", "ready", "state", "type", "zone", "pods")
    table = Table(*titles, box=None, padding=(0, 2, 0, 0))
    for node, pods in shown:
        labels = node.metadata.labels
        where = () if is_narrow else (labels.get(names.LABEL_INSTANCE_TYPE, ""), labels.get(names.LABEL_ZONE, ""))
        ready = "[green]yes[/]" if node.is_ready else "[red]no[/]"
        table.add_row(node.name, ready, state_of(node), *where, str(pods))
    return table


def digest(events: Sequence[core.Event]) -> list[str]:
    """A line for each event; many that say the same of many objects become one."""
    alike = Counter((event.reason, event.message) for event in events)
    lines = [line_of(event) for event in events if alike[event.reason, event.message] <= MOST_ALIKE]
    many = [(count, *what) for what, count in alike.items() if count > MOST_ALIKE]
    return lines + [f"{count} objects: {reason}: {message}" for count, reason, message in many]


def _key(event: core.Event) -> tuple[str, int]:
    return event.metadata.uid, event.count


async def follow_plain(look: Look) -> None:
    """A line whenever a count changed, and one for every event. A change of the call rate alone prints nothing, and
    pods and their addresses are no more than every few seconds."""
    last, last_pods, due, noticed = "", "", 0.0, 0
    told: set[tuple[str, int]] = set()
    while True:
        picture = look()
        news = [event for event in latest(picture.events, len(picture.events)) if _key(event) not in told]
        told.update(_key(event) for event in news)
        for line in digest(news):
            click.echo(line)
        for number, line in picture.head.notices if picture.head is not None else ():
            if number > noticed:
                click.echo(f"head: {line}")
                noticed = number
        counts = f"nodes {picture.node_text}, {picture.initialised_text}"
        counts += "".join(f"   {cloud.name} {cloud.running} of {cloud.machines} running" for cloud in picture.clouds)
        pods = f"   pods {picture.pod_text}"
        pods += "".join(f"   {pool.name} {pool.use}" for pool in picture.pools)
        if counts != last or (pods != last_pods and time.monotonic() >= due):
            rates = "".join(f", {cloud.calls_per_minute} calls a minute" for cloud in picture.clouds)
            click.echo(counts + rates + pods)
            last, last_pods, due = counts, pods, time.monotonic() + PODS_EVERY_S
        await asyncio.sleep(LOOK_EVERY_S)


def lines_of(texts: Iterable[str], width: int) -> int:
    """How many lines of a terminal these take."""
    return sum(1 + max(0, len(text) - 1) // width for text in texts)


async def follow_live(look: Look, header: Iterable[str], started: float) -> None:
    """Redraw the panel below `header`, which is on the screen already; take the panel away in the end."""
    console, lines = Console(highlight=False), list(header)
    size = console.size
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            if console.size != size:
                # What stood there was wrapped for another width. The empty panel makes Live forget its old height.
                size = console.size
                live.update("", refresh=True)
                console.clear()
                console.print("\n".join(lines), soft_wrap=True)
            # The cursor stays in the line below the view.
            room = size.height - 1 - lines_of(lines, size.width)
            live.update(fitted(console, look(), time.monotonic() - started, room), refresh=True)
            await asyncio.sleep(LOOK_EVERY_S)
