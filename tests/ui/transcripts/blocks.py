"""The 60 blocks of the manual in which somebody works with the entities of the head, as data; and their table.

A block in `blocks/*.yaml` has its `number` in the order of the manual, its `section`, what it `shows`, and either what
it `waits` for, or a `session`: lines as they stand in the manual, prompt and command, each with what is expected of it.
Before that the tree is that of a `site`, and the lines in `given` are typed; `top` begins a new shell afterwards.
`remark` says where we knowingly print something else. A line without an expectation must print nothing at all.

    show, show_begin, show_some     rows of a `show`: all of them, the first ones, some of them in that order
    list, list_some                 headers and rows of a table: all of it, or some columns and rows of it
    says, says_file                 the very text
    help                            lines of a help page by section
    completes                       the words that TAB offers after the line
    notice, times                   what a node that carries the commits out makes appear, and how often
    ends                            the shell is left

In tables `|` stands between cells, `<any>` for something, `<text>` for something that begins with text.
Run as a program it writes the page docs/reference/transcripts.md.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["PAGE", "Block", "Line", "blocks", "page"]

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs/reference/transcripts.md"


@dataclass(frozen=True)
class Line:
    """A prompt, the command typed at it (empty: only the prompt is looked at), and what is expected."""

    prompt: str
    command: str
    expected: dict[str, Any]


@dataclass(frozen=True)
class Block:
    number: int
    section: str
    shows: str
    waits: str = ""
    remark: str = ""
    site: str = "plain"
    given: list[str] = field(default_factory=list)
    top: bool = False
    session: list[Line] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.number:02d}-section-{self.section}"


def blocks() -> list[Block]:
    """All of them, in the order of the manual."""
    found = [
        _block(data) for file in sorted((HERE / "blocks").glob("*.yaml")) for data in yaml.safe_load(file.read_text())
    ]
    return sorted(found, key=lambda block: block.number)


def _block(data: dict[str, Any]) -> Block:
    return Block(**{**data, "session": [_line(said) for said in data.get("session", ())]})


def _line(said: str | dict[str, Any]) -> Line:
    expected = {} if isinstance(said, str) else {name: value for name, value in said.items() if name != "at"}
    prompt, _, command = (said if isinstance(said, str) else said["at"]).partition("]%")
    return Line(f"{prompt}]% ", command.removeprefix(" "), expected)


def page() -> str:
    """The page with the table, which a test compares."""
    all_blocks = blocks()
    tested = [block for block in all_blocks if not block.waits]
    introduction = (
        "Every block of the containerization manual that shows the shell at work on what the head knows: "
        f"{len(all_blocks)} of them, {len(tested)} are tests, each of the others says what it waits for. A test types "
        "the block's commands into a shell over a fresh head and compares prompts (stars included), the fields of "
        "tables, and what is printed besides; blanks do not count. Written by `python -m tests.ui.transcripts.blocks` "
        "from `tests/ui/transcripts/blocks`; a test compares."
    )
    lines = [
        "# Transcripts of the manual",
        "",
        textwrap.fill(introduction, 120, break_long_words=False, break_on_hyphens=False),
        "",
        "The tests: `pytest tests/ui/transcripts -k NUMBER-section`.",
        "",
        "| No. | Section | What it shows | Test, or what it waits for | Remark |",
        "|---|---|---|---|---|",
    ]
    for block in all_blocks:
        test = f"waits for {block.waits}" if block.waits else f"`test_manual_block[{block.name}]`"
        lines.append(f"| {block.number} | {block.section} | {block.shows} | {test} | {block.remark} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
