"""A pool's blocks as a picture of marks: which are given, how full they are, which cannot be allocated.

In: a `PoolView` and the width of the terminal. Out: text, with colours where they are wanted. Pure. A large pool is
drawn where something is: rows without any block are counted, not drawn, and when there are many rows a mark stands for
several blocks. So a /64 of IPv6 is drawn as fast as a /24.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import click

from bedplate.cli import display
from bedplate.cli.ipam import tables
from bedplate.cli.ipam.views import Block, PoolView
from bedplate.ipam import addresses
from bedplate.ipam.ranges import Range, RangeSet

__all__ = ["bar", "draw"]

LEVELS = "▁▂▃▄▅▆▇█"
FREE, EXCLUDED, RESERVED, QUARANTINED = "·", "×", "r", "q"
MOST_ROWS, MOST_NODES = 24, 12
BAR_WIDTH = 20
_COLOURS = {EXCLUDED: "bright_black", RESERVED: "cyan", QUARANTINED: "magenta", FREE: "bright_black"}


def draw(view: PoolView, width: int, *, most_nodes: int = MOST_NODES) -> str:
    """The whole picture: what the pool is, its map, and its fullest blocks."""
    lines = [_title(view), _counts(view), ""]
    if view.problems:
        return "\n".join([lines[0], *(f"! {problem}" for problem in view.problems)])
    lines += _map(view, width)
    lines += ["", f"{LEVELS[0]}…{LEVELS[-1]} assigned, by share in use   {FREE} free   {QUARANTINED} quarantined   "]
    lines[-1] += f"{RESERVED} reserved   {EXCLUDED} excluded"
    if view.blocks:
        lines += ["", *_fullest(view.blocks, most_nodes)]
    return "\n".join(lines)


def bar(used: int, usable: int, width: int = BAR_WIDTH) -> str:
    """A share as a bar."""
    full, empty = display.bar(used, usable, width)
    return _coloured(full, display.heat(used, usable)) + _coloured(empty, "bright_black")


def _coloured(text: str, colour: str) -> str:
    return click.style(text, fg=colour) if text else ""


def _title(view: PoolView) -> str:
    gateway = f", gateway {view.gateway}" if view.gateway else ""
    return f"{view.kind} {view.namespace}/{view.name}   {view.network_text}{gateway}, {view.block_text} a node"


def _counts(view: PoolView) -> str:
    share = f" ({view.used / view.usable:.0%})" if view.usable else ""
    return (
        f"blocks      {len(view.blocks)} given, {tables.count(view.free)} free, {len(view.held)} quarantined, "
        f"{len(view.reserved)} reserved, {tables.count(view.excluded.total())} excluded\n"
        f"addresses   {view.used} of {tables.count(view.usable)} in use{share}"
    )


def _map(view: PoolView, width: int) -> list[str]:
    label = max(len(_start(view, 0)), len(_start(view, max(view.total - 1, 0)))) + 2
    per_row = 64 if width - label >= 64 else 32 if width - label >= 32 else 16
    given = {block.index: block for block in view.blocks}
    marks = dict.fromkeys(view.reserved, RESERVED) | dict.fromkeys((item.index for item in view.held), QUARANTINED)
    busy = sorted({*given, *marks})
    cell = 1
    while len({index // (cell * per_row) for index in busy}) > MOST_ROWS:
        cell *= 2
    rows = sorted({index // (cell * per_row) for index in busy})
    lines: list[str] = []
    at = 0
    for row in rows or [0]:
        lines += _gap(view, at, row * cell * per_row)
        at = min((row + 1) * cell * per_row, view.total)
        indexes = range(row * cell * per_row, at, cell)
        cells = [_mark(view, index, min(index + cell, at), given, marks) for index in indexes]
        runs = (
            ("".join(mark for mark, _ in run), colour) for colour, run in itertools.groupby(cells, lambda item: item[1])
        )
        drawn = "".join(_coloured(text, colour) for text, colour in runs)
        lines.append(f"{_start(view, row * cell * per_row):<{label}}{drawn}")
    lines += _gap(view, at, view.total)
    return lines if cell == 1 else [*lines, "", f"each mark stands for {cell} blocks: how many of them are assigned"]


def _gap(view: PoolView, first: int, end: int) -> list[str]:
    if end <= first:
        return []
    out = RangeSet(view.excluded.within(Range(first, end - 1))).total()
    free = end - first - out
    if not free:
        return [click.style(f"… {tables.count(out)} excluded blocks", fg="bright_black")]
    return [click.style(f"… {tables.count(free)} more free blocks", fg="bright_black")]


def _start(view: PoolView, index: int) -> str:
    return addresses.text(view.bits, view.grid.start_of(index)) if view.grid is not None else ""


def _mark(
    view: PoolView, first: int, end: int, given: Mapping[int, Block], marks: Mapping[int, str]
) -> tuple[str, str]:
    """The mark of some blocks, and its colour."""
    if end - first == 1 and first in given:
        block = given[first]
        share = block.used / block.usable if block.usable else 1.0
        return _level(share), display.heat(block.used, block.usable)
    count = sum(index in given for index in range(first, end))
    if count:
        return _level(count / (end - first)), "green"
    for index in range(first, end):
        if index in marks:
            return marks[index], _COLOURS[marks[index]]
    mark = EXCLUDED if view.excluded.covers(Range(first, end - 1)) else FREE
    return mark, _COLOURS[mark]


def _level(share: float) -> str:
    return LEVELS[min(len(LEVELS) - 1, int(share * len(LEVELS)))]


def _fullest(blocks: Sequence[Block], most: int) -> Iterable[str]:
    ranked = sorted(blocks, key=lambda block: (-(block.used / block.usable if block.usable else 0), block.node))[:most]
    nodes = max(len(block.node) for block in ranked)
    texts = max(len(block.text) for block in ranked)
    for block in ranked:
        use = f"{bar(block.used, block.usable)} {block.used} of {tables.count(block.usable)}"
        yield f"{block.node:<{nodes}}   {block.text:<{texts}}   {use}"
    if len(blocks) > most:
        yield f"and {len(blocks) - most} more nodes (bedplate ipam blocks)"
